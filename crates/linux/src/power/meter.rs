//! Reads all requested sensors in the background, and gives the energy between two moments.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::power::{EnergyReading, Floor, Offset, Sensor, Track, fit};
use machine::{Fault, Nanoseconds, Reading, Result};

use super::load::{Pattern, load};
use super::reader::{Look, Reader};
use super::source::{Opened, Source};
use crate::accounting::own_thread_time;
use crate::clock::{monotonic, sleep_until};

#[derive(Debug, Clone)]
pub struct Settings {
    /// Folder of `sys` and `proc`: another one than `/` for a copy of them.
    pub root: PathBuf,
    /// Time between two looks at the machine's own sensors. A command has its own (`every=`).
    pub period: Nanoseconds,
    /// Whether to keep every look for [`Meter::drain`].
    pub keeps_looks: bool,
}

impl Default for Settings {
    /// This machine, ten times a second.
    fn default() -> Settings {
        Settings { root: "/".into(), period: Nanoseconds(100_000_000), keeps_looks: false }
    }
}

struct Channel {
    sensor: Sensor,
    track: Track,
    floor: Reading<Floor>,
    /// Offset of the sensor's clock from ours, ns.
    ahead: i64,
    offset: Option<String>,
    looks: Vec<Look>,
}

/// A reader with its own thread: number of looks requested, and number done.
#[derive(Clone, Copy)]
struct Slow {
    asked: u64,
    done: u64,
    waits: bool,
    limit: Duration,
    /// Range of its channels.
    first: usize,
    count: usize,
}

struct State {
    channels: Vec<Channel>,
    slow: Vec<Slow>,
    notes: BTreeSet<String>,
    keeps_looks: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    end: Arc<AtomicBool>,
    /// Processor time of the thread that reads files, ns.
    cost: AtomicU64,
}

/// Readers of files, each with the index of its first channel.
type Quick = Arc<Mutex<Vec<(usize, Box<dyn Reader>)>>>;

/// A meter; dropping it ends its threads and their commands.
pub struct Meter {
    shared: Arc<Shared>,
    quick: Quick,
    threads: Vec<JoinHandle<()>>,
    refused: Vec<Fault>,
    begun: Option<Nanoseconds>,
    root: PathBuf,
    period: Nanoseconds,
}

