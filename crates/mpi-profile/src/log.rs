//! Records of the whole rank that are written one after the other: phases, as MPI_Pcontrol marks them, and blocks of delays.

use record::layout::{Region, WHOLE_RANK};

use crate::tables::Room;

const AT_ONCE: u32 = 256;
/// Most records. A program that marks more phases uses MPI_Pcontrol for something else.
const MOST: u32 = 1 << 16;

#[derive(Debug)]
pub struct Log {
    kind: u16,
    room: Option<Room>,
    used: u32,
    all: u32,
}

impl Log {
    /// An empty log of records of this kind.
    pub fn new(kind: u16) -> Log {
        Log { kind, room: None, used: 0, all: 0 }
    }

    /// Adds a record, sealed, of a multiple of 8 bytes; all have the same length. `false`: no room for it.
    pub fn add(&mut self, record: &[u8], region: impl FnOnce(Region) -> Option<Room>) -> bool {
        if self.room.is_none() || self.used == AT_ONCE {
            let room = (self.all < MOST).then(|| {
                region(Region {
                    kind: self.kind,
                    thread: WHOLE_RANK,
                    record_bytes: record.len() as u16,
                    capacity: AT_ONCE,
                    ..Region::default()
                })
            });
            let Some(room) = room.flatten() else { return false };
            (self.room, self.used) = (Some(room), 0);
        }
        let Some(room) = self.room else { return false };
        // SAFETY: the region has room for AT_ONCE records, of which `used` are taken.
        unsafe {
            let place = room.start.as_ptr().cast::<u8>().add(self.used as usize * record.len());
            place.copy_from_nonoverlapping(record.as_ptr(), record.len());
            self.used += 1;
            self.all += 1;
            (&raw mut (*room.entry.as_ptr()).used).write_volatile(self.used);
        }
        true
    }
}
