//! Memory of a rank, as its engine sees it: through the kernel, also where both are one process.

use engine::Buffer;
use rustix::process::Pid;

use super::protocol::INLINE;

/// A message in a rank's memory, or on its way there.
pub(crate) enum RankMemory {
    /// Came with the command: what a send carries.
    Here(Vec<u8>),
    /// Lies in the rank's memory. `landing` gathers a short message, which then travels with the event instead of by a
    /// system call of its own.
    There { pid: Pid, address: u64, length: usize, landing: Vec<u8>, landed: usize, failed: bool },
    /// Stands for memory that the rank has taken back. Where the bytes are still to be sent they are here.
    TakenBack { kept: Option<Vec<u8>>, length: usize },
}

impl RankMemory {
    pub fn there(pid: Pid, address: u64, length: usize) -> Self {
        RankMemory::There { pid, address, length, landing: Vec::new(), landed: 0, failed: false }
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

    /// What is still to be handed over with the event.
    pub fn payload(&self) -> Option<&[u8]> {
        match self {
            RankMemory::There { landing, .. } if !landing.is_empty() => Some(landing),
            _ => None,
        }
    }

    /// The rank's memory could not be read or written: it has gone, or given a wrong address.
    pub fn has_failed(&self) -> bool {
        matches!(self, RankMemory::There { failed: true, .. })
    }
}

impl Buffer for RankMemory {
    fn length(&self) -> usize {
        match self {
            RankMemory::Here(bytes) => bytes.len(),
            RankMemory::There { length, .. } | RankMemory::TakenBack { length, .. } => *length,
        }
    }

    fn address(&self) -> u64 {
        match self {
            // Bytes of this process, which peers do not read from: such messages are short and go in packets.
            RankMemory::Here(_) | RankMemory::TakenBack { .. } => 0,
            RankMemory::There { address, .. } => *address,
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        match self {
            RankMemory::Here(bytes) | RankMemory::TakenBack { kept: Some(bytes), .. } => {
                into.copy_from_slice(&bytes[offset..offset + into.len()]);
            }
            RankMemory::TakenBack { kept: None, .. } => into.fill(0),
            RankMemory::There { pid, address, .. } => {
                if linux::remote::read(*pid, address.wrapping_add(offset as u64), into).is_err() {
                    // The rank has gone, and with it whoever could ask for these bytes; nothing else may leak into them.
                    into.fill(0);
                }
            }
        }
    }

    fn write(&mut self, offset: usize, from: &[u8]) {
        match self {
            RankMemory::Here(bytes) => bytes[offset..offset + from.len()].copy_from_slice(from),
            RankMemory::TakenBack { .. } => {}
            RankMemory::There { pid, address, landing, landed, failed, .. } => {
                if *landed == 0 && offset == landing.len() && offset + from.len() <= INLINE {
                    landing.extend_from_slice(from);
                    return;
                }
                let mut write = |at: usize, bytes: &[u8]| {
                    *failed |= linux::remote::write(*pid, address.wrapping_add(at as u64), bytes).is_err();
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
            RankMemory::There { .. } | RankMemory::TakenBack { .. } => None,
        }
    }
}
