//! Blocks of one contender: starts of two ranks.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use launch::carriers::Proof;
use launch::exit::exit_code;
use launch::installation::Installation;
use launch::job::{Job, Place};
use launch::provider::{self, Provider};
use launch::running::{Running, Scratch, Streams};
use linux::accounting::HostMeter;
use linux::lab::{Host, Lab, Options};
use machine::accounting::CoreCost;
use machine::{CoreId, Fault, Nanoseconds, Reading, Result, count};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use super::block::{Block, Outcome};
use super::contender::{Contender, Hosts, Seats};
use super::nodes::{Nodes, Pair};
use super::pattern::Task;
use super::program::Program;
use super::result::{Figures, Line};

/// Time of a task's timed part.
const TIMED: Duration = Duration::from_millis(40);

/// Most time for one start with all its tasks.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs blocks. Its program, its lab and its hold on other nodes live as long as it does.
pub struct Bench {
    installation: Installation,
    program: Program,
    provider: Result<Provider>,
    /// The program whose hidden command `host-agent` enters the hosts of a lab.
    command: PathBuf,
    lab: Option<Lab>,
    nodes: Option<Nodes>,
    steered: Option<CoreId>,
    /// Carriers of the MPI that were checked, with the hosts.
    proven: HashSet<(String, Hosts)>,
    meter: Option<HostMeter>,
    notes: Vec<String>,
}

impl Bench {
    /// `command` is this program, or another with the hidden command `host-agent` and the provider beside it. `nodes` are for
    /// seats on two nodes.
    pub fn new(installation: Installation, command: PathBuf, nodes: Option<Nodes>) -> Result<Bench> {
        let within = nodes.as_ref().map_or_else(std::env::temp_dir, |nodes| nodes.folder().to_owned());
        let program = Program::compile(&installation, "patterns", include_str!("patterns.c"), &within)?;
        nodes.as_ref().map_or(Ok(()), |nodes| nodes.check(&program.path()))?;
        let provider = provider::find(&command, program.folder());
        let mut notes = Vec::new();
        let meter = HostMeter::open().map_err(|fault| notes.push(format!("no softirqs counted: {fault}"))).ok();
        if let Some(Reading::Absent { reason } | Reading::NotPermitted { reason, .. }) =
            meter.as_ref().map(HostMeter::sensor)
        {
            notes.push(format!("time of softirqs: {reason}"));
        }
        Ok(Bench {
            installation,
            program,
            provider,
            command,
            lab: None,
            nodes,
            steered: None,
            proven: HashSet::new(),
            meter,
            notes,
        })
    }

    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Remarks on this machine that a reader needs.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Runs two ranks through `tasks`. A carrier of the MPI is first started once more, to check that it is really used.
    pub fn run(&mut self, contender: &Contender, seats: &Seats, tasks: &[Task], accounted: bool) -> Result<Block> {
        if let Contender::Peer(carrier) = contender
            && !self.proven.contains(&(carrier.name.clone(), seats.hosts))
        {
            let proof = carrier.proof(&self.installation).cloned();
            if let Some(proof) = &proof {
                self.start(contender, seats, &tasks[..1], false, Some(proof))?;
            } else {
                self.notes.push(format!("{carrier}: how to see that it is really used is not known"));
            }
            self.proven.insert((carrier.name.clone(), seats.hosts));
        }
        self.start(contender, seats, tasks, accounted, None)
    }

