//! Names of endpoints: what one endpoint must know to reach another, in 64 bytes that an application passes around by its
//! own means (MPI's wire-up does).

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use machine::{Fault, Result};

use crate::semantics::Semantics;

/// Address of an endpoint, and the proof that it is the one that was meant.
///
/// 64 bytes: magic and version (4), user (4), host (16), token (8), secret (8), process (4), 0 where it shares memory (1),
/// semantics (1), port number (2, big endian), IPv6 or mapped IPv4 address (16). Words are little endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name([u8; Name::LENGTH]);

const MAGIC: [u8; 4] = *b"plm2";

impl Name {
    pub const LENGTH: usize = 64;

    pub(crate) fn new(host: Host, user: u32, process: u32, token: u64, secret: u64, address: SocketAddr) -> Self {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&user.to_le_bytes());
        bytes[8..24].copy_from_slice(&host.0);
        bytes[24..32].copy_from_slice(&token.to_le_bytes());
        bytes[32..40].copy_from_slice(&secret.to_le_bytes());
        bytes[40..44].copy_from_slice(&process.to_le_bytes());
        bytes[46..48].copy_from_slice(&address.port().to_be_bytes());
        let ip = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        bytes[48..64].copy_from_slice(&ip.octets());
        Name(bytes)
    }

    /// The name with these settings, so that both ends of a conversation know the other's before it begins.
    pub(crate) fn with(mut self, shares_memory: bool, semantics: Semantics) -> Self {
        (self.0[44], self.0[45]) = (u8::from(!shares_memory), semantics as u8);
        self
    }

    #[cfg(test)]
    pub(crate) fn example() -> Self {
        Name::new(Host([7; 16]), 1, 2, 3, 4, SocketAddr::from(([10, 0, 0, 1], 5)))
    }

    pub fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// Checks the bytes; a fault unless they are a name of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Name> {
        let bad = |cause: &str| Fault::new("endpoint's name", cause, "start all ranks with the same plimsoll");
        let bytes: [u8; Self::LENGTH] = bytes.try_into().map_err(|_| bad("it does not have 64 bytes"))?;
        if bytes[..4] != MAGIC {
            return Err(bad("it is of another provider or version"));
        }
        let name = Name(bytes);
        if name.address().port() == 0 {
            return Err(bad("it has no port number"));
        }
        Ok(name)
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn half(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    pub fn user(&self) -> u32 {
        self.half(4)
    }

    /// Number of the process that opened the endpoint, on its own host.
    pub fn process(&self) -> u32 {
        self.half(40)
    }

    pub(crate) fn host(&self) -> Host {
        Host(self.0[8..24].try_into().expect("sixteen bytes"))
    }

    /// Whether endpoints of its host can reach it over shared memory.
    fn shares_memory(&self) -> bool {
        self.0[44] == 0
    }

    /// Whether these two endpoints reach each other over shared memory, and never over the network; the same for both.
    pub(crate) fn shares_memory_with(&self, other: &Name) -> bool {
        let here = self.host() == other.host() && self.user() == other.user();
        here && self.shares_memory() && other.shares_memory()
    }

    /// Its semantics; `None` where this version does not know them.
    pub(crate) fn semantics(&self) -> Option<Semantics> {
        Semantics::ALL.get(usize::from(self.0[45])).copied()
    }

    /// The endpoint's public identity.
    pub fn token(&self) -> u64 {
        self.word(24)
    }

    /// Known only to those who have the name: an unknown sender on the network must show it.
    pub(crate) fn secret(&self) -> u64 {
        self.word(32)
    }

    /// Address of its network port.
    pub fn address(&self) -> SocketAddr {
        let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&self.0[48..64]).expect("sixteen bytes"));
        let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
        SocketAddr::new(ip, u16::from_be_bytes([self.0[46], self.0[47]]))
    }

    /// The abstract socket on which it takes invitations.
    pub(crate) fn meeting(&self) -> String {
        format!("plimsoll/endpoint/{:016x}", self.token())
    }

    /// Session number of the conversation with `other`, the same for both.
    pub(crate) fn session_with(&self, other: &Name) -> u32 {
        let mixed = (self.token() ^ other.token()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (self.secret() ^ other.secret()).rotate_left(29);
        (mixed ^ (mixed >> 32)) as u32
    }
}

impl fmt::Debug for Name {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} at {} (process {})", self.token(), self.address(), self.process())
    }
}

/// Identity of what processes that can share memory have in common: the kernel and the network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host([u8; 16]);

impl Host {
    pub fn here() -> Result<Host> {
        let read =
            |path: &str| std::fs::read_to_string(path).map_err(|e| Fault::because(path.to_string(), e, "mount /proc"));
        let boot = read("/proc/sys/kernel/random/boot_id")?;
        let mut digits = boot.bytes().filter_map(|byte| (byte as char).to_digit(16)).map(|digit| digit as u8);
        let mut id = [0u8; 16];
        for byte in &mut id {
            *byte = digits.next().unwrap_or(0) << 4 | digits.next().unwrap_or(0);
        }
        let space =
            rustix::fs::stat("/proc/self/ns/net").map_err(|e| Fault::because("/proc/self/ns/net", e, "mount /proc"))?;
        for (byte, mix) in id[8..].iter_mut().zip(space.st_ino.to_le_bytes()) {
            *byte ^= mix;
        }
        Ok(Host(id))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_read_back_as_made(
            user: u32,
            process: u32,
            token: u64,
            secret: u64,
            v4: bool,
            ip: [u8; 16],
            port in 1u16..,
            shares_memory: bool,
            semantics in proptest::sample::select(Semantics::ALL.to_vec()),
        ) {
            let ip = if v4 { IpAddr::from([ip[0], ip[1], ip[2], ip[3]]) } else { ip.into() };
            let address = SocketAddr::from((ip, port));
            let name = Name::new(Host::here().unwrap(), user, process, token, secret, address);
            let name = name.with(shares_memory, semantics);
            let read = Name::from_bytes(name.as_bytes()).unwrap();
            prop_assert_eq!(read, name);
            prop_assert_eq!((read.user(), read.process(), read.address()), (user, process, address));
            prop_assert_eq!((read.token(), read.secret()), (token, secret));
            prop_assert_eq!((read.shares_memory(), read.semantics()), (shares_memory, Some(semantics)));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Name::from_bytes(&bytes);
        }

        #[test]
        fn both_ends_name_a_conversation_alike(a: [u64; 2], b: [u64; 2]) {
            let name = |[token, secret]: [u64; 2]| {
                Name::new(Host([0; 16]), 0, 1, token, secret, SocketAddr::from(([10, 0, 0, 1], 7)))
            };
            prop_assert_eq!(name(a).session_with(&name(b)), name(b).session_with(&name(a)));
        }
    }
}
