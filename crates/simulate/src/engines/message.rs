//! What the engines carry: messages that have a length and no bytes.

use std::cell::Cell;
use std::rc::Rc;

/// The buffer of a request. A receive takes whatever comes, as LogGOPSim's does.
#[derive(Debug)]
pub(super) struct Message {
    length: usize,
    /// Bytes written to it.
    pub written: u64,
    /// The same of all messages.
    all: Rc<Cell<u64>>,
}

impl Message {
    /// Not 0, so that it can be read from outside; its pieces follow.
    pub const ADDRESS: u64 = 1;

    pub fn sent(length: u64, all: &Rc<Cell<u64>>) -> Message {
        Message { length: length as usize, written: 0, all: all.clone() }
    }

    pub fn to_receive(all: &Rc<Cell<u64>>) -> Message {
        Message::sent(u64::MAX >> 1, all)
    }
}

impl engine::Buffer for Message {
    fn length(&self) -> usize {
        self.length
    }

    fn address(&self) -> u64 {
        Message::ADDRESS
    }

    fn read(&self, _: usize, _: &mut [u8]) {}

    fn write(&mut self, _: usize, from: &[u8]) {
        self.written += from.len() as u64;
        self.all.set(self.all.get() + from.len() as u64);
    }

    fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        None
    }
}
