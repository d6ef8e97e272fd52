//! How the kernel schedules the calling thread.

use std::io;
use std::mem::size_of;

use machine::Nanoseconds;

/// The lowest priority among ordinary threads.
const LOWEST: i32 = 19;

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

/// Gives the calling thread the lowest priority, so that others get more time, and a short `slice`, for a thread that needs
/// little time, but soon. Before Linux 6.12 there are no slices, and it may wait some 100 ms where all cores are busy.
pub fn step_back(slice: Nanoseconds) -> io::Result<()> {
    set(&Attributes { nice: LOWEST, runtime: slice.0, ..Attributes::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_steps_back_has_the_lowest_priority_and_no_other_thread_has() {
        let before = get().unwrap().nice;
        let nice = std::thread::spawn(|| {
            step_back(Nanoseconds(100_000)).unwrap();
            get().unwrap().nice
        });
        assert_eq!(nice.join().unwrap(), LOWEST);
        assert_eq!(get().unwrap().nice, before);
    }
}
