//! Phases of a program, as MPI_Pcontrol marks them.

use record::layout::{Phase, Region, WHOLE_RANK, kind};

use crate::clock;
use crate::tables::Room;

const AT_ONCE: u32 = 256;
/// Most phases that are recorded. A program that marks more uses MPI_Pcontrol for something else.
const MOST: u32 = 1 << 16;

#[derive(Debug, Default)]
pub struct Phases {
    room: Option<Room>,
    used: u32,
    all: u32,
}

impl Phases {
    /// Records the beginning of a phase, by a call of this thread. `false`: no room for it.
    pub fn mark(&mut self, clock: u32, level: i32, thread: u16, region: impl FnOnce(Region) -> Option<Room>) -> bool {
        if self.room.is_none() || self.used == AT_ONCE {
            let room = (self.all < MOST).then(|| {
                region(Region {
                    kind: kind::PHASES,
                    thread: WHOLE_RANK,
                    record_bytes: size_of::<Phase>() as u16,
                    capacity: AT_ONCE,
                    ..Region::default()
                })
            });
            let Some(room) = room.flatten() else { return false };
            (self.room, self.used) = (Some(room), 0);
        }
        let Some(room) = self.room else { return false };
        let (ticks, thread) = (clock::ticks(clock), u32::from(thread));
        let phase = Phase { ticks, level, thread, seal: 0 }.sealed();
        // SAFETY: the region has room for AT_ONCE records, of which `used` are taken.
        unsafe {
            room.start.as_ptr().cast::<Phase>().add(self.used as usize).write(phase);
            self.used += 1;
            self.all += 1;
            (&raw mut (*room.entry.as_ptr()).used).write_volatile(self.used);
        }
        true
    }
}
