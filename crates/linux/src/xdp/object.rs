//! Loads an object: creates its maps, sets its variables, has its programs verified.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use aya_obj::Function;
use aya_obj::btf::BtfFeatures;
use aya_obj::obj::ProgramSection;
use machine::{Fault, Result};

use super::elf::{Elf, Variable};
use super::interface::Interface;
use super::map::{Kind, Map};
use super::program::{Program, ProgramKind};
use super::syscall;

/// The programs and maps of one object. They end with this value and everything made from it.
#[derive(Debug)]
pub struct Object {
    name: String,
    programs: BTreeMap<String, Program>,
    maps: BTreeMap<String, Map>,
    variables: BTreeMap<String, Variable>,
    /// Code of its programs for frames, to link them into others.
    code: BTreeMap<String, Code>,
    debug: Vec<u8>,
}

/// The verified code of one program.
#[derive(Debug)]
pub(super) struct Code {
    pub function: Function,
    pub license: CString,
    pub flags: u32,
}

/// An object to load, and options.
#[derive(Debug)]
pub struct Loader<'a> {
    name: &'a str,
    code: &'a [u8],
    variables: Vec<(String, Vec<u8>)>,
    wishes: Vec<(String, u64)>,
    device: Option<&'a Interface>,
    traces: bool,
    given: Vec<(&'a str, &'a Map)>,
}

const PROGRAM_SYSCALL: u32 = 31;
const PROGRAM_TC: u32 = 3;
const PROGRAM_XDP: u32 = 6;
const PROGRAM_RAW_TRACEPOINT: u32 = 17;
/// The attach type of XDP programs at an interface.
pub(super) const ATTACH_XDP: u32 = 37;
const SLEEPABLE: u32 = 1 << 4;
/// Flag: the program accepts frames in several pieces (Linux 5.18).
pub(super) const TAKES_FRAGMENTS: u32 = 1 << 5;
const ANOTHER_MODE: &str = "ask for native or generic mode, or use a NIC that runs BPF";
pub(super) const NO_DEBUG: &str = "the kernel refuses its debug information";
const DAMAGED: &str = "it is damaged";
const NO_MEMORY_SHARED: &str = "its memory is not shared: add BPF_F_MMAPABLE to its flags";

impl<'a> Loader<'a> {
    /// `name` is the object's name in faults; `code` an ELF object for BPF.
    pub fn new(name: &'a str, code: &'a [u8]) -> Self {
        Loader { name, code, variables: Vec::new(), wishes: Vec::new(), device: None, traces: false, given: Vec::new() }
    }

    /// Sets a variable of the object, also a constant one, before verification. `value` has the variable's size, in
    /// native byte order.
    pub fn variable(mut self, name: &str, value: &[u8]) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Sets a variable as [`Loader::variable`] does, where the object has an integer of this name; else does nothing.
    pub fn variable_if_any(mut self, name: &str, value: u64) -> Self {
        self.wishes.push((name.into(), value));
        self
    }

    /// Uses an existing map for the object's map of this name.
    pub(super) fn map(mut self, name: &'a str, map: &'a Map) -> Self {
        self.given.push((name, map));
        self
    }

    /// Also takes programs for tracepoints, sections `raw_tp/NAME`.
    pub(crate) fn traces(mut self) -> Self {
        self.traces = true;
        self
    }

    /// Loads for the NIC of this interface instead of for the kernel.
    pub(super) fn for_device(mut self, interface: &'a Interface) -> Self {
        self.device = Some(interface);
        self
    }

    /// Creates the maps and has the kernel verify the programs. Sections `xdp`, `xdp.frags`, `classifier` and `syscall`
    /// are programs; others are refused.
    pub fn load(self) -> Result<Object> {
        // A NIC's index is valid in its own namespace only.
        match self.device {
            Some(interface) => interface.inside(|| self.load_here())?,
            None => self.load_here(),
        }
    }

    fn device(&self) -> u32 {
        self.device.map_or(0, Interface::index)
    }

