//! How the kernel schedules the calling thread.

use std::io;
use std::mem::size_of;

use machine::Nanoseconds;

/// `struct sched_attr` of `linux/sched/types.h`, first version.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub size: u32,
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}

pub(crate) fn get() -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes at most `size` bytes to a structure of that size, which lives across the call.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn set(attributes: &Attributes) -> io::Result<()> {
    let attributes = Attributes { size: size_of::<Attributes>() as u32, ..*attributes };
    // SAFETY: the kernel reads as many bytes as `size` says, all of them ours.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread a short `slice` and leaves its priority, for a thread that needs little time, but soon. Before
/// Linux 6.12 there are no slices, and the thread may wait for the turns of others where all cores are busy.
pub fn take_short_turns(slice: Nanoseconds) -> io::Result<()> {
    set(&Attributes { runtime: slice.0, ..get()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_short_turns_keeps_its_priority_and_no_other_thread_takes_them() {
        let before = get().unwrap();
        let there = std::thread::spawn(|| {
            take_short_turns(Nanoseconds(100_000)).unwrap();
            get().unwrap()
        });
        assert_eq!(there.join().unwrap().nice, before.nice);
        let after = get().unwrap();
        assert_eq!((after.nice, after.runtime), (before.nice, before.runtime));
    }
}
