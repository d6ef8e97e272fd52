//! `plimsoll traffic`: the traffic generator on every kind of site.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::ValueEnum;
use linux::affinity;
use linux::lab::{Host, Lab, Options};
use linux::shield::Wanted;
use machine::choice::Choice;
use machine::topology::Topology;
use machine::{BitsPerSecond, CoreId, Fault, Nanoseconds, Result, Site, SiteKind, XdpMode};
use runtime::site::agent::Connection;
use runtime::site::residents::Log;
use traffic::body::{Transmit, Waiting};
use traffic::frame::{Flow, MacAddress};
use traffic::guard::{self, End, Stated};
use traffic::paper::Paper;
use traffic::profile::{Profile, Rate, Sizes, Timing};
use traffic::session::{Place, Session};
use traffic::wire::Wire;

use linux::output::{self, Destination};

/// UDP port of the stream: discard.
const PORT: u16 = 9;

/// Sends traffic from a site of your choice to a receiver that counts and times it in the kernel: in a lab of two
/// network namespaces that is made for the run and removed after it, or from an interface of this host to another one or
/// to one of another host (--interface, --far, --destination).
#[derive(clap::Args)]
pub struct Arguments {
    /// Site of the sender: app, core:N or xdp
    #[arg(long, default_value = "app", value_name = "SITE")]
    site: Where,
    /// When frames leave
    #[arg(long, value_enum, default_value_t = Gaps::Flood)]
    gaps: Gaps,
    /// Rate of frames, such as 30kpps or 100Mbit; for every kind of gaps but flood and pcap
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// A constant gap between frames, in place of a rate, such as 34us
    #[arg(long, value_name = "TIME", conflicts_with = "rate", value_parser = str::parse::<Nanoseconds>)]
    gap: Option<Nanoseconds>,
    /// Frame sizes in bytes, without the check sequence: one (64), a list with weights (64,590*4,1514), imix or
    /// pcap:FILE
    #[arg(long, default_value = "64", value_name = "SIZES")]
    frame_sizes: Sizes,
    /// Number of frames to send
    #[arg(long, value_name = "FRAMES")]
    count: Option<u64>,
    /// Time to send for, such as 2s or 500ms [default: 1s where no count is given]
    #[arg(long, value_name = "TIME", value_parser = str::parse::<Nanoseconds>)]
    duration: Option<Nanoseconds>,
    /// Frames of a burst, for bursty gaps
    #[arg(long, default_value_t = 16, value_name = "FRAMES")]
    burst: u32,
    /// Gap between the frames of a burst
    #[arg(long, value_name = "TIME", value_parser = str::parse::<Nanoseconds>)]
    within: Option<Nanoseconds>,
    /// Send over IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// How a sender at app waits until the next frame
    #[arg(long, value_enum, default_value_t = Wait::Relative)]
    waiting: Wait,
    /// How a sender at app hands frames to the kernel
    #[arg(long, value_enum, default_value_t = Hand::Sendto)]
    transmit: Hand,
    /// What keeps other work off the sender's core at core:N and xdp: nothing, best, cpuset or deadline
    #[arg(long, default_value = "nothing", value_name = "MEANS")]
    shield: Wanted,
    /// Core of the application [default: the first that is free]
    #[arg(long, value_name = "CORE")]
    application: Option<CoreId>,
    /// Core that runs the sender at xdp, in the place of a device [default: the free one nearest the application's]
    #[arg(long, value_name = "CORE")]
    device: Option<CoreId>,
    /// Core on which to start a busy process beside the sender
    #[arg(long, value_name = "CORE")]
    hog: Option<CoreId>,
    /// Number of such processes
    #[arg(long, default_value_t = 1, requires = "hog", value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=64))]
    hogs: u8,
    /// Speed of the link, such as 100Mbit: a rate that it could not carry is refused
    #[arg(long, value_name = "RATE", conflicts_with = "interface")]
    link: Option<BitsPerSecond>,
    /// Frames that are handed over together, for flood
    #[arg(long, default_value_t = 1, value_name = "FRAMES")]
    batch: u32,
    /// Seed of random gaps and sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mode of the receiver's XDP program: native, generic or hardware; where the kernel does not have it the run is refused
    #[arg(long, value_name = "MODE", default_value_t = XdpMode::Native)]
    receiver_mode: XdpMode,
    /// Send from this interface of this host, for at most 60s and with a rate, in place of a lab. Refused: loopback, an
    /// interface that bonds, bridges or VLANs send over, and one that has a program
    #[arg(long, value_name = "IFACE", requires = "far", requires = "destination", conflicts_with = "paper")]
    interface: Option<String>,
    /// Count at the interface to which the link from --interface leads: IFACE of this host, or agent:HOST/xdp:IFACE of
    /// another, whose agent offers it (`plimsoll agent --hooks IFACE`)
    #[arg(long, value_name = "IFACE", requires = "interface", value_parser = far)]
    far: Option<Far>,
    /// Where the agent of --far listens, as HOST:PORT [default: HOST of --far, at the agents' usual port]
    #[arg(long, value_name = "ADDRESS", requires = "far")]
    address: Option<String>,
    /// Folder of the client's keys for that agent [default: the user's own]
    #[arg(long, value_name = "DIR", requires = "far")]
    keys: Option<PathBuf>,
    /// Ethernet address of --far, which the frames are sent to
    #[arg(long, value_name = "MAC", requires = "interface")]
    destination: Option<MacAddress>,
    /// Names --interface or --far a second time, where it has the default route or carries a TCP connection of its
    /// host, such as that of SSH or of the agent
    #[arg(long, value_name = "IFACE", requires = "interface")]
    really: Vec<String>,
    /// Most bits a second that the stream may take of the link on average [default: 10 % of the link's speed]
    #[arg(long, value_name = "RATE", requires = "interface")]
    max_rate: Option<BitsPerSecond>,
    /// Receive in a kernel thread instead of the sender's softirq
    #[arg(long, conflicts_with = "interface")]
    threaded_napi: bool,
    /// Print the tables of the HYDRA paper (Weinsberg, Dolev, Anker and Wyckoff) for this machine
    #[arg(long)]
    paper: bool,
    /// Most rounds for the ratios that --paper prints; it ends once they are decided
    #[arg(long, value_name = "N", default_value_t = 8, requires = "paper", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON, or write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = Destination::STDOUT, conflicts_with = "paper")]
    json: Option<Destination>,
}

