//! Facts of a body that its code alone tells, without the kernel and without running it.

use std::collections::BTreeMap;

use linux::xdp::{Kind, MapOutline, Outline, ProgramKind};
use machine::{BodyKind, Bytes, Fault, SiteKind};
use offcode::Manifest;
use offcode::manifest::ProgramRole;
use offcode::odf::Part;

use super::{Origin, Rule, Why, guest};
use crate::code::Code;

/// The facts of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Facts {
    Native,
    /// The memory that an instance begins with.
    Wasm(Bytes),
    Bpf(Hook),
}

/// The facts of an object for a driver hook, by the convention that [`crate::site::xdp`] states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// Its maps for channels, by their names; that of the pair without one is empty.
    pub pairs: BTreeMap<String, Pair>,
    /// Whether it has a program that carries out calls.
    pub call: bool,
    /// Why no agent runs it at a driver hook of its host, and what to do; `None`: agents do.
    pub no_guest: Option<(String, String)>,
    /// All maps of the object.
    pub maps: Vec<MapOutline>,
}

/// The maps of one channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pair {
    /// Its map IN.
    pub input: Option<Slots>,
    /// Whether it has a map OUT.
    pub output: bool,
    /// Whether it has a map FRAMES, and so no other.
    pub frames: bool,
}

/// The slots of a map IN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    pub count: u32,
    /// Bytes of each slot.
    pub bytes: Bytes,
}

/// Least bytes of a slot of IN.
const LEAST: u64 = 120;

impl Facts {
    /// Looks at the code for a kind of site.
    ///
    /// # Errors
    /// No such site can run the code.
    pub fn read(manifest: &Manifest, site: SiteKind, code: &Code) -> Result<Facts, Why> {
        match code {
            Code::Native(_) => Ok(Facts::Native),
            Code::Library(libraries) => {
                let broken = |fault: Fault| broken(manifest, BodyKind::Native, &fault);
                libraries.inspect().map(|()| Facts::Native).map_err(broken)
            }
            Code::Wasm(bytes) => {
                let broken = |fault: Fault| broken(manifest, BodyKind::Wasm, &fault);
                wasm::inspect(bytes, &wasm::Limits::default()).map(Facts::Wasm).map_err(broken)
            }
            Code::Compiled(module) => Ok(Facts::Wasm(module.initial())),
            Code::Bpf(bytes) => Hook::read(manifest, site, bytes).map(Facts::Bpf),
        }
    }

    /// Memory that it takes from the start, as far as its code tells.
    pub fn memory(&self) -> Option<Bytes> {
        match self {
            Facts::Native => None,
            Facts::Wasm(initial) => Some(*initial),
            Facts::Bpf(hook) => Some(hook.memory(1)),
        }
    }

    pub fn kind(&self) -> BodyKind {
        match self {
            Facts::Native => BodyKind::Native,
            Facts::Wasm(_) => BodyKind::Wasm,
            Facts::Bpf(_) => BodyKind::Bpf,
        }
    }
}

fn broken(manifest: &Manifest, kind: BodyKind, fault: &Fault) -> Why {
    let why = Why::new(Rule::Body, format!("{}: {}", fault.subject(), fault.cause()), fault.next());
    why.at(Origin::of(manifest, Part::Body(kind)))
}

impl Hook {
    /// # Errors
    /// It is no object that the site of a hook of this kind can load for this manifest.
    pub fn read(manifest: &Manifest, site: SiteKind, code: &[u8]) -> Result<Hook, Why> {
        Hook::of(manifest, site, code).map_err(|fault| broken(manifest, BodyKind::Bpf, &fault))
    }

