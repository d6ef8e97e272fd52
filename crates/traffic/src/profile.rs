//! The traffic asked for: one profile, whatever body sends it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use machine::quantity::multiple;
use machine::{BitsPerSecond, Fault, Nanoseconds, Result};
use serde::{Deserialize, Serialize};

use crate::capture::Capture;
use crate::frame::Flow;

/// The shortest Ethernet frame, frame check sequence not counted (IEEE 802.3: 64 with it).
pub const SHORTEST: u16 = 60;
/// Bytes that a frame takes on the wire beyond its own: preamble and start 8, check sequence 4, gap 12.
pub const WIRE_OVERHEAD: u64 = 24;

/// A rate of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Frames a second.
    Packets(f64),
    /// Bits of frames without check sequence, preamble and gap, as paper 003's Table 1 counts.
    Bits(BitsPerSecond),
}

/// When frames leave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timing {
    /// No gap: each frame leaves as soon as the last has left.
    Flood,
    /// The same gap between all frames.
    Constant(Rate),
    /// Exponential gaps. Over a link of known speed each gap is the frame's wire time and an exponential rest, so that the
    /// mean is kept and no gap is impossible.
    Poisson(Rate),
    /// Bursts of so many frames, each its wire time after the last (or `within`, or at once where neither is known), then
    /// a pause that keeps the rate.
    Bursty { rate: Rate, frames: u32, within: Option<Nanoseconds> },
    /// The gaps of the capture; after its end it starts anew, a mean gap later.
    Capture,
}

/// How long frames are, frame check sequence not counted.
#[derive(Debug, Clone, PartialEq)]
pub enum Sizes {
    Fixed(u16),
    /// `(size, weight)`, in exactly these shares and a seeded order.
    Mix(Vec<(u16, u32)>),
    /// Simple IMIX: 7 of the shortest, 4 of 590, 1 of 1514 bytes. The shortest is 60 with IPv4, 78 with IPv6.
    Imix,
    Capture(Arc<Capture>),
}

/// A profile of traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub timing: Timing,
    pub sizes: Sizes,
    pub flow: Flow,
    /// Number of frames after which it ends.
    pub frames: Option<u64>,
    /// Time after which it ends.
    pub duration: Option<Nanoseconds>,
    /// Frames handed over together; only with [`Timing::Flood`].
    pub batch: u32,
    /// Speed of the link, where it has one: veth has none.
    pub link: Option<BitsPerSecond>,
    /// MTU of the interface, in bytes; the Ethernet header is not counted.
    pub mtu: u16,
    pub seed: u64,
}

impl Profile {
    /// A profile without an end yet; one frame at a time over a link without speed and with an MTU of 1500.
    pub fn new(flow: Flow, timing: Timing, sizes: Sizes) -> Profile {
        Profile { timing, sizes, flow, frames: None, duration: None, batch: 1, link: None, mtu: 1500, seed: 1 }
    }

    /// Whether each frame has a deadline.
    pub fn is_paced(&self) -> bool {
        self.timing != Timing::Flood
    }

    /// The sizes as shares; empty for a capture.
    pub fn mix(&self) -> Vec<(u16, u32)> {
        match &self.sizes {
            Sizes::Fixed(size) => vec![(*size, 1)],
            Sizes::Mix(mix) => mix.clone(),
            Sizes::Imix => vec![(self.shortest(), 7), (590, 4), (1514, 1)],
            Sizes::Capture(_) => Vec::new(),
        }
    }

    /// The shortest frame that carries headers, sequence number and timestamp and is one for Ethernet.
    pub fn shortest(&self) -> u16 {
        SHORTEST.max((self.flow.headers() + crate::stamp::PAYLOAD_BYTES) as u16)
    }

    /// The longest frame that the interface takes.
    pub fn longest(&self) -> u32 {
        u32::from(self.mtu) + 14
    }

    /// How long a frame of so many bytes keeps the link busy, in ns; 0 where the link has no speed.
    pub fn wire_ns(&self, size: u16) -> f64 {
        self.link.map_or(0.0, |speed| (u64::from(size) + WIRE_OVERHEAD) as f64 * 8e9 / speed.0)
    }

    /// # Errors
    /// Whatever cannot be honoured but for what shows only in the schedule: see [`crate::schedule::Schedule::of`].
    pub fn check(&self) -> Result<()> {
        self.flow.check()?;
        if let Some(speed) = self.link
            && !(speed.0.is_finite() && speed.0 > 0.0)
        {
            return Err(refuse("link", "its speed is no positive number", "give the link's speed, or none"));
        }
        if let Timing::Constant(rate) | Timing::Poisson(rate) | Timing::Bursty { rate, .. } = self.timing {
            let (Rate::Packets(number) | Rate::Bits(BitsPerSecond(number))) = rate;
            if !(number.is_finite() && number > 0.0) {
                let next = "ask for a rate above 0, or for none to send as fast as the body can";
                return Err(refuse("rate", format!("{number} sends nothing"), next));
            }
        }
        if self.frames == Some(0) || self.duration == Some(Nanoseconds(0)) {
            return Err(refuse("length of the run", "it would send nothing", "ask for a positive count and duration"));
        }
        if self.frames.is_none() && self.duration.is_none() && self.timing != Timing::Capture {
            let next = "ask for a duration, a count, or both: what comes first ends the run";
            return Err(refuse("length of the run", "it would never end", next));
        }
        if self.batch == 0 {
            return Err(refuse("batch", "a batch of 0 frames sends nothing", "ask for a batch of 1 or more"));
        }
        if self.batch > 1 && self.is_paced() {
            return Err(refuse(
                "batch",
                format!("the {} frames of a batch leave together, so the gaps between them cannot be kept", self.batch),
                "pace with a batch of 1, or ask for no rate and no gap: batches then leave as fast as the body can",
            ));
        }
        self.check_sizes()?;
        match self.timing {
            Timing::Capture if !matches!(self.sizes, Sizes::Capture(_)) => Err(refuse(
                "timing",
                "the gaps of a capture go with its sizes",
                "take the sizes from the capture too (pcap:FILE)",
            )),
            Timing::Bursty { frames: 0 | 1, .. } => {
                Err(refuse("bursts", "a burst has two frames or more", "ask for longer bursts, or for constant gaps"))
            }
            _ => Ok(()),
        }
    }

