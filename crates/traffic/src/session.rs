//! One run of traffic: sender and receiver placed, asked, watched and reported.

use std::net::UdpSocket;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use linux::accounting::BusyMeter;
use linux::contention::Excluded;
use linux::shield::Wanted as Protection;
use linux::{affinity, clock};
use machine::{BitsPerSecond, CoreId, Fault, Nanoseconds, Reading, Result, Site, SiteKind, XdpMode, count};
use offcode::registry::Constructor;
use ports::afxdp;
use runtime::catalogue::Linked;
use runtime::control::Control;
use runtime::site::app::AppSite;
use runtime::site::core::CoreSite;
use runtime::site::residents::{Log, Residents};
use runtime::site::xdp::{self, XdpSite};
use runtime::site::{Evidence, SiteDriver};
use runtime::{Catalogue, Runtime, Wanted};

use crate::body::{FrameSender, OpenFrames, OpenSocket, SocketSender, Transmit, Waiting};
use crate::control::{ControlBlock, Progress, State};
use crate::hog::Hog;
use crate::offcodes::{self, SenderProxy};
use crate::profile::Profile;
use crate::receiver::{Arrivals, Expected};
use crate::report::{Body, CoreLoad, Cores, Report};
use crate::schedule::Schedule;
use crate::wire::Wire;

/// Time from asking to the first frame: every body is up by then.
const LEAD: Nanoseconds = Nanoseconds(20_000_000);
/// Time from the last frame until the receiver is read.
const SETTLE: Duration = Duration::from_millis(20);
/// Time that a run may take beyond its expected duration.
const OVERTIME: Duration = Duration::from_secs(30);
/// Sleep between two looks of a thread that does not send itself.
const REST: Duration = Duration::from_millis(1);
/// Time between two looks at requests from outside and signs of life.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time without a sign of life after which a guarded sender ends.
const SILENCE: Nanoseconds = Nanoseconds(1_000_000_000);
/// Divisor of the target gap: frames that are closer count as a burst.
const BURST: u64 = 10;

/// Where the sender's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Sockets in the application's thread.
    App { waiting: Waiting, transmit: Transmit },
    /// AF_XDP on a core of its own.
    Core { core: CoreId, shield: Protection },
    /// Live frames at the driver hook, by a thread on this core, which is charged to the device.
    Xdp { core: CoreId, shield: Protection },
}

/// The parts of one run.
pub struct Session<'a> {
    pub wire: Wire,
    pub profile: &'a Profile,
    pub place: Place,
    /// Core of the application's thread.
    pub application: CoreId,
    /// Processes that want this core for themselves, all the time: one is preempted by whoever sleeps most of the time,
    /// several are not.
    pub hogs: Option<(CoreId, usize)>,
    pub receiver: XdpMode,
    /// The sender ends by itself where this process falls silent.
    pub guarded: bool,
    pub log: Log,
}

/// Tag of the stream, so that frames of another do not count.
const TAG: u16 = 0x504c;

