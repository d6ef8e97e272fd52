//! The congestion window: how many packets may be in flight, by arrivals and losses.

const FIRST: f64 = 32.0;
const LEAST: f64 = 4.0;
/// Share of the window that a loss leaves, and packets added per round trip without loss: as in kernel TCP (RFC 9438,
/// section 4.3), so that streams of both share a link.
const SHRINKAGE: f64 = 0.7;
const GROWTH: f64 = 3.0 * (1.0 - SHRINKAGE) / (1.0 + SHRINKAGE);

pub(crate) struct Window {
    packets: f64,
    most: f64,
    /// Size below which the window grows by a packet per arrival; infinite before the first loss.
    threshold: f64,
}

impl Window {
    /// A window of at most so many packets.
    pub fn new(most: u32) -> Window {
        let most = f64::from(most);
        Window { packets: FIRST.min(most), most, threshold: f64::INFINITY }
    }

    #[inline]
    pub fn packets(&self) -> f64 {
        self.packets
    }

    /// Whether a packet was ever lost.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.threshold.is_finite()
    }

    #[inline]
    pub fn grow(&mut self, arrived: usize) {
        let arrived = arrived as f64;
        self.packets += if self.packets < self.threshold { arrived } else { GROWTH * arrived / self.packets };
        self.packets = self.packets.min(self.most);
    }

    pub fn shrink(&mut self) {
        self.packets = (self.packets * SHRINKAGE).max(LEAST);
        self.threshold = self.packets;
    }
}
