//! Loading an object: its maps are made, its variables set, its programs verified.

use std::collections::BTreeMap;
use std::collections::HashSet;
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

/// The programs and maps of one object. They go with this value, and with whatever was made of it.
#[derive(Debug)]
pub struct Object {
    name: String,
    programs: BTreeMap<String, Program>,
    maps: BTreeMap<String, Map>,
    variables: BTreeMap<String, Variable>,
}

/// What to load, and how.
#[derive(Debug)]
pub struct Loader<'a> {
    name: &'a str,
    code: &'a [u8],
    variables: Vec<(String, Vec<u8>)>,
    wishes: Vec<(String, u64)>,
    device: Option<&'a Interface>,
    traces: bool,
}

const PROGRAM_SYSCALL: u32 = 31;
const PROGRAM_XDP: u32 = 6;
const PROGRAM_RAW_TRACEPOINT: u32 = 17;
/// The attach type of XDP programs at an interface.
pub(super) const ATTACH_XDP: u32 = 37;
const SLEEPABLE: u32 = 1 << 4;
/// The program takes frames that lie in several pieces (Linux 5.18).
const TAKES_FRAGMENTS: u32 = 1 << 5;
const ANOTHER_MODE: &str = "ask for native or generic mode, or use a NIC that runs BPF";
const NO_MEMORY_SHARED: &str = "its memory is not shared: add BPF_F_MMAPABLE to its flags";

impl<'a> Loader<'a> {
    /// `name` is what faults call the object; `code` an ELF object for BPF.
    pub fn new(name: &'a str, code: &'a [u8]) -> Self {
        Loader { name, code, variables: Vec::new(), wishes: Vec::new(), device: None, traces: false }
    }