    fn of(manifest: &Manifest, site: SiteKind, code: &[u8]) -> Result<Hook, Fault> {
        let package = &manifest.package;
        let refuse = |cause: String, next: &str| Err(Fault::new("bpf body", cause, next));
        let body = package.bodies.iter().find(|body| body.kind == BodyKind::Bpf);
        let Some((entry, role)) = body.and_then(|body| body.entry(site)) else {
            let cause = format!("its manifest names no program of its bpf body for {site}");
            return refuse(cause, "name it in the ODF");
        };
        let outline = Outline::read(&package.name, code)?;
        let (wanted, section) = match site {
            SiteKind::Tc => (ProgramKind::Tc, "SEC(\"classifier\")"),
            _ => (ProgramKind::Xdp, "SEC(\"xdp\")"),
        };
        match outline.program(entry) {
            Some(kind) if kind == wanted => {}
            Some(_) => {
                return refuse(format!("program {entry} is no {section}"), "name the body's program in the ODF");
            }
            None => {
                let cause = format!("its object has no program {entry}; it has {}", outline.programs().join(", "));
                return refuse(cause, "name one of these in the ODF");
            }
        }
        if role == ProgramRole::Hook && !outline.is_described() {
            return refuse(
                "its object does not describe its functions".into(),
                "compile it by `clang -target bpf -O2 -g`",
            );
        }
        if role == ProgramRole::Producer && outline.map("FRAME").is_none() {
            return refuse("it is a producer without a map FRAME".into(), "add OFFCODE_FRAME() to its source");
        }
        let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
        for name in outline.maps() {
            let (kind, channel) = name.split_once('_').unwrap_or((name, ""));
            let map = outline.map(name).filter(|_| matches!(kind, "IN" | "OUT" | "FRAMES"));
            match map {
                Some(map) if kind == "IN" => {
                    let slots = slots(name, map)?;
                    pairs.entry(channel.to_owned()).or_default().input = Some(slots);
                }
                Some(map) if kind == "FRAMES" => {
                    if site == SiteKind::Tc {
                        // Sockets are reached from the driver hook alone.
                        continue;
                    }
                    if map.kind != Kind::Sockets || channel.is_empty() {
                        return refuse(
                            format!("its {name} is no named map of sockets"),
                            "make it by OFFCODE_FRAMES(name)",
                        );
                    }
                    pairs.entry(channel.to_owned()).or_default().frames = true;
                }
                Some(map) if map.kind == Kind::Ring => pairs.entry(channel.to_owned()).or_default().output = true,
                Some(_) => return refuse(format!("its {name} is no ring buffer"), "make it by OFFCODE_OUT(bytes)"),
                None => {}
            }
        }
        let both = |pair: &&String| pairs[*pair].frames && (pairs[*pair].output || pairs[*pair].input.is_some());
        if let Some(name) = pairs.keys().find(both) {
            return refuse(format!("channel {name} has frames and messages"), "give one of them another name");
        }
        Ok(Hook {
            pairs,
            call: outline.program("call").is_some(),
            no_guest: guest::refusal(role, &outline),
            maps: outline.maps().filter_map(|name| outline.map(name)).collect(),
        })
    }

    /// What the kernel takes for its maps on a machine of so many cores, as far as that is known of their kinds.
    pub fn memory(&self, cores: u64) -> Bytes {
        Bytes(self.maps.iter().filter_map(|map| map.memory(cores)).fold(0, |all, map| all.saturating_add(map.0)))
    }

    /// The maps that a channel has: of its own name, of the last part of it, or those without a name.
    pub fn pair(&self, channel: &str) -> String {
        let last = channel.rsplit('/').next().unwrap_or_default();
        [channel, last].into_iter().map(identifier).find(|name| self.pairs.contains_key(name)).unwrap_or_default()
    }
}

fn slots(name: &str, map: MapOutline) -> Result<Slots, Fault> {
    let count = map.entries.saturating_sub(1);
    // The slot's length is the first word of it.
    let bytes = u64::from(map.value_size).next_multiple_of(8).saturating_sub(8);
    if map.kind != (Kind::Array { mappable: true }) || !count.is_power_of_two() || bytes < LEAST {
        let cause = format!(
            "its {name} has {count} slots of {bytes} bytes, not a shared array with a power of two of at least {LEAST}"
        );
        return Err(Fault::new("bpf body", cause, "make it by OFFCODE_IN(slots)"));
    }
    Ok(Slots { count, bytes: Bytes(bytes) })
}

/// A name as a C identifier.
fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The name of a map or a program of this kind in an object.
pub(crate) fn map_name(kind: &str, pair: &str) -> String {
    if pair.is_empty() { kind.to_owned() } else { format!("{kind}_{pair}") }
}
