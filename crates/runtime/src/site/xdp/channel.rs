//! The near ends of channels to an offcode at a driver hook.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use linux::xdp::{RingReader, SharedWords};
use machine::{Fault, Nanoseconds, Result};
use offcode::call::{Header, Kind};
use offcode::channel::{Counted, Delivery, Loss, Sleeper, Synchronization};
use offcode::{Channel, Refusal, Specification, Written};

use super::Inner;
use crate::possible::{Pair, map_name};

/// Bytes of `struct offcode_call`: interface, method, reserved, length; the arguments follow.
const CALL_HEADER: usize = 16;
const CALL_BYTES: usize = 1024;

/// The out-of-band channel: a call written to it has run inside the kernel when the write returns.
pub(super) struct Calls {
    inner: Arc<Inner>,
    specification: Specification,
    answers: VecDeque<Vec<u8>>,
    scratch: Vec<u8>,
    counted: Counted,
}

impl Calls {
    pub fn new(inner: Arc<Inner>, specification: Specification) -> Calls {
        Calls { inner, specification, answers: VecDeque::new(), scratch: Vec::new(), counted: Counted::default() }
    }

    fn carry_out(&self, header: Header, arguments: &[u8]) -> Result<Vec<u8>, String> {
        let object = &self.inner.object;
        if !self.inner.hook.call {
            return Err("its object has no program call".into());
        }
        if !self.inner.interfaces.contains(&header.interface) {
            return Err(Refusal::no_such_interface(header.interface).0);
        }
        if arguments.len() > CALL_BYTES {
            return Err(format!("{} bytes of arguments are more than {CALL_BYTES}", arguments.len()));
        }
        let mut context = vec![0; CALL_HEADER + CALL_BYTES];
        context[0..8].copy_from_slice(&header.interface.to_ne_bytes());
        context[8..10].copy_from_slice(&header.method.to_ne_bytes());
        context[12..16].copy_from_slice(&(arguments.len() as u32).to_ne_bytes());
        context[CALL_HEADER..CALL_HEADER + arguments.len()].copy_from_slice(arguments);
        let program = object.program("call").map_err(|fault| fault.to_string())?;
        match program.call(&mut context).map_err(|fault| fault.to_string())? {
            0 => {}
            result => return Err(format!("its program call returned {result} for method {}", header.method)),
        }
        self.inner.uses.fetch_add(1, Ordering::Relaxed);
        self.inner.stir();
        let length = u32::from_ne_bytes([context[12], context[13], context[14], context[15]]) as usize;
        match context.get(CALL_HEADER..CALL_HEADER + length) {
            Some(result) => Ok(result.to_vec()),
            None => Err(format!("its program call says that the result has {length} bytes")),
        }
    }
}

impl Channel for Calls {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        if self.is_abandoned() {
            return Ok(Written::Gone);
        }
        // A caller that reads no answers is not served without end.
        if self.answers.len() >= self.specification.buffers.count as usize {
            self.counted.full += 1;
            return Ok(Written::Full);
        }
        self.scratch.resize(length, 0);
        fill(&mut self.scratch);
        let Some((header, arguments)) = Header::read(&self.scratch) else {
            let subject = format!("offcode {}", self.inner.name);
            return Err(Fault::new(
                subject,
                "out of band it takes calls only",
                "send messages over a channel of their own",
            ));
        };
        self.counted.written += 1;
        let answer = match header.kind {
            Kind::Call | Kind::OneWay => self.carry_out(header, arguments),
            // The body makes no calls, so nothing is an answer to it.
            Kind::Reply | Kind::Refused => return Ok(Written::Taken),
        };
        if header.kind == Kind::Call {
            let (kind, content) = match answer {
                Ok(result) => (Kind::Reply, result),
                Err(why) => (Kind::Refused, why.into_bytes()),
            };
            let mut head = [0; Header::LENGTH];
            Header { kind, ..header }.write(&mut head);
            self.answers.push_back([&head[..], &content].concat());
        }
        Ok(Written::Taken)
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(answer) = self.answers.pop_front() else { return Ok(false) };
        deliver(&answer);
        self.counted.read += 1;
        Ok(true)
    }

    fn poll(&mut self) -> Result<bool> {
        Ok(!self.answers.is_empty())
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        may_wait(&self.specification)?;
        // An answer is there as soon as its call was written: nothing that comes later could end the wait.
        if self.answers.is_empty() && !self.is_abandoned() {
            std::thread::sleep(std::time::Duration::from_nanos(limit.0));
        }
        self.poll()
    }

    /// Messages come only by a write here.
    fn arm(&mut self, _sleeper: &mut dyn Sleeper) -> bool {
        self.answers.is_empty()
    }

    fn is_abandoned(&self) -> bool {
        self.inner.gone.load(Ordering::Acquire)
    }

    fn counted(&self) -> Counted {
        self.counted
    }
}

