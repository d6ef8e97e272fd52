//! Services and attributes, on every site that offers them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use machine::{BodyKind, Bytes};
use offcode::call::{Header, Kind};
use offcode::service::{MAPS, MEMORY, TIMERS};
use offcode::{Attributes, Channel, Described, Interface, Shape};

use super::{TIMEOUT, call};
use crate::code::Code;
use crate::site::{Deployment, Names, OUT_OF_BAND, SiteDriver, Slot, Unfit, begin};

#[path = "../../../../wasm/guest/probe/src/lib.rs"]
mod probe;
pub use probe::Probe;
use probe::{ENTRIES, MAP, Probing, WORDS};

/// What a sandboxed body may take.
const OF_SANDBOX: Bytes = Bytes(4 << 20);

/// The form of [`Probe`] that is linked in.
pub(super) fn linked() -> Code {
    Code::Native(Arc::new(|| Box::new(Probe::default())))
}

fn is_sandboxed(code: &Code) -> bool {
    code.kind() == BodyKind::Wasm
}

/// Its colour is `colour`.
fn coloured(site: &mut dyn SiteDriver, code: &Code, colour: &str) -> Result<(Slot, Box<dyn Channel>), Unfit> {
    let mut manifest = Probe::manifest();
    if is_sandboxed(code) {
        manifest.hardware.iter_mut().for_each(|target| target.memory = OF_SANDBOX);
    }
    let memory = Names::default().granted(&manifest, site.site().kind());
    let (manifest, code) = (Arc::new(manifest), code.clone());
    let mut attributes = Attributes::default();
    attributes.set("colour", colour).expect("it fits");
    let deployment = Deployment { name: "test.probe".into(), manifest, code, attributes: attributes.clone(), memory };
    let slot = site.deploy(deployment).expect("a body that asks for what is offered");
    let end = site.connect(slot, "", OUT_OF_BAND).expect("an out-of-band channel");
    let begun = begin(site, slot, &attributes).map(|()| (slot, end));
    begun.inspect_err(|_| site.remove(slot).expect("it can be removed"))
}

fn deployed(site: &mut dyn SiteDriver, code: &Code) -> (Slot, Box<dyn Channel>) {
    coloured(site, code, "red").expect("first phase")
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
const COLOUR: u16 = 9;

/// Asks until it was woken more than so often.
fn woken_beyond(site: &mut dyn SiteDriver, end: &mut dyn Channel, count: u64) -> u64 {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let woken = ask(site, end, WOKEN, &[]).expect("a number");
        if woken > count {
            return woken;
        }
        assert!(Instant::now() < deadline, "{}: woken {woken} times, not more than {count}", site.site());
    }
}

/// One body of its offcode after the other, where the site offers what it asks for.
pub(super) fn serves(site: &mut dyn SiteDriver, code: &Code) {
    let offers = site.ground().environment;
    if !offers.iter().any(|offer| offer.is(&TIMERS)) {
        return;
    }
    for service in [MEMORY, MAPS] {
        assert!(offers.iter().any(|offer| offer.is(&service)), "who offers timers offers {service}");
    }
    let unfit = coloured(site, code, "beige").map(drop).expect_err("a colour that it refuses");
    let said = unfit.fault.to_string();
    assert!(unfit.attribute.as_deref() == Some("colour") && said.contains("beige is no colour"), "{said}");
    let (slot, mut end) = deployed(site, code);
    site.start(slot).expect("second phase");
    site.set_attribute(slot, "colour", "green").expect("a value that it takes");
    let said = site.set_attribute(slot, "colour", "beige").expect_err("one that it refuses").to_string();
    assert!(said.contains("beige is no colour. Next: set another"), "{said}");
    assert_eq!(ask(site, end.as_mut(), COLOUR, &[]), Ok(5), "it has the one that it had");
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
    if !is_sandboxed(code) {
        keeps_to_its_memory(site, end.as_mut());
    }

    assert_eq!(ask(site, end.as_mut(), WAKE, &[500, 200]), Ok(0));
    let state = site.suspend(slot).expect("what it saves");
    let (next, mut end) = deployed(site, code);
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

/// Of a sandbox the memory is the limit, and asking for more ends the instance.
fn keeps_to_its_memory(site: &mut dyn SiteDriver, end: &mut dyn Channel) {
    let left = 2047 - (Shape::of::<u32, u64>(ENTRIES).memory().0.div_ceil(8) as u32);
    for (method, more) in [(GROW, left + 1), (OPEN, 1000)] {
        let said = ask(site, end, method, &[more]).expect_err("more than its target's memory");
        assert!(said.contains("memory is 16 KiB"), "{said}");
    }
    assert_eq!(ask(site, end, GROW, &[left]), Ok(0), "all of it");
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
