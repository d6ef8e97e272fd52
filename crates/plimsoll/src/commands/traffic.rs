//! `plimsoll traffic`: the traffic generator on every kind of site.

use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::ValueEnum;
use linux::affinity;
use linux::lab::{Host, Lab, Options};
use linux::shield::Wanted;
use machine::{CoreId, Fault, Nanoseconds, Result, Site};
use offcode::manifest::XdpMode;
use runtime::site::residents::Log;
use traffic::body::{Transmit, Waiting};
use traffic::frame::{Flow, MacAddress};
use traffic::paper::Paper;
use traffic::profile::{BitsPerSecond, Profile, Rate, Sizes, Timing};
use traffic::session::{Place, Session};

use crate::output;

/// UDP port of the stream: discard.
const PORT: u16 = 9;

/// Sends traffic by one profile from a site of your choice to a receiver that counts and times it in the kernel, in a lab
/// of two network namespaces that it makes and removes.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where the sender's body is: app, core:N or xdp
    #[arg(long, default_value = "app", value_name = "SITE")]
    site: Where,
    /// When frames leave
    #[arg(long, value_enum, default_value_t = Gaps::Flood)]
    gaps: Gaps,
    /// How many, such as 30kpps or 100Mbit; for every kind of gaps but flood and pcap
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// A constant gap between frames, in place of a rate, such as 34us
    #[arg(long, value_name = "TIME", conflicts_with = "rate", value_parser = time)]
    gap: Option<Nanoseconds>,
    /// Frame sizes in bytes without check sequence: 64, 64,590*4,1514, imix or pcap:FILE
    #[arg(long, default_value = "64", value_name = "SIZES")]
    sizes: Sizes,
    /// Ends after so many frames
    #[arg(long, value_name = "FRAMES")]
    count: Option<u64>,
    /// Ends after so long, such as 2s or 500ms; 1s where no count is given
    #[arg(long, value_name = "TIME", value_parser = time)]
    duration: Option<Nanoseconds>,
    /// Frames of a burst, for bursty gaps
    #[arg(long, default_value_t = 16, value_name = "FRAMES")]
    burst: u32,
    /// Gap between the frames of a burst
    #[arg(long, value_name = "TIME", value_parser = time)]
    within: Option<Nanoseconds>,
    /// IPv6 in place of IPv4
    #[arg(long)]
    ipv6: bool,
    /// How the app's body waits for the next frame
    #[arg(long, value_enum, default_value_t = Wait::Relative)]
    waiting: Wait,
    /// How the app's body hands frames to the kernel
    #[arg(long, value_enum, default_value_t = Hand::Sendto)]
    transmit: Hand,
    /// What keeps other work off the device's core: nothing, best, cpuset or deadline
    #[arg(long, default_value = "nothing", value_name = "MEANS")]
    shield: Wanted,
    /// The application's core; the first that this process may use unless given
    #[arg(long, value_name = "CORE")]
    application: Option<u32>,
    /// The core that runs the kernel's body for xdp; the last unless given
    #[arg(long, value_name = "CORE")]
    device: Option<u32>,
    /// Lets a process loose that wants this core for itself
    #[arg(long, value_name = "CORE")]
    hog: Option<u32>,
    /// How many such processes
    #[arg(long, default_value_t = 1, requires = "hog", value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    hogs: u8,
    /// Speed of the link, to refuse what it could not carry, such as 100Mbit
    #[arg(long, value_name = "SPEED")]
    link: Option<BitsPerSecond>,
    /// Frames handed over together, for flood
    #[arg(long, default_value_t = 1, value_name = "FRAMES")]
    batch: u32,
    /// Seed of random gaps and sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mode of the receiver's program: native, generic or hardware; no other is taken instead
    #[arg(long, value_enum, default_value_t = Mode::Native)]
    receiver: Mode,
    /// Receive in a kernel thread in place of the sender's softirq
    #[arg(long)]
    threaded_napi: bool,
    /// Prints the tables of the paper on HYDRA for this machine
    #[arg(long)]
    paper: bool,
    /// Rounds of the runs that the paper's ratios rest on
    #[arg(long, default_value_t = 5, requires = "paper")]
    rounds: usize,
    /// As JSON
    #[arg(long, conflicts_with = "paper")]
    json: bool,
}

#[derive(Debug, Clone, Copy)]
enum Where {
    App,
    Core(CoreId),
    Xdp,
}

