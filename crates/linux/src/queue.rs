//! A single-producer single-consumer queue that moves values between two threads.
//!
//! The scheme of [`crate::ring`] with a typed slot: for values of up to 56 bytes one cache line moves per value.

use std::mem::MaybeUninit;

use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, UnsafeCell};

#[repr(align(64))]
struct Slot<T> {
    /// Position + 1 of the value inside; anything else means not written yet.
    sequence: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

#[repr(align(128))]
struct End {
    /// The consumer's progress, published every quarter; the exact position of either end once it is dropped.
    position: AtomicU64,
    gone: AtomicBool,
}

impl End {
    fn new() -> Self {
        End { position: AtomicU64::new(0), gone: AtomicBool::new(false) }
    }
}

struct Shared<T> {
    slots: Box<[Slot<T>]>,
    producer: End,
    consumer: End,
}

// SAFETY: each slot is owned by one end at a time, handed over by its sequence and by the consumer's progress.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline(always)]
    fn slot(&self, position: u64) -> &Slot<T> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let end = self.producer.position.load(Ordering::Relaxed);
        for position in self.consumer.position.load(Ordering::Relaxed)..end {
            // SAFETY: both ends are gone and left their exact positions: these values were pushed and never popped.
            self.slot(position).value.with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

/// The end that pushes.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    position: u64,
    taken: u64,
}

/// The end that pops.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    position: u64,
    published: u64,
}

/// A queue with room for `capacity` values.
///
/// # Panics
/// Unless `capacity` is a power of two of at least 4.
pub fn pair<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity.is_power_of_two() && capacity >= 4, "a queue has a power of two of slots, at least 4");
    let slot = |_| Slot { sequence: AtomicU64::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) };
    let slots = (0..capacity).map(slot).collect();
    let shared = Arc::new(Shared { slots, producer: End::new(), consumer: End::new() });
    (Producer { shared: shared.clone(), position: 0, taken: 0 }, Consumer { shared, position: 0, published: 0 })
}

impl<T: Send> Producer<T> {
    /// Moves `value` in, or hands it back where the queue is full.
    #[inline]
    pub fn try_push(&mut self, value: T) -> Result<(), T> {
        let capacity = self.shared.slots.len() as u64;
        if self.position - self.taken == capacity {
            self.taken = self.shared.consumer.position.load(Ordering::Acquire);
            if self.position - self.taken == capacity {
                return Err(value);
            }
        }
        let slot = self.shared.slot(self.position);
        // SAFETY: the consumer has taken what was here a lap ago, and looks again only once the sequence is stored.
        slot.value.with_mut(|place| unsafe { (*place).write(value) });
        slot.sequence.store(self.position + 1, Ordering::Release);
        self.position += 1;
        Ok(())
    }

    /// Nobody will pop any more.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.shared.consumer.gone.load(Ordering::Acquire)
    }
}

impl<T: Send> Consumer<T> {
    /// Moves the next value out, if there is one.
    #[inline]
    pub fn try_pop(&mut self) -> Option<T> {
        let slot = self.shared.slot(self.position);
        if slot.sequence.load(Ordering::Acquire) != self.position + 1 {
            return None;
        }
        // SAFETY: the sequence says that the value is written; our position moves on, so it is read once.
        let value = slot.value.with(|place| unsafe { (*place).assume_init_read() });
        self.position += 1;
        if self.position - self.published > (self.shared.slots.len() as u64 - 1) >> 2 {
            self.published = self.position;
            self.shared.consumer.position.store(self.position, Ordering::Release);
        }
        Some(value)
    }

    /// Nobody will push any more; what was pushed can still be popped.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.shared.producer.gone.load(Ordering::Acquire)
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.producer.position.store(self.position, Ordering::Release);
        self.shared.producer.gone.store(true, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.consumer.position.store(self.position, Ordering::Release);
        self.shared.consumer.gone.store(true, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Values come out once and in order; those left inside are dropped once, whichever end goes first.
        #[test]
        fn it_is_a_bounded_queue(steps in proptest::collection::vec(any::<bool>(), 1..300), producer_first: bool) {
            let token = std::sync::Arc::new(());
            let (mut producer, mut consumer) = pair(8);
            let mut model = VecDeque::new();
            for (number, push) in steps.into_iter().enumerate() {
                if push {
                    match producer.try_push((number, token.clone())) {
                        Ok(()) => model.push_back(number),
                        Err((back, _)) => prop_assert!(back == number && model.len() > 6),
                    }
                    prop_assert!(model.len() <= 8);
                } else {
                    prop_assert_eq!(consumer.try_pop().map(|(number, _)| number), model.pop_front());
                }
                prop_assert_eq!(std::sync::Arc::strong_count(&token), 1 + model.len());
            }
            prop_assert!(!producer.is_abandoned() && !consumer.is_abandoned());
            if producer_first {
                drop(producer);
                prop_assert!(consumer.is_abandoned());
                prop_assert_eq!(consumer.try_pop().map(|(number, _)| number), model.pop_front());
            } else {
                drop(consumer);
                prop_assert!(producer.is_abandoned());
                let _ = producer.try_push((0, token.clone()));
            }
        }
    }

    #[test]
    fn values_left_inside_are_dropped() {
        for producer_first in [true, false] {
            let token = std::sync::Arc::new(());
            let (mut producer, mut consumer) = pair(8);
            for _ in 0..7 {
                producer.try_push(token.clone()).unwrap();
            }
            drop(consumer.try_pop());
            assert_eq!(std::sync::Arc::strong_count(&token), 7);
            if producer_first {
                drop(producer);
                drop(consumer.try_pop());
                drop(consumer);
            } else {
                drop(consumer);
                producer.try_push(token.clone()).unwrap();
                drop(producer);
            }
            assert_eq!(std::sync::Arc::strong_count(&token), 1);
        }
    }

    #[test]
    fn buffers_travel_between_threads() {
        let (mut there, mut inbox) = pair(16);
        let worker = std::thread::spawn(move || {
            let (mut sum, mut ended) = (0u64, false);
            loop {
                let Some(buffer): Option<Vec<u8>> = inbox.try_pop() else {
                    if ended {
                        return sum;
                    }
                    // Looked at before the next pop: what was pushed before the end is seen then.
                    ended = inbox.is_abandoned();
                    std::thread::yield_now();
                    continue;
                };
                sum += buffer.iter().map(|&b| u64::from(b)).sum::<u64>();
            }
        });
        for i in 0..1000u64 {
            let mut buffer = vec![i as u8; 10];
            while let Err(back) = there.try_push(buffer) {
                buffer = back;
                std::thread::yield_now();
            }
        }
        drop(there);
        assert_eq!(worker.join().unwrap(), (0..1000u64).map(|i| 10 * u64::from(i as u8)).sum::<u64>());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    /// Every interleaving with at most three preemptions: each value moves once, in order, over more than a lap, and the
    /// value left inside is dropped by whichever end goes last (loom reports a leaked one).
    #[test]
    fn ring_of_values_hands_slots_over() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (mut producer, mut consumer) = pair(4);
            let sender = loom::thread::spawn(move || {
                for i in 0..6 {
                    let mut value = Arc::new(i);
                    while let Err(back) = producer.try_push(value) {
                        value = back;
                        loom::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < 5 {
                match consumer.try_pop() {
                    Some(value) => {
                        assert_eq!(*value, next);
                        next += 1;
                    }
                    None => loom::thread::yield_now(),
                }
            }
            drop(consumer);
            sender.join().unwrap();
        });
    }
}