    fn load_here(&self) -> Result<Object> {
        let subject = || format!("BPF object {}", self.name);
        let bad = |cause: String| bad(self.name, cause);
        let (variables, mut object) = read(self.name, self.code, self.traces)?;
        let mut values = self.variables.clone();
        for (name, value) in &self.wishes {
            match variables.get(name).map(|variable| variable.size) {
                Some(size @ (1 | 2 | 4 | 8)) if size == 8 || value >> (8 * size) == 0 => {
                    values.push((name.clone(), value.to_ne_bytes()[..size].to_vec()));
                }
                Some(size) => {
                    return Err(Fault::new(
                        format!("{}: variable {name}", subject()),
                        format!("{value} does not fit into its {size} bytes"),
                        "set a smaller value, or declare the variable as u64",
                    ));
                }
                None => {}
            }
        }
        // The parser panics on some damaged objects, here and below.
        let fixed = catch_unwind(AssertUnwindSafe(|| {
            let values = values.iter().map(|(name, value)| (name.as_str(), (value.as_slice(), true))).collect();
            object.patch_map_data(values).map_err(chain)?;
            Ok(object.fixup_and_sanitize_btf(&debug_features()).map_err(chain)?.map(|debug| debug.to_bytes()))
        }));
        let debug = fixed.unwrap_or_else(|_| Err(DAMAGED.into())).map_err(bad)?;

        let refused = |error: io::Error, what: String| {
            super::refused(subject(), format!("{what}: {error}"), &error, "look at what it asks for")
        };
        let known = debug.unwrap_or_default();
        let debug = match &known[..] {
            [] => None,
            known => Some(describe(known).map_err(|error| refused(error, NO_DEBUG.into()))?),
        };

        let mut maps = BTreeMap::new();
        for (name, definition) in &object.maps {
            let map = match self.given.iter().find(|(given, _)| given == name) {
                Some((_, map)) => map.again(),
                None => Map::create(name, definition, self.device(), debug.as_ref().map(AsFd::as_fd)),
            };
            let map = map.map_err(|error| match self.device {
                None => refused(error, format!("the kernel does not make map {name}")),
                Some(_) => Fault::new(subject(), format!("the NIC takes no map such as {name}: {error}"), ANOTHER_MODE),
            })?;
            maps.insert(name.clone(), map);
        }
        let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let linked = catch_unwind(AssertUnwindSafe(|| {
            let found = object.maps.clone();
            let made = maps.iter().map(|(name, map)| (name.as_str(), map.as_fd().as_raw_fd(), &found[name]));
            object.relocate_maps(made, &sections).map_err(chain)?;
            object.relocate_calls(&sections).map_err(chain)
        }));
        linked.unwrap_or_else(|_| Err(DAMAGED.into())).map_err(bad)?;

        let (mut programs, mut code) = (BTreeMap::new(), BTreeMap::new());
        for (name, program) in &object.programs {
            let function =
                object.functions.get(&program.function_key()).ok_or_else(|| bad(format!("no code of {name}")))?;
            let (kind, flags) = kind(&program.section);
            if kind == ProgramKind::Tc && self.device.is_some() {
                continue;
            }
            let whole = Code { function: function.clone(), license: program.license.clone(), flags };
            let subject = format!("BPF object {}: program {name}", self.name);
            let device = if kind == ProgramKind::Xdp { self.device() } else { 0 };
            let descriptor = verify(&subject, name, (kind, device), &whole, debug.as_ref())?;
            programs.insert(name.clone(), Program::new(name, kind, descriptor)?);
            if matches!(kind, ProgramKind::Xdp | ProgramKind::Tc) {
                code.insert(name.clone(), whole);
            }
        }
        Ok(Object { name: self.name.into(), programs, maps, variables, code, debug: known })
    }
}

/// Loads debug information into the kernel.
pub(super) fn describe(debug: &[u8]) -> io::Result<OwnedFd> {
    let mut attributes =
        syscall::DebugLoad { code: debug.as_ptr() as u64, size: debug.len() as u32, ..Default::default() };
    syscall::make(syscall::Command::DebugLoad, &mut attributes)
}

