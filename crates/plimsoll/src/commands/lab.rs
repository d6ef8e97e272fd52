use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use linux::lab::{Host, HostStatus, Lab, Options, Raised, Status};
use linux::output::{self, print};
use machine::text::Table;
use machine::{CoreId, Fault, Result, count};

use super::outputs::{self, Json};

/// Makes, uses and removes two hosts on this machine: network namespaces joined by a veth pair.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Up(Up),
    Down(Down),
    Exec(Exec),
    Status(Show),
}

#[derive(clap::Args)]
struct Name {
    /// The lab's name; its hosts are NAME-a and NAME-b, also for `ip netns exec`.
    #[arg(long, default_value = "plimsoll")]
    name: String,
}

/// Bring the two hosts up with exactly these options, whatever state they are in.
#[derive(clap::Args)]
struct Up {
    #[command(flatten)]
    name: Name,
    /// Core that does the receive processing of both hosts (RPS); without it the core on which the sender runs does.
    #[arg(long, value_name = "CORE")]
    protocol_core: Option<CoreId>,
    /// MTU of the link: the largest packet in bytes, 1280 to 65535.
    #[arg(long, default_value_t = Options::default().mtu, value_parser = clap::value_parser!(u16).range(1280..))]
    mtu: u16,
    /// Receive in a kernel thread of each interface instead of a softirq.
    #[arg(long)]
    threaded_napi: bool,
    /// Do not merge received packets (GRO off).
    #[arg(long)]
    no_gro: bool,
}

/// End the processes that run in the two hosts, and remove the hosts.
#[derive(clap::Args)]
struct Down {
    #[command(flatten)]
    name: Name,
}

/// Run a command in one of the hosts; the exit status is the command's.
#[derive(clap::Args)]
struct Exec {
    #[command(flatten)]
    name: Name,
    /// The host: a or b.
    host: Host,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Show the lab's settings; exit status 1 if it is down.
#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    name: Name,
    #[command(flatten)]
    json: Json,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.action {
        Action::Up(up) => raise(up),
        Action::Down(down) => end(&down.name.name),
        Action::Exec(exec) => execute(exec),
        Action::Status(show) => status(&show.name.name, &show.json),
    }
}

fn raise(up: Up) -> Result<ExitCode> {
    let options =
        Options { mtu: up.mtu, protocol_core: up.protocol_core, threaded_napi: up.threaded_napi, gro: !up.no_gro };
    let (lab, raised) = Lab::up(&up.name.name, &options)?;
    let how = match raised {
        Raised::Made => "up",
        Raised::Kept => "up, as it was, with its options set again",
        Raised::Repaired => "up; what was there was not whole and was repaired",
    };
    print(&format!("lab {}: {how}\n{}", up.name.name, table(&lab.status()?)))?;
    Ok(ExitCode::SUCCESS)
}

fn end(name: &str) -> Result<ExitCode> {
    let ended = Lab::down(name)?;
    print(&match (ended.was_there, ended.processes) {
        (false, _) => format!("lab {name}: was not up\n"),
        (true, 0) => format!("lab {name}: down\n"),
        (true, n) => {
            let (processes, were) = (count::of(n as u64, "process"), count::either(n as u64, "was", "were"));
            format!("lab {name}: down; {processes} in it {were} ended\n")
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn execute(exec: Exec) -> Result<ExitCode> {
    let name = &exec.name.name;
    let lab = Lab::find(name)?
        .ok_or_else(|| Fault::new(format!("lab {name}"), "it is down", "bring it up with `plimsoll lab up`"))?;
    // Entering the host is tried first: later failures are the command's own.
    lab.inside(exec.host, || ())?;
    let mut command = Command::new(&exec.command[0]);
    command.args(&exec.command[1..]);
    let error = lab.enter(exec.host, &mut command)?.exec();
    eprintln!("plimsoll: {}: {error}. Next: check its name and its permissions", exec.command[0].display());
    // The exit statuses of shells.
    Ok(ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }))
}

fn status(name: &str, json: &Json) -> Result<ExitCode> {
    let lab = Lab::find(name)?;
    let status = lab.as_ref().map(Lab::status).transpose()?;
    let text = match &status {
        Some(status) => format!("lab {name}: up\n{}", table(status).trim_end()),
        None => format!("lab {name}: down; bring it up with `plimsoll lab up`"),
    };
    json.tell(|| outputs::json(&status), || print(&format!("{text}\n")))?;
    Ok(if status.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(status: &Status) -> String {
    let mut table = Table::new([""; 3]);
    let mut row = |title: &str, cell: &dyn Fn(&HostStatus) -> String| {
        table.row([title.to_owned(), cell(&status.hosts[0]), cell(&status.hosts[1])]);
    };
    row("", &|host| host.host.to_string());
    row("interface", &|host| host.interface.clone());
    row("addresses", &|host| listed(&host.addresses));
    row("mtu", &|host| host.mtu.to_string());
    row("gro", &|host| on_off(host.gro));
    row("threaded napi", &|host| host.threaded_napi.map_or("absent: not in this kernel".into(), on_off));
    row("receive processing", &|host| match host.protocol_cores.as_slice() {
        [] => "core of the sender".into(),
        cores => listed(cores),
    });
    row("processes", &|host| match host.processes.as_slice() {
        [] => "none".into(),
        processes => listed(processes),
    });
    table.text(output::width())
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.into()
}

fn listed(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
