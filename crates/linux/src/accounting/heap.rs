//! Memory of this process: bytes that its allocator has handed out, and its resident pages.

use machine::{Bytes, Reading};

/// Bytes that the allocator has handed out and not got back, exactly. Takes a few microseconds.
#[cfg(target_env = "gnu")]
pub fn heap() -> Reading<Bytes> {
    // SAFETY: it takes nothing and reads the allocator's own counters under its locks.
    let info = unsafe { libc::mallinfo2() };
    Reading::Measured(Bytes((info.uordblks + info.hblkhd) as u64))
}

#[cfg(not(target_env = "gnu"))]
pub fn heap() -> Reading<Bytes> {
    Reading::absent("only glibc's allocator counts what it has given out")
}

/// Pages of this process that are in memory now, shared ones included.
pub fn resident() -> Reading<Bytes> {
    let page = rustix::param::page_size() as u64;
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    match pages {
        Some(pages) => Reading::Measured(Bytes(pages * page)),
        None => Reading::absent("/proc/self/statm cannot be read"),
    }
}

/// Bytes of mapped shared memory, each page divided by the number of its mappings, so that a page that both ends of a
/// link map here counts once.
pub fn shared() -> Reading<Bytes> {
    const PATH: &str = "/proc/self/smaps_rollup";
    match std::fs::read_to_string(PATH) {
        Ok(text) => {
            let line = text.lines().find_map(|line| line.strip_prefix("Pss_Shmem:"));
            match line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()) {
                Some(kibibytes) => Reading::Measured(Bytes(kibibytes << 10)),
                None => Reading::absent("this kernel does not tell shared pages apart (Linux 5.9 does)"),
            }
        }
        Err(e) => Reading::absent(format!("{PATH}: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let (Some(&before), Some(&pages)) = (heap().value(), resident().value()) else {
            return skip::test("this allocator counts nothing");
        };
        // Larger than all that other tests of this process allocate meanwhile.
        let block = vec![1u8; 256 << 20];
        let (after, more) = (*heap().value().unwrap(), *resident().value().unwrap());
        assert!(after.0 >= before.0 + (200 << 20), "{before:?} {after:?}");
        assert!(more.0 >= pages.0 + (200 << 20), "{pages:?} {more:?}");
        drop(std::hint::black_box(block));
    }
}
