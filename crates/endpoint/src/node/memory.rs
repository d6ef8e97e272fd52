//! Memory of a rank as its engine accesses it: through the kernel, even where both are one process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Buffer;
use linux::identity::Identity;
use rustix::process::Pid;

use super::protocol::INLINE;

/// A rank's process, named by a descriptor: no later process with its number is read or written.
pub(crate) struct Rank {
    process: Arc<Identity>,
    /// Whether the kernel has said in this poll that the process lives.
    lives: AtomicBool,
}

impl Rank {
    pub fn new(process: Arc<Identity>) -> Arc<Rank> {
        Arc::new(Rank { process, lives: AtomicBool::new(false) })
    }

    pub fn number(&self) -> Pid {
        self.process.number()
    }

    /// Makes the next copy ask the kernel again whether the process lives.
    #[inline]
    pub fn turn(&self) {
        self.lives.store(false, Ordering::Relaxed);
    }

    fn living(&self) -> io::Result<Pid> {
        if !self.lives.load(Ordering::Relaxed) {
            self.process.living()?;
            self.lives.store(true, Ordering::Relaxed);
        }
        Ok(self.process.number())
    }

    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        linux::remote::read(self.living()?, address, into)
    }

    fn write(&self, address: u64, from: &[u8]) -> io::Result<()> {
        linux::remote::write(self.living()?, address, from)
    }
}

/// A message in a rank's memory, or on its way there.
pub(crate) enum RankMemory {
    /// Bytes that came with a send's command.
    Here(Vec<u8>),
    /// Bytes of a short receive, which travel with its event.
    Gathered { bytes: Vec<u8>, length: usize },
    /// Bytes in the rank's memory. `landing` gathers a short message, which then travels with the event and needs no system
    /// call of its own.
    There { rank: Arc<Rank>, address: u64, length: usize, landing: Vec<u8>, landed: usize, failed: bool },
    /// Stand-in for memory that the rank has taken back, with a copy of bytes still to be sent.
    TakenBack { kept: Option<Vec<u8>>, length: usize },
}

impl RankMemory {
    pub fn there(rank: &Arc<Rank>, address: u64, length: u64) -> Self {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        RankMemory::There { rank: rank.clone(), address, length, landing: Vec::new(), landed: 0, failed: false }
    }

    /// Memory that a receive fills.
    #[inline]
    pub fn receiving(rank: &Arc<Rank>, address: u64, length: u64) -> Self {
        match usize::try_from(length) {
            Ok(length) if length <= INLINE => RankMemory::Gathered { bytes: Vec::new(), length },
            _ => RankMemory::there(rank, address, length),
        }
    }

    /// See [`engine::StandIn`].
    pub fn stand_in(&self, needed: bool) -> RankMemory {
        let length = self.length();
        let kept = needed.then(|| {
            let mut bytes = vec![0; length];
            self.read(0, &mut bytes);
            bytes
        });
        RankMemory::TakenBack { kept, length }
    }

    /// Bytes to be handed over with the event.
    pub fn payload(&self) -> Option<&[u8]> {
        match self {
            RankMemory::There { landing: bytes, .. } | RankMemory::Gathered { bytes, .. } if !bytes.is_empty() => {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// Whether the rank's memory could not be read or written: the rank has gone, or gave a wrong address.
    pub fn has_failed(&self) -> bool {
        matches!(self, RankMemory::There { failed: true, .. })
    }
}

impl Buffer for RankMemory {
    fn length(&self) -> usize {
        match self {
            RankMemory::Here(bytes) => bytes.len(),
            RankMemory::Gathered { length, .. }
            | RankMemory::There { length, .. }
            | RankMemory::TakenBack { length, .. } => *length,
        }
    }

    fn address(&self) -> u64 {
        match self {
            // Memory of this process, which peers do not read: such messages are short and go in packets.
            RankMemory::Here(_) | RankMemory::Gathered { .. } | RankMemory::TakenBack { .. } => 0,
            RankMemory::There { address, .. } => *address,
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        match self {
            RankMemory::Here(bytes) | RankMemory::TakenBack { kept: Some(bytes), .. } => {
                into.copy_from_slice(&bytes[offset..offset + into.len()]);
            }
            RankMemory::Gathered { .. } | RankMemory::TakenBack { kept: None, .. } => into.fill(0),
            RankMemory::There { rank, address, .. } => {
                if rank.read(address.wrapping_add(offset as u64), into).is_err() {
                    // The rank has gone, and with it any need for these bytes; nothing else may leak into them.
                    into.fill(0);
                }
            }
        }
    }

    fn write(&mut self, offset: usize, from: &[u8]) {
        match self {
            RankMemory::Here(bytes) => bytes[offset..offset + from.len()].copy_from_slice(from),
            RankMemory::TakenBack { .. } => {}
            RankMemory::Gathered { bytes, .. } => {
                bytes.resize(bytes.len().max(offset + from.len()), 0);
                bytes[offset..offset + from.len()].copy_from_slice(from);
            }
            RankMemory::There { rank, address, landing, landed, failed, .. } => {
                if *landed == 0 && offset == landing.len() && offset + from.len() <= INLINE {
                    landing.extend_from_slice(from);
                    return;
                }
                let mut write = |at: usize, bytes: &[u8]| {
                    *failed |= rank.write(address.wrapping_add(at as u64), bytes).is_err();
                };
                if !landing.is_empty() {
                    write(0, landing);
                    landing.clear();
                }
                write(offset, from);
                *landed += from.len();
            }
        }
    }

    fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match self {
            RankMemory::Here(bytes) => Some(bytes),
            RankMemory::Gathered { .. } | RankMemory::There { .. } | RankMemory::TakenBack { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;

    const LONG: usize = 3 * INLINE;

    /// A rank whose process number is this process's, as after reuse of a number; it ends with the child.
    fn rank() -> (Child, Arc<Rank>) {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let descriptor = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        (child, Rank::new(Arc::new(Identity::new(getpid(), descriptor))))
    }

    fn look(address: u64) -> Vec<u8> {
        let mut now = vec![0; LONG];
        linux::remote::read(getpid(), address, &mut now).unwrap();
        now
    }

    #[test]
    fn nothing_is_written_to_who_has_the_number_of_a_dead_rank_and_nothing_read() {
        let (mut child, rank) = rank();
        let address = Box::leak(vec![0u8; LONG].into_boxed_slice()).as_mut_ptr().expose_provenance() as u64;
        let mut memory = RankMemory::receiving(&rank, address, LONG as u64);
        memory.write(0, &[7; LONG]);
        assert!(!memory.has_failed() && look(address) == [7; LONG]);
        child.kill().unwrap();
        child.wait().unwrap();
        rank.turn();
        memory.write(0, &[8; LONG]);
        assert!(memory.has_failed() && look(address) == [7; LONG], "written to another process");
        let mut got = [1; LONG];
        RankMemory::there(&rank, address, LONG as u64).read(0, &mut got);
        assert_eq!(got, [0; LONG], "read from another process");
    }

    #[test]
    fn a_short_receive_touches_no_memory_of_the_rank() {
        let mut memory = RankMemory::receiving(&Rank::new(Identity::own()), 8, INLINE as u64);
        assert_eq!((memory.length(), memory.payload()), (INLINE, None));
        for (offset, bytes) in [(0, "first"), (5, " and last"), (0, "FIRST")] {
            memory.write(offset, bytes.as_bytes());
        }
        assert!(!memory.has_failed());
        assert_eq!(memory.payload(), Some(&b"FIRST and last"[..]));
    }
}