impl Session<'_> {
    /// Runs the session.
    ///
    /// # Errors
    /// What the profile cannot honour, what the place cannot do, and whatever the system refuses on the way.
    pub fn run(&self) -> Result<Report> {
        let schedule = Schedule::of(self.profile)?;
        self.refuse_what_cannot_be()?;
        let _application = affinity::pin(self.application)?;
        let target = Nanoseconds(schedule.mean_gap.round() as u64);
        let expected = Expected {
            tag: TAG,
            port: self.profile.flow.destination_port,
            target,
            burst: Nanoseconds(target.0 / BURST),
            timing: self.profile.is_paced(),
            pass: false,
        };
        let (core, count) = self.hogs.unwrap_or((self.application, 0));
        let _hogs = (0..count).map(|_| Hog::start(core)).collect::<Result<Vec<_>>>()?;
        let Sent { progress, arrivals, cores, body } = self.carry_out(&schedule, expected)?;
        let mut report = Report::new(body, self.profile, &schedule, &progress, &arrivals, cores);
        let time = progress.last.0.saturating_sub(progress.first.0);
        if !self.profile.is_paced() && time > 0 {
            // At full rate the receiver reads no clock; what it counted arrived within the time that sending took.
            let per_second = |count: u64| count as f64 * 1e9 / time as f64;
            report.received.rate = Reading::Measured(per_second(report.received.frames));
            report.received.throughput = Reading::Measured(BitsPerSecond(8.0 * per_second(report.received.bytes)));
        }
        if count > 0 {
            let (hogs, were) = (count::of(count as u64, "hog"), count::either(count as u64, "was", "were"));
            report.notes.push(format!("{hogs}, busy all the time, {were} let loose on {core}"));
        }
        Ok(report)
    }

    fn site(&self) -> Site {
        match self.place {
            Place::App { .. } => Site::App,
            Place::Core { core, .. } => Site::Core(core),
            Place::Xdp { .. } => Site::Xdp(self.wire.near_name()),
        }
    }

    fn refuse_what_cannot_be(&self) -> Result<()> {
        let refuse = |cause: &str, next: &str| Err(Fault::new("traffic", cause, next));
        if self.profile.duration.is_none() && self.profile.frames.is_none() {
            return refuse("it has no end", "give a duration or a count");
        }
        if let (Wire::Here { .. } | Wire::Away { .. }, Place::App { .. }) = (&self.wire, self.place) {
            let cause = match self.wire {
                Wire::Here { .. } => "the kernel keeps packets between two interfaces of one host off the link",
                _ => "packets of sockets go where the kernel's routes lead, whichever interface is named",
            };
            return refuse(cause, "make frames without sockets: --site core:N or xdp");
        }
        if let Place::App { transmit, .. } = self.place
            && transmit != Transmit::SendTo
            && self.profile.is_paced()
        {
            return refuse(
                "frames that are handed to the kernel together cannot each have their time",
                "pace with one system call a frame (sendto), or send at full rate",
            );
        }
        Ok(())
    }

    /// Time at which a run that does not end by itself is ended.
    fn deadline(&self, schedule: &Schedule) -> Instant {
        let by_count = schedule.frames.map(|frames| frames as f64 * schedule.mean_gap.max(2_000.0));
        let by_time = self.profile.duration.map(|duration| duration.0 as f64);
        let expected = match (by_count, by_time) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(0.0),
        };
        Instant::now() + Duration::from_nanos(expected as u64) + OVERTIME
    }

    fn cores(&self, busy: &BusyMeter, device: Option<CoreId>) -> Result<Cores> {
        let shares = busy.end()?;
        let load = |core: CoreId| {
            let found = shares.iter().find(|share| share.core == core).map(|share| share.busy);
            found.map_or_else(|| Reading::absent(format!("{core} is not in /proc/stat")), Reading::Measured)
        };
        let device_core = device.unwrap_or(self.application);
        let which = match device {
            Some(core) if core != self.application => core.to_string(),
            _ => format!("{device_core}, the application's"),
        };
        Ok(Cores {
            application: CoreLoad { which: self.application.to_string(), busy: load(self.application) },
            device: CoreLoad { which, busy: load(device_core) },
        })
    }

    /// The sites of both ends: the application's own, the sender's where that is another, and the receiver's.
    fn sites(&self) -> Result<Sites> {
        let now = Instant::now();
        let mut sites: Vec<Box<dyn SiteDriver>> =
            vec![Box::new(AppSite::new(Residents::new(Site::App, now, self.log.clone())))];
        let (mut beside, mut kept) = (None, None);
        match self.place {
            Place::App { .. } => {}
            Place::Core { core, shield } => {
                let (site, excluded) = CoreSite::protected(core, shield, now, self.log.clone())?;
                (beside, kept) = (excluded, Some(site.protection().to_owned()));
                sites.push(Box::new(site));
            }
            Place::Xdp { .. } => sites.push(Box::new(self.wire.near(|near| XdpSite::open(near, XdpMode::Native))??)),
        }
        sites.push(self.wire.far(self.receiver)?);
        Ok((sites, beside, kept))
    }

    /// The sender's package, the block of a body in this process, and the mode of its frames once they have one.
    fn sender(&self) -> Result<(Linked, Option<ControlBlock>, Arc<OnceLock<String>>)> {
        let (wire, mode) = (self.wire.clone(), Arc::new(OnceLock::new()));
        let (block, found) = (ControlBlock::in_process(), mode.clone());
        let ours = block.clone();
        let native: (SiteKind, Constructor) = match self.place {
            Place::App { waiting, transmit } => {
                let open: OpenSocket = Arc::new(move |from| {
                    let bound = wire.near(|_| UdpSocket::bind(from))?;
                    bound.map_err(|e| Fault::because(format!("socket on {from}"), e, "look whether the lab is up"))
                });
                let body = move || Box::new(SocketSender::new(ours.clone(), waiting, transmit, open.clone())) as _;
                (SiteKind::App, Arc::new(body))
            }
            Place::Core { .. } => {
                let open: OpenFrames = Arc::new(move || {
                    let sender = wire.near(|near| afxdp::Sender::open(near, &afxdp::Options::default()))??;
                    let _ = found.set(format!("AF_XDP ({}), ", sender.in_force().mode));
                    Ok(sender)
                });
                (SiteKind::Core, Arc::new(move || Box::new(FrameSender::new(ours.clone(), open.clone())) as _))
            }
            Place::Xdp { .. } => return Ok((offcodes::sender(None)?, None, mode)),
        };
        Ok((offcodes::sender(Some(native))?, Some(block), mode))
    }

    /// Creates both offcodes where they shall be, starts the stream and sees it to its end.
    fn carry_out(&self, schedule: &Schedule, expected: Expected) -> Result<Sent> {
        let (package, block, mode) = self.sender()?;
        let (sites, _beside, kept) = self.sites()?;
        let far = sites.last().map(|far| far.site().clone());
        let mut runtime =
            Runtime::new(Catalogue::linked(vec![package, offcodes::receiver()?]), sites, self.log.clone())?;
        let mut control = Control::open("traffic")?;
        let mut sending = Wanted::new(offcodes::SENDER).at(self.site());
        if let Place::Xdp { core, shield } = self.place {
            let (core, counter) = (core.0, "off");
            sending = sending.with(xdp::CORE, core).with(xdp::SHIELD, shield).with(xdp::RUN_COUNTER, counter);
        }
        let receiving = Wanted { attributes: expected.attributes(), ..Wanted::new(offcodes::RECEIVER) };
        let receiving = Wanted { pin: far, ..receiving };
        let created = runtime.create_offcodes(&[receiving, sending])?;
        let [receiving, sending] = created[..] else {
            return Err(Fault::new("traffic", "its two offcodes were not created", "report this as a defect"));
        };
        let block = match block {
            Some(block) => block,
            None => ControlBlock::over(Arc::new(runtime.shared(sending, "CONTROL")?))?,
        };
        let mut asked = schedule.asked(self.profile, TAG, clock::monotonic() + LEAD)?;
        asked.alive = self.guarded.then(|| clock::monotonic() + SILENCE);
        block.ask(&asked)?;
        let busy = BusyMeter::begin()?;
        runtime.invoke(sending, &SenderProxy.begin())?;
        let deadline = self.deadline(schedule);
        let rest = (!matches!(self.place, Place::App { .. })).then_some(REST);
        let mut looked = Instant::now();
        while block.state() != State::Finished {
            runtime.turn()?;
            if let Some(rest) = rest {
                std::thread::sleep(rest);
            }
            if looked.elapsed() < POLL_INTERVAL {
                continue;
            }
            looked = Instant::now();
            if self.guarded {
                block.alive(clock::monotonic() + SILENCE);
            }
            let stopped = control.serve(&mut runtime, false);
            // Without a receiver nobody takes the frames out that arrive.
            if runtime.find(offcodes::RECEIVER).is_none() && !stopped {
                block.stop();
                runtime.turn()?;
                let sent = count::of(block.progress().sent, "frame");
                let cause = format!("it was stopped, or its host is gone; the sender was ended after {sent}");
                return Err(Fault::new("traffic receiver", cause, "look at the agent's log there, then run it again"));
            }
            if stopped || linux::signal::interrupted() || Instant::now() > deadline {
                block.stop();
                runtime.turn()?;
                break;
            }
        }
        let cores = self.cores(&busy, self.device())?;
        std::thread::sleep(SETTLE);
        let mut proof = mode.get().cloned().unwrap_or_default();
        let (sender, at_receiver) =
            (evidence(&mut runtime, offcodes::SENDER)?, evidence(&mut runtime, offcodes::RECEIVER)?);
        let (whereabouts, by) = match sender.whereabouts.split_once(xdp::KEPT_BY) {
            Some((whereabouts, by)) => (whereabouts.to_owned(), Some(by.to_owned())),
            None => (sender.whereabouts.clone(), kept),
        };
        let progress = block.progress();
        proof += &match self.place {
            Place::Xdp { .. } => {
                let sent = count::of(progress.sent, "frame");
                format!("{whereabouts}; it counted {sent} that it made in the kernel")
            }
            _ => {
                let counters = sender.counters.iter().map(|c| format!("{} {}", count::grouped(c.value), c.name));
                format!("{whereabouts}: {}", counters.collect::<Vec<_>>().join(", "))
            }
        };
        proof += &format!("; received by {}", at_receiver.whereabouts);
        let shield = by.unwrap_or_else(|| format!("nothing: {}, the application's own", self.application));
        Ok(Sent {
            progress,
            arrivals: Arrivals::ask(&expected, |call| runtime.invoke(receiving, call))?,
            cores,
            body: Body { site: self.site().to_string(), proof, shield },
        })
    }

    fn device(&self) -> Option<CoreId> {
        match self.place {
            Place::App { .. } => None,
            Place::Core { core, .. } | Place::Xdp { core, .. } => Some(core),
        }
    }
}

/// The sites of a run, what keeps the application off the sender's core, and what else shields that core.
type Sites = (Vec<Box<dyn SiteDriver>>, Option<Excluded>, Option<String>);

/// Results of a run.
struct Sent {
    progress: Progress,
    arrivals: Arrivals,
    cores: Cores,
    body: Body,
}

fn evidence(runtime: &mut Runtime, offcode: &str) -> Result<Evidence> {
    let line = runtime.status().into_iter().find(|line| line.offcode == offcode);
    let evidence = line.map_or_else(|| Err("it was stopped meanwhile".to_owned()), |line| line.evidence);
    evidence.map_err(|why| Fault::new(format!("offcode {offcode}"), why, "run it again"))
}