    fn check_sizes(&self) -> Result<()> {
        let mix = self.mix();
        if matches!(self.sizes, Sizes::Mix(_)) && mix.iter().all(|(_, weight)| *weight == 0) {
            return Err(refuse("sizes", "the list has none with a weight", "name at least one size"));
        }
        for (size, _) in mix {
            if size < self.shortest() {
                let family = if self.flow.is_ipv6() { "IPv6" } else { "IPv4" };
                return Err(refuse(
                    "sizes",
                    format!("{size} bytes are too few for a frame with {family}, UDP, sequence number and timestamp"),
                    format!("ask for {} bytes or more, frame check sequence not counted", self.shortest()),
                ));
            }
            self.check_longest(size.into())?;
        }
        Ok(())
    }

    /// The longest frame that the interface takes and a body can hold.
    pub(crate) fn most(&self) -> u32 {
        self.longest().min(crate::control::FRAME_BYTES as u32)
    }

    fn check_longest(&self, size: u32) -> Result<()> {
        let most = self.most();
        if size <= most {
            return Ok(());
        }
        let cause = match self.longest() <= most {
            true => format!("{size} bytes are over the interface's MTU of {} and its Ethernet header", self.mtu),
            false => format!("{size} bytes are more than a body can hold"),
        };
        Err(refuse("sizes", cause, format!("ask for {most} bytes or fewer")))
    }
}

pub(crate) fn refuse(subject: &str, cause: impl Into<String>, next: impl Into<String>) -> Fault {
    Fault::new(format!("traffic profile: {subject}"), cause, next)
}

impl FromStr for Rate {
    type Err = Fault;

    /// `30kpps`, `1.5Mpps`, `100Mbit`; the unit says which.
    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let packets = ["pps", "packets/s"].iter().find_map(|unit| lower.strip_suffix(unit));
        let rate = match packets {
            Some(number) => multiple(number).map(Rate::Packets),
            None if lower.contains('b') => text.parse().map(Rate::Bits).ok(),
            None => None,
        };
        rate.ok_or_else(|| {
            Fault::new(format!("rate '{text}'"), "it is no rate", "write it like 30kpps, 1.5Mpps or 100Mbit")
        })
    }
}

impl FromStr for Sizes {
    type Err = Fault;

    /// `64`, `64,128,1514`, `64*7,590*4,1514`, `imix`, `pcap:FILE`.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Fault::new(
                format!("sizes '{text}'"),
                "they are no sizes",
                "write them like 64, 64,590*4,1514, imix or pcap:FILE",
            )
        };
        if text == "imix" {
            return Ok(Sizes::Imix);
        }
        if let Some(file) = text.strip_prefix("pcap:") {
            return Capture::open(Path::new(file)).map(|capture| Sizes::Capture(Arc::new(capture)));
        }
        let one = |part: &str| {
            let (size, weight) = part.split_once('*').unwrap_or((part, "1"));
            Some((size.trim().parse().ok()?, weight.trim().parse().ok()?))
        };
        match text.split(',').map(one).collect::<Option<Vec<(u16, u32)>>>().ok_or_else(bad)?.as_slice() {
            [(size, _)] => Ok(Sizes::Fixed(*size)),
            several => Ok(Sizes::Mix(several.to_vec())),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Bits(bits) => bits.fmt(f),
            Rate::Packets(n) if *n >= 1e6 => f.pad(&format!("{:.3} Mpps", n / 1e6)),
            Rate::Packets(n) if *n >= 1e3 => f.pad(&format!("{:.2} kpps", n / 1e3)),
            Rate::Packets(n) => f.pad(&format!("{n:.1} pps")),
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timing::Flood => f.write_str("as fast as the body can"),
            Timing::Constant(rate) => write!(f, "{rate}, constant gaps"),
            Timing::Poisson(rate) => write!(f, "{rate}, Poisson gaps"),
            Timing::Bursty { rate, frames, .. } => write!(f, "{rate}, bursts of {frames}"),
            Timing::Capture => f.write_str("gaps of the capture"),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(size) => write!(f, "{size} B"),
            Sizes::Imix => f.write_str("IMIX"),
            Sizes::Capture(capture) => write!(f, "{} packets of a capture", capture.packets.len()),
            Sizes::Mix(mix) => {
                let parts: Vec<_> = mix.iter().map(|(size, weight)| format!("{weight} x {size} B")).collect();
                f.write_str(&parts.join(", "))
            }
        }
    }
}
