//! The wire between two hosts: settings of the link, and the fate of its packets.

use engine::{LARGEST_HEADER, LinkConfig, RELIABILITY_HEADER, ReliabilityConfig};
use machine::{Bytes, Nanoseconds};

use super::random::Random;

pub const MILLISECOND: u64 = 1_000_000;

#[derive(Clone)]
pub struct Wire {
    pub config: LinkConfig,
    /// Per mille.
    pub loss: u64,
    pub doubling: u64,
    pub delay: u64,
    /// Packets of an unreliable wire overtake each other by up to this much.
    pub jitter: u64,
    /// Packets that a port holds before it is full (reliable) or drops (unreliable).
    pub capacity: usize,
    /// Per mille of remote reads that fail.
    pub failing_reads: u64,
    pub partitioned_until: u64,
}

impl Wire {
    pub fn random(random: &mut Random, calm: bool) -> Wire {
        let reliable = random.chance(300);
        let least = (LARGEST_HEADER + RELIABILITY_HEADER + 1) as u64;
        let mtu =
            if calm { random.one_of(&[1472, 8192]) } else { random.one_of(&[least, 128, 576, 1472, 9000, 65_000]) };
        let reliability = (!reliable).then(|| ReliabilityConfig {
            session: random_session(random),
            window: if calm { 256 } else { random.one_of(&[1, 2, 7, 64, 256]) as u32 },
            acknowledge_after: Nanoseconds(random.one_of(&[0, 50_000, 200_000])),
            timeout_least: Nanoseconds(4 * MILLISECOND),
            timeout_most: Nanoseconds(200 * MILLISECOND),
            ping_after: Nanoseconds(100 * MILLISECOND),
            silence_limit: Nanoseconds(4_000 * MILLISECOND),
        });
        let config = LinkConfig {
            mtu: Bytes(mtu),
            eager_limit: Bytes(random.one_of(&[0, 30, 1024, 8 << 10, 64 << 10, 1 << 40])),
            eager_near: random.chance(500).then(|| Bytes(random.one_of(&[16 << 10, 256 << 10]))),
            remote_read: reliable && random.chance(500),
            credit_messages: random.one_of(&[1, 2, 3, 5, 16, 1000, 16 << 10]) as u32,
            credit_bytes: Bytes(random.one_of(&[0, 1, 100, 4096, 64 << 10, 1 << 20])),
            reliability,
        };
        let harsh = !calm && random.chance(300);
        Wire {
            config,
            loss: if harsh { random.within(50, 250) } else { random.one_of(&[0, 0, 1, 10, 30]) },
            doubling: if harsh { random.within(0, 200) } else { random.one_of(&[0, 1, 10]) },
            delay: random.one_of(&[1_000, 20_000, 100_000, 2 * MILLISECOND]),
            jitter: random.one_of(&[0, 1_000, 30_000, if harsh { 5 * MILLISECOND } else { 100_000 }]),
            capacity: random.one_of(&[4, 32, 256, 1024]) as usize,
            failing_reads: random.one_of(&[0, 0, 100, 1000]),
            partitioned_until: 0,
        }
    }

    pub fn is_reliable(&self) -> bool {
        self.config.reliability.is_none()
    }
}

/// Half the sessions start within a few hundred packets of where sequence numbers wrap around. The engine starts at
/// `session * FACTOR`; the factor's inverse leads back.
fn random_session(random: &mut Random) -> u32 {
    const FACTOR: u32 = 0x9E37_79B1;
    let mut inverse: u32 = 1;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(FACTOR.wrapping_mul(inverse)));
    }
    assert_eq!(FACTOR.wrapping_mul(inverse), 1);
    let first = if random.chance(500) { 0u32.wrapping_sub(random.below(400) as u32) } else { random.next() as u32 };
    first.wrapping_mul(inverse)
}
