//! The most that an agent grants its clients, from [`machine::bounds`] unless it is told otherwise.

use std::sync::Arc;
use std::time::Duration;

use machine::bounds::*;
use machine::budget::{Exhausted, Share};
use machine::{Budget, Bytes, Fault, FaultKind, Result};
use offcode::manifest::Digest;

/// Bounds of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Authenticated clients at once.
    pub clients: usize,
    /// Most authenticated clients from one address.
    pub clients_per_address: usize,
    /// Most connections that have not authenticated. Beyond them the least likely client is closed.
    pub pending: usize,
    /// Time to authenticate.
    pub handshake: Duration,
    /// Silence after which a client counts as gone; a living one gives a sign every second.
    pub idle: Duration,
    /// Largest frame, checked before memory is taken for it.
    pub frame: Bytes,
    /// Most bytes of a body.
    pub code: Bytes,
    /// Bytes of bodies kept, so that a second deploy need not send them.
    pub cache: Bytes,
    /// Most offcodes of all clients.
    pub offcodes: usize,
    /// Most offcodes of one client.
    pub offcodes_per_client: usize,
    /// Memory and machine code of all clients' sandboxed bodies.
    pub sandboxes: Bytes,
    /// Most memory and machine code of one client's sandboxed bodies.
    pub sandboxes_per_client: Bytes,
    /// Memory of the maps of all clients' bodies at driver hooks.
    pub maps: Bytes,
    /// Most memory of the maps of one client's bodies.
    pub maps_per_client: Bytes,
    /// Percent of each core that one client's offcodes may take there together; `None`: all of it.
    pub cpu_per_client: Option<u32>,
    /// Most channels of one client.
    pub channels: usize,
    /// Most channels of all clients.
    pub channels_total: usize,
    /// Most bytes of the buffers of one channel, count times size.
    pub buffers: Bytes,
    /// Most memory of all clients' channels.
    pub channel_memory: Bytes,
    /// Most memory of one client's channels.
    pub channel_memory_per_client: Bytes,
    /// Most requests of one client that wait for their answer.
    pub requests: usize,
    /// Most bytes of those requests' frames.
    pub request_bytes: Bytes,
    /// Answers and out-of-band messages that wait for one client to read them.
    pub backlog: Bytes,
    /// Native libraries that clients may bring. They run with all rights of the agent.
    pub native: Vec<Digest>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients: AGENT_CLIENTS.total.count(),
            clients_per_address: AGENT_CLIENTS.each.count(),
            pending: AGENT_PENDING.total.count(),
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(10),
            frame: AGENT_FRAME.each.bytes(),
            code: AGENT_CODE.each.bytes(),
            cache: AGENT_CACHE.total.bytes(),
            offcodes: AGENT_OFFCODES.total.count(),
            offcodes_per_client: AGENT_OFFCODES.each.count(),
            sandboxes: AGENT_SANDBOXES.total.bytes(),
            sandboxes_per_client: AGENT_SANDBOXES.each.bytes(),
            maps: AGENT_MAPS.total.bytes(),
            maps_per_client: AGENT_MAPS.each.bytes(),
            cpu_per_client: None,
            channels: AGENT_CHANNELS.each.count(),
            channels_total: AGENT_CHANNELS.total.count(),
            buffers: AGENT_BUFFERS.each.bytes(),
            channel_memory: AGENT_CHANNEL_MEMORY.total.bytes(),
            channel_memory_per_client: AGENT_CHANNEL_MEMORY.each.bytes(),
            requests: AGENT_REQUESTS.each.count(),
            request_bytes: AGENT_REQUEST_BYTES.each.bytes(),
            backlog: AGENT_BACKLOG.each.bytes(),
            native: Vec::new(),
        }
    }
}

/// Bounds of the frame limit: room for a manifest of some size, and the most that a length field should state.
const FRAMES: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

