//! Receives and the messages that they meet.

use super::super::ANY;

/// A half that waits for the other: a posted receive, by its number, or a message, by its slot.
#[derive(Debug, Clone, Copy)]
pub struct Half {
    pub peer: u32,
    pub tag: u32,
    pub which: u32,
}

impl Half {
    fn meets(&self, other: &Half) -> bool {
        let peers = self.peer == ANY || other.peer == ANY || self.peer == other.peer;
        peers && (self.tag == ANY || other.tag == ANY || self.tag == other.tag)
    }
}

/// The unmatched halves of a rank, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    pub posted: Vec<Half>,
    pub unexpected: Vec<Half>,
}

impl Matching {
    /// Matches a receive with a message, or queues it.
    pub fn post(&mut self, receive: Half) -> Option<u32> {
        meet(receive, &mut self.unexpected, &mut self.posted)
    }

    /// Matches a message with a receive, or queues it.
    pub fn arrive(&mut self, message: Half) -> Option<u32> {
        meet(message, &mut self.posted, &mut self.unexpected)
    }
}

fn meet(half: Half, among: &mut Vec<Half>, else_waits: &mut Vec<Half>) -> Option<u32> {
    let found = among.iter().position(|other| half.meets(other));
    match found {
        Some(at) => Some(among.remove(at).which),
        None => {
            else_waits.push(half);
            None
        }
    }
}