#[derive(Debug, Clone, Copy)]
enum Where {
    App,
    Core(CoreId),
    Xdp,
}

/// The place where frames are counted.
#[derive(Debug, Clone)]
enum Far {
    Here(String),
    /// At the driver hook of another host.
    Away(Site),
}

fn far(text: &str) -> Result<Far> {
    if !text.starts_with("agent:") {
        return Ok(Far::Here(text.to_owned()));
    }
    match text.parse::<Site>() {
        Ok(site) if site.kind() == SiteKind::Xdp => Ok(Far::Away(site)),
        _ => Err(Fault::new(format!("interface '{text}'"), "it names no driver hook", "write agent:HOST/xdp:IFACE")),
    }
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
    /// No gaps: frames leave as fast as the sender can
    Flood,
    /// The same gap between all frames
    Constant,
    /// Gaps of exponentially distributed length
    Poisson,
    /// Bursts of frames, with gaps between the bursts
    Bursty,
    /// The gaps of a capture
    Pcap,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Wait {
    /// Sleeps for the gap after each frame
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
        let none = || Fault::new("cores", "this process may use none", "look at its affinity with taskset");
        let named = |core: Option<CoreId>| core.map(|core| affinity::check(core).map(|()| core)).transpose();
        let (application, device) = (named(self.application)?, named(self.device)?);
        let choice = Choice::among(Topology::live()?, affinity::allowed()?);
        let application = application.or_else(|| choice.clone().without(device).first(None)).or(device);
        let application = application.ok_or_else(none)?;
        let nearest = || choice.clone().without([application]).nearest(application);
        Ok((application, device.or_else(nearest).unwrap_or(application)))
    }

    fn named(&self) -> Result<Option<Named>> {
        let (Some(near), Some(far), Some(destination)) = (&self.interface, &self.far, self.destination) else {
            return Ok(None);
        };
        let stated = Stated { destination, really: self.really.clone(), most: self.max_rate };
        let (far, wire) = match far {
            Far::Here(far) => (End::live(far)?, Wire::Here { near: near.clone(), far: far.clone() }),
            Far::Away(hook) => {
                let (host, interface) =
                    (hook.agent().map_or("", |(host, _)| host), hook.interface().unwrap_or_default());
                let address = self.address.as_deref().unwrap_or(host);
                let agent = Connection::open(host, address, self.keys.as_deref())?;
                // The far end as its own host sees it.
                let far = End::of(&hook.to_string(), agent.hook(interface, self.receiver_mode)?.interface_usage()?);
                (far, Wire::Away { near: near.clone(), agent, interface: interface.to_owned() })
            }
        };
        Ok(Some(Named { near: End::live(near)?, far, wire, stated }))
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

/// Two named interfaces, with statements about the stream between them.
struct Named {
    near: End,
    far: End,
    wire: Wire,
    stated: Stated,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    linux::signal::watch()?;
    linux::shield::remove_remains()?;
    let (application, device) = arguments.cores()?;
    let timing = arguments.timing()?;
    let log: Log = Arc::new(|line| eprintln!("plimsoll traffic: {line}"));
    let named = arguments.named()?;
    let (wire, flow) = match &named {
        Some(Named { near, wire, stated, .. }) => {
            (wire.clone(), flow_between(near, stated.destination, arguments.ipv6)?)
        }
        None => {
            let options = Options { threaded_napi: arguments.threaded_napi, ..Options::default() };
            let lab = Arc::new(Lab::owned(&options)?);
            let flow = flow(&lab, arguments.ipv6)?;
            if arguments.paper {
                let paper = Paper { lab: &lab, flow, application, device, rounds: arguments.rounds, log };
                paper.run(output::print)?;
                return Ok(ExitCode::SUCCESS);
            }
            (Wire::Lab(lab), flow)
        }
    };
    let mut profile = Profile::new(flow, timing, arguments.frame_sizes.clone());
    profile.frames = arguments.count;
    profile.duration = arguments.duration;
    if profile.frames.is_none() && profile.duration.is_none() && timing != Timing::Capture {
        profile.duration = Some(Nanoseconds(1_000_000_000));
    }
    profile.batch = arguments.batch;
    profile.link = arguments.link;
    profile.seed = arguments.seed;
    if let Some(Named { near, far, stated, .. }) = &named {
        guard::admit(near, far, stated, &mut profile)?;
    }
    let receiver = arguments.receiver_mode;
    let hog = arguments.hog.map(|core| affinity::check(core).map(|()| core)).transpose()?;
    let hogs = hog.map(|core| (core, usize::from(arguments.hogs)));
    let place = arguments.place(device);
    let guarded = named.is_some();
    let session = Session { wire, profile: &profile, place, application, hogs, receiver, guarded, log };
    let report = session.run()?;
    if let Some(to) = &arguments.json {
        to.write(&(report.json() + "\n"))?;
    }
    if arguments.json != Some(Destination::Stdout) {
        output::print(&report.text())?;
    }
    Ok(linux::signal::exit_status().map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// The flow from one host of the lab to the other.
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

/// The flow from an interface of this host, with addresses that are set aside for measurements (RFC 2544, RFC 5180), so
/// that no host takes the packets for its own.
fn flow_between(near: &End, destination_mac: MacAddress, ipv6: bool) -> Result<Flow> {
    let source_mac = near.address.ok_or_else(|| {
        Fault::new(format!("interface {}", near.name), "it has no Ethernet address", "name an Ethernet interface")
    })?;
    let address = |last: u8| match ipv6 {
        false => IpAddr::from([198, 18, 0, last]),
        true => IpAddr::from([0x2001, 2, 0, 0, 0, 0, 0, u16::from(last)]),
    };
    Ok(Flow {
        source_mac,
        destination_mac,
        source: address(1),
        destination: address(2),
        source_port: 4000,
        destination_port: PORT,
    })
}
