//! The service [`MEMORY`]: words that offcodes of one application share under names, and the limit of each offcode.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use linux::xdp::SharedWords;
use machine::bounds::OFFCODE_ARRAYS;
use machine::{Bytes, Fault, Result, SiteKind};
use offcode::Manifest;
use offcode::service::{self, MEMORY, WORDS_EACH};

/// Words by `OFFCODE/NAME`: those of all offcodes that one application has in this process. Where an offcode moves there
/// are two bodies of it for a while; what was shared last counts.
#[derive(Clone, Default)]
pub struct Names(Arc<Mutex<BTreeMap<String, Vec<Weak<SharedWords>>>>>);

impl Names {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Weak<SharedWords>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> Option<Arc<SharedWords>> {
        self.lock().get(name)?.iter().rev().find_map(Weak::upgrade)
    }

    fn put(&self, name: &str, words: &Arc<SharedWords>) {
        let mut names = self.lock();
        // Names of words that are gone are removed with the next that comes.
        names.retain(|_, all| {
            all.retain(|words| words.strong_count() > 0);
            !all.is_empty()
        });
        names.entry(name.to_owned()).or_default().push(Arc::downgrade(words));
    }

    /// The memory that an offcode of this manifest may use at a target of this kind.
    pub fn granted(&self, manifest: &Manifest, kind: SiteKind) -> Memory {
        let (words, limited) = (manifest.software.asks(&MEMORY), manifest.software.is_limited());
        let target = manifest.hardware.iter().find(|target| target.site == kind).filter(|_| limited);
        let limit = target.map(|target| target.memory);
        Memory { names: self.clone(), words: words && limit.is_some(), limit, maps: Bytes(0), own: Vec::new() }
    }
}

/// The memory of one offcode. A clone that was made before anything was shared is that of another body.
#[derive(Clone, Default)]
pub struct Memory {
    names: Names,
    /// Whether the manifest asks for shared words.
    words: bool,
    /// The target's limit, where the manifest asks for words or maps.
    limit: Option<Bytes>,
    /// Memory of the maps.
    maps: Bytes,
    own: Vec<(String, Arc<SharedWords>)>,
}

impl Memory {
    /// The limit of the offcode; `None`: it asks for no service that limits it.
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// Whether it may share words.
    pub fn has_words(&self) -> bool {
        self.words
    }

    fn asked(&self) -> Result<()> {
        if self.words { Ok(()) } else { Err(MEMORY.not_asked()) }
    }

    /// The memory of all maps with one more.
    ///
    /// # Errors
    /// It would be more than the target states.
    pub fn reserve(&self, subject: &str, bytes: Bytes) -> Result<Bytes> {
        let words: usize = self.own.iter().map(|(_, words)| words.words().len()).sum();
        let maps = Bytes(self.maps.0.saturating_add(bytes.0));
        self.within(subject, "its maps and words take", maps.0.saturating_add(8 * words as u64))?;
        Ok(maps)
    }

    /// Sets the memory of the maps to what was reserved.
    pub fn take(&mut self, maps: Bytes) {
        self.maps = maps;
    }

    fn within(&self, subject: &str, takes: &str, bytes: u64) -> Result<()> {
        let Some(limit) = self.limit.filter(|limit| bytes > limit.0) else { return Ok(()) };
        let cause = format!("with it {takes} {}, and its target's memory is {limit}", Bytes(bytes));
        Err(Fault::new(subject, cause, "state more there"))
    }

    /// # Errors
    /// The errors of [`offcode::Context::share`].
    pub fn share(&mut self, offcode: &str, name: &str, count: u32) -> Result<()> {
        self.asked()?;
        service::check_name(name)?;
        if let Some((_, own)) = self.own.iter().find(|(own, _)| own == name) {
            return service::same_count(name, own.words().len(), count);
        }
        let words: usize = self.own.iter().map(|(_, words)| words.words().len()).sum::<usize>() + count as usize;
        let refuse = |cause: String, next: &str| Err(Fault::new(format!("words {name}"), cause, next));
        if self.own.len() == OFFCODE_ARRAYS.each.count() {
            return refuse(format!("an offcode shares words under {} names at most", self.own.len()), "join some");
        }
        if words > WORDS_EACH {
            return refuse(format!("{words} in all are more than the {WORDS_EACH} of an offcode"), "share fewer");
        }
        let takes = if self.maps == Bytes(0) { "its words take" } else { "its maps and words take" };
        self.within(&format!("words {name}"), takes, 8 * words as u64 + self.maps.0)?;
        let full = format!("{offcode}/{name}");
        let words = match self.names.find(&full) {
            Some(there) => {
                service::same_count(name, there.words().len(), count)?;
                there
            }
            None => {
                let made = SharedWords::of_this_process(count as usize);
                let made = made.map_err(|e| Fault::because(format!("words {name}"), e, "share fewer"))?;
                self.adopt(&full, made)
            }
        };
        self.own.push((name.to_owned(), words));
        Ok(())
    }

    fn adopt(&self, full: &str, words: SharedWords) -> Arc<SharedWords> {
        let words = Arc::new(words);
        self.names.put(full, &words);
        words
    }

    /// Names words that the offcode's body has anyway.
    pub fn publish(&mut self, offcode: &str, name: &str, words: SharedWords) {
        let words = self.adopt(&format!("{offcode}/{name}"), words);
        self.own.push((name.to_owned(), words));
    }

