//! A site's side of the calls into one offcode, which writes down what the offcode does.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::{BTreeMap, BTreeSet};

use machine::{Nanoseconds, Result};
use offcode::manifest::{Interface, Manifest, Package, Software};
use offcode::map::Maps;
use offcode::{Attributes, ChannelId, Context, Guid, Offcode, Wake, Written, service};

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
    pub timers: Vec<(u8, Wake)>,
    pub words: BTreeMap<String, Vec<u64>>,
    pub stored: Vec<(String, u32, Vec<u64>)>,
    /// Of a body that is not sandboxed.
    pub maps: Maps,
}

/// Name and entries of each map, in order.
pub type Content = Vec<(String, BTreeMap<Vec<u8>, Vec<u8>>)>;

impl Recorder {
    /// What is in the maps of a body.
    pub fn mapped(&self, body: &dyn Offcode) -> Content {
        let mut all = body.own_maps();
        all.extend(self.maps.tables().iter().map(|table| (table.name(), table.entries())));
        let owned = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
        all.into_iter().map(|(name, entries)| (name.to_owned(), entries.map(owned).collect())).collect()
    }
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

    fn set_timer(&mut self, timer: u8, wake: Wake) -> Result<()> {
        service::check_timer(timer)?;
        self.timers.push((timer, wake));
        Ok(())
    }

    fn share(&mut self, words: &str, count: u32) -> Result<()> {
        self.words.entry(words.into()).or_insert_with(|| vec![0; count as usize]);
        Ok(())
    }

    fn store(&mut self, words: &str, at: u32, values: &[u64]) -> Result<()> {
        let own = self.words.get_mut(words).ok_or_else(|| service::not_shared(words))?;
        service::check_words(words, own.len(), at, values.len())?;
        own[at as usize..][..values.len()].copy_from_slice(values);
        self.stored.push((words.into(), at, values.to_vec()));
        Ok(())
    }

    fn load(&mut self, words: &str, at: u32, values: &mut [u64]) -> Result<bool> {
        let Some(there) = self.words.get(words) else { return Ok(false) };
        service::check_words(words, there.len(), at, values.len())?;
        values.copy_from_slice(&there[at as usize..][..values.len()]);
        Ok(true)
    }

    fn maps(&mut self) -> Option<&mut Maps> {
        Some(&mut self.maps)
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

/// The same, which asks for all services.
pub fn served(name: &str, interfaces: &[Guid]) -> Manifest {
    let environment = vec![service::TIMERS, service::MEMORY, service::MAPS];
    Manifest { software: Software { environment, ..Software::default() }, ..manifest(name, interfaces) }
}