impl Limits {
    /// The names that [`Limits::set`] takes, with the meaning of their numbers.
    pub const NAMES: &[(&str, &str)] = &[
        ("clients", "authenticated clients at once"),
        ("clients-per-address", "authenticated clients from one address at once"),
        ("pending", "connections at once that have not authenticated"),
        ("handshake", "milliseconds within which a connection must authenticate"),
        ("idle", "milliseconds of silence after which a client, which says something every 2 s, is given up"),
        ("frame", "bytes of one request"),
        ("code", "bytes of one body"),
        ("cache", "bytes of all bodies that are kept for later deployments"),
        ("offcodes", "offcodes of all clients at once"),
        ("offcodes-per-client", "offcodes of one client at once"),
        ("sandboxes", "bytes of memory and machine code of all sandboxed bodies"),
        ("sandboxes-per-client", "bytes of memory and machine code of one client's sandboxed bodies"),
        ("maps", "bytes of the maps of all bodies at driver hooks"),
        ("maps-per-client", "bytes of the maps of one client's bodies at driver hooks"),
        ("cpu-per-client", "percent of each core that one client's offcodes may take there; without it all"),
        ("channels", "channels of one client"),
        ("channels-total", "channels of all clients"),
        ("buffers", "bytes of one channel's buffers"),
        ("channel-memory", "bytes that all channels may take"),
        ("channel-memory-per-client", "bytes that one client's channels may take"),
        ("requests", "requests of one client that wait for their answers"),
        ("request-bytes", "bytes of one client's requests that wait for their answers"),
        ("backlog", "bytes of answers and messages that one client has not read"),
    ];

    /// Sets one limit by its name. A fault names the names, or the acceptable values.
    pub fn set(&mut self, name: &str, value: u64) -> Result<()> {
        let subject = || format!("limit {name}={value}");
        if value == 0 && name != "cache" {
            return Err(Fault::new(subject(), "nothing would be allowed", "give at least 1"));
        }
        let count = usize::try_from(value).unwrap_or(usize::MAX);
        match name {
            "clients" => self.clients = count,
            "clients-per-address" => self.clients_per_address = count,
            "pending" => self.pending = count,
            "handshake" => self.handshake = Duration::from_millis(value),
            "idle" => self.idle = Duration::from_millis(value),
            "frame" if !FRAMES.contains(&value) => {
                let cause = "a frame has to carry a manifest and to fit in memory";
                return Err(Fault::new(subject(), cause, format!("give {} to {}", FRAMES.start(), FRAMES.end())));
            }
            "frame" => self.frame = Bytes(value),
            "code" => self.code = Bytes(value),
            "cache" => self.cache = Bytes(value),
            "offcodes" => self.offcodes = count,
            "offcodes-per-client" => self.offcodes_per_client = count,
            "sandboxes" => self.sandboxes = Bytes(value),
            "sandboxes-per-client" => self.sandboxes_per_client = Bytes(value),
            "maps" => self.maps = Bytes(value),
            "maps-per-client" => self.maps_per_client = Bytes(value),
            "cpu-per-client" if value > 100 => {
                let cause = "it is percent of a core, of which there are 100";
                return Err(Fault::new(subject(), cause, "give 1 to 100, or leave it out"));
            }
            "cpu-per-client" => self.cpu_per_client = Some(value as u32),
            "channels" => self.channels = count,
            "channels-total" => self.channels_total = count,
            "buffers" => self.buffers = Bytes(value),
            "channel-memory" => self.channel_memory = Bytes(value),
            "channel-memory-per-client" => self.channel_memory_per_client = Bytes(value),
            "requests" => self.requests = count,
            "request-bytes" => self.request_bytes = Bytes(value),
            "backlog" => self.backlog = Bytes(value),
            _ => {
                let names: Vec<&str> = Limits::NAMES.iter().map(|(name, _)| *name).collect();
                return Err(Fault::new(subject(), "there is no such limit", format!("use {}", names.join(", "))));
            }
        }
        Ok(())
    }
}

/// Shares drawn from limits, held until they are dropped.
pub(crate) type Shares = Vec<Share>;

/// The rest of an agent's limits, for all clients or for one of them.
#[derive(Debug)]
pub(crate) struct Budgets {
    offcodes: Arc<Budget>,
    sandboxes: Arc<Budget>,
    maps: Arc<Budget>,
    channels: Arc<Budget>,
    channel_memory: Arc<Budget>,
    requests: Arc<Budget>,
    request_bytes: Arc<Budget>,
}

impl Budgets {
    pub fn of_all(limits: &Limits) -> Budgets {
        // Requests are bounded by client alone.
        Budgets {
            offcodes: Budget::new(limits.offcodes as u64),
            sandboxes: Budget::new(limits.sandboxes.0),
            maps: Budget::new(limits.maps.0),
            channels: Budget::new(limits.channels_total as u64),
            channel_memory: Budget::new(limits.channel_memory.0),
            requests: Budget::new(u64::MAX),
            request_bytes: Budget::new(u64::MAX),
        }
    }

