//! A channel for tests: two queues behind a lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use machine::{Nanoseconds, Result};
use offcode::channel::{Channel, Counted, Delivery, Specification, Written};

type Queue = Arc<Mutex<VecDeque<Vec<u8>>>>;

pub struct End {
    specification: Specification,
    inbox: Queue,
    outbox: Weak<Mutex<VecDeque<Vec<u8>>>>,
    counted: Counted,
}

pub fn pair(specification: Specification) -> (End, End) {
    let (one, other) = (Queue::default(), Queue::default());
    let end = |inbox: &Queue, outbox: &Queue| End {
        specification,
        inbox: inbox.clone(),
        outbox: Arc::downgrade(outbox),
        counted: Counted::default(),
    };
    (end(&one, &other), end(&other, &one))
}

impl Channel for End {
    fn specification(&self) -> &Specification {
        &self.specification
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        let Some(outbox) = self.outbox.upgrade() else { return Ok(Written::Gone) };
        let mut outbox = outbox.lock().unwrap();
        if outbox.len() == self.specification.buffers.count as usize {
            return Ok(match self.specification.delivery {
                Delivery::Reliable => Written::Full,
                Delivery::Unreliable => Written::Dropped,
            });
        }
        let mut message = vec![0xAA; length];
        fill(&mut message);
        outbox.push_back(message);
        self.counted.written += 1;
        Ok(Written::Taken)
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let message = self.inbox.lock().unwrap().pop_front();
        if let Some(message) = &message {
            deliver(message);
            self.counted.read += 1;
        }
        Ok(message.is_some())
    }

    fn poll(&mut self) -> Result<bool> {
        Ok(!self.inbox.lock().unwrap().is_empty())
    }

    fn wait(&mut self, _: Nanoseconds) -> Result<bool> {
        std::thread::yield_now();
        self.poll()
    }

    fn is_abandoned(&self) -> bool {
        self.outbox.strong_count() == 0
    }

    fn counted(&self) -> Counted {
        self.counted
    }
}
