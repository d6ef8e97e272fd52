//! Several programs at one hook: they become functions of a dispatcher, in one program that the kernel verifies and
//! compiles whole. A stage costs a call; no trampoline, map of programs or file is needed, unlike the kernel's own way
//! to replace a program's function (type `EXT`). The link replaces the attached program atomically.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use aya_obj::generated::bpf_insn;
use machine::{Fault, Nanoseconds, Result, XdpMode};

use super::attachment::{self, Attachment};
use super::debug::{self, Debug};
use super::interface::Interface;
use super::map::Map;
use super::object::{self, Code, Loader, Object, TAKES_FRAGMENTS};
use super::point::{MOST_STAGES, MOST_VERDICTS, Point};
use super::program::{Program, Runs};
use super::tcx;

/// One of so many runs is timed, and each of so many of a core's first runs, by three reads of the clock.
pub const TIMED_OF: u32 = 64;

/// A program of a chain.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    pub object: &'a Object,
    pub program: &'a str,
    /// Index of its counters, below [`MOST_STAGES`]; unique in the chain.
    pub place: usize,
    /// Verdicts after which the next stage runs, one bit each in the order of [`Point::verdicts`]; the last stage's
    /// verdict is carried out. At a tc hook programs of others follow the last stage, and see what it passes.
    pub chains: u32,
}

/// Counters of one place since the chain was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub runs: u64,
    /// The runs that were timed.
    pub timed: Runs,
    /// Runs by their verdicts, in the order of [`Point::verdicts`].
    pub verdicts: [u64; MOST_VERDICTS],
}

impl std::ops::Sub for Counts {
    type Output = Counts;

    fn sub(self, other: Counts) -> Counts {
        Counts {
            runs: self.runs - other.runs,
            timed: Runs {
                count: self.timed.count - other.timed.count,
                time: Nanoseconds(self.timed.time.0 - other.timed.time.0),
            },
            verdicts: std::array::from_fn(|n| self.verdicts[n] - other.verdicts[n]),
        }
    }
}

/// The programs at one interface's hook, attached while this lives and detached with it.
#[derive(Debug)]
pub struct Chain {
    interface: Arc<Interface>,
    point: Point,
    counts: Option<Map>,
    running: Option<(Attached, Program)>,
}

#[derive(Debug)]
enum Attached {
    Xdp(Attachment),
    Tc(tcx::Attachment),
}

/// The kernel's account of a chain's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    pub id: u32,
    /// Its name; `None` where this user may not know it.
    pub name: Option<String>,
    /// The hook: 'native mode', 'tc ingress, program 1 of 2'.
    pub whereabouts: String,
}

impl Chain {
    /// An empty chain, with nothing attached.
    pub fn new(interface: Arc<Interface>, point: impl Into<Point>) -> Chain {
        Chain { interface, point: point.into(), counts: None, running: None }
    }

    /// Replaces the stages of the chain by these, in their order. Every frame is handled by the old ones or by the new
    /// ones. On a fault the old ones stay.
    pub fn set(&mut self, stages: &[Stage]) -> Result<()> {
        if stages.is_empty() {
            self.running = None;
            return Ok(());
        }
        if stages.len() > self.point.most() {
            let cause = format!("{} programs are more than the {} of a hook", stages.len(), self.point.most());
            return Err(Fault::new(format!("interface {}", self.interface.name()), cause, "place one elsewhere"));
        }
        if self.point == Point::Xdp(XdpMode::Hardware) {
            let program = stages[0].object.program(stages[0].program)?.again()?;
            self.running = None;
            return self.attach(program);
        }
        let (program, counts) = link(self.point, stages, TIMED_OF, self.counts.as_ref())?;
        self.counts = Some(counts);
        let Some((attached, before)) = &mut self.running else { return self.attach(program) };
        match attached {
            Attached::Xdp(attachment) => attachment.replace(before, &program, &self.interface)?,
            Attached::Tc(attachment) => attachment.replace(before, &program, &self.interface)?,
        }
        *before = program;
        Ok(())
    }

