use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use launch::exit::exit_code;
use linux::accounting::softirq_counts;
use linux::interface_usage::check_shown;
use linux::output;
use linux::relay::Relay;
use linux::steering::{Means, Request, Steered, restore_remains};
use machine::{CoreId, Cores, Fault, Reading, Result, Source, Steering};
use serde::Serialize;

use super::outputs::{self, Json};
use crate::steering_page;

/// Steers the receive work of an interface to cores while a command runs; alone, shows where it goes.
///
/// Where receive work is kept off the cores of ranks, ranks need not move. Everything that is changed is restored when the
/// command ends, also after kill -9.
#[derive(clap::Args)]
pub struct Arguments {
    /// The interface; without it, every one is shown.
    interface: Option<String>,
    /// Cores for its receive work, such as 0 or 2-3,8.
    #[arg(long, value_name = "CORES")]
    receive: Option<Cores>,
    /// By the affinity of its interrupts, by handing packets on to other cores, or by the device's table of queues:
    /// irq, rps or rss; without it, irq where its interrupts can be set, else rps.
    #[arg(long, value_name = "MEANS", requires = "receive")]
    by: Option<Means>,
    /// Cores that its transmit queues are dealt to (XPS).
    #[arg(long, value_name = "CORES")]
    xps: Option<Cores>,
    /// Whether packets follow the thread that reads them (RFS), which overrides --receive: on or off.
    #[arg(long, value_name = "on|off", hide_possible_values = true, value_parser = clap::builder::BoolishValueParser::new())]
    rfs: Option<bool>,
    #[command(flatten)]
    json: Json,
    /// Show the machine archived in DIR, or the copy of /sys and /proc under it, instead of this host.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["receive", "xps", "rfs", "command"])]
    root: Option<PathBuf>,
    /// The command, after which everything is as it was; the exit status is the command's.
    #[arg(last = true)]
    command: Vec<OsString>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let changes = arguments.receive.is_some() || arguments.xps.is_some() || arguments.rfs.is_some();
    let refused = |cause: &str, next: &str| Err(Fault::new("steer", cause, next));
    let form = "write plimsoll steer IFACE --receive CORES -- COMMAND";
    match (changes, arguments.command.is_empty(), &arguments.interface) {
        (false, true, _) => show(&arguments),
        (true, true, _) => refused("say for which command; nothing stays changed", form),
        (false, false, _) => refused("it is not said what to steer where", form),
        (true, false, None) => refused("it is not said which interface", form),
        (true, false, Some(interface)) => {
            let Arguments { receive, by, xps, rfs, .. } = &arguments;
            let (receive, xps) = (receive.as_ref().map(Cores::set), xps.as_ref().map(Cores::set));
            let request = Request { interface: interface.clone(), receive, by: *by, xps, flows: *rfs };
            steer(&request, &arguments.command)
        }
    }
}

/// The steering with the devices' tables, which no file of /sys tells.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    steering: Steering,
    /// Entries of the table by which a device spreads flows over its receive queues, by interface.
    rss_entries: BTreeMap<String, Reading<usize>>,
}

fn show(arguments: &Arguments) -> Result<ExitCode> {
    let source = match &arguments.root {
        Some(directory) => Source::open(directory)?,
        None => Source::live(),
    };
    check_shown(&source)?;
    if source.is_live() {
        say(&restore_remains().unwrap_or_else(|fault| vec![fault.to_string()]));
    }
    let mut steering = Steering::read(&source);
    if let Some(name) = &arguments.interface {
        let names: Vec<&str> = steering.interfaces.iter().map(|of| of.interface.as_str()).collect();
        let cause = format!("there are {}", names.join(", "));
        steering.interfaces.retain(|of| of.interface == *name);
        if steering.interfaces.is_empty() {
            return Err(Fault::new(format!("interface {name}"), cause, "name one of these"));
        }
    }
    let rss = |name: &str| match source.is_live() {
        true => rss_entries(name),
        false => Reading::absent("an archive does not tell"),
    };
    let rss_entries = steering.interfaces.iter().map(|of| (of.interface.clone(), rss(&of.interface))).collect();
    let shown = Shown { steering, rss_entries };
    let page = || output::page(&steering_page::page(&shown.steering, &shown.rss_entries));
    arguments.json.tell(|| outputs::json(&shown), page)?;
    Ok(ExitCode::SUCCESS)
}

fn rss_entries(interface: &str) -> Reading<usize> {
    match linux::ethtool::indirection(interface) {
        Ok(table) if table.is_empty() => Reading::absent("the device spreads nothing"),
        Ok(table) => Reading::Measured(table.len()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Reading::not_permitted(error.to_string(), "run as root")
        }
        Err(error) => Reading::absent(format!("the device shows no table: {error}")),
    }
}

fn steer(request: &Request, words: &[OsString]) -> Result<ExitCode> {
    let plimsoll = machine::here::program()?;
    let mut keeper = Command::new(plimsoll);
    keeper.arg("steering-keeper");
    say(&restore_remains()?);
    // Signals are blocked from here on, before there is any thread or child.
    let relay = Relay::open()?;
    let steered = Steered::begin(request, keeper)?;
    let by = steered.means().map_or_else(String::new, |means| format!(" by {means}"));
    say(&[format!("steering {}{by}", request.interface)]);
    say(&steered.settings().iter().map(|setting| format!("  {setting}")).collect::<Vec<_>>());
    say(&steered.notes().iter().map(|note| format!("  note: {note}")).collect::<Vec<_>>());

    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    relay.release(&mut command);
    let before = receive_softirqs();
    let mut child = command.spawn().map_err(|error| {
        Fault::because(format!("command {}", words[0].display()), error, "check its name and that it may be executed")
    })?;
    let status = relay.wait(&mut child)?;
    let after = receive_softirqs();
    let left = steered.end();
    say(&[format!(
        "steering {} ended; receive softirqs of this machine meanwhile: {}",
        request.interface,
        grown(&before, &after)
    )]);
    say(&left.iter().map(|line| format!("  {line}")).collect::<Vec<_>>());
    Ok(ExitCode::from(exit_code(status)))
}

fn say(lines: &[String]) {
    lines.iter().for_each(|line| eprintln!("plimsoll: {line}"));
}

fn receive_softirqs() -> Option<Vec<(CoreId, u64)>> {
    let counts = softirq_counts(&fs::read_to_string("/proc/softirqs").ok()?)?;
    Some(counts.into_iter().map(|(core, counts)| (core, counts.net_rx)).collect())
}

fn grown(before: &Option<Vec<(CoreId, u64)>>, after: &Option<Vec<(CoreId, u64)>>) -> String {
    let (Some(before), Some(after)) = (before, after) else { return "absent: /proc/softirqs cannot be read".into() };
    let grown = before.iter().zip(after).map(|((core, from), (_, to))| (core, to.wrapping_sub(*from)));
    let grown: Vec<String> =
        grown.filter(|(_, more)| *more > 0).map(|(core, more)| format!("{core}: {more}")).collect();
    if grown.is_empty() { "none".into() } else { grown.join(", ") }
}