    /// Sets a variable of the program's, also a constant one, before the verifier sees it. `value` has the variable's
    /// size, in native byte order.
    pub fn variable(mut self, name: &str, value: &[u8]) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Sets a variable as [`Loader::variable`] does, where the object has an integer of this name; else does nothing.
    pub fn variable_if_any(mut self, name: &str, value: u64) -> Self {
        self.wishes.push((name.into(), value));
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

    /// Makes the maps and has the kernel verify the programs. Sections `xdp`, `xdp.frags` and `syscall` are programs;
    /// others are refused.
    pub fn load(self) -> Result<Object> {
        // A NIC's index means something in its own namespace only.
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
        let bad = |cause: String| Fault::new(subject(), cause, "compile it anew with `clang -target bpf -O2 -g`");
        let elf = Elf::read(self.code).map_err(bad)?;
        for section in elf.program_sections() {
            let kind = section.split('/').next().unwrap_or_default();
            let known = matches!(kind, "xdp" | "xdp.frags" | "syscall") || (self.traces && kind == "raw_tp");
            if !known {
                return Err(Fault::new(
                    subject(),
                    format!("section '{section}' is no program for an xdp site"),
                    "put programs into SEC(\"xdp\"), SEC(\"xdp.frags\") or SEC(\"syscall\")",
                ));
            }
        }
        let variables = elf.variables().map_err(bad)?;
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
        let code = elf.for_the_parser().map_err(bad)?;
        // The parser reads words in place.
        let mut aligned = vec![0u64; code.len().div_ceil(8)];
        for (to, from) in aligned.iter_mut().zip(code.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..from.len()].copy_from_slice(from);
            *to = u64::from_ne_bytes(bytes);
        }
        // It panics on some damaged objects.
        let read = catch_unwind(|| {
            let mut object = parse(words_as_bytes(&aligned, code.len()))?;
            let values = values.iter().map(|(name, value)| (name.as_str(), (value.as_slice(), true))).collect();
            object.patch_map_data(values).map_err(chain)?;
            let debug = object.fixup_and_sanitize_btf(&debug_features()).map_err(chain)?.map(|debug| debug.to_bytes());
            Ok((object, debug))
        });
        let (mut object, debug) = read.unwrap_or_else(|_| Err("it is damaged".into())).map_err(bad)?;

        let refused = |error: io::Error, what: String| {
            super::refused(subject(), format!("{what}: {error}"), &error, "look at what it asks for")
        };
        let debug = debug.map(|code| {
            let size = code.len() as u32;
            let mut attributes = syscall::DebugLoad { code: code.as_ptr() as u64, size, ..Default::default() };
            syscall::make(syscall::Command::DebugLoad, &mut attributes)
        });
        let debug =
            debug.transpose().map_err(|error| refused(error, "the kernel refuses its debug information".into()))?;

        let mut maps = BTreeMap::new();
        for (name, definition) in &object.maps {
            let map = Map::create(name, definition, self.device(), debug.as_ref().map(AsFd::as_fd));
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
        linked.unwrap_or_else(|_| Err("it is damaged".into())).map_err(bad)?;

        let mut programs = BTreeMap::new();
        for (name, program) in &object.programs {
            let function =
                object.functions.get(&program.function_key()).ok_or_else(|| bad(format!("no code of {name}")))?;
            let (kind, flags) = match program.section {
                ProgramSection::Xdp { frags: true, .. } => (ProgramKind::Xdp, TAKES_FRAGMENTS),
                ProgramSection::Xdp { .. } => (ProgramKind::Xdp, 0),
                ProgramSection::RawTracePoint => (ProgramKind::RawTracepoint, 0),
                _ => (ProgramKind::Syscall, SLEEPABLE),
            };
            let descriptor = self.verify(name, (kind, flags), function, &program.license, debug.as_ref())?;
            programs.insert(name.clone(), Program::new(name, kind, descriptor)?);
        }
        Ok(Object { name: self.name.into(), programs, maps, variables })
    }

    fn verify(
        &self,
        name: &str,
        (kind, flags): (ProgramKind, u32),
        function: &Function,
        license: &std::ffi::CStr,
        debug: Option<&OwnedFd>,
    ) -> Result<OwnedFd> {
        let (functions, lines) = (function.func_info.func_info_bytes(), function.line_info.line_info_bytes());
        let mut attributes = syscall::ProgramLoad {
            kind: match kind {
                ProgramKind::Xdp => PROGRAM_XDP,
                ProgramKind::Syscall => PROGRAM_SYSCALL,
                ProgramKind::RawTracepoint => PROGRAM_RAW_TRACEPOINT,
            },
            instructions: function.instructions.len() as u32,
            code: function.instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            flags,
            name: syscall::name(name),
            interface: if kind == ProgramKind::Xdp { self.device() } else { 0 },
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
        // Once more for the reason: with a log the verifier takes longer.
        let mut log = vec![0u8; 1 << 20];
        (attributes.log, attributes.log_size, attributes.log_level) = (log.as_mut_ptr() as u64, log.len() as u32, 1);
        if let Ok(descriptor) = syscall::make(syscall::Command::ProgramLoad, &mut attributes) {
            return Ok(descriptor);
        }
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        let said = shortened(&String::from_utf8_lossy(&log[..end]));
        let cause = match (said.is_empty(), self.device) {
            (false, _) => format!("the verifier refuses it ({error}): {said}"),
            (true, None) => format!("the kernel refuses it: {error}"),
            (true, Some(_)) => format!("the NIC takes no program: {error}"),
        };
        let subject = format!("BPF object {}: program {name}", self.name);
        Err(match self.device {
            // The verifier says 'permission denied' too.
            None if !said.is_empty() => {
                Fault::new(subject, cause, "change the program so that the verifier can follow it")
            }
            None => super::refused(subject, cause, &error, "see the kernel's log: `dmesg`"),
            Some(_) => Fault::new(subject, cause, ANOTHER_MODE),
        })
    }
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

    /// The program of a function of this name.
    pub fn program(&self, name: &str) -> Result<&Program> {
        self.programs.get(name).ok_or_else(|| self.lacks("program", name, self.programs.keys()))
    }

    pub fn has_map(&self, name: &str) -> bool {
        self.maps.contains_key(name)
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

    /// Bytes of a variable; `None` if the object has none of this name.
    pub fn variable_size(&self, name: &str) -> Option<usize> {
        self.variables.get(name).map(|variable| variable.size)
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

fn parse(code: &[u8]) -> Result<aya_obj::Object, String> {
    aya_obj::Object::parse(code).map_err(chain)
}

fn words_as_bytes(words: &[u64], length: usize) -> &[u8] {
    // SAFETY: every byte of the words is one; `length` is at most theirs.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), length.min(words.len() * 8)) }
}

fn debug_features() -> BtfFeatures {
    // All of them are older than live frames (5.18), which is what this module needs; 64-bit enumerations are 6.0.
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

/// The lines of a verifier's log that say why: the last but its statistics, with the instruction and the source line
/// before it.
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
    said.join(" ")
}

fn cut(line: &str, most: usize) -> String {
    line.chars().take(most).collect()
}
