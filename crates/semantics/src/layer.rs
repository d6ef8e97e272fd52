//! Both semantics behind the calls that a measurement makes.

use endpoint::Driver;
use engine::{Direction, Source, Status, TagSelector};
use machine::{Fault, PeerIndex, Port, Result};
use queue_pair::Endpoint;

/// What holds a message.
pub type Message = Vec<u8>;

/// Given with a receive, so that its end is told from a send's.
pub struct Ended {
    pub received: bool,
    /// Who sent it, or to whom it was sent.
    pub peer: u32,
    pub message: Message,
}

/// One end. Requests to and from each peer end in order.
pub trait Layer: Send {
    fn send(&mut self, peer: u32, message: Message) -> Result<()>;
    /// The next message of this peer.
    fn receive(&mut self, peer: u32, message: Message) -> Result<()>;
    /// Moves what can move now; true if a packet came in.
    fn turn(&mut self) -> Result<bool>;
    fn ended(&mut self) -> Result<Option<Ended>>;
    /// Hands what was sent to the wire.
    fn flush(&mut self) -> Result<()>;
    /// What a reader of the figures must know.
    fn remarks(&self) -> Vec<String>;
    /// Messages, and bytes of them, that wait here unmatched; the most there ever were.
    fn unexpected(&mut self) -> (u64, u64);
}

/// Every message of the measurements has it.
const TAG: u64 = 7;

pub(crate) fn check(status: Status) -> Result<()> {
    if status == Status::Done {
        return Ok(());
    }
    Err(Fault::new(
        "a message of the measurement",
        format!("it ended as {status:?}"),
        "run it again; report it if it stays",
    ))
}

impl<P: Port + Send> Layer for Driver<P, Message> {
    #[inline]
    fn send(&mut self, peer: u32, message: Message) -> Result<()> {
        Driver::send(self, PeerIndex(peer), TAG, message, 0).map(|_| ())
    }

    #[inline]
    fn receive(&mut self, peer: u32, message: Message) -> Result<()> {
        Driver::receive(self, Source::Peer(PeerIndex(peer)), TagSelector::exactly(TAG), message, 0).map(|_| ())
    }

    #[inline]
    fn turn(&mut self) -> Result<bool> {
        Driver::turn(self)
    }

    #[inline]
    fn ended(&mut self) -> Result<Option<Ended>> {
        let Some(done) = self.next_completion() else { return Ok(None) };
        check(done.status)?;
        let received = done.direction == Direction::Receive;
        Ok(Some(Ended { received, peer: done.envelope.peer.0, message: done.buffer }))
    }

    fn flush(&mut self) -> Result<()> {
        Driver::flush(self)
    }

    fn remarks(&self) -> Vec<String> {
        let counters = self.engine.counters();
        let mut remarks = Vec::new();
        if counters.retransmitted > 0 {
            remarks.push(format!("{} of {} packets sent again", counters.retransmitted, counters.packets_sent));
        }
        remarks
    }

    fn unexpected(&mut self) -> (u64, u64) {
        (self.engine.counters().unexpected_most, self.engine.unexpected_bytes())
    }
}

impl<P: Port + Send> Layer for Endpoint<P, Message> {
    #[inline]
    fn send(&mut self, peer: u32, message: Message) -> Result<()> {
        Endpoint::send(self, PeerIndex(peer), TAG, message, 0).map(|_| ())
    }

    #[inline]
    fn receive(&mut self, peer: u32, message: Message) -> Result<()> {
        Endpoint::receive(self, Source::Peer(PeerIndex(peer)), TagSelector::exactly(TAG), message, 0).map(|_| ())
    }

    #[inline]
    fn turn(&mut self) -> Result<bool> {
        Endpoint::turn(self)
    }

    #[inline]
    fn ended(&mut self) -> Result<Option<Ended>> {
        let Some(done) = self.next_completion() else { return Ok(None) };
        check(done.status)?;
        let received = done.direction == Direction::Receive;
        Ok(Some(Ended { received, peer: done.envelope.peer.0, message: done.buffer }))
    }

    fn flush(&mut self) -> Result<()> {
        Endpoint::flush(self)
    }

    fn remarks(&self) -> Vec<String> {
        let counters = self.counters();
        let adapter = counters.adapter;
        let mut remarks = Vec::new();
        if adapter.retransmitted > 0 {
            remarks.push(format!("{} of {} packets sent again", adapter.retransmitted, adapter.packets_sent));
        }
        if adapter.not_ready_sent + adapter.not_ready_received > 0 {
            let (said, heard) = (adapter.not_ready_sent, adapter.not_ready_received);
            remarks.push(format!("receiver not ready: said {said} times, heard {heard} times"));
        }
        if adapter.packets_sent > 0 {
            let share = |count: u64| 1000.0 * count as f64 / adapter.packets_sent.max(adapter.packets_received) as f64;
            remarks.push(format!(
                "for 1000 packets: {:.0} acknowledgements, {:.0} credit messages, {:.0} sends held back",
                share(adapter.acknowledgements),
                share(counters.credit_messages),
                share(counters.held_back)
            ));
        }
        remarks
    }

    fn unexpected(&mut self) -> (u64, u64) {
        let counters = self.counters();
        (counters.unexpected_most, counters.unexpected_bytes_most)
    }
}
