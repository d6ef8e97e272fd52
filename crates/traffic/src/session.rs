//! One run of traffic: sender and receiver placed, asked, watched and reported.

use std::net::UdpSocket;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use linux::accounting::BusyMeter;
use linux::lab::{Host, Lab};
use linux::shield::{Shield, Wanted};
use linux::{affinity, clock};
use machine::{CoreId, Fault, Nanoseconds, Reading, Result, Site, XdpMode, count};
use offcode::{Attributes, Manifest};
use ports::afxdp;
use runtime::site::app::AppSite;
use runtime::site::core::CoreSite;
use runtime::site::residents::{Log, Residents};
use runtime::site::{Code, Deployment, SiteDriver};

use crate::body::{FrameSender, OpenFrames, OpenSocket, SocketSender, Transmit, Waiting};
use crate::control::{ControlBlock, State};
use crate::hog::Hog;
use crate::kernel_sender::KernelSender;
use crate::offcodes;
use crate::profile::{BitsPerSecond, Profile};
use crate::receiver::{Expected, Receiver};
use crate::report::{Body, CoreLoad, Cores, Report};
use crate::schedule::Schedule;

/// From asking to the first frame: every body is up by then.
const LEAD: Nanoseconds = Nanoseconds(20_000_000);
/// After the last frame was sent until the receiver is read.
const SETTLE: Duration = Duration::from_millis(20);
/// Beyond the time that a run should take.
const OVERTIME: Duration = Duration::from_secs(30);
/// Frames that are closer than this share of the target gap count as a burst.
const BURST: u64 = 10;

/// Where the sender's body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Sockets in the application's thread.
    App { waiting: Waiting, transmit: Transmit },
    /// AF_XDP on a core of its own.
    Core { core: CoreId, shield: Wanted },
    /// Live frames at the driver hook, by a thread on this core, which is charged to the device.
    Xdp { core: CoreId, shield: Wanted },
}

/// Everything that one run is made of.
pub struct Session<'a> {
    pub lab: &'a Arc<Lab>,
    pub profile: &'a Profile,
    pub place: Place,
    /// The application's thread runs here.
    pub application: CoreId,
    /// Processes that want this core for themselves, all the time: one is preempted by whoever sleeps most of the time,
    /// several are not.
    pub hogs: Option<(CoreId, usize)>,
    pub receiver: XdpMode,
    pub log: Log,
}

/// Of the stream, so that frames of another do not count.
const TAG: u16 = 0x504c;