    fn attach(&mut self, program: Program) -> Result<()> {
        let attached = match self.point {
            Point::Xdp(mode) => Attached::Xdp(Attachment::new(&program, &self.interface, mode)?),
            Point::Tc(direction) => Attached::Tc(tcx::Attachment::new(&program, &self.interface, direction)?),
        };
        self.running = Some((attached, program));
        Ok(())
    }

    /// Whether nothing is attached.
    pub fn is_empty(&self) -> bool {
        self.running.is_none()
    }

    /// A fault, naming them, where programs of others have the hook and a chain cannot be added.
    pub fn check_room(&self) -> Result<()> {
        match (&self.running, self.point) {
            (Some(_), _) => self.prove().map(drop),
            (None, Point::Xdp(_)) => attachment::vacant(&self.interface),
            (None, Point::Tc(direction)) => tcx::attached(&self.interface, direction).map(drop),
        }
    }

    /// The attached program by the kernel's account; `None` where there are no stages.
    pub fn prove(&self) -> Result<Option<Proof>> {
        let Some((attached, _)) = &self.running else { return Ok(None) };
        Ok(Some(match attached {
            Attached::Xdp(attachment) => {
                let found = attachment.prove(&self.interface)?;
                Proof { id: found.id, name: found.name, whereabouts: self.point.to_string() }
            }
            Attached::Tc(attachment) => {
                let (place, all) = attachment.prove(&self.interface)?;
                let whereabouts = format!("{}, program {} of {}", self.point, place + 1, all.len());
                Proof { id: all[place].id, name: all[place].name.clone(), whereabouts }
            }
        }))
    }

    /// Counters of a place; `None` where a NIC runs the programs.
    pub fn counts(&self, place: usize) -> Result<Option<Counts>> {
        self.counts.as_ref().map(|counts| counted(counts, place)).transpose()
    }
}

/// Links bodies into one program for a hook, which is not attached, with the map of its counters. One of `timed_of`
/// runs, a power of two, is timed.
pub fn link(point: impl Into<Point>, stages: &[Stage], timed_of: u32, counts: Option<&Map>) -> Result<(Program, Map)> {
    let point = point.into();
    let kind = point.kind();
    let dispatcher = match point {
        Point::Xdp(_) => bpf::DISPATCHER,
        Point::Tc(_) => bpf::DISPATCHER_TC,
    };
    let code = super::built("dispatcher of a hook", dispatcher)?;
    let words = |value: &dyn Fn(&Stage) -> u32| {
        let filled = stages.iter().map(value).chain(std::iter::repeat(0)).take(MOST_STAGES);
        filled.flat_map(u32::to_ne_bytes).collect::<Vec<u8>>()
    };
    let mut loader = Loader::new("dispatcher", code)
        .variable("COUNT", &(stages.len() as u32).to_ne_bytes())
        .variable("PLACES", &words(&|stage| stage.place as u32))
        .variable("CHAINS", &words(&|stage| stage.chains))
        .variable("BETWEEN", &(timed_of - 1).to_ne_bytes());
    if let Some(counts) = counts {
        loader = loader.map("COUNTS", counts);
    }
    let dispatcher = loader.load()?;
    let subject = || {
        let names: Vec<&str> = stages.iter().map(|stage| stage.object.name()).collect();
        format!("programs {} at one hook", names.join(", "))
    };
    let bad = |cause| Fault::new(subject(), cause, "compile each with `clang -target bpf -O2 -g`");
    let (code, debug) = linked(&dispatcher, stages, &bad)?;
    let debug = object::describe(&debug).map_err(|error| {
        super::refused(subject(), format!("{}: {error}", object::NO_DEBUG), &error, "use Linux 5.6 or newer")
    })?;
    let descriptor = object::verify(&subject(), PROGRAM, (kind, 0), &code, Some(&debug))?;
    let fault = |error| Fault::because(subject(), error, "raise the limit of descriptors");
    Ok((Program::new(PROGRAM, kind, descriptor)?, dispatcher.map("COUNTS")?.again().map_err(fault)?))
}