/// Longest wait for a file that another program writes.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Meter {
    /// Reads `sources` with [`Settings::default`].
    ///
    /// # Errors
    /// As [`Meter::with`].
    pub fn open(sources: &[Source]) -> Result<Meter> {
        Meter::with(sources, &Settings::default())
    }

    /// Opens all sensors of `sources`, and looks at each before it returns.
    ///
    /// # Errors
    /// A named source has no working sensor, or `all` found none of the machine's own.
    pub fn with(sources: &[Source], settings: &Settings) -> Result<Meter> {
        let end = Arc::new(AtomicBool::new(false));
        let (mut opened, mut refused) = (Vec::new(), Vec::new());
        for source in sources {
            let (more, without) = source.open(&settings.root, &end).map_err(|fault| fault.within("power"))?;
            opened.extend(more.into_iter().map(|opened| (opened, source)));
            refused.extend(without);
        }
        if opened.is_empty() {
            let why: Vec<String> =
                refused.iter().map(|fault| format!("{}: {}", fault.subject(), fault.cause())).collect();
            let cause = if why.is_empty() { "no source is named".to_owned() } else { why.join("; ") };
            let next = "name what tells watts: 'command: ipmitool dcmi power reading' or csv:FILE";
            return Err(Fault::new("power", cause, next));
        }
        let state =
            State { channels: Vec::new(), slow: Vec::new(), notes: BTreeSet::new(), keeps_looks: settings.keeps_looks };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), end, cost: AtomicU64::new(0) });
        let mut meter = Meter {
            shared,
            quick: Arc::default(),
            threads: Vec::new(),
            refused,
            begun: None,
            root: settings.root.clone(),
            period: settings.period,
        };
        for (opened, source) in opened {
            meter.add(opened, source)?;
        }
        meter.look();
        if !lock(&meter.quick).is_empty() {
            let (shared, quick, period) = (meter.shared.clone(), meter.quick.clone(), settings.period);
            meter.spawn("power", move || sample(&shared, &quick, period))?;
        }
        meter.kick();
        meter.refuse_silent()?;
        Ok(meter)
    }

    fn add(&mut self, opened: Opened, source: &Source) -> Result<()> {
        let mut state = lock(&self.shared.state);
        let first = state.channels.len();
        let usual = Nanoseconds(self.period.0.saturating_mul(3).max(1_000_000_000));
        for sensor in opened.reader.sensors() {
            let mut sensor = sensor.clone();
            let same = state.channels.iter().filter(|channel| channel.sensor.name == sensor.name).count();
            if same > 0 {
                sensor.name = format!("{}#{}", sensor.name, same + 1);
            }
            state.channels.push(Channel {
                track: Track::new(&sensor, opened.bridge.unwrap_or(usual)),
                sensor,
                floor: Reading::absent("no idle floor was measured"),
                ahead: opened.ahead,
                offset: source
                    .ahead
                    .map(|ahead| format!("its clock is {:+.3} s ahead, as was stated", ahead as f64 / 1e9)),
                looks: Vec::new(),
            });
        }
        let count = state.channels.len() - first;
        let Some(every) = opened.every else {
            lock(&self.quick).push((first, opened.reader));
            return Ok(());
        };
        let place = state.slow.len();
        state.slow.push(Slow { asked: 0, done: 0, waits: false, limit: opened.limit, first, count });
        drop(state);
        let shared = self.shared.clone();
        self.spawn("power source", move || follow(&shared, place, first, opened.reader, every))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|e| Fault::because("power", e, "raise the limit of threads (ulimit -u)"))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Refuses a source without any value from the start, which is a mistake, not a sensor that stopped.
    fn refuse_silent(&self) -> Result<()> {
        let state = lock(&self.shared.state);
        for slow in &state.slow {
            let channels = &state.channels[slow.first..slow.first + slow.count];
            let stopped = |channel: &Channel| channel.track.stopped().map(|(_, cause)| cause.to_owned());
            if channels.iter().all(|channel| channel.track.is_empty())
                && let Some((cause, channel)) = channels.iter().find_map(|channel| Some((stopped(channel)?, channel)))
            {
                let next = "run it by itself; columns and units are named like command,value=2,unit=kW: WORDS";
                return Err(Fault::new(format!("power source {}", channel.sensor.name), cause, next));
            }
        }
        Ok(())
    }

    /// The sensors, in the order of [`Meter::end`].
    pub fn sensors(&self) -> Vec<Sensor> {
        lock(&self.shared.state).channels.iter().map(|channel| channel.sensor.clone()).collect()
    }

    /// The sensors, each with the time over which two of its samples are joined.
    pub fn bridges(&self) -> Vec<(Sensor, Nanoseconds)> {
        let state = lock(&self.shared.state);
        state.channels.iter().map(|channel| (channel.sensor.clone(), channel.track.bridge())).collect()
    }

    /// Drops samples that no interval from this moment on needs, which bounds the memory of a long run.
    pub fn forget(&mut self, from: Nanoseconds) {
        lock(&self.shared.state).channels.iter_mut().for_each(|channel| channel.track.forget(from));
    }

    /// Sensors that `all` found missing, each with the next step.
    pub fn refused(&self) -> &[Fault] {
        &self.refused
    }

    /// Other observations, such as a power cap that was set.
    pub fn notes(&self) -> Vec<String> {
        lock(&self.shared.state).notes.iter().cloned().collect()
    }

    /// Processor time spent on files so far; commands have their own.
    pub fn cost(&self) -> Nanoseconds {
        Nanoseconds(self.shared.cost.load(Ordering::Relaxed))
    }

    /// Begins the interval of interest.
    pub fn begin(&mut self) {
        self.look();
        let now = monotonic();
        self.begun = Some(now);
        lock(&self.shared.state).channels.iter_mut().for_each(|channel| channel.track.forget(now));
    }

    /// The energy of each sensor since [`Meter::begin`]. Waits for sensors that report late: a command runs once more.
    pub fn end(&mut self) -> Vec<EnergyReading> {
        let to = monotonic();
        let from = self.begun.take().unwrap_or(to);
        self.settle(to);
        self.between(from, to)
    }

    /// The energy of each sensor between two moments since the last [`Meter::begin`], as far as known by now.
    pub fn between(&self, from: Nanoseconds, to: Nanoseconds) -> Vec<EnergyReading> {
        let state = lock(&self.shared.state);
        let of = |channel: &Channel| {
            let mut drawn = EnergyReading::of(&channel.sensor, &channel.track, from, to, &channel.floor);
            drawn.notes.extend(channel.offset.clone());
            match channel.track.disordered() {
                0 => {}
                count => drawn.notes.push(format!("{count} samples came with a time before that of one before them")),
            }
            drawn
        };
        state.channels.iter().map(of).collect()
    }

    /// Measures the idle floor of later intervals, while this process waits for `time`.
    pub fn measure_floor(&mut self, time: Duration) {
        self.look();
        let (from, busy) = (monotonic(), Busy::read(&self.root));
        sleep_until(Nanoseconds(from.0 + time.as_nanos() as u64));
        let (to, after) = (monotonic(), Busy::read(&self.root));
        self.settle(to);
        let share = busy.zip(after).and_then(|(before, after)| after.since(before));
        let busy = share.map_or_else(String::new, |share| format!(", cores {:.0} % busy", 100.0 * share));
        let how = format!("{:.1} s before{busy}", (to.0 - from.0) as f64 / 1e9);
        for channel in &mut lock(&self.shared.state).channels {
            let integral = channel.track.told_between(from, to);
            channel.floor = match integral.joules.over(integral.covered) {
                Some(watts) => Reading::Measured(Floor { watts, how: how.clone() }),
                None => Reading::absent(integral.gaps.first().map_or("no sample was taken", |gap| &gap.cause)),
            };
        }
    }

    /// Keeps all cores busy in a pattern, finds that in the samples of each sensor with its own clock (commands and
    /// files), and shifts its samples by the offset. Returns the offset of each, by name.
    ///
    /// # Errors
    /// The usable cores cannot be determined.
    pub fn fit_offsets(
        &mut self,
        most: Nanoseconds,
        end: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<(String, Reading<Offset>)>> {
        let slow: Vec<Slow> = lock(&self.shared.state).slow.clone();
        // The slowest sensor must see each step.
        let period = {
            let state = lock(&self.shared.state);
            let own = slow.iter().flat_map(|slow| &state.channels[slow.first..slow.first + slow.count]);
            own.filter_map(|channel| channel.track.period()).max().unwrap_or(Nanoseconds(1_000_000_000))
        };
        let on = load(&Pattern::of(period), end)?;
        // A clock that is behind shows the load later.
        let until = Nanoseconds(monotonic().0 + most.0);
        while monotonic() < until
            && !end()
            && self.behind(&slow, Nanoseconds(on.last().map_or(0, |(_, to)| to.0) + most.0))
        {
            sleep_until(Nanoseconds(monotonic().0 + 100_000_000));
        }
        self.settle(monotonic());
        let mut found = Vec::new();
        let mut state = lock(&self.shared.state);
        for slow in &slow {
            for channel in &mut state.channels[slow.first..slow.first + slow.count] {
                let offset = fit(&channel.track, &on, most);
                if let Reading::Measured(offset) = &offset {
                    channel.track.shift(-offset.ahead);
                    channel.ahead += offset.ahead;
                    let (ahead, within) = (channel.ahead as f64 / 1e9, offset.within.0 as f64 / 1e9);
                    channel.offset =
                        Some(format!("its clock is {ahead:+.2} s ahead within {within:.2} s, fitted to a load"));
                }
                found.push((channel.sensor.name.clone(), offset));
            }
        }
        Ok(found)
    }

    /// Whether a slow sensor has no sample of that time yet.
    fn behind(&self, slow: &[Slow], at: Nanoseconds) -> bool {
        let state = lock(&self.shared.state);
        let mut own = slow.iter().flat_map(|slow| &state.channels[slow.first..slow.first + slow.count]);
        own.any(|channel| channel.track.span().is_some_and(|(_, last)| last < at))
    }

    /// The looks since the last call, by sensor; kept only with [`Settings::keeps_looks`].
    pub fn drain(&mut self) -> Vec<(usize, Look)> {
        let mut state = lock(&self.shared.state);
        let channels = state.channels.iter_mut().enumerate();
        channels
            .flat_map(|(place, channel)| channel.looks.drain(..).map(move |look| (place, look)).collect::<Vec<_>>())
            .collect()
    }

    /// Makes every sensor look once more, so that samples cover the time up to `to` if possible.
    pub fn settle(&self, to: Nanoseconds) {
        self.look();
        self.kick();
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until && self.is_awaited(to) {
            std::thread::sleep(Duration::from_millis(100));
            self.kick();
        }
    }

    /// Whether a file that is being written does not reach this moment yet.
    fn is_awaited(&self, to: Nanoseconds) -> bool {
        let state = lock(&self.shared.state);
        let before = |channel: &Channel| channel.track.span().is_none_or(|(_, last)| last < to);
        state
            .slow
            .iter()
            .any(|slow| slow.waits && state.channels[slow.first..slow.first + slow.count].iter().any(before))
    }

    fn look(&self) {
        look(&self.shared, &mut lock(&self.quick));
    }

    /// Makes every slow reader look, and waits until they have.
    fn kick(&self) {
        let mut state = lock(&self.shared.state);
        // A look may be in progress.
        let limit = state.slow.iter().map(|slow| 2 * slow.limit).max().unwrap_or_default() + Duration::from_secs(1);
        state.slow.iter_mut().for_each(|slow| slow.asked += 1);
        self.shared.changed.notify_all();
        let until = Instant::now() + limit;
        while state.slow.iter().any(|slow| slow.done < slow.asked) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        // Taken, so that no thread is between its check of `end` and its wait.
        drop(lock(&self.shared.state));
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Locks; poisoning is ignored, since a panic under the lock leaves whole samples.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn take(&mut self, place: usize, look: Look) {
        let channel = &mut self.channels[place];
        let on_ours = |at: Nanoseconds| Nanoseconds(at.0.saturating_add_signed(channel.ahead.saturating_neg()));
        let look = match look {
            Look::Value { at, micro } => Look::Value { at: on_ours(at), micro },
            Look::Stopped { at, cause } => Look::Stopped { at: on_ours(at), cause },
        };
        match &look {
            Look::Value { at, micro } => channel.track.push(*at, *micro),
            Look::Stopped { at, cause } => channel.track.stop(*at, cause),
        }
        if self.keeps_looks {
            channel.looks.push(look);
        }
    }
}

fn look(shared: &Shared, quick: &mut Vec<(usize, Box<dyn Reader>)>) {
    let (mut looks, mut notes) = (Vec::new(), Vec::new());
    for (first, reader) in quick {
        reader.look(&mut |place, look| looks.push((*first + place, look)));
        notes.extend(reader.notes());
    }
    let mut state = lock(&shared.state);
    looks.into_iter().for_each(|(place, look)| state.take(place, look));
    state.notes.extend(notes);
}

/// Looks at files periodically.
fn sample(shared: &Shared, quick: &Quick, period: Nanoseconds) {
    const SLICE: u64 = 50_000_000;
    let begun = own_thread_time();
    let mut next = monotonic() + period;
    while !shared.end.load(Ordering::Relaxed) {
        let now = monotonic();
        if now < next {
            sleep_until(next.min(Nanoseconds(now.0 + SLICE)));
            continue;
        }
        look(shared, &mut lock(quick));
        shared.cost.store((own_thread_time() - begun).0, Ordering::Relaxed);
        // Periods that were missed are skipped.
        next = (next + period).max(monotonic());
    }
}

/// Runs the reader of the slow source at `place` periodically, and on request.
fn follow(shared: &Shared, place: usize, first: usize, mut reader: Box<dyn Reader>, every: Duration) {
    while !shared.end.load(Ordering::Relaxed) {
        let (begun, asked) = (Instant::now(), lock(&shared.state).slow[place].asked);
        let mut looks = Vec::new();
        reader.look(&mut |nth, look| looks.push((first + nth, look)));
        let (notes, waits) = (reader.notes(), reader.waits());
        let mut state = lock(&shared.state);
        if shared.end.load(Ordering::Relaxed) {
            return;
        }
        looks.into_iter().for_each(|(place, look)| state.take(place, look));
        state.notes.extend(notes);
        (state.slow[place].done, state.slow[place].waits) = (asked, waits);
        shared.changed.notify_all();
        while !shared.end.load(Ordering::Relaxed) && state.slow[place].asked == asked {
            let left = every.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Ticks of all cores together, busy and in all.
#[derive(Clone, Copy)]
struct Busy {
    busy: u64,
    all: u64,
}

impl Busy {
    fn read(root: &std::path::Path) -> Option<Busy> {
        let text = std::fs::read_to_string(root.join("proc/stat")).ok()?;
        let first = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = first.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let (all, idle) = (ticks.iter().sum::<u64>(), ticks.get(3)? + ticks.get(4)?);
        Some(Busy { busy: all - idle, all })
    }

    fn since(self, before: Busy) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.busy.saturating_sub(before.busy) as f64 / all as f64)
    }
}
