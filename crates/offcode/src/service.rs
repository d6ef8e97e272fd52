//! Services: what the runtime of a site may offer beyond the basics, and a manifest may ask for as its environment
//! (HYDRA section 1.5). Each has a GUID, which stands for what it means, and a version, which counts what was added since.

use std::fmt;

use machine::bounds::{OFFCODE_TIMERS, OFFCODE_WORDS};
use machine::{Fault, Nanoseconds, Result};
use serde::{Deserialize, Serialize};

use crate::guid::Guid;

/// A service of a site's runtime. Its version is the least acceptable one in a manifest, and the offered one at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Service {
    /// GUID of the service's meaning.
    pub interface: Guid,
    /// Version, from 1; a later one has all that an earlier one has.
    pub version: u32,
}

/// Wake-ups: [`crate::Context::set_timer`] and [`crate::Lifecycle::timer`].
pub const TIMERS: Service = Service::first(*b"\x73\x01\x6d\x6c\xa7\x8d\x4c\xc2\x83\x9e\x77\x1d\xe9\xfa\x2e\xfe");

/// Named words that others can read, and the target's `memory` as a limit: [`crate::Context::share`]. At a driver hook
/// the words are the shared arrays of the object.
pub const MEMORY: Service = Service::first(*b"\x1b\x1d\x01\xd6\xce\xf1\x49\xe2\xaa\x04\x0b\x5b\xcd\x20\xfe\xd5");

/// Keyed maps ([`crate::map`]): [`crate::Context::open_map`], also under the target's `memory` as a limit. At a hook they are
/// the hash maps of the object.
pub const MAPS: Service = Service::first(*b"\x5c\x9e\x07\x3a\x2b\xd4\x41\x86\x8f\x10\xe6\x4b\x93\x77\xc5\x0d");

/// Most timers of one offcode; their numbers are below this.
pub const TIMERS_EACH: usize = OFFCODE_TIMERS.each.count();

/// Most shared words of one offcode, all names together, also bounded by its target's memory.
pub const WORDS_EACH: usize = OFFCODE_WORDS.each.count();

/// Most bytes of a name of words or of a map.
const LONGEST_NAME: usize = 128;

impl Service {
    const fn first(guid: [u8; 16]) -> Service {
        Service { interface: Guid::from_bytes(guid), version: 1 }
    }

    /// The service's name, where this build knows it.
    pub fn name(&self) -> Option<&'static str> {
        let known = [("timers", TIMERS), ("memory", MEMORY), ("maps", MAPS)];
        known.iter().find(|(_, known)| known.is(self)).map(|(name, _)| *name)
    }

    /// Whether both are the same service, whatever the version.
    pub fn is(&self, other: &Service) -> bool {
        self.interface == other.interface
    }

    /// The fault of an offcode that uses the service without having asked for it.
    pub fn not_asked(&self) -> Fault {
        let name = self.name().map_or_else(|| self.interface.to_string(), str::to_owned);
        let next =
            format!("name it: environment({name}) in the source, or <environment interface=\"{}\"/>", self.interface);
        Fault::new(name, "the manifest does not ask for this service", next)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} {}", self.version),
            None => write!(f, "{} {}", self.interface, self.version),
        }
    }
}

/// When a timer wakes its offcode, on the clock of [`crate::Context::now`]: not earlier, and later where the site is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// The first time.
    pub at: Nanoseconds,
    /// Period of further wake-ups; 0: none. Times that have passed are left out, not made up for.
    pub every: Nanoseconds,
}

impl Default for Wake {
    fn default() -> Self {
        Wake::NEVER
    }
}

impl Wake {
    /// A wake-up that never comes: it turns a timer off.
    pub const NEVER: Wake = Wake::at(Nanoseconds(u64::MAX));

    /// A single wake-up.
    pub const fn at(at: Nanoseconds) -> Wake {
        Wake { at, every: Nanoseconds(0) }
    }

    /// The same with periodic wake-ups after the first.
    pub const fn every(self, period: Nanoseconds) -> Wake {
        Wake { at: self.at, every: period }
    }
}

/// # Errors
/// No offcode has a timer of this number.
pub fn check_timer(timer: u8) -> Result<()> {
    if usize::from(timer) < TIMERS_EACH {
        return Ok(());
    }
    let cause = format!("an offcode's timers are 0 to {}", TIMERS_EACH - 1);
    Err(Fault::new(format!("timer {timer}"), cause, "use one of these, and keep what is due later yourself"))
}

/// # Errors
/// It is no name for words or a map of one's own.
pub fn check_name(name: &str) -> Result<()> {
    if (1..=LONGEST_NAME).contains(&name.len()) && !name.contains('/') {
        return Ok(());
    }
    let cause = format!("a name has 1 to {LONGEST_NAME} bytes and no '/', which comes after an offcode's name");
    Err(Fault::new(format!("name '{}'", name.chars().take(64).collect::<String>()), cause, "choose such a name"))
}

/// # Errors
/// `length` words from `at` on are not all among `count`.
pub fn check_words(name: &str, count: usize, at: u32, length: usize) -> Result<()> {
    if (at as usize).checked_add(length).is_some_and(|end| end <= count) {
        return Ok(());
    }
    let cause = format!("{length} from number {at} on are not within its {count}");
    Err(Fault::new(format!("words {name}"), cause, "share more, or keep to those that there are"))
}

/// The fault of an offcode that stores into words that it has not shared.
pub fn not_shared(name: &str) -> Fault {
    Fault::new(format!("words {name}"), "this offcode has not shared them", "share them in `initialize`")
}

/// # Errors
/// Words that are there already are to be another number.
pub fn same_count(name: &str, there: usize, asked: u32) -> Result<()> {
    if there == asked as usize {
        return Ok(());
    }
    let cause = format!("{asked} are asked for, and there are {there} under this name");
    Err(Fault::new(format!("words {name}"), cause, "share as many, or give them another name"))
}