/// Name of the attached program.
const PROGRAM: &str = "plimsoll";

/// The target of a call of a function of the same program.
fn callee(at: usize, instruction: &bpf_insn) -> Option<usize> {
    let is_call = instruction.code == 0x85 && instruction.src_reg() == 1;
    is_call.then(|| (at as i64 + 1 + i64::from(instruction.imm)) as usize)
}

/// The dispatcher's own instructions, then the bodies with the functions that they call; and their debug information. A
/// body is verified by itself, since its function is global.
fn linked(dispatcher: &Object, stages: &[Stage], bad: &dyn Fn(String) -> Fault) -> Result<(Code, Vec<u8>)> {
    let main = dispatcher.code("dispatcher")?;
    let names = debug::functions(dispatcher.debug()).map_err(bad)?;
    let stages_of: BTreeMap<usize, usize> = (main.function.func_info.func_info.iter())
        .filter_map(|about| {
            let stage = names.get(&about.type_id)?.strip_prefix("stage_")?.parse().ok()?;
            Some((about.insn_off as usize, stage))
        })
        .collect();
    let own = *stages_of.keys().next().ok_or_else(|| bad("the dispatcher has no stages".into()))?;

    let mut debug = Debug::new();
    debug.add(dispatcher.debug()).map_err(bad)?;
    let mut function = main.function.clone();
    function.instructions.truncate(own);
    function.func_info.func_info.retain(|about| (about.insn_off as usize) < own);
    // Line information must cover all functions or none; faults in a body are reported when it is loaded alone.
    function.line_info_rec_size = 0;
    let (mut license, mut flags) = (main.license.clone(), TAKES_FRAGMENTS);
    let mut begins = Vec::new();
    for stage in stages {
        let begin = function.instructions.len();
        begins.push(begin);
        let body = stage.object.code(stage.program)?;
        let types = debug.add(stage.object.debug()).map_err(bad)?;
        function.instructions.extend(&body.function.instructions);
        if body.function.func_info.func_info.is_empty() {
            return Err(bad(format!("{} does not describe its functions", stage.object.name())));
        }
        function.func_info.func_info.extend(body.function.func_info.func_info.iter().map(|about| {
            let mut about = *about;
            about.insn_off += begin as u32;
            about.type_id += types;
            about
        }));
        flags &= body.flags;
        if !is_compatible_with_gpl(&body.license) {
            license = body.license.clone();
        }
    }
    for at in 0..own {
        let Some(stage) = callee(at, &function.instructions[at]).and_then(|to| stages_of.get(&to)) else { continue };
        // Calls of unfilled stages are never reached, but need a valid target.
        let to = begins.get(*stage).copied().unwrap_or(begins[0]);
        function.instructions[at].imm = (to as i64 - at as i64 - 1) as i32;
    }
    Ok((Code { function, license, flags }, debug.bytes()))
}

/// The rule of the kernel's `license_is_gpl_compatible`.
fn is_compatible_with_gpl(license: &CString) -> bool {
    ["GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"]
        .iter()
        .any(|known| license.as_bytes() == known.as_bytes())
}

/// Number of words of one place in a value of `COUNTS`.
const WORDS: usize = 3 + 8;

/// The counters of a place, summed over all cores.
pub fn counted(counts: &Map, place: usize) -> Result<Counts> {
    let fault = |error| Fault::because("counters of a hook", error, "run as root, or with CAP_BPF");
    let mut sum = Counts::default();
    for (_, words) in counts.of_all_cores(0).map_err(fault)? {
        let Some(words) = words.get(place * WORDS..(place + 1) * WORDS) else { continue };
        sum.runs += words[0];
        sum.timed.count += words[1];
        sum.timed.time.0 += words[2];
        sum.verdicts.iter_mut().zip(&words[3..]).for_each(|(sum, runs)| *sum += runs);
    }
    Ok(sum)
}
