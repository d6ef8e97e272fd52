//! The limits of guests.

use machine::bounds::*;
use machine::{Bytes, Nanoseconds};

/// The bounds of one module and of each of its instances.
///
/// An instance has one memory; its code and the calls under way in it are bounded as well (`module`, `function`, and
/// 256 KiB of stack).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory. A larger initial memory is refused, growth beyond fails inside the guest as wasm specifies.
    pub memory: Bytes,
    /// Elements of all tables together.
    pub table_elements: usize,
    /// CPU time of one entry into the guest (up to 16 messages, or one of the other events). It is ended when it has used
    /// this much and at most 12 ms more. CPU time, since a thread that lost its core to another has done nothing wrong.
    pub time: Nanoseconds,
    /// Most bytes that one entry may put out.
    pub output: Bytes,
    /// Longest reply to a call; a longer one becomes a refusal.
    pub reply: Bytes,
    /// Writes that a reliable channel had no room for and that the host keeps, per channel. As many are promised to the
    /// guest at every entry.
    pub kept: u32,
    /// The module's file.
    pub module: Bytes,
    /// The code of its largest function. Compilation cannot be interrupted; its time grows with the size of the module, and
    /// faster than that only with the size of a function. In both a local variable counts as a byte.
    pub function: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: WASM_MEMORY.each.bytes(),
            table_elements: WASM_TABLES.each.count(),
            time: Nanoseconds(20_000_000),
            output: WASM_OUTPUT.each.bytes(),
            reply: WASM_REPLY.each.bytes(),
            kept: WASM_KEPT.each.count() as u32,
            module: WASM_MODULE.each.bytes(),
            function: WASM_FUNCTION.each.bytes(),
        }
    }
}
