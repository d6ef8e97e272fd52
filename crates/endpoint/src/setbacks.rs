//! Setbacks of an endpoint: peers that it could not reach, with the cause, and tries that will be repeated.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use linux::shortage;
use machine::{Fault, PeerIndex};

/// Time between two tries to reach a peer where a resource of the kernel is short: at first, and at most.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Time for tries in vain: as long as a peer over a network may be silent.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Most peers that a report names.
const NAMED: usize = 4;

/// The tries to reach a peer so far.
pub(crate) struct Tries {
    first: Instant,
    next: Instant,
    pause: Duration,
}

impl Tries {
    /// Whether the next try is due.
    pub fn are_due(&self) -> bool {
        Instant::now() >= self.next
    }
}

#[derive(Default)]
pub(crate) struct Setbacks {
    /// Peers that could not be reached and that nobody has asked about yet.
    untold: VecDeque<(PeerIndex, Fault)>,
    lost: usize,
    named: Vec<String>,
    /// Number of failed tries for lack of a resource, and the last one's fault.
    passing: u64,
    last: String,
}

impl Setbacks {
    /// Notes a failed try that is repeated.
    pub fn note_passing(&mut self, fault: &Fault) {
        self.passing += 1;
        self.last = fault.to_string();
    }

    /// Notes a failed try to reach `peer`. Returns the tries where there will be another; else the peer is lost.
    pub fn failed(&mut self, peer: PeerIndex, tries: Option<Box<Tries>>, fault: Fault) -> Option<Box<Tries>> {
        let now = Instant::now();
        let mut tries = tries.unwrap_or_else(|| Box::new(Tries { first: now, next: now, pause: PAUSE }));
        if shortage::may_pass(&fault) && now - tries.first < TIMEOUT {
            self.note_passing(&fault);
            tries.next = now + tries.pause;
            tries.pause = (2 * tries.pause).min(LONGEST_PAUSE);
            return Some(tries);
        }
        let fault = fault.within(format!("peer {}", peer.0));
        self.lost += 1;
        if self.named.len() < NAMED {
            self.named.push(fault.to_string());
        }
        self.untold.push_back((peer, fault));
        None
    }

    pub fn next_lost(&mut self) -> Option<(PeerIndex, Fault)> {
        self.untold.pop_front()
    }

    /// The setbacks in words, for a report.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.named.iter().map(|lost| format!("not reached: {lost}")).collect();
        if self.lost > self.named.len() {
            notes.push(format!("not reached: {} more peers", self.lost - self.named.len()));
        }
        if self.passing > 0 {
            notes.push(format!(
                "ways were opened later than asked, after {} tries in vain; the last: {}",
                self.passing, self.last
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn what_may_pass_is_tried_again_and_the_rest_is_told_with_its_cause() {
        let mut setbacks = Setbacks::default();
        let peer = PeerIndex(7);
        let short = || Fault::because("socket", Error::from(rustix::io::Errno::MFILE), "raise ulimit -n");
        let tries = setbacks.failed(peer, None, short()).expect("another try");
        let mut tries = setbacks.failed(peer, Some(tries), short()).expect("another try");
        assert_eq!(tries.pause, 4 * PAUSE);
        assert!(setbacks.next_lost().is_none());
        // Longer ago than the patience lasts.
        tries.first -= TIMEOUT;
        assert!(setbacks.failed(peer, Some(tries), short()).is_none());
        let (lost, fault) = setbacks.next_lost().unwrap();
        assert_eq!((lost, fault.subject(), fault.next()), (peer, "peer 7: socket", "raise ulimit -n"));
        assert!(fault.cause().contains("Too many open files"));
        let refused = Fault::because("socket", Error::from(ErrorKind::ConnectionRefused), "see");
        assert!(setbacks.failed(PeerIndex(8), None, refused).is_none(), "nobody is there: at once");
        assert!(setbacks.next_lost().is_some() && setbacks.next_lost().is_none());
        let notes = setbacks.notes();
        assert!(
            notes.len() == 3 && notes[2].contains("2 tries") && notes[0].contains("Too many open files"),
            "{notes:?}"
        );
    }
}