impl Session<'_> {
    /// Runs it.
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
        let lab = self.lab;
        let receiver = lab.inside(Host::B, || Receiver::attach(lab.interface(Host::B), self.receiver, expected))??;
        let (core, count) = self.hogs.unwrap_or((self.application, 0));
        let _hogs = (0..count).map(|_| Hog::start(core)).collect::<Result<Vec<_>>>()?;
        let sent = match self.place {
            Place::App { waiting, transmit } => self.at_app(&schedule, waiting, transmit)?,
            Place::Core { core, shield } => self.at_core(&schedule, core, shield)?,
            Place::Xdp { core, shield } => self.at_hook(&schedule, core, shield)?,
        };
        std::thread::sleep(SETTLE);
        let attached = receiver.prove()?;
        let (word, id) = (format!("{:?}", attached.mode).to_lowercase(), attached.id);
        let proof = format!("{}; received by program {id} in {word} mode", sent.proof);
        let body = Body { site: self.site().to_string(), proof, shield: sent.shield };
        let progress = sent.block.progress();
        let mut report = Report::new(body, self.profile, &schedule, &progress, &receiver.read(), sent.cores);
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
            Place::Xdp { .. } => Site::Xdp(self.lab.interface(Host::A).into()),
        }
    }

    fn refuse_what_cannot_be(&self) -> Result<()> {
        let refuse = |cause: &str, next: &str| Err(Fault::new("traffic", cause, next));
        if self.profile.duration.is_none() && self.profile.frames.is_none() {
            return refuse("it has no end", "give a duration or a count");
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

    fn ask(&self, schedule: &Schedule, block: &ControlBlock) -> Result<()> {
        block.ask(&schedule.asked(self.profile, TAG, clock::monotonic() + LEAD)?)
    }

    /// When a run that does not end by itself is ended.
    fn deadline(&self, schedule: &Schedule) -> Instant {
        let by_count = schedule.frames.map(|frames| frames as f64 * schedule.mean_gap.max(2_000.0));
        let by_time = self.profile.duration.map(|duration| duration.0 as f64);
        let expected = match (by_count, by_time) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b).unwrap_or(0.0),
        };
        Instant::now() + Duration::from_nanos(expected as u64) + OVERTIME
    }

    fn deployment(&self, code: Code) -> Deployment {
        let manifest: Arc<Manifest> = Arc::new(offcodes::sender());
        Deployment { name: manifest.package.name.clone(), manifest, code, attributes: Attributes::default() }
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

    /// Runs a deployed body to its end; the caller's thread gives `site` its turns.
    fn see_through(
        &self,
        schedule: &Schedule,
        site: &mut dyn SiteDriver,
        code: Code,
        block: &ControlBlock,
        rest: Option<Duration>,
    ) -> Result<(BusyMeter, runtime::site::Evidence)> {
        self.ask(schedule, block)?;
        let slot = site.deploy(self.deployment(code))?;
        site.initialize(slot)?;
        site.start(slot)?;
        let busy = BusyMeter::begin()?;
        let deadline = self.deadline(schedule);
        while block.state() != State::Finished {
            site.turn()?;
            if let Some(rest) = rest {
                std::thread::sleep(rest);
            }
            if linux::signal::interrupted() || Instant::now() > deadline {
                block.stop();
                site.turn()?;
                break;
            }
        }
        let evidence = site.evidence(slot)?;
        site.remove(slot)?;
        Ok((busy, evidence))
    }

    fn at_app(&self, schedule: &Schedule, waiting: Waiting, transmit: Transmit) -> Result<Sent> {
        let block = ControlBlock::in_process();
        let (lab, ours) = (self.lab.clone(), block.clone());
        let open: OpenSocket = Arc::new(move |from| {
            let bound = lab.inside(Host::A, || UdpSocket::bind(from))?;
            bound.map_err(|e| Fault::because(format!("socket on {from}"), e, "look whether the lab is up"))
        });
        let code =
            Code::Native(Arc::new(move || Box::new(SocketSender::new(ours.clone(), waiting, transmit, open.clone()))));
        let mut site = AppSite::new(Residents::new(Site::App, Instant::now(), self.log.clone()));
        let (busy, evidence) = self.see_through(schedule, &mut site, code, &block, None)?;
        let proof = proof(&evidence);
        let shield = format!("nothing: {}, the application's own", self.application);
        Ok(Sent { cores: self.cores(&busy, None)?, block, proof, shield })
    }

    fn at_core(&self, schedule: &Schedule, core: CoreId, shield: Wanted) -> Result<Sent> {
        let block = ControlBlock::in_process();
        let (lab, ours, mode) = (self.lab.clone(), block.clone(), Arc::new(OnceLock::new()));
        let found = mode.clone();
        let open: OpenFrames = Arc::new(move || {
            let interface = lab.interface(Host::A);
            let sender = lab.inside(Host::A, || afxdp::Sender::open(interface, &afxdp::Options::default()))??;
            let _ = found.set(sender.in_force().mode);
            Ok(sender)
        });
        let code = Code::Native(Arc::new(move || Box::new(FrameSender::new(ours.clone(), open.clone()))));
        let (mut site, _beside) = CoreSite::protected(core, shield, Instant::now(), self.log.clone())?;
        let by = site.protection().to_string();
        let rest = Some(Duration::from_millis(1));
        let (busy, evidence) = self.see_through(schedule, &mut site, code, &block, rest)?;
        let mode = mode.get().map_or(String::new(), |mode| format!("AF_XDP ({mode}), "));
        Ok(Sent { cores: self.cores(&busy, Some(core))?, block, proof: mode + &proof(&evidence), shield: by })
    }

    fn at_hook(&self, schedule: &Schedule, core: CoreId, wanted: Wanted) -> Result<Sent> {
        let lab = self.lab;
        let mut sender = lab.inside(Host::A, || KernelSender::open(lab.interface(Host::A)))??;
        sender.batch(self.profile.batch.max(crate::kernel_sender::BATCH));
        if self.profile.is_paced() {
            let gap = Nanoseconds(schedule.mean_gap.ceil() as u64);
            let in_time = self.profile.duration.map_or(u64::MAX, |duration| duration.0 / gap.0.max(1));
            sender.expect(in_time.min(schedule.frames.unwrap_or(u64::MAX)), gap);
        }
        let mut asked = schedule.asked(self.profile, TAG, Nanoseconds(0))?;
        let block = sender.block().clone();
        let ours = block.clone();
        let (tell, by) = mpsc::channel();
        let busy = BusyMeter::begin()?;
        let running = sender.start(None, move || {
            let shield = Shield::raise(core, wanted)?;
            drop(tell.send(shield.by().to_string()));
            // Only now: raising a shield takes tens of milliseconds, and a late sender would make up for them in a burst.
            let start = clock::monotonic() + LEAD;
            asked.start = Some(start);
            asked.end = asked.end.map(|after| Nanoseconds(start.0.saturating_add(after.0)));
            ours.ask(&asked)?;
            Ok(Box::new(shield))
        })?;
        let deadline = self.deadline(schedule);
        while !running.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            if linux::signal::interrupted() || Instant::now() > deadline {
                block.stop();
            }
        }
        let cores = self.cores(&busy, Some(core))?;
        running.join()?;
        let sent = block.progress().sent;
        let sent = count::of(sent, "frame");
        let proof = format!("the program counted {sent} that it made in the kernel, run from {core}");
        Ok(Sent { cores, block, proof, shield: by.try_recv().unwrap_or_else(|_| "unknown".into()) })
    }
}

/// What a run leaves at the sender.
struct Sent {
    block: ControlBlock,
    cores: Cores,
    proof: String,
    shield: String,
}

fn proof(evidence: &runtime::site::Evidence) -> String {
    let counters: Vec<_> =
        evidence.counters.iter().map(|c| format!("{} {}", count::grouped(c.value), c.name)).collect();
    format!("{}: {}", evidence.whereabouts, counters.join(", "))
}