    fn start(
        &mut self,
        contender: &Contender,
        seats: &Seats,
        tasks: &[Task],
        accounted: bool,
        proof: Option<&Proof>,
    ) -> Result<Block> {
        let provider = match (&self.provider, contender.is_engine()) {
            (Ok(provider), _) => Some(provider.clone()),
            (Err(_), false) => None,
            (Err(fault), true) => return Err(Fault::new(fault.subject(), fault.cause(), fault.next())),
        };
        self.steer(seats)?;
        let (lab, nodes) = match seats.hosts {
            Hosts::One | Hosts::Crowd(_) => (None, None),
            Hosts::Lab => (self.lab.as_ref(), None),
            Hosts::Nodes => (None, self.nodes.as_mut()),
        };
        let (pair, shared) = nodes.as_ref().map(|nodes| (nodes.pair.clone(), nodes.folder().to_owned())).unzip();
        let interface = pair.as_ref().map(|pair| pair.interface.as_str());
        let interface = interface.or(lab.map(|lab| lab.interface(Host::A)));
        let variables = contender.variables(&self.installation, provider.as_ref(), &self.command, interface, accounted);
        let mut variables = variables.ok_or_else(|| {
            let cause = format!("{} has no such transport", self.installation);
            Fault::new(format!("{contender}"), cause, "compare under Open MPI")
        })?;
        variables.extend(proof.iter().flat_map(|proof| proof.variables()));
        if let Some(core) = contender.core() {
            // On another node its first rank starts the engine.
            launch::engine::start(&self.command, core, lab)?;
        }
        let scratch = Scratch::new()?;
        let mut control = Control::make(scratch.path())?;
        let switch = |on: bool| if on { "1" } else { "0" }.into();
        let mut arguments = vec![
            control.path.clone().into_os_string(),
            format!("{},{}", seats.cores.0.0, seats.cores.1.0).into(),
            TIMED.as_millis().to_string().into(),
            switch(accounted),
            // Cores of two nodes share no cache line.
            switch(seats.hosts != Hosts::Nodes),
        ];
        arguments.extend(tasks.iter().map(|task| task.argument().into()));
        let job = Job {
            installation: &self.installation,
            ranks: seats.hosts.ranks(),
            program: self.program.path(),
            arguments,
            options: Vec::new(),
            variables,
            place: match (lab, &pair, &shared) {
                (Some(lab), _, _) => Place::Lab { lab, agent: &self.command },
                (None, Some(Pair { names, interface, .. }), Some(folder)) => {
                    Place::Nodes { nodes: names, interface, folder, agent: &self.command }
                }
                _ => Place::Here,
            },
            // Ranks bind themselves.
            cores: Some(linux::affinity::allowed()?),
            seats: None,
            contained: pair.is_none(),
        };
        let streams = if pair.is_some() { Streams::KeptHere } else { Streams::Kept };
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut collected = Collected::new(tasks);
        let mut running = Running::start(&job, scratch, streams, None)?;
        let mut meters = Meters { here: self.meter.as_mut(), there: nodes };
        let ended =
            running.wait(LIMIT, Some(&control.out()?), |_| control.attend(|line| collected.take(line, &mut meters)));
        let complained = running.complained();
        let said = running.said();
        let reports = running.finish();
        let why = |text: &str| {
            // A batch system's launcher may first complain that it cannot bind, which was not asked for.
            let mut lines = text.lines().filter(|line| line.chars().any(char::is_alphabetic));
            lines.find(|line| !line.contains("for cpu binding")).map(|line| line.trim().to_owned())
        };
        let failed = |cause: String| {
            let said = why(&complained).or_else(|| why(&said)).unwrap_or_else(|| "it said nothing".to_owned());
            let next = "see what it says with `plimsoll mpirun -- PROGRAM`, or leave this contender out";
            Fault::new(format!("{contender} under {}", self.installation), format!("{cause}: {said}"), next)
        };
        let status = ended.map_err(|fault| failed(fault.cause().to_owned()))?;
        if !status.success() {
            return Err(failed(format!("exit code {}", exit_code(status))));
        }
        if let (Some(proof), Contender::Peer(carrier)) = (proof, contender) {
            proof.among(carrier, &format!("{said}{complained}"))?;
        }
        let outcomes = collected.outcomes().ok_or_else(|| failed("results are missing".to_owned()))?;
        if contender.is_engine() && reports.endpoints.is_empty() {
            let cause = match reports.damaged {
                0 => "plimsoll did not carry it: no rank reported".to_owned(),
                damaged => format!("{} came mixed or cut, and no other", count::of(damaged as u64, "report line")),
            };
            return Err(failed(cause));
        }
        let started = Nanoseconds(started.as_nanos() as u64);
        Ok(Block { started, outcomes, reports, accounted })
    }

    /// Makes the lab if needed, with its receive processing on the core that `seats` name.
    fn steer(&mut self, seats: &Seats) -> Result<()> {
        if seats.hosts != Hosts::Lab {
            return Ok(());
        }
        if self.lab.is_none() {
            self.lab = Some(Lab::owned(&Options::default())?);
            self.steered = None;
        }
        let lab = self.lab.as_ref().expect("it was just made");
        if self.steered != seats.protocol_core {
            if !lab.steer(seats.protocol_core)?.holds() {
                let next = "see whether another program sets rps_cpus in every network namespace";
                return Err(Fault::new("receive processing of the lab", "the kernel did not keep the mask", next));
            }
            self.steered = seats.protocol_core;
        }
        Ok(())
    }
}

