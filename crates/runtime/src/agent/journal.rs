//! The journal of refused peers: one line each, and counts. A flood gets a bounded number of lines, and one that says
//! how many were left out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use machine::bounds::AGENT_LOG;

use crate::site::residents::Log;

/// Lines in one second about refusals for one reason, and about all offcodes.
const LINES_A_SECOND: u32 = AGENT_LOG.total.count() as u32;

machine::named! {
    /// Why a connection or a request was refused, or ended by the agent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Reason {
        /// The bytes are not TLS 1.3: plain text, garbage, an older version, a broken record.
        NotTls = "not TLS 1.3",
        NoCertificate = "no certificate",
        /// A certificate of another authority, for another use, or damaged.
        WrongCertificate = "wrong certificate",
        Expired = "expired certificate",
        /// Did not authenticate in time, or went away before.
        Handshake = "no handshake",
        /// Too many unauthenticated connections: this one gave way.
        Crowded = "crowded",
        /// Too many clients, or too many of its address.
        Clients = "too many clients",
        Oversized = "oversized",
        /// Inside TLS: no frame of the protocol, or not at this moment.
        Protocol = "not the protocol",
        Version = "other version",
        /// Beyond a limit on offcodes, channels, buffers, code or requests.
        Limit = "beyond a limit",
        /// Silent for too long.
        Idle = "silent",
        /// Does not read its answers.
        Backlog = "does not read",
        /// Packets on a channel that were not made with its key.
        Forged = "forged",
        /// Packets on a channel that had come before.
        Replayed = "replayed",
    }
}

pub(crate) struct Journal {
    log: Box<dyn Fn(&str) + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    counts: BTreeMap<Reason, u64>,
    second: Instant,
    lines: BTreeMap<Reason, u32>,
    left_out: u64,
}

impl Journal {
    pub fn new(log: Box<dyn Fn(&str) + Send + Sync>) -> Journal {
        let state = State { counts: BTreeMap::new(), second: Instant::now(), lines: BTreeMap::new(), left_out: 0 };
        Journal { log, state: Mutex::new(state) }
    }

    /// A line that is always written.
    pub fn say(&self, line: &str) {
        (self.log)(&format!("{} {line}", timestamp(SystemTime::now())));
    }

    pub fn refused(&self, from: SocketAddr, reason: Reason, detail: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.counts.entry(reason).or_default() += 1;
        self.turn_page(&mut state);
        let lines = state.lines.entry(reason).or_default();
        *lines += 1;
        if *lines > LINES_A_SECOND {
            state.left_out += 1;
            return;
        }
        drop(state);
        self.say(&format!("{from} refused: {reason}: {}", printable(detail)));
    }

    /// Whether lines were left out and their number was not logged yet.
    pub fn left_out(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).left_out > 0
    }

    /// Logs the number of lines left out of a second that has passed.
    pub fn turn(&self) {
        self.turn_page(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn turn_page(&self, state: &mut State) {
        if state.second.elapsed() < Duration::from_secs(1) {
            return;
        }
        if state.left_out > 0 {
            self.say(&format!("refused: {} more, not listed", state.left_out));
        }
        state.second = Instant::now();
        state.lines.clear();
        state.left_out = 0;
    }

    pub fn counts(&self) -> BTreeMap<Reason, u64> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }
}

/// A log for the offcodes of an agent, whose lines clients cause: it passes on a bounded number a second, and says how many
/// it left out.
pub fn sparing(log: Log) -> Log {
    let state = Mutex::new((Instant::now(), 0u32, 0u64));
    Arc::new(move |line| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (second, lines, left_out) = &mut *state;
        if second.elapsed() >= Duration::from_secs(1) {
            if *left_out > 0 {
                log(&format!("offcodes: {left_out} more lines, not listed"));
            }
            (*second, *lines, *left_out) = (Instant::now(), 0, 0);
        }
        if *lines == LINES_A_SECOND {
            *left_out += 1;
            return;
        }
        *lines += 1;
        log(line);
    })
}

/// A peer's text as one line.
fn printable(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// UTC, as 2026-11-21T05:31:15.042Z.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z", super::keys::date(seconds / 86400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_whole_and_listed_in_part() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let theirs = lines.clone();
        let journal = Journal::new(Box::new(move |line| theirs.lock().unwrap().push(line.to_owned())));
        let from = "192.0.2.1:5".parse().unwrap();
        for _ in 0..10_000 {
            journal.refused(from, Reason::NotTls, "line\nbreak");
        }
        assert_eq!(journal.counts()[&Reason::NotTls], 10_000);
        let lines = lines.lock().unwrap();
        assert!(lines.len() < 10_000, "{}", lines.len());
        assert!(lines[0].ends_with("192.0.2.1:5 refused: not TLS 1.3: line?break"), "{}", lines[0]);
    }

    #[test]
    fn lines_of_offcodes_are_passed_on_in_part() {
        let lines = Arc::new(Mutex::new(0));
        let theirs = lines.clone();
        let log = sparing(Arc::new(move |_| *theirs.lock().unwrap() += 1));
        let before = Instant::now();
        (0..100_000).for_each(|_| log("a line"));
        let seconds = before.elapsed().as_secs() as u32 + 1;
        assert!(*lines.lock().unwrap() <= seconds * (LINES_A_SECOND + 1));
        assert!(*lines.lock().unwrap() >= LINES_A_SECOND);
    }

    #[test]
    fn time_is_written_as_it_is() {
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(951_827_696_007)), "2000-02-29T12:34:56.007Z");
    }
}
