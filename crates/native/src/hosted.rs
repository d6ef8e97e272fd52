//! The host's side of one instance.

use std::ffi::c_void;

use machine::{Fault, Result};
use offcode::{Activity, ChannelId, Context, Guid, Incoming, Offcode, Refusal, State};

use crate::functions::Functions;
use crate::host::HOST;
use crate::outcome;
use crate::table::{Host, Sink, Slice, fault_of};

/// An instance of a library's offcode. After a panic it is not called any more: [`Offcode::failure`] says why.
pub(crate) struct Hosted {
    functions: &'static Functions,
    interfaces: Vec<Guid>,
    /// The library's instance; null where `new` failed.
    instance: *mut c_void,
    /// Bytes that the library put into the sink in the last call.
    said: Vec<u8>,
    failure: Option<Fault>,
}

// SAFETY: the instance is of a type that is `Offcode`, hence `Send`, and is called through `&mut self` alone.
unsafe impl Send for Hosted {}

impl Hosted {
    pub fn new(functions: &'static Functions, interfaces: Vec<Guid>) -> Hosted {
        let mut said = Vec::new();
        // SAFETY: a function of the library's table, called as the table says.
        let instance = unsafe { (functions.new)(Sink::of(&mut said)) };
        let failure = instance.is_null().then(|| panicked(&said));
        Hosted { functions, interfaces, instance, said, failure }
    }

    /// Calls into the library unless it has panicked. `work` gets the instance, which is there.
    #[inline]
    fn enter(
        &mut self,
        context: &mut dyn Context,
        work: impl FnOnce(&Functions, *mut c_void, Host<'_>, Sink<'_>) -> u32,
    ) -> u32 {
        if self.failure.is_some() {
            return outcome::PANICKED;
        }
        self.said.clear();
        let mut context = context;
        let host = Host { table: &HOST, context: std::ptr::from_mut(&mut context).cast() };
        let outcome = work(self.functions, self.instance, host, Sink::of(&mut self.said));
        if outcome == outcome::PANICKED {
            self.failure = Some(panicked(&self.said));
        }
        outcome
    }

    fn phase(&mut self, outcome: u32) -> Result<()> {
        match (outcome, &self.failure) {
            (_, Some(failure)) => Err(Fault::new(failure.subject(), failure.cause(), failure.next())),
            (outcome::REFUSED, None) => Err(fault_of(&self.said)),
            _ => Ok(()),
        }
    }
}

/// The fault of a library whose table has no functions for state.
fn stateless() -> Fault {
    Fault::new("native body", "it was built without save and restore", "build it anew: plimsoll offcode build")
}

fn panicked(said: &[u8]) -> Fault {
    let cause = format!("it panicked: {}", String::from_utf8_lossy(said));
    Fault::new("native body", cause, "mend the offcode")
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if !self.instance.is_null() {
            // SAFETY: it comes from this library's `new` and is not used again.
            unsafe { (self.functions.delete)(self.instance) };
        }
    }
}

