//! Wrappers of a port and a driver that stretch the work on messages.

use engine::{Claim, Completion, Label, Request, Source, TagSelector};
use machine::port::Shared;
use machine::{Capabilities, Dilation, Notice, PeerIndex, Port, Result, Sent};

use crate::dilation::{Dilated, Spinner};
use crate::driver::{Buffer, Driver};
use crate::paths::Paths;

/// A port that delays each packet by the extra time of the work that made it.
pub(crate) struct DilatedPort<P> {
    port: P,
    /// `None` without dilation.
    spinner: Option<Box<Spinner>>,
}

impl<P> DilatedPort<P> {
    pub fn new(port: P, by: Dilation) -> Self {
        DilatedPort { port, spinner: Spinner::of(by) }
    }

    pub fn inner(&self) -> &P {
        &self.port
    }

    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Counts of stretched work; `None` without dilation.
    pub fn counts(&self) -> Option<Dilated> {
        self.spinner.as_ref().map(|spinner| spinner.counts())
    }

    /// Begins a piece of work. True where [`DilatedPort::leave`] must end it.
    #[inline]
    pub fn enter(&mut self) -> bool {
        self.spinner.as_mut().is_some_and(|spinner| spinner.enter())
    }

    /// Spins for the work so far, before its result is seen.
    #[inline]
    pub fn pay(&mut self) {
        pay(&mut self.spinner);
    }

    #[inline]
    pub fn leave(&mut self, entered: bool, busy: bool) {
        if entered && let Some(spinner) = &mut self.spinner {
            spinner.leave(busy);
        }
    }
}

#[inline]
fn pay(spinner: &mut Option<Box<Spinner>>) {
    if let Some(spinner) = spinner {
        spinner.pay();
    }
}

impl<P: Port> Port for DilatedPort<P> {
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    #[inline]
    fn send(&mut self, peer: PeerIndex, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Sent> {
        let DilatedPort { port, spinner } = self;
        port.send(peer, length, |into| {
            fill(into);
            pay(spinner);
        })
    }

    #[inline]
    fn send_apart(
        &mut self,
        peer: PeerIndex,
        head: usize,
        fill: impl FnOnce(&mut [u8]),
        body: &Shared,
    ) -> Result<Sent> {
        let DilatedPort { port, spinner } = self;
        let fill = |into: &mut [u8]| {
            fill(into);
            pay(spinner);
        };
        port.send_apart(peer, head, fill, body)
    }

    #[inline]
    fn flush(&mut self) -> Result<()> {
        self.port.flush()
    }

    #[inline]
    fn receive(&mut self, budget: usize, deliver: impl FnMut(PeerIndex, &[u8])) -> Result<usize> {
        self.port.receive(budget, deliver)
    }

    fn notices(&mut self, report: impl FnMut(Notice)) -> Result<()> {
        self.port.notices(report)
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        self.port.is_idle()
    }

    fn waited(&mut self) {
        self.port.waited();
    }

    #[inline]
    fn arrivals(&self) -> usize {
        self.port.arrivals()
    }

    fn read_remote(&mut self, peer: PeerIndex, address: u64, into: &mut [u8]) -> Result<()> {
        self.port.read_remote(peer, address, into)
    }
}

/// A driver over paths whose work is stretched.
pub(crate) fn driver<B: Buffer>(paths: Paths, by: Dilation) -> Driver<DilatedPort<Paths>, B> {
    Driver::admitting(DilatedPort::new(paths, by), |port| Paths::admit(port.inner_mut()))
}

/// A driver whose calls that work on messages are stretched.
pub(crate) struct DilatedDriver<P, B>(pub Driver<DilatedPort<P>, B>);

impl<P: Port, B: Buffer> DilatedDriver<P, B> {
    fn stretched<T>(
        &mut self,
        busy: impl FnOnce(&Result<T>) -> bool,
        work: impl FnOnce(&mut Driver<DilatedPort<P>, B>) -> Result<T>,
    ) -> Result<T> {
        let entered = self.0.port_mut().enter();
        let done = work(&mut self.0);
        self.0.port_mut().leave(entered, busy(&done));
        done
    }

    #[cold]
    #[inline(never)]
    pub fn send(&mut self, peer: PeerIndex, label: Label, buffer: B, context: u64) -> Result<Request> {
        self.stretched(|_| true, |driver| driver.send(peer, label, buffer, context))
    }

    #[cold]
    #[inline(never)]
    pub fn send_confirmed(&mut self, peer: PeerIndex, label: Label, buffer: B, context: u64) -> Result<Request> {
        self.stretched(|_| true, |driver| driver.send_confirmed(peer, label, buffer, context))
    }

    #[cold]
    #[inline(never)]
    pub fn inject(&mut self, peer: PeerIndex, label: &Label, bytes: &[u8]) -> Result<bool> {
        self.stretched(|_| true, |driver| driver.inject(peer, label, bytes))
    }

    #[cold]
    #[inline(never)]
    pub fn receive(&mut self, source: Source, selector: TagSelector, buffer: B, context: u64) -> Result<Request> {
        self.stretched(|_| true, |driver| driver.receive(source, selector, buffer, context))
    }

    #[cold]
    #[inline(never)]
    pub fn turn(&mut self) -> Result<bool> {
        self.stretched(|came| matches!(came, Ok(true)), |driver| driver.turn())
    }

    #[cold]
    #[inline(never)]
    pub fn poll(&mut self) -> Result<Option<Completion<B>>> {
        if let Some(done) = self.0.next_completion() {
            return Ok(Some(done));
        }
        self.turn()?;
        Ok(self.0.next_completion())
    }

    #[cold]
    #[inline(never)]
    pub fn receive_claimed(&mut self, claim: Claim, buffer: B, context: u64) -> Result<Request> {
        self.0.receive_claimed(claim, buffer, context)
    }

    #[cold]
    #[inline(never)]
    pub fn discard(&mut self, claim: Claim) -> Result<()> {
        self.0.discard(claim)
    }

    #[cold]
    #[inline(never)]
    pub fn flush(&mut self) -> Result<()> {
        if self.0.has_to_flush() { self.stretched(|_| false, Driver::flush) } else { self.0.flush() }
    }
}
