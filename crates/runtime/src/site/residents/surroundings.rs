//! The context of an offcode's calls: its view of the site.

use std::time::{Duration, Instant};

use machine::{Fault, Nanoseconds, Result};
use offcode::call::Header;
use offcode::channel::Sleeper;
use offcode::map::Maps;
use offcode::service::{self, MAPS, TIMERS};
use offcode::{Attributes, Channel, ChannelId, Context, MapId, Shape, Wake, Written};

use super::super::end::{End, EndAt};
use super::super::{Deployment, Memory};
use super::timers::Timers;
use super::{Log, maps};

/// Messages that an offcode may leave with the site while it is served on the same channel.
const UNSENT: usize = 64;

pub(super) struct Surroundings {
    pub name: String,
    pub attributes: Attributes,
    pub ends: Vec<End>,
    /// Names of the peers that are reached out of band, by their place in the manifest.
    peers: Vec<Option<String>>,
    /// True from `start` on.
    pub may_write: bool,
    /// Timers, where the manifest asks for them.
    pub timers: Option<Timers>,
    pub memory: Memory,
    /// Maps, where the manifest asks for them; those of a sandboxed body are in its own memory.
    pub maps: Option<Maps>,
    /// Whether a write of this turn found no room.
    pub no_room: bool,
    origin: Instant,
    pub log: Log,
}

impl Surroundings {
    pub fn new(deployment: Deployment, origin: Instant, log: Log) -> Self {
        let peers = &deployment.manifest.software.peers;
        Surroundings {
            peers: peers.iter().map(|peer| peer.channel.is_none().then(|| peer.name.clone())).collect(),
            timers: deployment.manifest.software.asks(&TIMERS).then(Timers::new),
            maps: deployment.manifest.software.asks(&MAPS).then(Maps::default),
            memory: deployment.memory,
            name: deployment.name,
            attributes: deployment.attributes,
            ends: vec![End::vacant()],
            may_write: false,
            no_room: false,
            origin,
            log,
        }
    }

    /// Joins an endpoint. The empty name is the out-of-band channel.
    pub fn adopt(&mut self, name: &str, channel: Box<dyn Channel>) -> Result<ChannelId> {
        let end = End::new(name, channel);
        if name.is_empty() {
            self.ends[0] = end;
            return Ok(ChannelId::OUT_OF_BAND);
        }
        if let Some(at) = self.ends.iter().skip(1).position(|end| end.name == name) {
            let old = &mut self.ends[1 + at];
            if old.channel.as_ref().is_some_and(|channel| channel.is_abandoned()) {
                // The old end is abandoned: what is attached under its name takes its place.
                *old = end;
                return Ok(ChannelId(1 + at as u32));
            }
            return Err(Fault::new(
                format!("channel '{name}' of offcode {}", self.name),
                "it has one of that name already",
                "attach it under another name",
            ));
        }
        self.ends.push(end);
        Ok(ChannelId(self.ends.len() as u32 - 1))
    }

    pub fn flush(&mut self) {
        for end in &mut self.ends {
            end.flush();
        }
    }

    /// Has a message on any of its channels end the sleep that the thread is about to begin. `None`: there is one already.
    /// Else whether something waits for room, which nobody tells of.
    pub fn arm(&mut self, sleeper: &mut dyn Sleeper) -> Option<bool> {
        let mut waits = self.no_room;
        for end in &mut self.ends {
            if end.channel.as_mut().is_some_and(|channel| !channel.arm(sleeper)) {
                return None;
            }
            waits |= end.waits();
        }
        Some(waits)
    }

    /// How long it is until a timer is due.
    pub fn due_within(&self) -> Option<Duration> {
        let next = self.timers.as_ref().map(|timers| timers.next).filter(|next| *next != Wake::NEVER.at)?;
        Some(Duration::from_nanos(next.0.saturating_sub(self.now().0)))
    }

    /// Its ends, but for one that is being read from.
    pub fn ends(&self) -> impl Iterator<Item = EndAt> {
        self.ends.iter().filter_map(|end| {
            let channel = end.channel.as_ref()?;
            let (specification, counted) = (*channel.specification(), channel.counted());
            let (unsent, refused, loses) = (end.unsent.len() as u64, end.refused, channel.loses());
            Some(EndAt { name: end.name.clone(), specification, counted, unsent, refused, loses })
        })
    }

