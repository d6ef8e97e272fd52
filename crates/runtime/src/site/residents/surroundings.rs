//! What an offcode sees of its site: the context of its calls.

use std::collections::VecDeque;
use std::time::Instant;

use machine::{Fault, Nanoseconds, Result};
use offcode::call::Header;
use offcode::channel::Content;
use offcode::{Attributes, Channel, ChannelId, Context, Written};

use super::super::Deployment;
use super::Log;

/// Messages that an offcode may leave with the site while it is served on the same channel.
const UNSENT: usize = 64;

/// One endpoint, and what waits to go out on it.
pub(super) struct End {
    pub name: String,
    pub content: Content,
    /// Absent only while the seat reads from it.
    pub channel: Option<Box<dyn Channel>>,
    pub unsent: VecDeque<Vec<u8>>,
}

impl End {
    fn vacant() -> Self {
        End { name: String::new(), content: Content::Calls, channel: None, unsent: VecDeque::new() }
    }

    /// Sends what waits; says whether all is out.
    pub fn flush(&mut self) -> bool {
        let Some(channel) = self.channel.as_mut() else { return self.unsent.is_empty() };
        while let Some(message) = self.unsent.front() {
            if let Ok(Written::Full) = channel.write(message) {
                return false;
            }
            self.unsent.pop_front();
        }
        true
    }
}

pub(super) struct Surroundings {
    pub name: String,
    pub attributes: Attributes,
    pub ends: Vec<End>,
    /// Names of the peers that are reached out of band, by their place in the manifest.
    peers: Vec<Option<String>>,
    /// From `start` on.
    pub may_write: bool,
    origin: Instant,
    pub log: Log,
}

impl Surroundings {
    pub fn new(deployment: Deployment, origin: Instant, log: Log) -> Self {
        let peers = &deployment.manifest.software.peers;
        Surroundings {
            peers: peers.iter().map(|peer| peer.channel.is_none().then(|| peer.name.clone())).collect(),
            name: deployment.name,
            attributes: deployment.attributes,
            ends: vec![End::vacant()],
            may_write: false,
            origin,
            log,
        }
    }

    /// Joins an endpoint. The empty name is the out-of-band channel.
    pub fn adopt(&mut self, name: &str, channel: Box<dyn Channel>) -> Result<ChannelId> {
        let content = channel.specification().content;
        let end = End { name: name.into(), content, channel: Some(channel), unsent: VecDeque::new() };
        if name.is_empty() {
            self.ends[0] = end;
            return Ok(ChannelId::OUT_OF_BAND);
        }
        if self.ends[1..].iter().any(|end| end.name == name) {
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

    fn write_to_peer(&mut self, place: u8, message: &[u8]) -> Written {
        // A call out of band carries whom it is for in its own header.
        let Some((mut header, rest)) = Header::read(message) else {
            (self.log)(&format!("{}: only calls go out of band; a message needs a channel of its own", self.name));
            return Written::Refused;
        };
        header.route = place + 1;
        let mut whole = vec![0; message.len()];
        if let Some((head, body)) = whole.split_first_chunk_mut() {
            header.write(head);
            body.copy_from_slice(rest);
        }
        self.write(ChannelId::OUT_OF_BAND, &whole)
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
            return self.write_to_peer(place, message);
        }
        let Some(end) = self.ends.get_mut(channel.0 as usize) else { return Written::Gone };
        let Some(open) = end.channel.as_mut() else {
            // The seat is reading from it: the message goes out right after.
            if end.unsent.len() >= UNSENT {
                return Written::Full;
            }
            end.unsent.push_back(message.to_vec());
            return Written::Taken;
        };
        open.write(message).unwrap_or_else(|fault| {
            (self.log)(&format!("{}: channel '{}': {fault}", self.name, end.name));
            Written::Refused
        })
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)
    }

    fn log(&mut self, line: &str) {
        (self.log)(&format!("{}: {line}", self.name));
    }
}
