use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use machine::{CoreId, Cores, Fault, Machine, Result, Site, SiteInMode, Source, XdpMode, count};
use offcode::Registry;
use offcode::manifest::Digest;
use runtime::agent::{Agent, DEFAULT_PORT, Limits, Options, keys, sparing};
use runtime::grounds;
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::core::CoreSite;
use runtime::site::residents::{Log, Residents};
use runtime::site::xdp::XdpSite;

use linux::output::{print, under};

/// Gives this host's cores, and driver hooks that are named, to offcodes of authenticated clients elsewhere: the site
/// agent:HOST.
///
/// Control travels over TLS 1.3, and both sides show a certificate of your own authority, made with `plimsoll agent
/// keys`. Channels travel over UDP, each packet encrypted under a key of the channel. The agent logs what it refuses on
/// standard error.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Address to listen on, with or without a port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address)]
    listen: SocketAddr,
    /// Folder that `plimsoll agent keys` made for this host [default: `agent` in the user's folder of keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Cores that run the offcodes, polling all the time, the first as agent:HOST and each as agent:HOST/core:N; without
    /// them they run in a thread that sleeps when idle
    #[arg(long, value_name = "CORES")]
    cores: Option<Cores>,
    /// Driver hooks that clients may use, each as agent:HOST/xdp:IFACE: whoever has a certificate then decides about all
    /// frames that arrive there, one client at a time. Mode native where none is said
    #[arg(long, value_name = "IFACE[:native|generic]", value_delimiter = ',', value_parser = hook)]
    hooks: Vec<(String, XdpMode)>,
    /// Bound to change, as NAME=NUMBER; may be repeated
    #[arg(long, value_name = "NAME=NUMBER", value_parser = limit, long_help = limits())]
    limit: Vec<(String, u64)>,
    /// SHA-256 of packaged native bodies that clients may bring, as `plimsoll offcode package` prints them; they run
    /// unsandboxed, with all rights of this agent
    #[arg(long, value_name = "HASH", value_delimiter = ',', value_parser = str::parse::<Digest>)]
    native: Vec<Digest>,
}

#[derive(clap::Subcommand)]
enum Action {
    Keys(Keys),
}

/// Make certificates for agents and their client, or renew them.
///
/// An authority of your own (365 days) signs a certificate for the client and one for each agent (90 days; run this
/// again to renew). Copy the folder of a host, and nothing else, to that host.
#[derive(clap::Args)]
struct Keys {
    /// Folder to write to [default: `plimsoll` in the user's configuration folder]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Name or address by which clients will reach a host that runs an agent; may be repeated
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
}

fn address(text: &str) -> Result<SocketAddr> {
    let with_port = text.parse::<SocketAddr>();
    with_port.or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DEFAULT_PORT))).map_err(|_| {
        Fault::new(
            format!("address '{text}'"),
            "it is not a numeric address",
            format!("write it like 192.0.2.7, 192.0.2.7:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}"),
        )
    })
}

fn hook(text: &str) -> Result<(String, XdpMode)> {
    let bad = |cause: &str| {
        Err(Fault::new(
            format!("hook '{text}'"),
            cause,
            "write IFACE, IFACE:native or IFACE:generic, such as eth1:generic",
        ))
    };
    match format!("xdp:{text}").parse::<SiteInMode>() {
        Ok(hook) if hook.mode == Some(XdpMode::Hardware) => {
            bad("an agent offers hooks in the modes native and generic")
        }
        Ok(SiteInMode { site: Site::Xdp(interface), mode }) => Ok((interface, mode.unwrap_or(XdpMode::Native))),
        _ => bad("it names no interface, or another mode than native and generic"),
    }
}

fn limit(text: &str) -> Result<(String, u64)> {
    let bad =
        || Fault::new(format!("limit '{text}'"), "it is not of the form NAME=NUMBER", "write it like offcodes=10");
    let (name, number) = text.split_once('=').ok_or_else(bad)?;
    let number = number.parse().map_err(|_| bad())?;
    Limits::default().set(name, number)?;
    Ok((name.to_owned(), number))
}

