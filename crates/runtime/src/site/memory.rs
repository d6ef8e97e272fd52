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
        // Names of what is gone go with the next that comes.
        names.retain(|_, all| {
            all.retain(|words| words.strong_count() > 0);
            !all.is_empty()
        });
        names.entry(name.to_owned()).or_default().push(Arc::downgrade(words));
    }

    /// What an offcode of this manifest may use where its target is of this kind.
    pub fn granted(&self, manifest: &Manifest, kind: SiteKind) -> Memory {
        let asks = manifest.software.asks(&MEMORY);
        let target = manifest.hardware.iter().find(|target| target.site == kind).filter(|_| asks);
        Memory { names: self.clone(), limit: target.map(|target| target.memory), own: Vec::new() }
    }
}

/// The memory of one offcode. A clone that was made before anything was shared is that of another body.
#[derive(Clone, Default)]
pub struct Memory {
    names: Names,
    /// What the target states, where the manifest asks for the service.
    limit: Option<Bytes>,
    own: Vec<(String, Arc<SharedWords>)>,
}

impl Memory {
    /// What the offcode is held to; `None`: it does not ask for the service.
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// # Errors
    /// As of [`offcode::Context::share`].
    pub fn share(&mut self, offcode: &str, name: &str, count: u32) -> Result<()> {
        let limit = self.limit.ok_or_else(|| MEMORY.not_asked())?;
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
        if 8 * words as u64 > limit.0 {
            let takes = Bytes(8 * words as u64);
            return refuse(
                format!("with them it shares {takes}, and its target's memory is {limit}"),
                "state more there",
            );
        }
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
    /// As of [`offcode::Context::store`].
    pub fn store(&mut self, name: &str, at: u32, values: &[u64]) -> Result<()> {
        self.limit.ok_or_else(|| MEMORY.not_asked())?;
        let own = self.own.iter().find(|(own, _)| own == name).ok_or_else(|| service::not_shared(name))?.1.words();
        service::check_words(name, own.len(), at, values.len())?;
        own[at as usize..].iter().zip(values).for_each(|(word, value)| word.store(*value, Ordering::Release));
        Ok(())
    }

    /// # Errors
    /// As of [`offcode::Context::load`].
    pub fn load(&self, name: &str, at: u32, values: &mut [u64]) -> Result<bool> {
        self.limit.ok_or_else(|| MEMORY.not_asked())?;
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