    /// # Errors
    /// The errors of [`offcode::Context::store`].
    pub fn store(&mut self, name: &str, at: u32, values: &[u64]) -> Result<()> {
        self.asked()?;
        let own = self.own.iter().find(|(own, _)| own == name).ok_or_else(|| service::not_shared(name))?.1.words();
        service::check_words(name, own.len(), at, values.len())?;
        own[at as usize..].iter().zip(values).for_each(|(word, value)| word.store(*value, Ordering::Release));
        Ok(())
    }

    /// # Errors
    /// The errors of [`offcode::Context::load`].
    pub fn load(&self, name: &str, at: u32, values: &mut [u64]) -> Result<bool> {
        self.asked()?;
        let own = self.own.iter().find(|(own, _)| own == name).map(|(_, words)| words.clone());
        let Some(found) = own.or_else(|| self.names.find(name)) else { return Ok(false) };
        service::check_words(name, found.words().len(), at, values.len())?;
        values.iter_mut().zip(&found.words()[at as usize..]).for_each(|(v, word)| *v = word.load(Ordering::Acquire));
        Ok(true)
    }

    /// Own words, for the application.
    ///
    /// # Errors
    /// None of this name are shared.
    pub fn shared(&self, offcode: &str, name: &str) -> Result<SharedWords> {
        let own = self.own.iter().find(|(own, _)| own == name);
        own.map(|(_, words)| SharedWords::clone(words)).ok_or_else(|| {
            let names: Vec<&str> = self.own.iter().map(|(name, _)| name.as_str()).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let cause = format!("it shares no words of this name; it shares {has}");
            Fault::new(format!("words {name} of offcode {offcode}"), cause, "name one of these")
        })
    }
}

#[cfg(test)]
mod tests {
    use offcode::manifest::{Package, Software, Target};

    use super::*;

    fn granted(names: &Names, limit: u64) -> Memory {
        let package = Package {
            guid: offcode::Guid::named("test.memory"),
            name: "test.memory".into(),
            version: "1".into(),
            description: String::new(),
            interfaces: Vec::new(),
            bodies: Vec::new(),
            attributes: Vec::new(),
            state: Default::default(),
        };
        let target = Target { site: SiteKind::Core, modes: Vec::new(), memory: Bytes(limit), work: None };
        let software = Software { environment: vec![MEMORY], ..Software::default() };
        names.granted(&Manifest { package, hardware: vec![target], software }, SiteKind::Core)
    }

    fn loaded(memory: &Memory, name: &str) -> Option<u64> {
        let mut value = [0];
        memory.load(name, 1, &mut value).unwrap().then_some(value[0])
    }

    #[test]
    fn words_stay_while_a_body_follows_another_and_go_with_the_last() {
        let names = Names::default();
        let (mut old, reader, unrelated) = (granted(&names, 64), granted(&names, 64), granted(&Names::default(), 64));
        old.share("one", "counts", 2).unwrap();
        old.store("counts", 1, &[7]).unwrap();
        let applications = old.shared("one", "counts").unwrap();
        let mut new = granted(&names, 64);
        assert!(new.share("one", "counts", 3).unwrap_err().to_string().contains("there are 2"));
        new.share("one", "counts", 2).unwrap();
        drop(old);
        assert_eq!((loaded(&new, "counts"), loaded(&reader, "one/counts")), (Some(7), Some(7)));
        assert_eq!((loaded(&reader, "counts"), loaded(&unrelated, "one/counts")), (None, None));
        new.store("counts", 1, &[8]).unwrap();
        assert_eq!(applications.words()[1].load(Ordering::Acquire), 8, "the application's is the same memory");
        // Of two bodies with memory of their own what came last counts, and what was there before if it does not stay.
        let mut third = granted(&names, 64);
        third.publish("one", "counts", SharedWords::of_this_process(2).unwrap());
        assert_eq!(loaded(&reader, "one/counts"), Some(0));
        drop(third);
        assert_eq!(loaded(&reader, "one/counts"), Some(8));
        drop(new);
        assert_eq!(loaded(&reader, "one/counts"), None);
        granted(&names, 64).share("two", "counts", 1).unwrap();
        assert_eq!(names.lock().len(), 1, "names of what is gone are forgotten");
    }

    #[test]
    fn what_is_shared_keeps_to_its_bounds() {
        let names = Names::default();
        let mut memory = granted(&names, 80);
        memory.share("one", "ten", 10).unwrap();
        let said = memory.share("one", "more", 1).unwrap_err().to_string();
        assert!(said.contains("words take 88 B") && said.contains("memory is 80 B"), "{said}");
        let mut memory = granted(&names, 1 << 30);
        for name in ["", "other/counts", &"x".repeat(129)] {
            assert!(memory.share("two", name, 1).unwrap_err().to_string().contains("a name has"), "{name}");
        }
        assert!(memory.share("two", "all", 8193).unwrap_err().to_string().contains("more than the 8192"));
        (0..16).for_each(|n| memory.share("two", &format!("a{n}"), 1).unwrap());
        assert!(memory.share("two", "late", 1).unwrap_err().to_string().contains("16 names"));
        assert!(memory.store("a3", 1, &[0]).unwrap_err().to_string().contains("not within its 1"));
        assert!(memory.store("late", 0, &[0]).is_err());
        // Maps are counted beside them.
        let mut memory = granted(&names, 100);
        memory.share("three", "words", 4).unwrap();
        let taken = memory.reserve("map m", Bytes(60)).unwrap();
        memory.take(taken);
        assert!(memory.share("three", "more", 2).unwrap_err().to_string().contains("maps and words take 108 B"));
        assert!(memory.reserve("map n", Bytes(9)).unwrap_err().to_string().contains("take 101 B"));
        let mut none = Memory::default();
        assert!(none.share("three", "a", 1).unwrap_err().to_string().contains("does not ask for this service"));
    }
}