/// Two named pipes to rank 0, wherever on this machine the launcher puts it.
struct Control {
    path: PathBuf,
    from: File,
    to: File,
    rest: String,
}

impl Control {
    fn make(folder: &Path) -> Result<Control> {
        let path = folder.join("control");
        let open = |name: &str| {
            let path = folder.join(name);
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            // Opened for both directions, so that neither opening nor the other end's closing blocks.
            OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
        };
        let failed = |e: std::io::Error| Fault::because("control pipe", e, "free space in /dev/shm or TMPDIR");
        let (from, to) = (open("control.out").map_err(failed)?, open("control.in").map_err(failed)?);
        Ok(Control { path, from, to, rest: String::new() })
    }

    /// A file to poll for lines to handle.
    fn out(&self) -> Result<File> {
        self.from.try_clone().map_err(|e| Fault::because("control pipe", e, "raise the limit on open files"))
    }

    /// Reads the lines that are there; answers each for which `take` returns true.
    fn attend(&mut self, mut take: impl FnMut(Line) -> Result<bool>) -> Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => self.rest.push_str(&String::from_utf8_lossy(&buffer[..length])),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(Fault::because("control pipe", e, "run again")),
            }
            while let Some((line, rest)) = self.rest.split_once('\n') {
                let line = Line::read(line)?;
                self.rest = rest.to_owned();
                if take(line)? {
                    self.to.write_all(b".").map_err(|e| Fault::because("control pipe", e, "run again"))?;
                }
            }
        }
    }
}

/// Meters of this machine and, where there is one, of the other.
struct Meters<'a> {
    here: Option<&'a mut HostMeter>,
    there: Option<&'a mut Nodes>,
}

/// Counts of this machine's cores, and of the other's where there is one.
type Counted = (Vec<CoreCost>, Option<Reading<Vec<CoreCost>>>);

impl Meters<'_> {
    fn begin(&mut self) -> Result<()> {
        if let Some(nodes) = &mut self.there {
            nodes.begin();
        }
        self.here.as_mut().map_or(Ok(()), |meter| meter.begin())
    }

    fn end(&mut self) -> Result<Counted> {
        let here = self.here.as_mut().map_or(Ok(Vec::new()), |meter| meter.end())?;
        Ok((here, self.there.as_mut().and_then(|nodes| nodes.end())))
    }
}

/// Results so far.
struct Collected<'a> {
    tasks: &'a [Task],
    figures: Vec<[Option<Figures>; 2]>,
    counted: Vec<Counted>,
}

impl Collected<'_> {
    fn new(tasks: &[Task]) -> Collected<'_> {
        Collected { tasks, figures: vec![[None, None]; tasks.len()], counted: vec![Counted::default(); tasks.len()] }
    }

    /// Takes a line; whether it waits for an answer.
    fn take(&mut self, line: Line, meters: &mut Meters) -> Result<bool> {
        match line {
            Line::Begin(_) => {
                meters.begin()?;
                Ok(true)
            }
            Line::End(task) => {
                let counted = meters.end()?;
                if let Some(slot) = self.counted.get_mut(task) {
                    *slot = counted;
                }
                Ok(true)
            }
            Line::Result { task, rank, figures } => {
                if let Some(slot) = self.figures.get_mut(task) {
                    slot[rank] = Some(figures);
                }
                Ok(false)
            }
        }
    }

    /// One for each task; `None` if a rank's result is missing.
    fn outcomes(self) -> Option<Vec<Outcome>> {
        let all = self.tasks.iter().zip(self.figures).zip(self.counted);
        all.map(|((task, figures), (cores, remote_cores))| {
            let ranks = [figures[0]?, figures[1]?];
            let value = task.pattern.value(task.size, &ranks[0]);
            let messages = ranks[0].rounds * task.pattern.messages();
            Some(Outcome { task: *task, value, messages, ranks, cores, remote_cores })
        })
        .collect()
    }
}
