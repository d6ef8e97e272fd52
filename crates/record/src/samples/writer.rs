//! Writes samples, frame by frame.

use std::collections::HashMap;
use std::io::{self, Write};

use machine::Nanoseconds;
use machine::power::Sensor;

use super::frame::{kind, put, put_frame, put_known, put_reading, put_text};
use super::power::{Last, put_sample, put_sensor};
use super::series::{MOST, Totals};
use super::{
    Accounting, CoreClock, CoreDeferred, CoreLoad, CoreWork, Energy, Head, MAGIC, RankLoad, SamplerCost, ThreadBlocked,
    ThreadDelay, ThreadLoad, ThreadRan, ThreadStop, ThreadWork, VERSION,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Subject {
    kind: u8,
    numbers: [u32; 3],
    name: String,
}

/// Writes whole frames to `out`: at each load, when many have gathered, and at the end.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    tracks: HashMap<Subject, (usize, [u64; MOST])>,
    /// Time of the last moment.
    time: u64,
    /// Changes of the present moment.
    changes: Vec<u8>,
    written: u64,
    /// Frames that are still to be written.
    gathered: Vec<u8>,
    /// The last sample of each sensor of power.
    powers: Vec<Last>,
}

/// Number of gathered bytes from which on they are written.
const GATHER: usize = 64 << 10;

impl<W: Write> Writer<W> {
    pub fn begin(mut out: W, head: &Head) -> io::Result<Writer<W>> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut contents = Vec::new();
        put_text(&mut contents, &head.host);
        put_text(&mut contents, &head.boot);
        for number in [u64::from(head.pid), head.monotonic, head.realtime, head.interval, head.cores.len() as u64] {
            put(&mut contents, number);
        }
        for (core, package) in &head.cores {
            put(&mut contents, u64::from(*core));
            put(&mut contents, u64::from(*package));
        }
        let origins = &head.origins;
        for reading in [
            &origins.softirq_counts,
            &origins.softirq_times,
            &origins.softirq_all,
            &origins.interrupts,
            &origins.load,
            &origins.energy,
            &origins.ranks,
        ] {
            put_reading(&mut contents, reading);
        }
        if let Some(cores) = head.for_ranks {
            put(&mut contents, cores.into());
        }
        let mut writer = Writer {
            out,
            tracks: HashMap::new(),
            time: head.monotonic,
            changes: Vec::new(),
            written: 0,
            gathered: Vec::new(),
            powers: Vec::new(),
        };
        writer.frame(kind::HEAD, &contents)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Number of bytes written so far, without the start of the file.
    pub fn written(&self) -> u64 {
        self.written
    }

    pub fn core_work(&mut self, core: u32, work: &CoreWork) -> io::Result<()> {
        self.totals([core, 0, 0], "", work)
    }

    pub fn core_load(&mut self, core: u32, load: &CoreLoad) -> io::Result<()> {
        self.totals([core, 0, 0], "", load)
    }

    /// Adds to the present load.
    pub fn core_deferred(&mut self, core: u32, deferred: &CoreDeferred) -> io::Result<()> {
        self.totals([core, 0, 0], "", deferred)
    }

    /// Adds to the present load.
    pub fn core_clock(&mut self, core: u32, clock: &CoreClock) -> io::Result<()> {
        self.totals([core, 0, 0], "", clock)
    }

    /// Adds to the present work. `index` is the thread's in the tables of the rank with this `pid`.
    pub fn thread_work(&mut self, pid: u32, index: u16, tid: u32, work: &ThreadWork) -> io::Result<()> {
        self.totals([pid, index.into(), tid], "", work)
    }

    pub fn thread_load(&mut self, pid: u32, index: u16, tid: u32, load: &ThreadLoad) -> io::Result<()> {
        self.totals([pid, index.into(), tid], "", load)
    }

    /// Adds to the present work, like the core that the same look finds.
    pub fn thread_stop(&mut self, pid: u32, index: u16, tid: u32, stop: &ThreadStop) -> io::Result<()> {
        self.totals([pid, index.into(), tid], "", stop)
    }

    /// Adds to the present load.
    pub fn thread_delay(&mut self, pid: u32, index: u16, tid: u32, delay: &ThreadDelay) -> io::Result<()> {
        self.totals([pid, index.into(), tid], "", delay)
    }

    /// Adds to the present work, like the core that the same look finds.
    pub fn thread_blocked(&mut self, pid: u32, index: u16, tid: u32, blocked: &ThreadBlocked) -> io::Result<()> {
        self.totals([pid, index.into(), tid], "", blocked)
    }

    /// Adds to the present load.
    pub fn thread_ran(&mut self, pid: u32, index: u16, tid: u32, ran: &ThreadRan) -> io::Result<()> {
        self.totals([pid, index.into(), tid], "", ran)
    }

    pub fn rank_load(&mut self, pid: u32, load: &RankLoad) -> io::Result<()> {
        self.totals([pid, 0, 0], "", load)
    }

