//! A site's side of the calls into one offcode, which writes down what the offcode does.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::{BTreeMap, BTreeSet};

use machine::Nanoseconds;
use offcode::manifest::{Interface, Manifest, Package, Software};
use offcode::{Attributes, ChannelId, Context, Guid, Written};

#[derive(Default)]
pub struct Recorder {
    pub now: u64,
    pub channels: BTreeMap<String, ChannelId>,
    pub attributes: Attributes,
    /// Writes that are still taken before a channel is full. Absent: any number.
    pub room: BTreeMap<u32, usize>,
    pub gone: BTreeSet<u32>,
    pub written: Vec<(u32, Vec<u8>)>,
    pub lines: Vec<String>,
}

impl Context for Recorder {
    fn now(&self) -> Nanoseconds {
        Nanoseconds(self.now)
    }

    fn channel(&self, name: &str) -> Option<ChannelId> {
        self.channels.get(name).copied()
    }

    fn write(&mut self, channel: ChannelId, message: &[u8]) -> Written {
        if self.gone.contains(&channel.0) {
            return Written::Gone;
        }
        match self.room.get_mut(&channel.0) {
            Some(0) => return Written::Full,
            Some(room) => *room -= 1,
            None => {}
        }
        self.written.push((channel.0, message.to_vec()));
        Written::Taken
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)
    }

    fn log(&mut self, line: &str) {
        self.lines.push(line.into());
    }
}

/// A manifest that declares these interfaces.
pub fn manifest(name: &str, interfaces: &[Guid]) -> Manifest {
    let interface = |guid: &Guid| Interface { guid: *guid, name: format!("interface {guid}"), methods: Vec::new() };
    Manifest {
        package: Package {
            guid: Guid::named(name),
            name: name.into(),
            version: "1.0.0".into(),
            description: String::new(),
            interfaces: interfaces.iter().map(interface).collect(),
            bodies: Vec::new(),
            attributes: Vec::new(),
            state: Default::default(),
        },
        hardware: Vec::new(),
        software: Software::default(),
    }
}
