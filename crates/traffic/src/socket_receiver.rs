//! A receiver over an ordinary socket, for whom no driver hook can be had. Taken only where it was asked for by name: its
//! times are those at which a thread got round to reading, and frames that its socket has no room for count as lost.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use linux::{affinity, clock};
use machine::{CoreId, Fault, Result};

use crate::receiver::{Arrivals, Expected};
use crate::stamp;
use crate::tally::Tally;

/// Time between looks whether the receiver is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const LONGEST: usize = 65_536;

/// A receiver that runs until it is dropped.
pub struct SocketReceiver {
    shared: Arc<(Tally, AtomicBool)>,
    expected: Expected,
    thread: Option<JoinHandle<()>>,
}

impl SocketReceiver {
    /// Binds `address` in the calling thread's network namespace, at the port that is expected. Its thread is pinned to
    /// `core`, where one is given. `expected.pass` means nothing here: what a socket reads is gone.
    pub fn bind(address: IpAddr, expected: Expected, core: Option<CoreId>) -> Result<SocketReceiver> {
        let fault = |error: std::io::Error| {
            let next = "name an address of this host and a free port";
            Fault::because(format!("traffic receiver at {address} port {}", expected.port), error, next)
        };
        core.map_or(Ok(()), affinity::check)?;
        let socket = UdpSocket::bind((address, expected.port)).map_err(fault)?;
        socket.set_read_timeout(Some(POLL_INTERVAL)).map_err(fault)?;
        let headers = if address.is_ipv4() { 42 } else { 62 };
        let shared = Arc::new((Tally::new(), AtomicBool::new(false)));
        let of_thread = shared.clone();
        let body = move || {
            // Checked above; should the core go meanwhile, frames are still received.
            let _pinned = core.and_then(|core| affinity::pin(core).ok());
            let (tally, end) = &*of_thread;
            let mut buffer = vec![0; LONGEST];
            while !end.load(Ordering::Relaxed) {
                let length = match socket.recv(&mut buffer) {
                    Ok(length) => length,
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
                    // The error may be a peer's refusal of something else; the socket lives on.
                    Err(_) => continue,
                };
                match stamp::read(&buffer[..length]) {
                    Some((tag, sequence, _)) if tag == expected.tag => {
                        tally.arrived(&expected, sequence, (length + headers) as u64, clock::monotonic());
                    }
                    _ => tally.foreign(),
                }
            }
        };
        let thread = std::thread::Builder::new().name("receiver".into()).spawn(body).map_err(fault)?;
        Ok(SocketReceiver { shared, expected, thread: Some(thread) })
    }

    /// The note beside every figure of this receiver.
    pub fn note(&self) -> &'static str {
        "received by a socket, as asked: gaps are those of a thread's reads, and what the socket has no room for is lost"
    }

    pub fn read(&self) -> Arrivals {
        Arrivals::of(std::iter::once(self.shared.0.words()), &self.expected)
    }
}

impl Drop for SocketReceiver {
    fn drop(&mut self) {
        self.shared.1.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