    /// Adds to the present load. `nth` distinguishes zones of the same name.
    pub fn energy(&mut self, nth: u32, zone: &str, energy: &Energy) -> io::Result<()> {
        self.totals([nth, 0, 0], zone, energy)
    }

    pub fn cost(&mut self, cost: &SamplerCost) -> io::Result<()> {
        self.totals([0; 3], "", cost)
    }

    /// Ends the moment `time` of work.
    pub fn end_work(&mut self, time: u64) -> io::Result<()> {
        self.end_moment(kind::WORK, time)
    }

    /// Ends the moment `time` of load, cost and energy.
    pub fn end_load(&mut self, time: u64) -> io::Result<()> {
        self.end_moment(kind::LOAD, time)?;
        self.flush()
    }

    pub fn note(&mut self, sentence: &str) -> io::Result<()> {
        self.frame(kind::NOTE, sentence.as_bytes())
    }

    /// Declares a sensor of power, which gets the next number. Gauges join two samples that are at most `bridge` apart.
    pub fn sensor(&mut self, sensor: &Sensor, bridge: Nanoseconds) -> io::Result<()> {
        let mut contents = Vec::new();
        put_sensor(&mut contents, sensor, bridge);
        self.powers.push((0, 0));
        self.frame(kind::SENSOR, &contents)
    }

    /// Writes samples of power: number of the sensor, time, and microjoules or microwatts.
    pub fn power(&mut self, samples: &[(usize, Nanoseconds, u64)]) -> io::Result<()> {
        let mut contents = Vec::new();
        for (place, at, micro) in samples {
            put_sample(&mut contents, *place, &mut self.powers[*place], at.0, *micro);
        }
        if contents.is_empty() { Ok(()) } else { self.frame(kind::POWER, &contents) }
    }

    /// Notes that a sensor gave nothing at this moment, and why.
    pub fn power_stopped(&mut self, place: usize, at: Nanoseconds, cause: &str) -> io::Result<()> {
        let mut contents = Vec::new();
        put(&mut contents, place as u64);
        put(&mut contents, at.0);
        put_text(&mut contents, cause);
        self.frame(kind::STOPPED, &contents)
    }

    pub fn accounting(&mut self, accounting: &Accounting) -> io::Result<()> {
        let mut contents = Vec::new();
        put_known(&mut contents, accounting.softirqs_charged);
        put_known(&mut contents, accounting.stolen_charged);
        for (thread, first) in &accounting.threads {
            put(&mut contents, u64::from(*thread));
            put(&mut contents, u64::from(*first));
        }
        self.frame(kind::ACCOUNTING, &contents)
    }

    /// Writes that sampling ended in order.
    pub fn finish(mut self, time: u64) -> io::Result<()> {
        let mut contents = Vec::new();
        put(&mut contents, time);
        self.frame(kind::END, &contents)?;
        self.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.gathered)?;
        self.gathered.clear();
        self.out.flush()
    }

    fn totals<T: Totals>(&mut self, numbers: [u32; 3], name: &str, totals: &T) -> io::Result<()> {
        let subject = Subject { kind: T::KIND, numbers, name: name.to_owned() };
        let fields = totals.fields();
        let count = self.tracks.len();
        if !self.tracks.contains_key(&subject) {
            let mut contents = vec![subject.kind];
            subject.numbers.iter().for_each(|number| put(&mut contents, u64::from(*number)));
            put_text(&mut contents, name);
            self.frame(kind::TRACK, &contents)?;
        }
        let is_new = !self.tracks.contains_key(&subject);
        let (track, last) = self.tracks.entry(subject).or_insert((count, [0; MOST]));
        let changed = (0..T::FIELDS).filter(|field| fields[*field] != last[*field]);
        let mask = changed.fold(0u64, |mask, field| mask | 1 << field);
        if mask != 0 || is_new {
            put(&mut self.changes, *track as u64);
            put(&mut self.changes, mask);
            for field in (0..T::FIELDS).filter(|field| mask >> field & 1 == 1) {
                let is_absolute = T::ABSOLUTE >> field & 1 == 1;
                put(
                    &mut self.changes,
                    if is_absolute { fields[field] } else { fields[field].wrapping_sub(last[field]) },
                );
            }
            *last = fields;
        }
        Ok(())
    }

    fn end_moment(&mut self, kind: u8, time: u64) -> io::Result<()> {
        let mut contents = Vec::with_capacity(self.changes.len() + 8);
        put(&mut contents, time.saturating_sub(self.time));
        self.time = self.time.max(time);
        contents.append(&mut self.changes);
        self.frame(kind, &contents)
    }

    fn frame(&mut self, kind: u8, contents: &[u8]) -> io::Result<()> {
        let before = self.gathered.len();
        put_frame(&mut self.gathered, kind, contents);
        self.written += (self.gathered.len() - before) as u64;
        if self.gathered.len() >= GATHER { self.flush() } else { Ok(()) }
    }
}
