//! Faults of a channel.

use machine::channel::Specification;
use machine::{Bytes, Fault};

#[cold]
pub(super) fn over_size(length: usize, specification: &Specification) -> Fault {
    let cause = format!("the channel's buffers hold {}", specification.buffers.size);
    Fault::new(format!("message of {}", Bytes(length as u64)), cause, "send it in pieces, or ask for larger buffers")
}

#[cold]
pub(super) fn polled() -> Fault {
    Fault::new("wait on a channel", "it is polled: no write wakes a sleeper", "ask for the synchronization `blocking`")
}

#[cold]
pub(super) fn not_the_writer() -> Fault {
    Fault::new("write to a multicast channel", "this end reads: its creator writes", "answer over a channel of its own")
}
