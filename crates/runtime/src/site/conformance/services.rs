//! Services, on every site that offers them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use machine::{Fault, Nanoseconds, Result};
use offcode::call::{Header, Kind};
use offcode::service::{MAPS, MEMORY, TIMERS};
use offcode::{
    Attributes, Channel, Context, Described, Interface, Lifecycle, Map, Put, Refusal, Shape, State, Wake, interface,
    offcode,
};

use super::{PATIENCE, call};
use crate::site::{Code, Deployment, Names, OUT_OF_BAND, SiteDriver, Slot};

/// Words that a [`Probe`] shares: the number of its wake-ups.
const WORDS: &str = "wakes";

/// The map of a [`Probe`], and how many entries it takes.
const MAP: &str = "squares";
const ENTRIES: u32 = 4;

#[interface(guid = "4d0b7c7e-6a2f-4c38-9d55-1f0e3b9a7c01", encoding = "fixed")]
pub trait Probing {
    /// Wakes after so many microseconds, and then each so many; `u32::MAX`: never.
    fn wake(&mut self, context: &mut dyn Context, after: u32, every: u32) -> Result<u64, Refusal>;
    /// How often it was woken.
    fn woken(&self) -> u64;
    /// How often before it was due.
    fn early(&self) -> u64;
    /// Shares so many more words.
    fn grow(&mut self, context: &mut dyn Context, words: u32) -> Result<u64, Refusal>;
    /// Puts a number with its square into a map: 0 where it is new, 1 where it was there, 2 where the map is full.
    fn put(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal>;
    /// The square of a number, or one more than what a number may have.
    fn square(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal>;
    /// Whether it took a number out.
    fn remove(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal>;
    /// The sum of all squares.
    fn squares(&mut self, context: &mut dyn Context) -> Result<u64, Refusal>;
    /// Opens another map of so many entries.
    fn open(&mut self, context: &mut dyn Context, entries: u32) -> Result<u64, Refusal>;
}

/// Uses all services. An agent that is to pass the suite has it linked in.
#[offcode(
    guid = "4d0b7c7e-6a2f-4c38-9d55-1f0e3b9a7c02",
    name = "test.probe",
    version = "1.0.0",
    implements(Probing),
    environment(timers, memory, maps),
    sites(app(memory = 16_384), core(memory = 16_384), agent(memory = 16_384)),
    state = saved
)]
#[derive(Default)]
pub struct Probe {
    woken: u64,
    early: u64,
    due: Wake,
    squares: Map<u32, u64>,
}

fn refused(fault: machine::Fault) -> Refusal {
    Refusal(fault.to_string())
}

impl Probing for Probe {
    fn wake(&mut self, context: &mut dyn Context, after: u32, every: u32) -> Result<u64, Refusal> {
        let microseconds = |count: u32| Nanoseconds(u64::from(count) * 1000);
        self.due = match after {
            u32::MAX => Wake::NEVER,
            after => Wake::at(context.now() + microseconds(after)).every(microseconds(every)),
        };
        context.set_timer(3, self.due).map(|()| 0).map_err(refused)
    }

    fn woken(&self) -> u64 {
        self.woken
    }

    fn early(&self) -> u64 {
        self.early
    }

    fn grow(&mut self, context: &mut dyn Context, words: u32) -> Result<u64, Refusal> {
        context.share("more", words).map(|()| 0).map_err(refused)
    }

