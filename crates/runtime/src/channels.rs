//! Channels of the application, made in two steps: it determines what the channel is and has its own endpoint, then
//! attaches offcodes to it (HYDRA section 1.3.1).

use std::collections::VecDeque;

use machine::{Fault, Nanoseconds, Result};
use offcode::channel::{Counted, Loss, Sleeper};
use offcode::{Cast, Channel, Delivery, Specification, Written};
use ports::channel::{Reader, Writer};

use crate::possible;

enum Near {
    /// No other end is attached yet.
    Alone,
    Unicast(Box<dyn Channel>),
    /// Readers that share memory are served by one write; each other has an end of its own.
    Multicast {
        shared: Option<Box<Writer>>,
        others: Vec<Other>,
    },
}

/// A reader that shares no memory with the writer, and the messages that it has yet to get.
struct Other {
    end: Box<dyn Channel>,
    behind: VecDeque<Vec<u8>>,
}

impl Other {
    fn flush(&mut self) {
        while let Some(message) = self.behind.front() {
            if let Ok(Written::Full) = self.end.write(message) {
                return;
            }
            self.behind.pop_front();
        }
    }

    fn write(&mut self, message: &[u8]) -> Result<Written> {
        if self.behind.is_empty() {
            match self.end.write(message)? {
                Written::Full => {}
                written => return Ok(written),
            }
        }
        self.behind.push_back(message.to_vec());
        Ok(Written::Taken)
    }
}

/// The application's endpoint of a specialized channel.
pub struct Pathway {
    specification: Specification,
    near: Near,
}

impl Pathway {
    /// Creates the channel: step one.
    ///
    /// # Errors
    /// Buffers that cannot be had.
    pub fn create(specification: Specification) -> Result<Pathway> {
        possible::shape(&specification).map_err(|why| why.fault("channel"))?;
        let near = match specification.cast {
            Cast::Unicast => Near::Alone,
            Cast::Multicast => Near::Multicast { shared: None, others: Vec::new() },
        };
        Ok(Pathway { specification, near })
    }

    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.near, Near::Unicast(_))
    }

    pub(crate) fn take(&mut self, end: Box<dyn Channel>) {
        match &mut self.near {
            Near::Multicast { others, .. } => others.push(Other { end, behind: VecDeque::new() }),
            near => *near = Near::Unicast(end),
        }
    }

    /// Adds a reader of the shared memory of a multicast channel.
    pub(crate) fn reader(&mut self) -> Result<Reader> {
        let Near::Multicast { shared, .. } = &mut self.near else {
            return Err(Fault::new("channel", "it is unicast", "create it as multicast"));
        };
        if let Some(writer) = shared {
            return writer.attach();
        }
        let (writer, mut readers) = ports::channel::multicast(&self.specification, 1)?;
        *shared = Some(Box::new(writer));
        readers.pop().ok_or_else(|| Fault::new("multicast channel", "it was made without a reader", "report this"))
    }

    fn alone(&self) -> Fault {
        Fault::new("channel", "no offcode is attached to it", "attach one first")
    }
}

impl Channel for Pathway {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        match &mut self.near {
            Near::Alone => Err(self.alone()),
            Near::Unicast(end) => end.write_with(length, fill),
            Near::Multicast { shared, others } => {
                others.iter_mut().for_each(Other::flush);
                if others.is_empty()
                    && let Some(writer) = shared
                {
                    return writer.write_with(length, fill);
                }
                // All or none: a reader that has a message must not get it again because another had no room.
                let reliable = self.specification.delivery == Delivery::Reliable;
                let count = self.specification.buffers.count as usize;
                if reliable && others.iter().any(|other| other.behind.len() >= count) {
                    return Ok(Written::Full);
                }
                let mut message = vec![0; length];
                fill(&mut message);
                let mut outcome = Written::Gone;
                if let Some(writer) = shared {
                    outcome = writer.write(&message)?;
                    if outcome == Written::Full {
                        return Ok(Written::Full);
                    }
                }
                for other in others {
                    match other.write(&message)? {
                        Written::Gone => {}
                        Written::Dropped => outcome = Written::Dropped,
                        _ if outcome == Written::Gone => outcome = Written::Taken,
                        _ => {}
                    }
                }
                Ok(outcome)
            }
        }
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match &mut self.near {
            Near::Alone => Err(self.alone()),
            Near::Unicast(end) => end.read_with(deliver),
            Near::Multicast { .. } => Ok(false),
        }
    }

    fn poll(&mut self) -> Result<bool> {
        match &mut self.near {
            Near::Unicast(end) => end.poll(),
            _ => Ok(false),
        }
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        match &mut self.near {
            Near::Unicast(end) => end.wait(limit),
            _ => Err(self.alone()),
        }
    }

    /// Nothing arrives on a channel that is only written, or has no other end yet.
    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        match &mut self.near {
            Near::Unicast(end) => end.arm(sleeper),
            _ => true,
        }
    }

    fn is_abandoned(&self) -> bool {
        match &self.near {
            Near::Alone => false,
            Near::Unicast(end) => end.is_abandoned(),
            Near::Multicast { shared, others } => {
                shared.as_ref().is_none_or(|writer| writer.is_abandoned())
                    && others.iter().all(|other| other.end.is_abandoned())
            }
        }
    }

    fn loses(&self) -> Loss {
        match &self.near {
            Near::Unicast(end) => end.loses(),
            _ => Loss::Writer,
        }
    }

    fn counted(&self) -> Counted {
        match &self.near {
            Near::Alone => Counted::default(),
            Near::Unicast(end) => end.counted(),
            Near::Multicast { shared, .. } => shared.as_ref().map_or_else(Counted::default, |writer| writer.counted()),
        }
    }
}