/// Has the kernel verify a program, for a NIC where `device` is not 0.
pub(super) fn verify(
    subject: &str,
    name: &str,
    (kind, device): (ProgramKind, u32),
    code: &Code,
    debug: Option<&OwnedFd>,
) -> Result<OwnedFd> {
    let function = &code.function;
    let (functions, lines) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
    let mut attributes = syscall::ProgramLoad {
        kind: match kind {
            ProgramKind::Xdp => PROGRAM_XDP,
            ProgramKind::Tc => PROGRAM_TC,
            ProgramKind::Syscall => PROGRAM_SYSCALL,
            ProgramKind::RawTracepoint => PROGRAM_RAW_TRACEPOINT,
        },
        instructions: function.instructions.len() as u32,
        code: function.instructions.as_ptr() as u64,
        license: code.license.as_ptr() as u64,
        flags: code.flags,
        name: syscall::name(name),
        interface: device,
        attach: if kind == ProgramKind::Xdp { ATTACH_XDP } else { 0 },
        ..Default::default()
    };
    if let Some(debug) = debug.filter(|_| function.func_info_rec_size > 0 && !functions.is_empty()) {
        attributes.debug = syscall::number(debug.as_fd());
        attributes.functions = functions.as_ptr() as u64;
        attributes.functions_size = function.func_info_rec_size as u32;
        attributes.functions_count = function.func_info.len() as u32;
        if function.line_info_rec_size > 0 && !lines.is_empty() {
            attributes.lines = lines.as_ptr() as u64;
            attributes.lines_size = function.line_info_rec_size as u32;
            attributes.lines_count = function.line_info.len() as u32;
        }
    }
    let error = match syscall::make(syscall::Command::ProgramLoad, &mut attributes) {
        Ok(descriptor) => return Ok(descriptor),
        Err(error) => error,
    };
    // Verified again for the reason, since verification with a log takes longer.
    let mut log = vec![0u8; 1 << 20];
    (attributes.log, attributes.log_size, attributes.log_level) = (log.as_mut_ptr() as u64, log.len() as u32, 1);
    if let Ok(descriptor) = syscall::make(syscall::Command::ProgramLoad, &mut attributes) {
        return Ok(descriptor);
    }
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let said = shortened(&String::from_utf8_lossy(&log[..end]));
    let cause = match (said.is_empty(), device) {
        (false, _) => format!("the verifier refuses it ({error}): {said}"),
        (true, 0) => format!("the kernel refuses it: {error}"),
        (true, _) => format!("the NIC takes no program: {error}"),
    };
    Err(match device {
        // The verifier's errors include 'permission denied'.
        0 if !said.is_empty() => Fault::new(subject, cause, "change the program so that the verifier can follow it"),
        0 => super::refused(subject, cause, &error, "see the kernel's log: `dmesg`"),
        _ => Fault::new(subject, cause, ANOTHER_MODE),
    })
}