    fn put(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal> {
        let put = self.squares.put(context, &number, &u64::from(number).pow(2)).map_err(refused)?;
        Ok([Put::New, Put::Replaced, Put::Full].iter().position(|known| *known == put).map_or(3, |at| at as u64))
    }

    fn square(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal> {
        Ok(self.squares.get(context, &number).map_err(refused)?.unwrap_or(u64::MAX))
    }

    fn remove(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal> {
        self.squares.remove(context, &number).map(u64::from).map_err(refused)
    }

    fn squares(&mut self, context: &mut dyn Context) -> Result<u64, Refusal> {
        let mut sum = 0;
        let add = |_, square| {
            sum += square;
            true
        };
        self.squares.visit(context, add).map_err(refused)?;
        Ok(sum)
    }

    fn open(&mut self, context: &mut dyn Context, entries: u32) -> Result<u64, Refusal> {
        context.open_map("other", Shape { entries, key: 8, value: 8 }).map(|map| map.0.into()).map_err(refused)
    }
}

impl Lifecycle for Probe {
    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        self.squares = Map::open(context, MAP, ENTRIES)?;
        context.share(WORDS, 1)
    }

    fn timer(&mut self, timer: u8, context: &mut dyn Context) {
        self.woken += 1;
        self.early += u64::from(timer != 3 || context.now() < self.due.at);
        self.due.at = self.due.at + self.due.every;
        if let Err(fault) = context.store(WORDS, 0, &[self.woken]) {
            context.log(&fault.to_string());
        }
    }

    fn attribute_set(&mut self, name: &str, value: &str, context: &mut dyn Context) -> Result<()> {
        assert_eq!(context.attribute(name), Some(value), "the new value is there already");
        match value {
            "beige" => Err(Fault::new("attribute colour", "beige is no colour", "set another")),
            _ => Ok(()),
        }
    }

    fn save(&mut self, state: &mut State, _: &mut dyn Context) -> Result<()> {
        state.keep("woken", &self.woken);
        Ok(())
    }

    fn restore(&mut self, state: &State, _: &mut dyn Context) -> Result<()> {
        self.woken = state.kept("woken")?;
        Ok(())
    }
}

fn deployed(site: &mut dyn SiteDriver) -> (Slot, Box<dyn Channel>) {
    let manifest = Arc::new(Probe::manifest());
    let memory = Names::default().granted(&manifest, site.site().kind());
    let code = Code::Native(Arc::new(|| Box::new(Probe::default())));
    let deployment =
        Deployment { name: "test.probe".into(), manifest, code, attributes: Attributes::default(), memory };
    let slot = site.deploy(deployment).expect("a body that asks for what is offered");
    let end = site.connect(slot, "", OUT_OF_BAND).expect("an out-of-band channel");
    site.initialize(slot).expect("first phase");
    (slot, end)
}

fn ask(site: &mut dyn SiteDriver, end: &mut dyn Channel, method: u16, inputs: &[u32]) -> Result<u64, String> {
    let interface = <dyn Probing as Interface>::GUID.short();
    let header = Header { interface, method, kind: Kind::Call, route: 0, id: 1 };
    let inputs: Vec<u8> = inputs.iter().flat_map(|input| input.to_le_bytes()).collect();
    let (header, result) = call(site, end, header, &inputs);
    match header.kind {
        Kind::Reply => Ok(u64::from_le_bytes(result.try_into().expect("a u64"))),
        _ => Err(String::from_utf8_lossy(&result).into_owned()),
    }
}

const WAKE: u16 = 0;
const WOKEN: u16 = 1;
const EARLY: u16 = 2;
const GROW: u16 = 3;
const PUT: u16 = 4;
const SQUARE: u16 = 5;
const REMOVE: u16 = 6;
const SQUARES: u16 = 7;
const OPEN: u16 = 8;

/// Asks until it was woken more than so often.
fn woken_beyond(site: &mut dyn SiteDriver, end: &mut dyn Channel, count: u64) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let woken = ask(site, end, WOKEN, &[]).expect("a number");
        if woken > count {
            return woken;
        }
        assert!(Instant::now() < deadline, "{}: woken {woken} times, not more than {count}", site.site());
    }
}

/// One body of its offcode after the other, where the site offers what it asks for.
pub(super) fn serves(site: &mut dyn SiteDriver) {
    let offers = site.ground().environment;
    if !offers.iter().any(|offer| offer.is(&TIMERS)) {
        return;
    }
    for service in [MEMORY, MAPS] {
        assert!(offers.iter().any(|offer| offer.is(&service)), "who offers timers offers {service}");
    }
    let (slot, mut end) = deployed(site);
    site.start(slot).expect("second phase");
    site.set_attribute(slot, "colour", "green").expect("a value that it takes");
    let said = site.set_attribute(slot, "colour", "beige").expect_err("one that it refuses").to_string();
    assert!(said.contains("beige is no colour. Next: set another"), "{said}");
    assert_eq!(ask(site, end.as_mut(), WAKE, &[500, 0]), Ok(0));
    assert_eq!(woken_beyond(site, end.as_mut(), 0), 1);
    assert_eq!(ask(site, end.as_mut(), WAKE, &[500, 200]), Ok(0));
    woken_beyond(site, end.as_mut(), 4);
    assert_eq!(ask(site, end.as_mut(), WAKE, &[u32::MAX, 0]), Ok(0));
    assert_eq!(ask(site, end.as_mut(), EARLY, &[]), Ok(0), "no timer comes before it is due");
    let woken = ask(site, end.as_mut(), WOKEN, &[]);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(ask(site, end.as_mut(), WOKEN, &[]), woken, "one that is set to never does not come");
    }
    let words = site.shared(slot, WORDS);
    match site.site().kind().maps_memory() {
        true => assert_eq!(Ok(words.expect("what it shares").words()[0].load(Ordering::Acquire)), woken),
        false => drop(words.expect_err("memory of another host")),
    }
    site.shared(slot, "none").expect_err("words that it does not share");
    keeps_a_map(site, slot, end.as_mut());
    let left = 2047 - (Shape::of::<u32, u64>(ENTRIES).memory().0.div_ceil(8) as u32);
    for (method, more) in [(GROW, left + 1), (OPEN, 1000)] {
        let said = ask(site, end.as_mut(), method, &[more]).expect_err("more than its target's memory");
        assert!(said.contains("memory is 16 KiB"), "{said}");
    }
    assert_eq!(ask(site, end.as_mut(), GROW, &[left]), Ok(0), "all of it");

