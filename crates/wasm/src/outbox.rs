//! The channels of a guest as its host sees them: how much room it is told of, and what waits for room outside.

use std::collections::VecDeque;

use offcode::abi::{self, CHANNELS, GONE};
use offcode::{ChannelId, Context, Written};

pub struct Outbox {
    /// One entry a channel up to the highest known.
    channels: Vec<Line>,
    /// Number of messages kept, over all channels.
    kept: usize,
    kept_bytes: usize,
    most_kept: u32,
    most_bytes: usize,
}

/// Ways to peers are lines of the out-of-band channel.
#[derive(Default)]
struct Line {
    known: bool,
    gone: bool,
    waiting: VecDeque<(ChannelId, Vec<u8>)>,
}

impl Outbox {
    /// Keeps up to `messages` a channel, and stops promising room once `bytes` are kept in all.
    pub fn new(messages: u32, bytes: usize) -> Self {
        let out_of_band = Line { known: true, ..Line::default() };
        Outbox { channels: vec![out_of_band], kept: 0, kept_bytes: 0, most_kept: messages, most_bytes: bytes }
    }

    /// Adds a channel; false where the border cannot carry its number.
    pub fn know(&mut self, channel: ChannelId) -> bool {
        if channel.as_peer().is_some() {
            return true;
        }
        let index = channel.0 as usize;
        if index >= CHANNELS {
            return false;
        }
        if index >= self.channels.len() {
            self.channels.resize_with(index + 1, Line::default);
        }
        self.channels[index].known = true;
        true
    }

    /// Fills the room table and says how many entries it has.
    #[inline]
    pub fn room(&self, table: &mut [u32; CHANNELS]) -> usize {
        for (line, room) in self.channels.iter().zip(table.iter_mut()) {
            *room = match line {
                Line { known: false, .. } | Line { gone: true, .. } => GONE,
                _ if self.kept_bytes >= self.most_bytes => 0,
                Line { waiting, .. } => self.most_kept.saturating_sub(waiting.len() as u32),
            };
        }
        self.channels.len()
    }

    /// Writes a message, or keeps it behind those that wait. The output has been checked: there is room.
    #[inline]
    pub fn write(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        let Some(line) = self.channels.get_mut(abi::line(channel.0) as usize) else { return };
        if !line.known || line.gone {
            return;
        }
        if line.waiting.is_empty() {
            match context.write(channel, message) {
                Written::Taken | Written::Dropped | Written::Refused => return,
                Written::Gone => return line.gone = true,
                Written::Full => {}
            }
        }
        line.waiting.push_back((channel, message.to_vec()));
        self.kept += 1;
        self.kept_bytes += message.len();
    }

    /// Writes messages that wait, in order; true where some are left.
    #[inline]
    pub fn retry(&mut self, context: &mut dyn Context) -> bool {
        self.kept != 0 && self.retry_all(context)
    }

    fn retry_all(&mut self, context: &mut dyn Context) -> bool {
        let before = self.kept;
        for line in &mut self.channels {
            while let Some((channel, message)) = line.waiting.front() {
                match context.write(*channel, message) {
                    Written::Full => break,
                    Written::Gone => line.gone = true,
                    Written::Taken | Written::Dropped | Written::Refused => {}
                }
                self.kept -= 1;
                self.kept_bytes -= message.len();
                line.waiting.pop_front();
            }
        }
        self.kept < before
    }

    /// Removes the messages that wait, of each channel in order.
    pub fn take(&mut self) -> Vec<(ChannelId, Vec<u8>)> {
        (self.kept, self.kept_bytes) = (0, 0);
        self.channels.iter_mut().flat_map(|line| line.waiting.drain(..)).collect()
    }

    /// Number of messages kept.
    pub fn kept(&self) -> usize {
        self.kept
    }
}
