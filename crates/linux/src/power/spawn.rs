//! Running a command for what it prints, for a limited time.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

/// More than any sensor prints.
const MOST: usize = 64 << 10;

/// How long an end that was asked for goes unseen.
const SLICE: Duration = Duration::from_millis(50);

/// What `command` prints, or why that is nothing: it could not be started, ended with another status than 0, or did not end
/// in `limit` or before `end` was set, and was then killed with all that it had started in its group. It prints numbers as with
/// LC_ALL=C, whatever the user's locale.
pub fn output(mut command: Command, limit: Duration, end: &AtomicBool) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).env("LC_ALL", "C");
    // SAFETY: the closure makes one system call, which is safe between fork and exec, and touches no memory.
    unsafe { command.pre_exec(end_with_parent) };
    let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let told = gather(&mut child, limit, end);
    if told.is_err() {
        kill(&mut child);
    }
    let (out, problem) = told?;
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(out);
    }
    let said = problem.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing of why");
    Err(format!("it ended with {status}: {said}"))
}

/// A command ends with the thread that runs it, also where that is killed.
fn end_with_parent() -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// Both streams until they end and the process with them.
fn gather(child: &mut Child, limit: Duration, end: &AtomicBool) -> Result<(String, String), String> {
    let until = Instant::now() + limit;
    let (Some(mut out), Some(mut problem)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("its output cannot be read".to_owned());
    };
    let (mut texts, mut open) = ([Vec::new(), Vec::new()], [true, true]);
    let mut chunk = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("it did not end in {} s", limit.as_secs_f64()));
        }
        if end.load(Ordering::Relaxed) {
            return Err("it was ended, as nobody waits for it any more".to_owned());
        }
        if open == [false, false] {
            // Who closed its streams may still run.
            match child.try_wait().map_err(|error| error.to_string())? {
                Some(_) => break,
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
                Err(error) => return Err(error.to_string()),
            }
            [!polled[0].revents().is_empty(), !polled[1].revents().is_empty()]
        };
        for nth in 0..2 {
            if !(open[nth] && ready[nth]) {
                continue;
            }
            let stream: &mut dyn Read = if nth == 0 { &mut out } else { &mut problem };
            let got = stream.read(&mut chunk).map_err(|error| error.to_string())?;
            open[nth] = got > 0;
            texts[nth].extend_from_slice(&chunk[..got]);
            if texts[nth].len() > MOST {
                return Err(format!("it prints more than {} KiB", MOST >> 10));
            }
        }
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&texts[0]), text(&texts[1])))
}
