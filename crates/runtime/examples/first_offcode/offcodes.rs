//! The logic: three offcodes, written without knowing where they will run.

use std::collections::VecDeque;

use machine::{Fault, Nanoseconds, Result};
use offcode::{Activity, ChannelId, Context, Lifecycle, Map, Put, Wake, Written, interface, offcode};
use serde::{Deserialize, Serialize};

/// Lets packets through.
#[interface(guid = "8f1d6f5c-0d3e-4a51-9f77-1c1f4d2a0001")]
pub trait Filter {
    /// One-way: it has no result.
    fn packet(&mut self, context: &mut dyn Context, bytes: &[u8]);
    /// How many were kept out.
    fn refused(&self) -> u64;
}

/// Sums up.
#[interface(guid = "8f1d6f5c-0d3e-4a51-9f77-1c1f4d2a0002")]
pub trait Aggregate {
    fn add(&mut self, length: u32);
}

/// Keeps the totals.
#[interface(guid = "8f1d6f5c-0d3e-4a51-9f77-1c1f4d2a0003")]
pub trait Report {
    fn interval(&mut self, packets: u64, bytes: u64);
    fn totals(&self) -> Totals;
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub packets: u64,
    pub bytes: u64,
    /// How often the aggregator has reported.
    pub intervals: u64,
}

/// Drops packets that are shorter than its attribute `least` says.
#[offcode(
    guid = "8f1d6f5c-0d3e-4a51-9f77-1c1f4d2a0011",
    name = "first.filter",
    version = "1.0.0",
    implements(Filter),
    requires(pull(sums: Aggregate, rate = 100_000, channel(count = 256, size = 64))),
    environment(maps),
    sites(app, core, agent),
    attributes(least = 64)
)]
#[derive(Default)]
pub struct LengthFilter {
    least: usize,
    refused: u64,
    /// How many were refused, by their lengths.
    lengths: Map<u32, u64>,
    /// Lengths for which the aggregator's channel had no room yet.
    waiting: VecDeque<u32>,
}

impl LengthFilter {
    fn count(&mut self, length: u32, context: &mut dyn Context) -> Result<()> {
        let so_far = self.lengths.get(context, &length)?.unwrap_or(0);
        if self.lengths.put(context, &length, &(so_far + 1))? == Put::Full {
            context.log(&format!("length {length} is not counted"));
        }
        Ok(())
    }

    fn hand_on(&mut self, context: &mut dyn Context) {
        let Some(sums) = context.channel("sums") else { return };
        while let Some(&length) = self.waiting.front() {
            match AggregateProxy.add(length).through(context, sums, 0) {
                Ok(Written::Full) => return,
                _ => self.waiting.pop_front(),
            };
        }
    }
}

impl Filter for LengthFilter {
    fn packet(&mut self, context: &mut dyn Context, bytes: &[u8]) {
        if bytes.len() < self.least {
            self.refused += 1;
            if let Err(fault) = self.count(bytes.len() as u32, context) {
                context.log(&fault.to_string());
            }
            return;
        }
        self.waiting.push_back(bytes.len() as u32);
        self.hand_on(context);
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}

impl Lifecycle for LengthFilter {
    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        self.lengths = Map::open(context, "lengths", 64)?;
        Ok(())
    }

    fn attribute_set(&mut self, name: &str, value: &str, _: &mut dyn Context) -> Result<()> {
        if name == "least" {
            let no_length = |_| Fault::new(format!("least '{value}'"), "it is no length", "set a whole number");
            self.least = value.parse().map_err(no_length)?;
        }
        Ok(())
    }

    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        let before = self.waiting.len();
        self.hand_on(context);
        if self.waiting.len() < before { Activity::Worked } else { Activity::Idle }
    }
}

/// Adds lengths up and reports each time it has caught up.
#[offcode(
    guid = "8f1d6f5c-0d3e-4a51-9f77-1c1f4d2a0012",
    name = "first.aggregator",
    version = "1.0.0",
    implements(Aggregate),
    requires(gang(reporter: Report, rate = 1_000)),
    sites(app, core, agent)
)]
#[derive(Default)]
pub struct Aggregator {
    packets: u64,
    bytes: u64,
}

impl Aggregate for Aggregator {
    fn add(&mut self, length: u32) {
        self.packets += 1;
        self.bytes += u64::from(length);
    }
}

impl Lifecycle for Aggregator {
    fn turn(&mut self, context: &mut dyn Context) -> Activity {
        let Some(reporter) = context.channel("reporter").filter(|_| self.packets > 0) else { return Activity::Idle };
        match ReportProxy.interval(self.packets, self.bytes).through(context, reporter, 0) {
            Ok(Written::Taken) => {
                *self = Aggregator::default();
                Activity::Worked
            }
            _ => Activity::Idle,
        }
    }
}

/// Keeps what was reported until the application asks, and shows it in shared words each millisecond.
#[offcode(
    guid = "8f1d6f5c-0d3e-4a51-9f77-1c1f4d2a0013",
    name = "first.reporter",
    version = "1.0.0",
    implements(Report),
    environment(timers, memory),
    sites(app, core, agent)
)]
#[derive(Default)]
pub struct Reporter(Totals);

impl Report for Reporter {
    fn interval(&mut self, packets: u64, bytes: u64) {
        self.0.packets += packets;
        self.0.bytes += bytes;
        self.0.intervals += 1;
    }

    fn totals(&self) -> Totals {
        self.0
    }
}

impl Lifecycle for Reporter {
    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        context.share("shown", 2)?;
        let each = Wake::at(context.now()).every(Nanoseconds(1_000_000));
        context.set_timer(0, each)
    }

    fn timer(&mut self, _: u8, context: &mut dyn Context) {
        if let Err(fault) = context.store("shown", 0, &[self.0.packets, self.0.bytes]) {
            context.log(&fault.to_string());
        }
    }

    fn attached(&mut self, _: ChannelId, name: &str, context: &mut dyn Context) {
        context.log(&format!("channel '{name}' is there"));
    }
}
