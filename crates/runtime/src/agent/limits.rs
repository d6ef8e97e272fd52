//! What an agent grants its clients at most. Everything that a peer can make grow has a row here.

use std::time::Duration;

use machine::{Bytes, Fault, Result};

/// Bounds of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Authenticated clients at once.
    pub clients: usize,
    /// Of these, from one address.
    pub clients_per_address: usize,
    /// Connections at once that have not authenticated. Beyond it the one that least looks like a client goes.
    pub pending: usize,
    /// Time to authenticate.
    pub handshake: Duration,
    /// Silence after which a client counts as gone; a living one gives a sign every second.
    pub idle: Duration,
    /// Largest frame, checked before memory is taken for it.
    pub frame: Bytes,
    /// Largest body.
    pub code: Bytes,
    /// Bodies kept, so that a second deploy need not send them.
    pub cache: Bytes,
    /// Offcodes at once, of all clients.
    pub offcodes: usize,
    /// Channels of one client at once.
    pub channels: usize,
    /// Buffers of one channel, count times size.
    pub buffers: Bytes,
    /// Requests of one client that wait for their answer.
    pub requests: usize,
    /// Answers and out-of-band messages that wait for one client to read them.
    pub backlog: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients: 32,
            clients_per_address: 16,
            pending: 256,
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(10),
            frame: Bytes(1 << 20),
            code: Bytes(16 << 20),
            cache: Bytes(64 << 20),
            offcodes: 256,
            channels: 256,
            buffers: Bytes(64 << 20),
            requests: 64,
            backlog: Bytes(8 << 20),
        }
    }
}

/// The smallest frame that still carries a manifest of some size, and the largest that a length field should say.
const FRAMES: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

impl Limits {
    /// The names that [`Limits::set`] takes, with what the numbers mean.
    pub const NAMES: &[(&str, &str)] = &[
        ("clients", "authenticated clients at once"),
        ("clients-per-address", "of these, from one address"),
        ("pending", "connections that have not authenticated"),
        ("handshake", "milliseconds to authenticate"),
        ("idle", "milliseconds of silence of a client"),
        ("frame", "bytes of one request"),
        ("code", "bytes of one body"),
        ("cache", "bytes of all bodies kept"),
        ("offcodes", "offcodes at once"),
        ("channels", "channels of one client"),
        ("buffers", "bytes of one channel's buffers"),
        ("requests", "requests of one client that wait"),
        ("backlog", "bytes that wait for one client to read them"),
    ];

    /// Sets one by its name. A fault names the names, or the values that will do.
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
            "channels" => self.channels = count,
            "buffers" => self.buffers = Bytes(value),
            "requests" => self.requests = count,
            "backlog" => self.backlog = Bytes(value),
            _ => {
                let names: Vec<&str> = Limits::NAMES.iter().map(|(name, _)| *name).collect();
                return Err(Fault::new(subject(), "there is no such limit", format!("use {}", names.join(", "))));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_sets_something() {
        for (name, _) in Limits::NAMES {
            let mut limits = Limits::default();
            limits.set(name, 12_345).unwrap();
            assert_ne!(limits, Limits::default(), "{name}");
        }
        assert!(Limits::default().set("nonsense", 1).unwrap_err().to_string().contains("clients-per-address"));
        assert!(Limits::default().set("frame", 1).is_err());
        assert!(Limits::default().set("clients", 0).is_err());
    }
}
