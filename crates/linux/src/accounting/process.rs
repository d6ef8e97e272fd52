//! What processes of others use, looked at again and again: where a thread runs, how often it is taken off its core.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use machine::{CoreId, Nanoseconds};

use super::thread::{Switches, clock_time, core_of_stat, switches_of_status};

/// A thread of any process of this host, watched by its files of `/proc`, which stay its own when its number is used again.
#[derive(Debug)]
pub struct ThreadWatch {
    stat: File,
    status: File,
}

impl ThreadWatch {
    pub fn open(process: u32, thread: u32) -> io::Result<ThreadWatch> {
        let open = |name: &str| File::open(format!("/proc/{process}/task/{thread}/{name}"));
        Ok(ThreadWatch { stat: open("stat")?, status: open("status")? })
    }

    /// Where it ran last; `None` once it has ended.
    pub fn core(&self) -> Option<CoreId> {
        core_of_stat(&text(&self.stat, &mut [0; 1024])?)
    }

    /// `None` once it has ended.
    pub fn switches(&self) -> Option<Switches> {
        switches_of_status(&text(&self.status, &mut [0; 4096])?)
    }
}

fn text(file: &File, buffer: &mut [u8]) -> Option<String> {
    let length = file.read_at(buffer, 0).ok().filter(|length| *length > 0)?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// The processor time of a process with all of its threads, to this instant; `None` once it has ended.
pub fn process_time(process: u32) -> Option<Nanoseconds> {
    let process = i32::try_from(process).ok().filter(|process| *process > 0)?;
    // The kernel's encoding of 'scheduler clock of this process' (CPUCLOCK_SCHED).
    clock_time((!process << 3) | 2).ok()
}

/// The processor time of the calling thread.
pub fn own_thread_time() -> Nanoseconds {
    clock_time(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// Whether the process is there, be it only to be waited for.
pub fn is_there(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn another_process_is_watched_until_it_ends() {
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; read -r _";
        let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let watch = ThreadWatch::open(child.id(), child.id()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while watch.switches().is_none_or(|switches| switches.voluntary == 0) {
            assert!(Instant::now() < until, "it does not wait");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(watch.core().is_some() && is_there(child.id()));
        assert!(process_time(child.id()).unwrap() > Nanoseconds(1_000_000));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!((watch.core(), watch.switches()), (None, None));
        assert_eq!(process_time(child.id()), None);
        assert!(own_thread_time() > Nanoseconds(0));
    }
}
