//! Messages on their way, and the buffers of connections.

use std::collections::BTreeMap;

/// The part of a message that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Data,
    /// Request that asks whether the receive is there.
    Request,
    /// Clearance to send.
    Clear,
}

/// A message, in bytes from its start.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    pub from: u32,
    pub to: u32,
    pub tag: u32,
    pub bytes: u64,
    pub copied: u64,
    pub handed: u64,
    pub delivered: u64,
    pub taken: u64,
    /// The operations that send it and receive it.
    pub send: u32,
    pub receive: u32,
    /// Its place in the order in which all messages came to be.
    pub order: u32,
    /// Whether it waits for its receive.
    pub rendezvous: bool,
    pub send_is_over: bool,
}

impl Message {
    /// The bytes of the piece that begins at `place`.
    pub fn piece(&self, place: u64, unit: u64) -> u64 {
        unit.min(self.bytes - place)
    }
}

/// Messages in use, and free slots.
#[derive(Debug, Default)]
pub struct Messages {
    slots: Vec<Message>,
    unused: Vec<u32>,
}

impl Messages {
    pub fn put(&mut self, message: Message) -> u32 {
        match self.unused.pop() {
            Some(slot) => {
                self.slots[slot as usize] = message;
                slot
            }
            None => {
                self.slots.push(message);
                self.slots.len() as u32 - 1
            }
        }
    }

    pub fn give_back(&mut self, slot: u32) {
        self.unused.push(slot);
    }

    pub fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Message>() + self.unused.capacity() * size_of::<u32>()
    }
}

impl std::ops::Index<u32> for Messages {
    type Output = Message;

    fn index(&self, slot: u32) -> &Message {
        &self.slots[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for Messages {
    fn index_mut(&mut self, slot: u32) -> &mut Message {
        &mut self.slots[slot as usize]
    }
}

/// Bytes in the buffers of a connection one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Buffers {
    /// Bytes copied into the library's buffer and not handed to the socket.
    pub library: u64,
    /// Bytes handed to the socket and not known to be taken.
    pub socket: u64,
}

/// Buffers that hold anything, by sender and receiver.
#[derive(Debug, Default)]
pub struct Connections {
    held: BTreeMap<(u32, u32), Buffers>,
    most: usize,
}

impl Connections {
    pub fn of(&self, from: u32, to: u32) -> Buffers {
        self.held.get(&(from, to)).copied().unwrap_or_default()
    }

    pub fn change(&mut self, from: u32, to: u32, change: impl FnOnce(&mut Buffers)) {
        let buffers = self.held.entry((from, to)).or_default();
        change(buffers);
        if *buffers == Buffers::default() {
            self.held.remove(&(from, to));
        }
        self.most = self.most.max(self.held.len());
    }

    pub fn memory(&self) -> usize {
        // Nodes of a B-tree are at least half full.
        2 * self.most * size_of::<((u32, u32), Buffers)>()
    }
}
