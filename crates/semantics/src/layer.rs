//! Both semantics behind one trait with the calls of a measurement.

use endpoint::Driver;
use engine::{Direction, Source, Status, TagSelector};
use machine::{Fault, PeerIndex, Port, Result};
use queue_pair::Endpoint;

/// Memory of a message.
pub type Message = Vec<u8>;

/// Context of receives, by which their ends are told from sends'.
pub struct Ended {
    pub received: bool,
    /// Sender of a receive's message, or receiver of a send's.
    pub peer: u32,
    pub message: Message,
}

/// One end. Requests to and from each peer end in order.
pub trait Layer: Send {
    fn send(&mut self, peer: u32, message: Message) -> Result<()>;
    /// Posts a receive for the next message of this peer.
    fn receive(&mut self, peer: u32, message: Message) -> Result<()>;
    /// Moves what can move now; true if a packet came in.
    fn turn(&mut self) -> Result<bool>;
    fn ended(&mut self) -> Result<Option<Ended>>;
    /// Hands sent messages to the wire.
    fn flush(&mut self) -> Result<()>;
    /// Remarks that a reader of the figures needs.
    fn remarks(&self) -> Vec<String>;
    /// Greatest numbers of unmatched messages held here, and of their bytes.
    fn unexpected(&mut self) -> (u64, u64);
}

/// The one tag of all messages.
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