impl FromStr for Where {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<Site>() {
            Ok(Site::App) => Ok(Where::App),
            Ok(Site::Core(core)) => Ok(Where::Core(core)),
            _ if text == "xdp" => Ok(Where::Xdp),
            _ => Err(Fault::new(format!("site '{text}'"), "the sender has no body for it", "write app, core:N or xdp")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Gaps {
    /// None: as fast as the body can
    Flood,
    Constant,
    Poisson,
    Bursty,
    /// Those of the capture
    Pcap,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Wait {
    /// Sleeps for the gap after each frame, as is written first
    Relative,
    /// Sleeps until the frame's time
    Absolute,
    /// Looks at the clock again and again
    Spin,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Hand {
    Sendto,
    Sendmmsg,
    Gso,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    Native,
    Generic,
    Hardware,
}

/// `34us`, `1.5ms`, `2s`, `900ns`.
fn time(text: &str) -> Result<Nanoseconds> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let found = units.iter().find_map(|(unit, ns)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number.is_finite() && number > 0.0 && number * ns < 1e18).then_some(Nanoseconds((number * ns).round() as u64))
    });
    found
        .ok_or_else(|| Fault::new(format!("time '{text}'"), "it is no time above 0", "write it like 34us, 1.5ms or 2s"))
}

impl Arguments {
    fn timing(&self) -> Result<Timing> {
        let needs = |what: &str| Fault::new("traffic", format!("{what} gaps need a rate"), "give --rate or --gap");
        let rate = self.rate.or(self.gap.map(|gap| Rate::Packets(1e9 / gap.0 as f64)));
        let timing = match self.gaps {
            Gaps::Flood if rate.is_some() => Timing::Constant(rate.ok_or_else(|| needs("constant"))?),
            Gaps::Flood => Timing::Flood,
            Gaps::Constant => Timing::Constant(rate.ok_or_else(|| needs("constant"))?),
            Gaps::Poisson => Timing::Poisson(rate.ok_or_else(|| needs("Poisson"))?),
            Gaps::Bursty => {
                let rate = rate.ok_or_else(|| needs("bursty"))?;
                Timing::Bursty { rate, frames: self.burst, within: self.within }
            }
            Gaps::Pcap => Timing::Capture,
        };
        Ok(timing)
    }

    fn cores(&self) -> Result<(CoreId, CoreId)> {
        let allowed = affinity::allowed()?;
        let none = || Fault::new("cores", "this process may use none", "look at its affinity with taskset");
        let pick = |asked: Option<u32>, otherwise: Option<&CoreId>| match asked {
            Some(core) => affinity::check(CoreId(core)).map(|()| CoreId(core)),
            None => otherwise.copied().ok_or_else(none),
        };
        Ok((pick(self.application, allowed.first())?, pick(self.device, allowed.last())?))
    }

    fn place(&self, device: CoreId) -> Place {
        match self.site {
            Where::App => Place::App {
                waiting: match self.waiting {
                    Wait::Relative => Waiting::RelativeSleep,
                    Wait::Absolute => Waiting::AbsoluteSleep,
                    Wait::Spin => Waiting::Spin,
                },
                transmit: match self.transmit {
                    Hand::Sendto => Transmit::SendTo,
                    Hand::Sendmmsg => Transmit::SendMany,
                    Hand::Gso => Transmit::Segments,
                },
            },
            Where::Core(core) => Place::Core { core, shield: self.shield },
            Where::Xdp => Place::Xdp { core: device, shield: self.shield },
        }
    }
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    linux::signal::watch()?;
    linux::shield::remove_remains()?;
    let (application, device) = arguments.cores()?;
    let timing = arguments.timing()?;
    let options = Options { threaded_napi: arguments.threaded_napi, ..Options::default() };
    let lab = Arc::new(Lab::owned(&options)?);
    let flow = flow(&lab, arguments.ipv6)?;
    let log: Log = Arc::new(|line| eprintln!("plimsoll traffic: {line}"));
    if arguments.paper {
        let paper = Paper { lab: &lab, flow, application, device, rounds: arguments.rounds.max(1), log };
        paper.run(output::print)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut profile = Profile::new(flow, timing, arguments.sizes.clone());
    profile.frames = arguments.count;
    profile.duration = arguments.duration;
    if profile.frames.is_none() && profile.duration.is_none() && timing != Timing::Capture {
        profile.duration = Some(Nanoseconds(1_000_000_000));
    }
    profile.batch = arguments.batch;
    profile.link = arguments.link;
    profile.seed = arguments.seed;
    let receiver = match arguments.receiver {
        Mode::Native => XdpMode::Native,
        Mode::Generic => XdpMode::Generic,
        Mode::Hardware => XdpMode::Hardware,
    };
    let hog = arguments.hog.map(|core| affinity::check(CoreId(core)).map(|()| CoreId(core))).transpose()?;
    let hogs = hog.map(|core| (core, usize::from(arguments.hogs)));
    let place = arguments.place(device);
    let session = Session { lab: &lab, profile: &profile, place, application, hogs, receiver, log };
    let report = session.run()?;
    output::print(&if arguments.json { report.json() + "\n" } else { report.text() })?;
    Ok(ExitCode::SUCCESS)
}

/// From one host of the lab to the other.
fn flow(lab: &Lab, ipv6: bool) -> Result<Flow> {
    let mac = |host: Host| -> Result<MacAddress> {
        let path = format!("/sys/class/net/{}/address", lab.interface(host));
        let text = lab.inside(host, || std::fs::read_to_string(&path))?;
        text.map_err(|e| Fault::because(&*path, e, "look whether the lab is up"))?.trim().parse()
    };
    let address = |host: Host| match ipv6 {
        false => Ok(lab.address(host)),
        true => lab.address_v6(host).ok_or_else(|| {
            Fault::new(
                "lab",
                "its hosts have no IPv6 addresses",
                "turn IPv6 on (sysctl net.ipv6.conf.all.disable_ipv6=0)",
            )
        }),
    };
    Ok(Flow {
        source_mac: mac(Host::A)?,
        destination_mac: mac(Host::B)?,
        source: address(Host::A)?,
        destination: address(Host::B)?,
        source_port: 4000,
        destination_port: PORT,
    })
}
