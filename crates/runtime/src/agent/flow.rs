//! Credits of one channel between hosts: a writer knows how many of the reader's buffers are free.

/// Messages that may be on the way, for each buffer of the reader.
pub(crate) const ON_THE_WAY: u64 = 1;

/// One end's view of both directions. All figures count messages since the channel was made.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Buffers of the reader, and as many messages again that may be on the way: word of a read takes its time to the
    /// writer, and a writer that has at most the buffers unread should not meet a full channel for it.
    capacity: u64,
    sent: u64,
    /// Messages read at the other end, as the peer said.
    read_there: u64,
    received: u64,
    read_here: u64,
    /// The value of `read_here` that the peer was last told.
    announced: u64,
}

impl Flow {
    pub fn new(buffers: u32) -> Flow {
        Flow {
            capacity: u64::from(buffers) * (1 + ON_THE_WAY),
            sent: 0,
            read_there: 0,
            received: 0,
            read_here: 0,
            announced: 0,
        }
    }

    pub fn has_room(&self) -> bool {
        self.sent - self.read_there < self.capacity
    }

    pub fn sent(&mut self) {
        self.sent += 1;
    }

    /// Takes a credit. False if the peer claims to have read what was not sent, or takes back what it said.
    #[must_use]
    pub fn credit(&mut self, read: u64) -> bool {
        let fits = (self.read_there..=self.sent).contains(&read);
        if fits {
            self.read_there = read;
        }
        fits
    }

    /// Counts a message. False if the peer sent more than it had room for.
    #[must_use]
    pub fn received(&mut self) -> bool {
        self.received += 1;
        self.received - self.announced <= self.capacity
    }

    /// One message was read; the figure to tell the peer now, if it is time: a quarter of the buffers is free that it
    /// does not know of, or as far as it knows none is.
    pub fn read(&mut self) -> Option<u64> {
        self.read_here += 1;
        let unsaid = self.read_here - self.announced;
        let stalled = self.received - self.announced >= self.capacity;
        if unsaid * 4 * (1 + ON_THE_WAY) >= self.capacity || stalled {
            self.announced = self.read_here;
            return Some(self.announced);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the two do, and however late credits arrive, the reader has a buffer for each message, and a
        /// writer without room gets some once the reader has read one of what is on its side and credits have come.
        #[test]
        fn no_overrun_and_no_stall(
            capacity in prop::sample::select(vec![4u32, 8, 64]),
            steps in proptest::collection::vec(0u8..3, 0..400),
        ) {
            let (mut writer, mut reader) = (Flow::new(capacity), Flow::new(capacity));
            let (mut inbox, mut credits) = (0u64, std::collections::VecDeque::new());
            for step in steps {
                match step {
                    0 if writer.has_room() => {
                        writer.sent();
                        prop_assert!(reader.received());
                        inbox += 1;
                    }
                    1 if inbox > 0 => {
                        inbox -= 1;
                        credits.extend(reader.read());
                    }
                    2 => if let Some(read) = credits.pop_front() { prop_assert!(writer.credit(read)) },
                    _ => {}
                }
                prop_assert!(inbox <= u64::from(capacity) * (1 + ON_THE_WAY));
            }
            for read in credits { prop_assert!(writer.credit(read)) }
            if !writer.has_room() {
                prop_assert!(inbox > 0);
                let read = reader.read();
                prop_assert!(read.is_some_and(|read| writer.credit(read)));
                prop_assert!(writer.has_room());
            }
        }
    }

    #[test]
    fn lies_are_noticed() {
        let mut flow = Flow::new(4);
        flow.sent();
        assert!(!flow.credit(2));
        assert!(flow.credit(1));
        assert!(!flow.credit(0));
        for _ in 0..4 * (1 + ON_THE_WAY) {
            assert!(flow.received());
        }
        assert!(!flow.received());
    }
}
