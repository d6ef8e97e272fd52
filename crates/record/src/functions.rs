//! The MPI functions that are recorded: one table for the recording library, the shim that its build generates, and all readers.

use std::sync::LazyLock;

/// A function's index in [`functions`], which is its number in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u16);

machine::named! {
    /// The class of a function, which decides what of its time may be waiting.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Class {
        /// A blocking send.
        Send = "send",
        /// A blocking receive.
        Receive = "receive",
        /// A blocking send and receive in one.
        Exchange = "exchange",
        /// Begins an operation and returns.
        Post = "post",
        /// Waits for operations begun before, or tests them.
        Completion = "completion",
        Probe = "probe",
        /// Makes, frees or cancels requests.
        Request = "request",
        Collective = "collective",
        Neighbour = "neighbour",
        OneSided = "one-sided",
        /// Operations on windows.
        Synchronization = "synchronization",
        /// Start, end, communicators, windows.
        Management = "management",
    }
}

/// An argument as the standard names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    pub name: &'static str,
    /// Whether C passes it by pointer; Fortran passes every argument so.
    pub by_pointer: bool,
    pub array: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub id: FunctionId,
    pub class: Class,
    /// The function's name without `MPI_`.
    pub name: &'static str,
    /// Whether MPI 4 has a variant `NAME_c` with large counts, which is recorded as this one.
    pub large_counts: bool,
    pub arguments: Vec<Argument>,
    /// The rule for the bytes of a call from its arguments, as in the table; `None`: a call has no bytes.
    pub bytes: Option<&'static str>,
}

impl Function {
    pub fn argument(&self, name: &str) -> Option<usize> {
        self.arguments.iter().position(|argument| argument.name == name)
    }
}

static TABLE: LazyLock<Vec<Function>> = LazyLock::new(|| {
    let rows = include_str!("functions.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.enumerate().map(|(id, line)| parse(id as u16, line).expect("a line of functions.txt")).collect()
});

/// All functions; a function's number is its index.
pub fn functions() -> &'static [Function] {
    &TABLE
}

pub fn function(id: FunctionId) -> Option<&'static Function> {
    TABLE.get(usize::from(id.0))
}

/// The function of this name, which is without `MPI_`.
pub fn named(name: &str) -> Option<&'static Function> {
    TABLE.iter().find(|function| function.name == name)
}

/// A hash of the table; files carry it, so that no reader uses numbers of another table.
pub fn digest() -> u64 {
    // Computed at compile time: the table has 17 KB, and each glance at a rank needs its hash.
    const DIGEST: u64 = fnv(include_bytes!("functions.txt"));
    DIGEST
}

const fn fnv(bytes: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325u64, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
}

fn parse(id: u16, line: &'static str) -> Option<Function> {
    let (class, rest) = line.split_once(' ')?;
    let (name, rest) = rest.trim_start().split_once('(')?;
    let (arguments, bytes) = rest.split_once(')')?;
    let argument = |text: &'static str| Argument {
        name: text.trim_end_matches(['*', '[', ']']),
        by_pointer: text.ends_with(['*', ']']),
        array: text.ends_with(']'),
    };
    Some(Function {
        id: FunctionId(id),
        class: Class::ALL.into_iter().find(|known| known.name() == class)?,
        name: name.trim_end_matches('+'),
        large_counts: name.ends_with('+'),
        arguments: arguments.split(", ").filter(|text| !text.is_empty()).map(argument).collect(),
        bytes: Some(bytes.trim()).filter(|rule| *rule != "-"),
    })
}

/// Functions that start MPI.
pub const STARTUP: [&str; 3] = ["Init", "Init_thread", "Session_init"];
pub const SHUTDOWN: [&str; 2] = ["Finalize", "Session_finalize"];

/// Whether shares and totals include a function: MPI_Init and MPI_Finalize are not part of the run between them.
pub fn counted(id: FunctionId) -> bool {
    function(id).is_none_or(|function| !STARTUP.contains(&function.name) && !SHUTDOWN.contains(&function.name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let names: BTreeSet<_> = functions().iter().map(|f| f.name).collect();
        assert_eq!(names.len(), functions().len());
        for f in functions() {
            assert_eq!(named(f.name), Some(f));
            assert_eq!(function(f.id), Some(f));
        }
    }

    #[test]
    fn a_line_says_what_the_standard_says() {
        let send = named("Send").unwrap();
        assert_eq!((send.class, send.large_counts, send.bytes), (Class::Send, true, Some("count*datatype")));
        let names: Vec<_> = send.arguments.iter().map(|a| a.name).collect();
        assert_eq!(names, ["buf", "count", "datatype", "dest", "tag", "comm"]);
        assert!(named("Waitall").unwrap().arguments[1].array);
        assert!(named("Wait").unwrap().arguments[0].by_pointer && !named("Wait").unwrap().arguments[0].array);
        assert_eq!(named("Finalize").unwrap().arguments, []);
    }

    #[test]
    fn every_class_has_functions() {
        for class in Class::ALL {
            assert!(functions().iter().any(|f| f.class == class), "{class}");
        }
    }
}