    /// Queues a message behind those that wait already.
    pub fn defer(&mut self, channel: ChannelId, message: &[u8]) {
        let (id, message) = match channel.as_peer() {
            Some(place) => match self.routed(place, message) {
                Some(message) => (0, message),
                None => return,
            },
            None => (channel.0 as usize, message.to_vec()),
        };
        if let Some(end) = self.ends.get_mut(id) {
            end.unsent.push_back(message);
        }
    }

    /// A call out of band with the place of its peer in its header.
    fn routed(&mut self, place: u8, message: &[u8]) -> Option<Vec<u8>> {
        let Some((mut header, rest)) = Header::read(message) else {
            (self.log)(&format!("{}: only calls go out of band; a message needs a channel of its own", self.name));
            return None;
        };
        header.route = place + 1;
        let mut whole = vec![0; message.len()];
        if let Some((head, body)) = whole.split_first_chunk_mut() {
            header.write(head);
            body.copy_from_slice(rest);
        }
        Some(whole)
    }
}

impl Context for Surroundings {
    fn now(&self) -> Nanoseconds {
        Nanoseconds(self.origin.elapsed().as_nanos() as u64)
    }

    fn channel(&self, name: &str) -> Option<ChannelId> {
        if !self.may_write || name.is_empty() {
            return None;
        }
        let own = self.ends.iter().position(|end| end.name == name).map(|id| ChannelId(id as u32));
        own.or_else(|| {
            self.peers.iter().position(|peer| peer.as_deref() == Some(name)).map(|n| ChannelId::peer(n as u8))
        })
    }

    fn write(&mut self, channel: ChannelId, message: &[u8]) -> Written {
        if !self.may_write {
            return Written::Gone;
        }
        if let Some(place) = channel.as_peer() {
            return match self.routed(place, message) {
                Some(whole) => self.write(ChannelId::OUT_OF_BAND, &whole),
                None => {
                    self.ends[0].refused += 1;
                    Written::Refused
                }
            };
        }
        let Some(end) = self.ends.get_mut(channel.0 as usize) else { return Written::Gone };
        let Some(open) = end.channel.as_mut() else {
            // The seat is reading from it: the message goes out right after.
            if end.unsent.len() >= UNSENT {
                self.no_room = true;
                return Written::Full;
            }
            end.unsent.push_back(message.to_vec());
            return Written::Taken;
        };
        // Messages that wait are not overtaken.
        if !end.unsent.is_empty() {
            if end.flush() {
                return self.write(channel, message);
            }
            self.no_room = true;
            return Written::Full;
        }
        let written = open.write(message).unwrap_or_else(|fault| {
            (self.log)(&format!("{}: channel '{}': {fault}", self.name, end.name));
            end.refused += 1;
            Written::Refused
        });
        self.no_room |= written == Written::Full;
        written
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)
    }

    fn log(&mut self, line: &str) {
        (self.log)(&format!("{}: {line}", self.name));
    }

    fn set_timer(&mut self, timer: u8, wake: Wake) -> Result<()> {
        let timers = self.timers.as_mut().ok_or_else(|| TIMERS.not_asked())?;
        service::check_timer(timer)?;
        timers.set(timer, wake);
        Ok(())
    }

    fn share(&mut self, words: &str, count: u32) -> Result<()> {
        self.memory.share(&self.name, words, count)
    }

    fn store(&mut self, words: &str, at: u32, values: &[u64]) -> Result<()> {
        self.memory.store(words, at, values)
    }

    fn load(&mut self, words: &str, at: u32, values: &mut [u64]) -> Result<bool> {
        self.memory.load(words, at, values)
    }

    fn open_map(&mut self, name: &str, shape: Shape) -> Result<MapId> {
        let maps = self.maps.as_mut().ok_or_else(|| MAPS.not_asked())?;
        maps::open(maps, &mut self.memory, name, shape)
    }

    fn maps(&mut self) -> Option<&mut Maps> {
        self.maps.as_mut()
    }
}
