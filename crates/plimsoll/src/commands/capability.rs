//! `plimsoll machine capability`: of this host, or of all nodes of the batch system's job.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use launch::allocation::{self, Allocation};
use launch::nodes;
use linux::accounting::{CapabilityProbe, JobProcess};
use linux::output;
use machine::capability::{CapabilityMap, SilentHost};
use machine::quota::Watch;
use machine::{Fault, Nanoseconds, Result, Source};

use super::outputs::{self, Json};
use crate::capability_page;

/// Interval of looks at the job's threads, as long as they take no more than a part of the time.
const GLANCE: Duration = Duration::from_millis(20);
const PART: u32 = 100;

/// Time for the batch system to start the command on a node, beside the time of looking.
const ANSWERS: Duration = Duration::from_secs(60);

/// Says what share of each core ranks can have; inside a batch system's job, of all its nodes
#[derive(clap::Args)]
pub struct Arguments {
    /// Look at the cores for so long.
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = time)]
    time: Nanoseconds,
    /// The job: processes by number or by name, whose own CPU time and that of their children is not taken from it.
    #[arg(long, value_name = "PROCESS,..", value_delimiter = ',')]
    of: Vec<JobProcess>,
    /// Nodes of the batch system's job to look at, instead of all.
    #[arg(long, value_name = "NODE,..", value_delimiter = ',', conflicts_with = "here")]
    nodes: Vec<String>,
    /// Look at this host alone, also inside a job of a batch system.
    #[arg(long)]
    here: bool,
    #[command(flatten)]
    json: Json,
}

/// The kernel knows idle time to 10 ms, so that less than 0.1 s says nothing.
fn time(text: &str) -> Result<Nanoseconds> {
    Nanoseconds::within(text, Nanoseconds(100_000_000), Nanoseconds::of_seconds(86_400))
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let watch = Watch::begin(&Source::live(), linux::affinity::allowed()?.len());
    let map = arguments.map()?;
    let page = || output::page(&capability_page::page(&map, arguments.time.in_seconds(), output::width()));
    arguments.json.tell(|| outputs::json(&map), page)?;
    if let Some(note) = watch.note(&Source::live()) {
        eprintln!("plimsoll: {note}");
    }
    Ok(super::exit_code())
}

impl Arguments {
    fn map(&self) -> Result<CapabilityMap> {
        linux::signal::watch()?;
        match (allocation::around().filter(|_| !self.here), &self.nodes[..]) {
            (None, []) => self.of_this_host(),
            (Some(allocation), asked) => self.of_nodes(&allocation, asked),
            (None, [first, ..]) => {
                let next = "ask for nodes first (`salloc`, `qsub`), or run it on that host";
                Err(Fault::new(
                    format!("--nodes {first}"),
                    "there is no job of a batch system around this process",
                    next,
                ))
            }
        }
    }

    fn of_this_host(&self) -> Result<CapabilityMap> {
        let mut probe = CapabilityProbe::begin(&self.of)?;
        let mut pause = GLANCE;
        let until = Instant::now() + self.time.duration();
        while Instant::now() < until && !linux::signal::interrupted() {
            sleep(pause.min(until.saturating_duration_since(Instant::now())));
            let begun = Instant::now();
            probe.glance();
            pause = GLANCE.max(PART * begun.elapsed());
        }
        probe.end()
    }

    fn of_nodes(&self, allocation: &Allocation, asked: &[String]) -> Result<CapabilityMap> {
        let (here, all) = (allocation.here(), allocation.hosts());
        if let Some(other) = asked.iter().find(|host| !all.contains(host)) {
            let next = format!("name some of {}", allocation.nodes);
            return Err(Fault::new(format!("--nodes {other}"), format!("it is no node of {}", allocation.name), next));
        }
        let chosen = if asked.is_empty() { all } else { asked.to_vec() };
        let (mine, others): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|host| *host == here);
        if let Some(number) =
            self.of.iter().find(|of| matches!(of, JobProcess::Number(_))).filter(|_| !others.is_empty())
        {
            let next = "name the program instead, or look at this host alone: --here";
            return Err(Fault::new(format!("--of {number}"), "a number is that of a process of one host", next));
        }
        let arguments = self.on_a_node();
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("plimsoll"));
        let patience = ANSWERS + self.time.duration();
        let (own, answers) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| nodes::each(allocation, &others, &program, &arguments, patience));
            let own = (!mine.is_empty()).then(|| self.of_this_host());
            (own, asked.join().unwrap_or_default())
        });
        let read = |(host, answer): (&String, Result<String>)| {
            let map = answer.and_then(|text| read(host, &text));
            map.unwrap_or_else(|fault| {
                let silent =
                    SilentHost { host: host.clone(), reason: format!("{}. Next: {}", fault.cause(), fault.next()) };
                CapabilityMap { silent: vec![silent], ..CapabilityMap::join([]) }
            })
        };
        let others = others.iter().zip(answers).map(read);
        Ok(CapabilityMap::join(own.transpose()?.into_iter().chain(others)))
    }

    /// The words of the command on a node.
    fn on_a_node(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            ["machine", "capability", "--here", "--json", "--for"].map(OsString::from).to_vec();
        words.push(format!("{}ns", self.time.0).into());
        for of in &self.of {
            words.extend(["--of".into(), of.to_string().into()]);
        }
        words
    }
}

/// Parses the map in a node's output, to which batch systems may add lines.
fn read(host: &str, text: &str) -> Result<CapabilityMap> {
    let json = text.find('{').zip(text.rfind('}')).and_then(|(from, to)| text.get(from..=to)).unwrap_or_default();
    let next = "have the same plimsoll on all nodes";
    serde_json::from_str(json).map_err(|error| Fault::because(format!("node {host}"), error, next))
}