impl Object {
    pub fn load(name: &str, code: &[u8]) -> Result<Object> {
        Loader::new(name, code).load()
    }

    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs.values()
    }

    pub fn has_program(&self, name: &str) -> bool {
        self.programs.contains_key(name)
    }

    /// The program whose function has this name.
    pub fn program(&self, name: &str) -> Result<&Program> {
        self.programs.get(name).ok_or_else(|| self.lacks("program", name, self.programs.keys()))
    }

    /// The code of a program for frames.
    pub(super) fn code(&self, name: &str) -> Result<&Code> {
        self.code.get(name).ok_or_else(|| self.lacks("program for frames", name, self.code.keys()))
    }

    pub(super) fn debug(&self) -> &[u8] {
        &self.debug
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn map(&self, name: &str) -> Result<&Map> {
        self.maps.get(name).ok_or_else(|| self.lacks("map", name, self.maps.keys()))
    }

    /// An array map with `BPF_F_MMAPABLE`, as memory.
    pub fn shared(&self, name: &str) -> Result<super::SharedWords> {
        let map = self.map(name)?;
        let fault =
            |cause: String| Fault::new(format!("BPF object {}: map {name}", self.name), cause, "change the object");
        match map.kind() {
            Kind::Array { mappable: true } => map.words().map_err(|error| fault(error.to_string())),
            Kind::Array { mappable: false } => Err(fault(NO_MEMORY_SHARED.into())),
            _ => Err(fault("it is no array".into())),
        }
    }

    /// The consumer's end of a ring buffer. One reader a map.
    pub fn ring(&self, name: &str) -> Result<super::RingReader> {
        let map = self.map(name)?;
        let fault =
            |cause: String| Fault::new(format!("BPF object {}: map {name}", self.name), cause, "change the object");
        match map.kind() {
            Kind::Ring => map.reader().map_err(|error| fault(error.to_string())),
            _ => Err(fault("it is no ring buffer".into())),
        }
    }

    /// The map of a variable, its offset and its size.
    pub(super) fn variable(&self, name: &str) -> Option<(&str, usize, usize)> {
        self.variables.get(name).map(|found| (found.map.as_str(), found.offset, found.size))
    }

    /// Names of its maps and variables.
    pub(super) fn readable(&self) -> Vec<&str> {
        self.maps.keys().chain(self.variables.keys()).map(String::as_str).collect()
    }

    /// Size of a variable in bytes; `None` if the object has none of this name.
    pub fn variable_size(&self, name: &str) -> Option<usize> {
        self.variables.get(name).map(|variable| variable.size)
    }

    /// Names of the variables of 8 aligned bytes that can be changed at run time.
    pub fn changeable(&self) -> impl Iterator<Item = &str> {
        let is = |of: &Variable| of.size == 8 && of.offset.is_multiple_of(8) && !of.map.starts_with(".rodata");
        self.variables.iter().filter(move |(_, of)| is(of)).map(|(name, _)| name.as_str())
    }

    /// Names of the arrays that are shared memory, without those of variables.
    pub fn arrays(&self) -> impl Iterator<Item = &str> {
        let is =
            |(name, map): &(&String, &Map)| !name.starts_with('.') && map.kind() == (Kind::Array { mappable: true });
        self.maps.iter().filter(is).map(|(name, _)| name.as_str())
    }

    /// Names of the maps with arbitrary keys.
    pub fn hashes(&self) -> impl Iterator<Item = &str> {
        self.maps.iter().filter(|(_, map)| map.kind() == Kind::Hash).map(|(name, _)| name.as_str())
    }

    /// The value of one of [`Object::changeable`].
    pub fn value(&self, name: &str) -> Result<u64> {
        let variable = self.variables.get(name).ok_or_else(|| self.lacks("variable", name, self.variables.keys()))?;
        let words = self.shared(&variable.map)?;
        Ok(words.words()[variable.offset / 8].load(std::sync::atomic::Ordering::Acquire))
    }

    /// Changes a variable of 8 aligned bytes, of `.data` or `.bss`, while programs run.
    pub fn set_variable(&self, name: &str, value: u64) -> Result<()> {
        let fault = |cause: String| {
            Fault::new(format!("BPF object {}: variable {name}", self.name), cause, "change the object")
        };
        let variable = self.variables.get(name).ok_or_else(|| self.lacks("variable", name, self.variables.keys()))?;
        if variable.size != 8 || variable.offset % 8 != 0 {
            return Err(fault(format!(
                "it has {} bytes; one of 8 aligned bytes can be set while programs run",
                variable.size
            )));
        }
        if variable.map.starts_with(".rodata") {
            return Err(fault("it is constant once the object is loaded".into()));
        }
        let words = self.shared(&variable.map)?;
        words.words()[variable.offset / 8].store(value, std::sync::atomic::Ordering::Release);
        Ok(())
    }

    fn lacks<'n>(&self, what: &str, name: &str, have: impl Iterator<Item = &'n String>) -> Fault {
        let have = have.map(String::as_str).collect::<Vec<_>>().join(", ");
        let cause = if have.is_empty() { "it has none".into() } else { format!("it has {have}") };
        Fault::new(
            format!("BPF object {}: no {what} {name}", self.name),
            cause,
            "name one of these, or change the object",
        )
    }
}