impl Offcode for Hosted {
    fn interfaces(&self) -> &[Guid] {
        &self.interfaces
    }

    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        // SAFETY: here and below: functions of the library's table, called as the table says, one at a time.
        let outcome = self.enter(context, |f, instance, host, sink| unsafe { (f.initialize)(instance, host, sink) });
        self.phase(outcome)
    }

    fn start(&mut self, context: &mut dyn Context) -> Result<()> {
        // SAFETY: as in `initialize`.
        let outcome = self.enter(context, |f, instance, host, sink| unsafe { (f.start)(instance, host, sink) });
        self.phase(outcome)
    }

    #[inline]
    fn call(&mut self, call: Incoming<'_>, reply: &mut Vec<u8>, context: &mut dyn Context) -> Result<(), Refusal> {
        let Incoming { interface, method, arguments } = call;
        // SAFETY: as in `initialize`.
        let outcome = self.enter(context, |f, instance, host, sink| unsafe {
            (f.call)(instance, host, interface, u32::from(method), Slice::of(arguments), sink)
        });
        match (outcome, &self.failure) {
            (_, Some(failure)) => Err(Refusal(failure.to_string())),
            (outcome::DONE, None) => {
                reply.extend_from_slice(&self.said);
                Ok(())
            }
            _ => Err(Refusal(String::from_utf8_lossy(&self.said).into_owned())),
        }
    }

    fn answered(&mut self, channel: ChannelId, id: u32, result: Result<&[u8], &Refusal>, context: &mut dyn Context) {
        let (carried_out, bytes) = match result {
            Ok(bytes) => (1, bytes),
            Err(refusal) => (0, refusal.0.as_bytes()),
        };
        // SAFETY: as in `initialize`.
        self.enter(context, |f, instance, host, sink| unsafe {
            (f.answered)(instance, host, channel.0, id, carried_out, Slice::of(bytes), sink)
        });
    }

    fn attached(&mut self, channel: ChannelId, name: &str, context: &mut dyn Context) {
        // SAFETY: as in `initialize`.
        self.enter(context, |f, instance, host, sink| unsafe {
            (f.attached)(instance, host, channel.0, Slice::of(name.as_bytes()), sink)
        });
    }

    #[inline]
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        // SAFETY: as in `initialize`.
        self.enter(context, |f, instance, host, sink| unsafe {
            (f.message)(instance, host, channel.0, Slice::of(message), sink)
        });
    }

    #[inline]
    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        // SAFETY: as in `initialize`.
        let outcome = self.enter(context, |f, instance, host, sink| unsafe { (f.turn)(instance, host, sink) });
        // A panic counts as work, so that the site looks at the failure.
        if matches!(outcome, outcome::WORKED | outcome::PANICKED) { Activity::Worked } else { Activity::Idle }
    }

    fn timer(&mut self, timer: u8, context: &mut dyn Context) {
        // A library without this function has set no timer.
        let Some(of_library) = self.functions.timer else { return };
        // SAFETY: as in `initialize`.
        self.enter(context, |_, instance, host, sink| unsafe { of_library(instance, host, timer.into(), sink) });
    }

    fn attribute_set(&mut self, name: &str, value: &str, context: &mut dyn Context) -> Result<()> {
        // SAFETY: as in `initialize`.
        let outcome = self.enter(context, |f, instance, host, sink| unsafe {
            (f.attribute_set)(instance, host, Slice::of(name.as_bytes()), Slice::of(value.as_bytes()), sink)
        });
        self.phase(outcome)
    }

    fn save(&mut self, state: &mut State, context: &mut dyn Context) -> Result<()> {
        let save = self.functions.save.ok_or_else(stateless)?;
        // SAFETY: as in `initialize`.
        let outcome = self.enter(context, |_, instance, host, sink| unsafe { save(instance, host, sink) });
        self.phase(outcome)?;
        *state = State::decode(&self.said)?;
        Ok(())
    }

    fn restore(&mut self, state: &State, context: &mut dyn Context) -> Result<()> {
        let (restore, bytes) = (self.functions.restore.ok_or_else(stateless)?, state.encode()?);
        // SAFETY: as in `initialize`.
        let outcome =
            self.enter(context, |_, instance, host, sink| unsafe { restore(instance, host, Slice::of(&bytes), sink) });
        self.phase(outcome)
    }

    fn stop(&mut self, context: &mut dyn Context) {
        // SAFETY: as in `initialize`.
        self.enter(context, |f, instance, host, sink| unsafe { (f.stop)(instance, host, sink) });
    }

    fn failure(&self) -> Option<&Fault> {
        self.failure.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use machine::Nanoseconds;
    use offcode::map::Maps;
    use offcode::{Lifecycle, MapId, Put, Shape, Wake, Written, interface, offcode};

    use super::*;
    use crate::guest;
    use crate::table::Table;

    #[interface(guid = "0f6b8d43-35a6-4a86-9d11-7c7c4c2b5a01", encoding = "fixed")]
    pub trait Sum {
        fn add(&mut self, number: u64) -> u64;
        fn divide(&mut self, context: &mut dyn Context, by: u64) -> Result<u64, Refusal>;
    }

    #[offcode(
        guid = "0f6b8d43-35a6-4a86-9d11-7c7c4c2b5a02",
        name = "test.sum",
        version = "1.0.0",
        implements(Sum),
        sites(app, core),
        state = saved
    )]
    #[derive(Default)]
    struct Adder {
        sum: u64,
        told: Vec<String>,
    }

    impl Sum for Adder {
        fn add(&mut self, number: u64) -> u64 {
            self.sum += number;
            self.sum
        }

        fn divide(&mut self, context: &mut dyn Context, by: u64) -> Result<u64, Refusal> {
            context.log(&format!("{} by {by}", self.sum));
            if by == 1 {
                return Err(Refusal("that would change nothing".into()));
            }
            Ok(self.sum / by)
        }
    }

    impl Lifecycle for Adder {
        fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
            match context.attribute("start").map(str::parse) {
                None => Ok(()),
                Some(Ok(number)) => {
                    self.sum = number;
                    Ok(())
                }
                Some(Err(_)) => Err(Fault::new("attribute start", "it is no number", "give a number")),
            }
        }

        fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
            if context.write(channel, message) != Written::Taken {
                self.told.push("not taken".into());
            }
        }

        fn save(&mut self, state: &mut State, _: &mut dyn Context) -> Result<()> {
            state.set_version(1);
            state.keep("sum", &self.sum);
            Ok(())
        }

        fn restore(&mut self, state: &State, context: &mut dyn Context) -> Result<()> {
            self.sum = state.kept("sum")?;
            context.log(&format!("version {}", state.version()));
            Ok(())
        }

        fn timer(&mut self, timer: u8, context: &mut dyn Context) {
            let set = context.share("sums", 3).and_then(|()| context.store("sums", 1, &[self.sum, u64::MAX]));
            let set = set.and_then(|()| context.set_timer(timer + 1, Wake::at(Nanoseconds(9)).every(Nanoseconds(2))));
            let mut words = [0; 2];
            let there = context.load("sums", 1, &mut words);
            let none = context.load("none", 0, &mut [0]);
            let past = context.store("sums", 2, &[0; 2]);
            self.told.push(format!("{set:?} {there:?} {words:?} {none:?}"));
            self.told.extend(past.and(context.set_timer(16, Wake::NEVER)).err().map(|fault| fault.to_string()));
        }

        fn attached(&mut self, channel: ChannelId, name: &str, context: &mut dyn Context) {
            self.told.push(format!("{name} is {}", channel.0));
            if name == "map" {
                self.told.extend(mapping(context).err().map(|fault| fault.to_string()));
            }
        }

        fn turn(&mut self, context: &mut dyn Context) -> Activity {
            self.told.drain(..).for_each(|line| context.log(&line));
            if context.now() == Nanoseconds(7) { Activity::Worked } else { Activity::Idle }
        }
    }

    /// Does all that can be done with a map, and panics where it is shown the key 9.
    fn mapping(context: &mut dyn Context) -> Result<()> {
        let shape = Shape { entries: 2, key: 1, value: 2 };
        let map = context.open_map("pairs", shape)?;
        assert_eq!(context.open_map("pairs", shape)?, map);
        let put = [(1, 1), (1, 2), (2, 3), (3, 4)].map(|(key, value)| context.map_put(map, &[key], &[value, 0]));
        assert_eq!(put.map(|put| put.unwrap()), [Put::New, Put::Replaced, Put::New, Put::Full]);
        let mut value = [7; 2];
        assert!(context.map_get(map, &[1], &mut value)? && value == [2, 0]);
        assert!(!context.map_get(map, &[3], &mut value)? && value == [2, 0]);
        assert!(context.map_remove(map, &[1])? && !context.map_remove(map, &[1])?);
        let mut seen = Vec::new();
        context.map_visit(map, &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            assert_ne!(key, [9], "as an author's mistake would");
            false
        })?;
        assert_eq!(seen, [(vec![2], vec![3, 0])]);
        if let Err(fault) = context.map_get(map, &[1, 1], &mut value) {
            context.log(fault.cause());
        }
        let _ = context.map_put(map, &[9], &[0, 0])?;
        context.map_remove(map, &[2])?;
        context.map_visit(map, &mut |key, _| {
            assert_ne!(key, [9], "as an author's mistake would");
            true
        })?;
        context.map_remove(MapId(8), &[2]).map(drop)
    }

    /// Takes one message.
    #[derive(Default)]
    struct Site {
        start: Option<String>,
        wakes: Vec<(u8, Wake)>,
        words: Vec<u64>,
        maps: Maps,
        lines: Vec<String>,
        taken: Vec<Vec<u8>>,
    }

    impl Context for Site {
        fn now(&self) -> Nanoseconds {
            Nanoseconds(7)
        }
        fn channel(&self, name: &str) -> Option<ChannelId> {
            (name == "out").then_some(ChannelId(3))
        }
        fn write(&mut self, _: ChannelId, message: &[u8]) -> Written {
            if !self.taken.is_empty() {
                return Written::Full;
            }
            self.taken.push(message.to_vec());
            Written::Taken
        }
        fn attribute(&self, name: &str) -> Option<&str> {
            self.start.as_deref().filter(|_| name == "start")
        }
        fn log(&mut self, line: &str) {
            self.lines.push(line.into());
        }
        fn set_timer(&mut self, timer: u8, wake: Wake) -> Result<()> {
            offcode::service::check_timer(timer)?;
            self.wakes.push((timer, wake));
            Ok(())
        }
        fn share(&mut self, _: &str, count: u32) -> Result<()> {
            self.words.resize(count as usize, 0);
            Ok(())
        }
        fn store(&mut self, words: &str, at: u32, values: &[u64]) -> Result<()> {
            offcode::service::check_words(words, self.words.len(), at, values.len())?;
            self.words[at as usize..][..values.len()].copy_from_slice(values);
            Ok(())
        }
        fn load(&mut self, words: &str, at: u32, values: &mut [u64]) -> Result<bool> {
            values.copy_from_slice(&self.words[at as usize..][..values.len()]);
            Ok(words == "sums")
        }
        fn maps(&mut self) -> Option<&mut Maps> {
            Some(&mut self.maps)
        }
    }

    extern "C" fn script(sink: Sink<'_>) {
        guest::tell_script(sink, || vec![guest::scripted(&SumProxy.add(1))]);
    }

    static TABLE: Table = guest::table::<Adder>(script);

    fn hosted() -> Hosted {
        let functions = Functions::of(&TABLE).expect("all are there");
        Hosted::new(Box::leak(Box::new(functions)), vec![<dyn Sum as offcode::Interface>::GUID])
    }

    fn call(body: &mut Hosted, method: u16, number: u64, site: &mut Site) -> Result<u64, Refusal> {
        let (interface, mut reply) = (<dyn Sum as offcode::Interface>::GUID.short(), Vec::new());
        body.call(Incoming { interface, method, arguments: &number.to_le_bytes() }, &mut reply, site)?;
        Ok(u64::from_le_bytes(reply.try_into().expect("eight bytes")))
    }

    #[test]
    fn services_cross_the_border_with_their_faults() {
        let (mut offcode, mut site) = (hosted(), Site { start: Some("5".into()), ..Site::default() });
        offcode.initialize(&mut site).unwrap();
        offcode.timer(3, &mut site);
        assert_eq!(site.wakes, [(4, Wake { at: Nanoseconds(9), every: Nanoseconds(2) })]);
        assert_eq!(site.words, [0, 5, u64::MAX]);
        offcode.turn(&mut site);
        let [done, refused] = site.lines.as_slice() else { panic!("{:?}", site.lines) };
        assert_eq!(done, &format!("Ok(()) Ok(true) {:?} Ok(false)", [5, u64::MAX]));
        assert!(refused.contains("words sums") && refused.contains("Next: share more"), "{refused}");
        // A library that was built before there were timers is not called.
        let mut old = Functions::of(&TABLE).expect("all are there");
        old.timer = None;
        let mut offcode = Hosted::new(Box::leak(Box::new(old)), Vec::new());
        offcode.timer(3, &mut site);
        assert_eq!(site.wakes.len(), 1);
    }

    #[test]
    fn maps_cross_the_border_and_a_panic_of_who_is_shown_one_does_not() {
        let (mut body, mut site) = (hosted(), Site { start: Some("5".into()), ..Site::default() });
        body.initialize(&mut site).unwrap();
        body.attached(ChannelId(1), "map", &mut site);
        assert_eq!(site.lines, ["a key of 2 bytes, and its keys have 1"]);
        let failure = body.failure().expect("it panicked").to_string();
        assert!(failure.contains("as an author's mistake would"), "{failure}");
        assert_eq!(site.maps.tables()[0].entries().collect::<Vec<_>>(), [(&[9][..], &[0, 0][..])]);
    }

    #[test]
    fn an_offcode_acts_across_the_border_as_it_does_linked_in() {
        let (mut body, mut site) = (hosted(), Site { start: Some("40".into()), ..Site::default() });
        body.initialize(&mut site).unwrap();
        body.start(&mut site).unwrap();
        assert_eq!(call(&mut body, 0, 2, &mut site), Ok(42));
        assert_eq!(call(&mut body, 1, 2, &mut site), Ok(21));
        assert_eq!(call(&mut body, 1, 1, &mut site), Err(Refusal("that would change nothing".into())));
        assert!(call(&mut body, 9, 1, &mut site).unwrap_err().0.contains("no method 9"));
        body.attached(ChannelId(3), "out", &mut site);
        body.message(ChannelId(3), b"one", &mut site);
        body.message(ChannelId(3), b"two", &mut site);
        assert_eq!(body.turn(&mut site), Activity::Worked);
        assert_eq!(site.taken, [b"one"]);
        assert_eq!(site.lines, ["42 by 2", "42 by 1", "out is 3", "not taken"]);
        assert!(body.failure().is_none());
    }

    #[test]
    fn a_state_crosses_the_border_whole_and_one_that_makes_no_sense_is_refused() {
        let (mut body, mut other, mut site) = (hosted(), hosted(), Site::default());
        assert_eq!(call(&mut body, 0, 42, &mut site), Ok(42));
        let mut state = State::default();
        body.save(&mut state, &mut site).unwrap();
        other.restore(&state, &mut site).unwrap();
        assert_eq!((call(&mut other, 0, 1, &mut site), site.lines), (Ok(43), vec!["version 1".to_owned()]));
        let fault = other.restore(&State::new(1), &mut Site::default()).unwrap_err().to_string();
        assert!(fault.contains("sum"), "{fault}");
    }

    #[test]
    fn a_fault_comes_whole() {
        let (mut body, mut site) = (hosted(), Site { start: Some("many".into()), ..Site::default() });
        let fault = body.initialize(&mut site).unwrap_err().to_string();
        assert_eq!(fault, "attribute start: it is no number. Next: give a number");
    }

    #[test]
    fn a_panic_refuses_and_ends_the_instance_alone() {
        let (mut body, mut other, mut site) = (hosted(), hosted(), Site::default());
        assert_eq!(call(&mut body, 0, 5, &mut site), Ok(5));
        let why = call(&mut body, 1, 0, &mut site).unwrap_err().0;
        assert!(why.contains("it panicked: attempt to divide by zero"), "{why}");
        assert_eq!(call(&mut body, 0, 5, &mut site), Err(Refusal(why.clone())));
        assert_eq!(body.turn(&mut site), Activity::Worked, "the site looks at the failure");
        assert_eq!(body.failure().unwrap().to_string(), why);
        assert_eq!(call(&mut other, 0, 5, &mut site), Ok(5));
    }
}
