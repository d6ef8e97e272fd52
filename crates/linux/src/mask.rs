//! The scheduler's mask of cores for a thread, as long as this kernel's own. The C library's `cpu_set_t` and rustix's
//! set end at 1,024 cores, and the kernel refuses a shorter buffer than its own.

use std::io;

use machine::{CoreId, CpuSet};

const BITS: usize = usize::BITS as usize;
/// Words of the first attempt, 1,024 cores, and of the last: Linux stops at 8,192.
const FIRST: usize = 1024 / BITS;
const MOST: usize = (1 << 16) / BITS;

/// A bit a core, in words of the kernel's `unsigned long`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask(Vec<usize>);

impl Mask {
    /// The mask of every core that this kernel can have; the kernel ignores missing ones.
    pub fn full() -> io::Result<Mask> {
        Ok(Mask(vec![usize::MAX; read(0)?.0.len()]))
    }

    /// Most cores that this kernel can have.
    pub fn width(&self) -> usize {
        self.0.len() * BITS
    }

    pub fn cores(&self) -> CpuSet {
        let of_word = |(nth, word): (usize, &usize)| {
            let bits = *word;
            (0..BITS).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| CoreId((nth * BITS + bit) as u32))
        };
        self.0.iter().enumerate().flat_map(of_word).collect()
    }

    /// Lets a thread run on these cores only; 0 is the caller. One system call, so that a child may do it between fork and exec.
    pub fn apply(&self, thread: i32) -> io::Result<()> {
        let (length, words) = (size_of_val(self.0.as_slice()), self.0.as_ptr());
        // SAFETY: the kernel reads at most `length` bytes, which are the words of `self`.
        match unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread, length, words) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl From<&CpuSet> for Mask {
    fn from(cores: &CpuSet) -> Mask {
        let mut words = vec![0; cores.iter().next_back().map_or(1, |last| last.0 as usize / BITS + 1)];
        cores.iter().for_each(|core| words[core.0 as usize / BITS] |= 1 << (core.0 as usize % BITS));
        Mask(words)
    }
}

/// The mask of a thread; 0 is the caller.
pub fn read(thread: i32) -> io::Result<Mask> {
    read_by(|words| {
        let (length, into) = (size_of_val(words), words.as_mut_ptr());
        // SAFETY: the kernel writes at most `length` bytes, which are those of `words`; any bits are words.
        let written = unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, length, into) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    })
}

/// Calls `kernel` with more room until it accepts it; it returns the bytes that it wrote.
fn read_by(mut kernel: impl FnMut(&mut [usize]) -> io::Result<usize>) -> io::Result<Mask> {
    let mut words = vec![0; FIRST];
    loop {
        match kernel(&mut words) {
            Ok(bytes) => {
                words.truncate(bytes.div_ceil(size_of::<usize>()));
                return Ok(Mask(words));
            }
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && words.len() < MOST => words.resize(2 * words.len(), 0),
            Err(e) => return Err(e),
        }
    }
}

/// The cores on which a thread may run; 0 is the caller.
pub fn get(thread: i32) -> io::Result<CpuSet> {
    read(thread).map(|mask| mask.cores())
}

/// Lets a thread run on `cores` only; 0 is the caller.
pub fn set(thread: i32, cores: &CpuSet) -> io::Result<()> {
    Mask::from(cores).apply(thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sched_getaffinity` of a kernel with so many possible cores, of which the thread may use `cores`.
    fn kernel_of(possible: usize, cores: &CpuSet) -> impl FnMut(&mut [usize]) -> io::Result<usize> {
        let mut theirs = Mask::from(cores).0;
        theirs.resize(possible.div_ceil(BITS), 0);
        move |words| {
            if words.len() < theirs.len() {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            words[..theirs.len()].copy_from_slice(&theirs);
            Ok(theirs.len() * size_of::<usize>())
        }
    }

    #[test]
    fn a_kernel_of_more_than_1024_cores_is_asked_with_more_room() {
        for possible in [2, 64, 1024, 1025, 2048, 8192] {
            let cores: CpuSet =
                [0, 1, possible / 2, possible - 1].map(|core| CoreId(core as u32)).into_iter().collect();
            let mask = read_by(kernel_of(possible, &cores)).unwrap();
            assert_eq!(mask.cores(), cores, "{possible} possible cores");
            assert_eq!(mask.width(), possible.next_multiple_of(BITS));
            assert_eq!(Mask::from(&cores).cores(), cores);
        }
        let never = read_by(|_| Err(io::Error::from_raw_os_error(libc::EINVAL))).unwrap_err();
        assert_eq!(never.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn the_kernel_takes_what_it_gave() {
        let mine = get(0).unwrap();
        let one: CpuSet = mine.first().into_iter().collect();
        set(0, &one).unwrap();
        assert_eq!(get(0).unwrap(), one);
        // Longer and shorter than the kernel's own mask.
        let beyond: CpuSet = one.iter().chain([CoreId(20_000)]).collect();
        set(0, &beyond).unwrap();
        assert_eq!(get(0).unwrap(), one);
        Mask::full().unwrap().apply(0).unwrap();
        assert!(mine.difference(&get(0).unwrap()).is_empty());
        set(0, &mine).unwrap();
        assert_eq!(set(0, &CpuSet::default()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