fn limits() -> String {
    let mut text = "Bound to change, as NAME=NUMBER; may be repeated. The names:".to_owned();
    for (name, meaning) in Limits::NAMES {
        text.push_str(&format!("\n  {name}: {meaning}"));
    }
    text
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match &arguments.action {
        Some(Action::Keys(keys)) => make_keys(keys),
        None => serve(&arguments),
    }
}

fn make_keys(arguments: &Keys) -> Result<ExitCode> {
    let directory = arguments.directory.clone().map_or_else(keys::default_directory, Ok)?;
    for made in keys::make(&directory, &arguments.host)? {
        let how = if made.renewed { "renewed" } else { "made" };
        print(&format!("{}: {how} for {}, good until {}\n", made.directory.display(), made.for_whom, made.until))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(arguments: &Arguments) -> Result<ExitCode> {
    let keys = match &arguments.keys {
        Some(folder) => folder.clone(),
        None => keys::default_directory()?.join("agent"),
    };
    let mut limits = Limits::default();
    for (name, number) in &arguments.limit {
        limits.set(name, *number)?;
    }
    limits.native = arguments.native.clone();
    let log: Log = Arc::new(|line: &str| eprintln!("{}", under("plimsoll agent", line)));
    let origin = Instant::now();
    let offcodes = sparing(log.clone());
    // `excluded` keeps this thread off the offcodes' cores and lives as long as the agent.
    let mut sites: Vec<Box<dyn SiteDriver>> = Vec::new();
    let mut excluded = Vec::new();
    let cores = arguments.cores.as_ref().map_or(&[][..], |cores| &cores.0);
    for (n, &core) in cores.iter().enumerate() {
        if cores[..n].contains(&core) {
            return Err(Fault::new(core.to_string(), "it is named twice", "name each core once"));
        }
        let (site, off) = CoreSite::open(core, origin, offcodes.clone())?;
        for note in &site.placed().notes {
            log(note);
        }
        excluded.extend(off);
        sites.push(Box::new(site));
    }
    if sites.is_empty() {
        sites.push(Box::new(AppSite::new(Residents::new(Site::App, origin, offcodes))));
    }
    let machine = Machine::read(&Source::live())?;
    for (n, (interface, mode)) in arguments.hooks.iter().enumerate() {
        let subject = || format!("driver hook of {interface}");
        if arguments.hooks[..n].iter().any(|(other, _)| other == interface) {
            return Err(Fault::new(subject(), "it is named twice", "name each interface once"));
        }
        if let Some(why) = grounds::hook_closed(interface, *mode, &machine) {
            return Err(Fault::new(subject(), why, "leave it out of --hooks, or change that"));
        }
        sites.push(Box::new(XdpSite::open(interface, *mode)?));
    }
    linux::signal::watch()?;
    // One client must not use up the descriptors of all.
    linux::shortage::raise_descriptor_limit();
    let options = Options { listen: arguments.listen, keys, limits };
    let agent = Agent::bind(&options, built_in(), sites, move |line| log(line))?;
    let cores: Vec<String> = cores.iter().map(CoreId::to_string).collect();
    let whereabouts = if cores.is_empty() { "in its own thread".into() } else { format!("on {}", cores.join(", ")) };
    let hooks: Vec<&str> = arguments.hooks.iter().map(|(interface, _)| interface.as_str()).collect();
    let hooks =
        if hooks.is_empty() { String::new() } else { format!(", and at the driver hook of {}", hooks.join(", ")) };
    print(&format!("plimsoll agent: offcodes run {whereabouts}{hooks}; listening on {}\n", agent.address()?))?;
    let summary = agent.run(linux::signal::interrupted)?;
    let refused: Vec<String> = summary.refused.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let refused =
        if refused.is_empty() { "nothing refused".into() } else { format!("refused: {}", refused.join(", ")) };
    // The reader of the output may have gone.
    let _ = writeln!(std::io::stdout(), "plimsoll agent: ended; {}; {refused}", count::of(summary.clients, "client"));
    Ok(linux::signal::exit_status_of_server().map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// The native bodies of this binary.
fn built_in() -> Registry {
    Registry::new()
}