pub(super) fn may_wait(specification: &Specification) -> Result<()> {
    match specification.synchronization {
        Synchronization::Blocking => Ok(()),
        Synchronization::Poll => {
            Err(Fault::new("channel", "it was made to be polled", "ask for a blocking one, or poll it"))
        }
    }
}

/// The specialized channel: shared memory to the program, a ring buffer from it.
pub(super) struct Messages {
    inner: Arc<Inner>,
    specification: Specification,
    input: Option<SharedWords>,
    output: Option<RingReader>,
    /// The program that runs after each message.
    handler: Option<String>,
    counted: Counted,
}

/// Words of `struct offcode_in`.
const WRITTEN: usize = 0;
pub(super) const READ: usize = 8;

impl Messages {
    /// `pair` is which of the object's maps it has, as [`crate::possible::Hook::pair`] names them.
    pub fn new(inner: Arc<Inner>, pair: &str, ends: Pair, specification: Specification) -> Result<Messages> {
        let object = &inner.object;
        let input = ends.input.map(|_| object.shared(&map_name("IN", pair))).transpose()?;
        let output = ends.output.then(|| object.ring(&map_name("OUT", pair))).transpose()?;
        let handlers = [map_name("message", pair), "message".to_owned()];
        let handler = handlers.into_iter().find(|name| object.has_program(name));
        Ok(Messages { inner, specification, input, output, handler, counted: Counted::default() })
    }
}

impl Channel for Messages {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        let fault = |cause: String| {
            Fault::new(format!("channel to offcode {}", self.inner.name), cause, "send less, or otherwise")
        };
        let most = self.specification.buffers.size.0 as usize;
        if length > most {
            return Err(fault(format!("a message of {length} bytes does not fit into buffers of {most}")));
        }
        let Some(input) = &self.input else { return Err(fault("its object has no map IN to read from".into())) };
        if self.inner.gone.load(Ordering::Acquire) {
            return Ok(Written::Gone);
        }
        let (head, slots) = (input.value(0), input.entries() - 1);
        let written = head[WRITTEN].load(Ordering::Relaxed);
        // The program may write both counters.
        if written.wrapping_sub(head[READ].load(Ordering::Acquire)) >= u64::from(self.specification.buffers.count) {
            return Ok(match self.specification.delivery {
                Delivery::Reliable => {
                    self.counted.full += 1;
                    Written::Full
                }
                Delivery::Unreliable => {
                    self.counted.dropped += 1;
                    Written::Dropped
                }
            });
        }
        let mut bytes = vec![0; length];
        fill(&mut bytes);
        let slot = input.value(1 + (written as usize & (slots - 1)));
        slot[0].store(length as u64, Ordering::Relaxed);
        for (to, from) in slot[1..].iter().zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word[..from.len()].copy_from_slice(from);
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        head[WRITTEN].store(written.wrapping_add(1), Ordering::Release);
        self.counted.written += 1;
        self.inner.uses.fetch_add(1, Ordering::Relaxed);
        if let Some(handler) = &self.handler {
            self.inner.object.program(handler)?.call(&mut [])?;
            self.inner.stir();
        }
        Ok(Written::Taken)
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let read = self.output.as_mut().is_some_and(|output| output.read(deliver));
        self.counted.read += u64::from(read);
        Ok(read)
    }

    fn poll(&mut self) -> Result<bool> {
        Ok(self.output.as_mut().is_some_and(RingReader::poll))
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        may_wait(&self.specification)?;
        let Some(output) = &mut self.output else {
            std::thread::sleep(std::time::Duration::from_nanos(limit.0));
            return Ok(false);
        };
        // The kernel does not wake the reader for an offcode that is removed: look now and then.
        const POLL_INTERVAL: u64 = 5_000_000;
        let mut left = limit.0;
        loop {
            let part = left.min(POLL_INTERVAL);
            let found = output.wait(Nanoseconds(part));
            if found.map_err(|error| Fault::because("channel", error, "check the limits of this process"))? {
                return Ok(true);
            }
            left -= part;
            if left == 0 || self.inner.gone.load(Ordering::Acquire) {
                return Ok(output.poll());
            }
        }
    }

    fn arm(&mut self, sleeper: &mut dyn Sleeper) -> bool {
        let Some(output) = &mut self.output else { return true };
        // A program wakes the reader only where it finds it caught up: that must be visible before the last look.
        fence(Ordering::SeqCst);
        !output.poll() && sleeper.watch(output.as_fd())
    }

    fn is_abandoned(&self) -> bool {
        self.inner.gone.load(Ordering::Acquire)
    }

    fn loses(&self) -> Loss {
        Loss::Hook
    }

    fn counted(&self) -> Counted {
        self.counted
    }
}
