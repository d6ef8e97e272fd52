//! The engines' buffers: messages that have a length and no bytes.

use std::cell::Cell;
use std::rc::Rc;

/// The buffer of a request. A receive matches messages of any length, as in LogGOPSim.
#[derive(Debug)]
pub(super) struct Message {
    length: usize,
    /// Bytes written to the buffer.
    pub written: u64,
    /// Bytes written to all buffers.
    all: Rc<Cell<u64>>,
}

impl Message {
    /// A dummy address, not 0 so that the buffer can be read remotely; its pieces follow.
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