fn bad(name: &str, cause: String) -> Fault {
    // The cause may quote names of the object.
    let cause = cause.replace(char::is_control, "\u{FFFD}");
    Fault::new(format!("BPF object {name}"), cause, "compile it anew with `clang -target bpf -O2 -g`")
}

/// The variables of an object, and the parser's result.
type Read = (BTreeMap<String, Variable>, aya_obj::Object);

/// Reads an object, without the kernel.
pub(super) fn read(name: &str, code: &[u8], traces: bool) -> Result<Read> {
    let bad = |cause| bad(name, cause);
    let elf = Elf::read(code).map_err(bad)?;
    for section in elf.program_sections() {
        let kind = section.split('/').next().unwrap_or_default();
        let known = matches!(kind, "xdp" | "xdp.frags" | "classifier" | "syscall") || (traces && kind == "raw_tp");
        if !known {
            return Err(Fault::new(
                format!("BPF object {name}"),
                format!("section '{section}' is no program for a hook"),
                "put programs into SEC(\"xdp\"), SEC(\"xdp.frags\"), SEC(\"classifier\") for a tc hook, or SEC(\"syscall\")",
            ));
        }
    }
    let variables = elf.variables().map_err(bad)?;
    let code = elf.for_the_parser().map_err(bad)?;
    // The parser reads words in place.
    let mut aligned = vec![0u64; code.len().div_ceil(8)];
    for (to, from) in aligned.iter_mut().zip(code.chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..from.len()].copy_from_slice(from);
        *to = u64::from_ne_bytes(bytes);
    }
    let parsed = catch_unwind(|| aya_obj::Object::parse(words_as_bytes(&aligned, code.len())).map_err(chain));
    let object = parsed.unwrap_or_else(|_| Err(DAMAGED.into())).map_err(bad)?;
    Ok((variables, object))
}

/// The program kind of a section, and its load flags.
pub(super) fn kind(section: &ProgramSection) -> (ProgramKind, u32) {
    match section {
        ProgramSection::Xdp { frags: true, .. } => (ProgramKind::Xdp, TAKES_FRAGMENTS),
        ProgramSection::Xdp { .. } => (ProgramKind::Xdp, 0),
        ProgramSection::SchedClassifier => (ProgramKind::Tc, 0),
        ProgramSection::RawTracePoint => (ProgramKind::RawTracepoint, 0),
        _ => (ProgramKind::Syscall, SLEEPABLE),
    }
}

fn words_as_bytes(words: &[u64], length: usize) -> &[u8] {
    // SAFETY: every byte of the words is one; `length` is at most theirs.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), length.min(words.len() * 8)) }
}

pub(super) fn debug_features() -> BtfFeatures {
    // All of these features are older than live frames (5.18), which this module needs; 64-bit enumerations are of 6.0.
    BtfFeatures::new(true, true, true, true, true, true, true, true)
}

fn chain(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// The relevant lines of a verifier's log: the last but its statistics, with the instruction and the source line before it.
pub(super) fn shortened(log: &str) -> String {
    let statistics = ["processed ", "verification time", "stack depth", "mark_precise", "max_states"];
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !statistics.iter().any(|s| line.starts_with(s)))
        .collect();
    let Some((last, before)) = lines.split_last() else { return String::new() };
    let source = before.iter().rev().find(|line| line.starts_with("; "));
    let instruction = before.iter().rev().find(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let mut said = vec![(*last).to_owned()];
    said.extend(instruction.map(|line| format!("at instruction {}", cut(line, 120))));
    said.extend(source.map(|line| format!("of '{}'", cut(line.trim_start_matches("; "), 120))));
    said.join(" ").replace(char::is_control, " ")
}

fn cut(line: &str, most: usize) -> String {
    line.chars().take(most).collect()
}
