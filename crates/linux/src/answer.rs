//! Output of a program that is run as a query, within a time limit: it may wait for a server, a display or a file
//! system that does not answer.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::orphans::Awaited;

/// Limit for a program that only reports what it is or knows. Starting it from a cold network file system takes seconds.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time until a request to end is noticed.
const SLICE: Duration = Duration::from_millis(50);

/// How long to wait for a killed program, which may hang in a dead file system.
const DYING: Duration = Duration::from_secs(1);

/// Output and exit status of `command`, which gets no input. [`io::ErrorKind::TimedOut`] where it has not ended within
/// `limit`; it is then killed with its process group.
pub fn of(command: &mut Command, limit: Duration) -> io::Result<Output> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let (mut child, _awaited) = start(command)?;
    gather(&mut child, limit, usize::MAX, &NEVER)
}

/// Starts a command in its own process group; it ends with the calling thread.
pub(crate) fn start(command: &mut Command) -> io::Result<(Child, Awaited)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // SAFETY: the closure makes one system call, which is safe between fork and exec, and touches no memory.
    unsafe { command.pre_exec(end_with_parent) };
    Awaited::spawn(command)
}

/// Makes a child end with the thread that started it, even if that is killed.
fn end_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
}

/// Waits for the child of [`start`] and reads both of its streams, at most `most` bytes each. Kills it on an error,
/// after `limit`, and when `end` is set.
pub(crate) fn gather(child: &mut Child, limit: Duration, most: usize, end: &AtomicBool) -> io::Result<Output> {
    let output = read(child, limit, most, end);
    if output.is_err() {
        kill(child);
    }
    output
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let until = Instant::now() + DYING;
    while let Ok(None) = child.try_wait()
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read(child: &mut Child, limit: Duration, most: usize, end: &AtomicBool) -> io::Result<Output> {
    let until = Instant::now() + limit;
    let (Some(mut out), Some(mut problem)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("its output cannot be read"));
    };
    let (mut texts, mut open) = ([Vec::new(), Vec::new()], [true, true]);
    let mut chunk = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let cause = format!("it did not end in {} s", limit.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, cause));
        }
        if end.load(Ordering::Relaxed) {
            return Err(io::Error::other("it was ended, as nobody waits for it any more"));
        }
        if open == [false, false] {
            // A child that closed its streams may still run.
            match child.try_wait()? {
                Some(status) => {
                    let [stdout, stderr] = texts;
                    return Ok(Output { status, stdout, stderr });
                }
                None => std::thread::sleep(left.min(Duration::from_millis(1))),
            }
            continue;
        }
        let slice = left.min(SLICE);
        let wait = Timespec { tv_sec: 0, tv_nsec: slice.as_nanos() as i64 };
        let ready = {
            let mut polled = [PollFd::new(&out, PollFlags::IN), PollFd::new(&problem, PollFlags::IN)];
            for (fd, is_open) in polled.iter_mut().zip(open) {
                if !is_open {
                    fd.set_fd(&out);
                    fd.clear_revents();
                }
            }
            match poll(&mut polled, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            [!polled[0].revents().is_empty(), !polled[1].revents().is_empty()]
        };
        for nth in 0..2 {
            if !(open[nth] && ready[nth]) {
                continue;
            }
            let stream: &mut dyn Read = if nth == 0 { &mut out } else { &mut problem };
            let got = stream.read(&mut chunk)?;
            open[nth] = got > 0;
            texts[nth].extend_from_slice(&chunk[..got]);
            if texts[nth].len() > most {
                return Err(io::Error::other(format!("it prints more than {} KiB", most >> 10)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_ended_with_what_it_started() {
        // Both processes hold the output open for as long as they sleep.
        let mut deaf = Command::new("sh");
        deaf.args(["-c", "sleep 600 & sleep 600"]);
        let error = of(&mut deaf, Duration::from_millis(100)).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::TimedOut, "it did not end in 0.1 s"));
    }

    #[test]
    fn an_answer_is_whole_with_what_it_complains_of_and_its_status() {
        let mut chatty = Command::new("sh");
        chatty.args(["-c", "head -c 300000 /dev/zero; echo no >&2; exit 3"]);
        let output = of(&mut chatty, Duration::from_secs(60)).unwrap();
        assert_eq!(
            (output.stdout.len(), output.stderr.as_slice(), output.status.code()),
            (300_000, &b"no\n"[..], Some(3))
        );
        let none = std::path::Path::new("/no/such");
        assert_eq!(of(&mut Command::new(none), TIMEOUT).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
