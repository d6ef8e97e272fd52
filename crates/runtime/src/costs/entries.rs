//! What one call of a body costs, of each kind: bodies that do nothing, run by what runs all others.

use std::sync::Arc;
use std::time::Instant;

use linux::xdp::{self, Object, Stage};
use machine::costs::Interval;
use machine::privileges::Privileges;
use machine::{BodyKind, Nanoseconds, Reading, Result, Site, Source, XdpMode};
use offcode::channel::Counted;
use offcode::{Attributes, Channel, Described, Lifecycle, Specification, Written, interface, offcode};

use super::{BATCHES, spread};
use crate::code::Code;
use crate::site::Deployment;
use crate::site::residents::Residents;

/// Passes through the site's loop that are timed together, each with as many calls as a channel gets in one.
const PASSES: u32 = 8;
/// Runs in the kernel that are timed together, and how often: a timed program is first made known to all cores, which
/// takes 16 ms.
const RUNS: u32 = 10_000;
const ROUNDS: usize = 15;
/// A frame of the smallest size that a wire carries.
const FRAME: [u8; 60] = [0; 60];

#[interface(guid = "b064d74d-dc8d-49ca-a6bd-2551c0d47194")]
trait Idle {
    fn nothing(&mut self);
}

#[offcode(
    guid = "d992def6-409a-4125-93cf-3e6c4f375f6d",
    name = "plimsoll.idle",
    version = "1.0.0",
    implements(Idle),
    sites(app)
)]
#[derive(Default)]
struct Nothing;

impl Idle for Nothing {
    fn nothing(&mut self) {}
}

impl Lifecycle for Nothing {}

/// [`Nothing`] for a sandbox: `idle.wat`.
const GUEST: &[u8] = include_bytes!("idle.wasm");

/// The time of a call of a body of this kind, in nanoseconds, without its channel; or why it cannot be measured.
pub(super) fn entry(kind: BodyKind) -> Reading<Interval> {
    let measured = match kind {
        BodyKind::Native => resident(Code::Native(Arc::new(|| Box::<Nothing>::default()))),
        BodyKind::Wasm => resident(Code::Wasm(GUEST.into())),
        BodyKind::Bpf => {
            let Some(object) = bpf::IDLE else { return Reading::absent(bpf::MISSING.unwrap_or_default()) };
            if !Privileges::read(&Source::live()).may_attach_bpf() {
                let reason = "loading a program needs CAP_BPF and CAP_NET_ADMIN, or root";
                return Reading::not_permitted(reason, "run plimsoll calibrate as root");
            }
            hook(object)
        }
    };
    measured.map_or_else(|fault| Reading::absent(fault.to_string()), Reading::Measured)
}

/// The time of a call that the loop of a thread's offcodes takes from a channel which costs nothing.
fn resident(code: Code) -> Result<Interval> {
    let manifest = Arc::new(Nothing::manifest());
    let name = manifest.package.name.clone();
    let mut residents = Residents::new(Site::App, Instant::now(), Arc::new(|_| {}));
    let slot = residents.deploy(Deployment {
        name,
        manifest,
        code,
        attributes: Attributes::default(),
        memory: Default::default(),
    })?;
    let call = IdleProxy.nothing().without_answer();
    let ready = Ready { specification: Specification::default(), message: call.message()?.to_vec() };
    residents.adopt(slot, "calls", Box::new(ready))?;
    residents.initialize(slot)?;
    residents.start(slot)?;
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let (served, begun) = (residents.evidence(slot)?.uses, Instant::now());
        for _ in 0..PASSES {
            residents.turn();
        }
        let taken = begun.elapsed();
        times.push(taken.as_nanos() as f64 / (residents.evidence(slot)?.uses - served) as f64);
    }
    Ok(spread(times))
}

/// The time of a run on a made-up frame, under the dispatcher that a site has: at least what that counts in the body,
/// at most all that the kernel takes.
fn hook(object: &[u8]) -> Result<Interval> {
    let object = Object::load("idle", object)?;
    let stage = Stage { object: &object, program: "idle", place: 0, chains: 0 };
    let (program, counts) = xdp::link(XdpMode::Native, &[stage], xdp::TIMED_OF, None)?;
    let (mut within, mut whole) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        let before = xdp::counted(&counts, 0)?;
        whole.push(program.time_frames(&FRAME, RUNS)?.0 as f64);
        let timed = (xdp::counted(&counts, 0)? - before).timed;
        within.push(timed.time.0 as f64 / timed.count.max(1) as f64);
    }
    Ok(Interval { low: spread(within).low, ..spread(whole) })
}

/// An end on which the same message always waits.
struct Ready {
    specification: Specification,
    message: Vec<u8>,
}

impl Channel for Ready {
    fn specification(&self) -> &Specification {
        &self.specification
    }
    fn write_with(&mut self, _: usize, _: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        Ok(Written::Gone)
    }
    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        deliver(&self.message);
        Ok(true)
    }
    fn poll(&mut self) -> Result<bool> {
        Ok(true)
    }
    fn wait(&mut self, _: Nanoseconds) -> Result<bool> {
        Ok(true)
    }
    fn is_abandoned(&self) -> bool {
        false
    }
    fn counted(&self) -> Counted {
        Counted::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_made_of_its_text() {
        let made = wat::parse_str(include_str!("idle.wat")).unwrap();
        if std::env::var_os("BLESS").is_some() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/costs/idle.wasm");
            return std::fs::write(file, made).unwrap();
        }
        assert_eq!(made, GUEST);
    }

    #[test]
    fn bodies_that_this_build_runs_have_an_entry() {
        for kind in [BodyKind::Native, BodyKind::Wasm] {
            let Reading::Measured(cost) = entry(kind) else { panic!("{kind}: {:?}", entry(kind)) };
            assert!(0.0 < cost.low && cost.low <= cost.middle && cost.middle <= cost.high, "{kind}: {cost}");
        }
    }

    #[test]
    fn a_program_of_the_kernel_has_an_entry_or_the_reason_is_there() {
        match entry(BodyKind::Bpf) {
            Reading::Measured(cost) => assert!(0.0 < cost.low && cost.low <= cost.high, "{cost}"),
            Reading::Absent { reason } | Reading::NotPermitted { reason, .. } => skip::test(&reason),
            modelled => panic!("{modelled:?}"),
        }
    }
}