    assert_eq!(ask(site, end.as_mut(), WAKE, &[500, 200]), Ok(0));
    let state = site.suspend(slot).expect("what it saves");
    let (next, mut end) = deployed(site);
    site.restore(next, &state).expect("what it saved");
    site.resume(next).expect("it goes on");
    site.remove(slot).expect("the old body goes");
    assert_eq!(ask(site, end.as_mut(), SQUARES, &[]), Ok(9 + 16 + 25 + 36), "a map goes along");
    assert_eq!(ask(site, end.as_mut(), PUT, &[7]), Ok(2), "with its bound");
    let carried = woken_beyond(site, end.as_mut(), woken.expect("a number") + 3);
    if let Ok(words) = site.shared(next, WORDS) {
        assert!(words.words()[0].load(Ordering::Acquire) >= carried, "words stay where they are");
    }
    site.remove(next).expect("it can be removed");
    site.shared(next, WORDS).expect_err("what was removed shares nothing");
    site.map(next, MAP).expect_err("nor has it a map");
}

/// Leaves it full, of 3 to 6.
fn keeps_a_map(site: &mut dyn SiteDriver, slot: Slot, end: &mut dyn Channel) {
    let mut asked = |method, number: u32| ask(site, &mut *end, method, &[number]);
    for number in [1, 3, 4, 5] {
        assert_eq!(asked(PUT, number), Ok(0));
    }
    assert_eq!((asked(PUT, 3), asked(PUT, 6)), (Ok(1), Ok(2)), "a full map takes no other key");
    assert_eq!((asked(REMOVE, 1), asked(REMOVE, 1), asked(PUT, 6)), (Ok(1), Ok(0), Ok(0)));
    assert_eq!((asked(SQUARE, 5), asked(SQUARE, 1)), (Ok(25), Ok(u64::MAX)));
    assert_eq!(ask(site, end, SQUARES, &[]), Ok(9 + 16 + 25 + 36));
    let mut shown = site.map(slot, MAP).expect("what is seen from outside");
    shown.entries.sort();
    let squares = [("3", "9"), ("4", "16"), ("5", "25"), ("6", "36")];
    assert_eq!(shown.entries, squares.map(|(number, square)| (number.to_owned(), square.to_owned())));
    let said = site.map(slot, "none").expect_err("a map that it does not have").to_string();
    assert!(said.contains(MAP), "{said}");
}