    pub fn of_client(&self, limits: &Limits) -> Budgets {
        Budgets {
            offcodes: self.offcodes.part(limits.offcodes_per_client as u64),
            sandboxes: self.sandboxes.part(limits.sandboxes_per_client.0),
            maps: self.maps.part(limits.maps_per_client.0),
            channels: self.channels.part(limits.channels as u64),
            channel_memory: self.channel_memory.part(limits.channel_memory_per_client.0),
            requests: self.requests.part(limits.requests as u64),
            request_bytes: self.request_bytes.part(limits.request_bytes.0),
        }
    }

    pub fn offcode(&self) -> Result<Share> {
        self.offcodes.draw(1).map_err(|exhausted| match exhausted {
            Exhausted::Own => {
                let cause = format!("the client has {} offcodes, the most of one client", self.offcodes.total());
                limit(cause, "remove some, or start the agent with a larger --limit offcodes-per-client=N")
            }
            Exhausted::Whole => {
                let cause =
                    format!("{} offcodes are here, the most that this agent takes", self.offcodes.total_of_all());
                limit(cause, "remove some, or start the agent with a larger --limit offcodes=N")
            }
        })
    }

    pub fn sandbox(&self, size: Bytes) -> Result<Share> {
        self.sandboxes.draw(size.0).map_err(|exhausted| {
            let (whose, name) = match exhausted {
                Exhausted::Own => ("the client's", "sandboxes-per-client"),
                Exhausted::Whole => ("all clients'", "sandboxes"),
            };
            let cause = format!("{size} more are beyond what {whose} sandboxed bodies may take");
            limit(cause, &format!("remove some, or start the agent with a larger --limit {name}=BYTES"))
        })
    }

    pub fn maps(&self, size: Bytes) -> Result<Share> {
        self.maps.draw(size.0).map_err(|exhausted| {
            let (whose, name) = match exhausted {
                Exhausted::Own => ("the client's", "maps-per-client"),
                Exhausted::Whole => ("all clients'", "maps"),
            };
            let cause = format!("{size} more are beyond what maps of {whose} bodies at driver hooks may take");
            limit(
                cause,
                &format!("make the object's maps smaller, or start the agent with a larger --limit {name}=BYTES"),
            )
        })
    }

    /// The shares of a channel that takes this much memory.
    pub fn channel(&self, size: Bytes) -> Result<Shares> {
        let one = self.channels.draw(1).map_err(|exhausted| match exhausted {
            Exhausted::Own => {
                let cause =
                    format!("the client has {} channels, the most that this agent takes", self.channels.total());
                limit(cause, "close some, or start the agent with --limit channels=N")
            }
            Exhausted::Whole => {
                let cause = "all clients together have the most channels that this agent takes".to_owned();
                limit(cause, "close some, or start the agent with --limit channels-total=N")
            }
        })?;
        let memory = self.channel_memory.draw(size.0).map_err(|exhausted| {
            let (whose, name) = match exhausted {
                Exhausted::Own => ("the client's", "channel-memory-per-client"),
                Exhausted::Whole => ("all clients'", "channel-memory"),
            };
            let cause = format!("{size} more are beyond what {whose} channels may take");
            limit(cause, &format!("choose fewer or smaller buffers, or start the agent with --limit {name}=BYTES"))
        })?;
        Ok(vec![one, memory])
    }

    /// The shares of a request whose frame has so many bytes.
    pub fn request(&self, length: usize) -> Result<Shares> {
        let one = self.requests.draw(1).map_err(|_| {
            let cause = format!("{} requests wait for their answers", self.requests.total());
            limit(cause, "wait for answers before asking for more")
        })?;
        let bytes = self.request_bytes.draw(length as u64).map_err(|_| {
            let cause = format!("the requests that wait would exceed {}", Bytes(self.request_bytes.total()));
            limit(cause, "wait for answers, or start the agent with a larger --limit request-bytes=BYTES")
        })?;
        Ok(vec![one, bytes])
    }
}

pub(crate) fn limit(cause: String, next: &str) -> Fault {
    Fault::new("limit of the agent", cause, next).of_kind(FaultKind::Limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_sets_something() {
        for (name, _) in Limits::NAMES {
            let mut limits = Limits::default();
            limits.set(name, if *name == "cpu-per-client" { 25 } else { 12_345 }).unwrap();
            assert_ne!(limits, Limits::default(), "{name}");
        }
        assert!(Limits::default().set("nonsense", 1).unwrap_err().to_string().contains("clients-per-address"));
        assert!(Limits::default().set("cpu-per-client", 101).is_err());
        assert!(Limits::default().set("frame", 1).is_err());
        assert!(Limits::default().set("clients", 0).is_err());
    }
}
