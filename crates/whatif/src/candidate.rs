//! Carriers of a recorded command's messages, and the commands that would use another.

use machine::costs::{ENGINE, Way};
use machine::{Bytes, Costs, Fault, Result, SiteKind};

use crate::model::Ways;

/// An alternative carrier of a program's messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Name such as `core:3`, `app, udp`, `carrier ucx`.
    pub name: String,
    pub ways: Ways,
    /// Options of `plimsoll mpirun` that choose it.
    pub options: Vec<String>,
}

impl Candidate {
    /// Whether it needs a core of its own.
    pub fn is_on_core(&self) -> bool {
        self.ways.between.placement == SiteKind::Core
    }
}

/// A recorded command, as far as it concerns its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded<'a> {
    pub command: &'a [String],
    /// The MPI library's name for itself.
    pub library: &'a str,
    /// Whether its ranks were on several hosts.
    pub between: bool,
}

impl Recorded<'_> {
    /// The carriers of its messages: those that its command names for `plimsoll mpirun`, else the MPI's usual transport; or
    /// `named`, a carrier or a placement.
    ///
    /// # Errors
    /// Its costs were never measured.
    pub fn ways(&self, costs: &Costs, named: Option<&str>) -> Result<Ways> {
        let of_mpi: Vec<&Way> = costs.ways().filter(|way| self.is_of_mpi(way)).collect();
        let ways: Vec<&Way> = if of_mpi.is_empty() { costs.ways().collect() } else { of_mpi };
        let wanted = |between: bool| named.map_or_else(|| self.carried(between, &ways), str::to_owned);
        let found = |between: bool| {
            let wanted = wanted(between);
            let fits = |way: &&&Way| way.network.is_some() == between && name_of(way) == wanted;
            ways.iter().find(fits).map(|way| (*way).clone())
        };
        // Where those of the other reach were not measured, these stand in for them.
        let (within, across) = (found(false), found(true));
        let needed = if self.between { across.clone() } else { within.clone() };
        match needed {
            Some(needed) => Ok(Ways {
                within: within.unwrap_or(needed.clone()),
                between: across.unwrap_or(needed),
                shared_links: false,
                eager: self.eager(&wanted(self.between)),
            }),
            None => {
                let mut known: Vec<String> = ways.iter().map(|way| name_of(way)).collect();
                known.dedup();
                let cause = match known.is_empty() {
                    true => "no cost of this machine was ever measured".to_owned(),
                    false => format!("its costs were never measured here; there are those of {}", known.join(", ")),
                };
                let next = "run plimsoll calibrate, or say what carried the messages with --recorded";
                Err(Fault::new(format!("carrier {}", wanted(self.between)), cause, next))
            }
        }
    }

    /// Whether the costs of `way` were measured under the MPI that the program ran under.
    pub fn is_of_mpi(&self, way: &Way) -> bool {
        let version = way.mpi.rsplit(' ').next().unwrap_or_default();
        let family = way.mpi.strip_suffix(version).unwrap_or_default().trim();
        self.library.starts_with(family) && self.library.contains(version)
    }

    /// The carrier in words: not that of the costs, where those of the program's MPI were never measured.
    pub fn carried_by(&self, ways: &Ways) -> String {
        let way = if self.between { &ways.between } else { &ways.within };
        match self.library.lines().next() {
            Some(library) if !self.is_of_mpi(way) => {
                let library: Vec<&str> = library.split(',').next().unwrap_or_default().split_whitespace().collect();
                format!("{}, at the costs of {way}", library.join(" "))
            }
            _ => way.to_string(),
        }
    }

    /// The value of an Open MPI parameter that the command sets by `--mca NAME VALUE`; empty: it sets none.
    fn set(&self, parameter: &str) -> &str {
        let mut words = self.command.windows(3);
        let found = words.find(|words| matches!(words[0].as_str(), "--mca" | "-mca") && words[1] == parameter);
        found.map_or("", |words| words[2].as_str())
    }

    /// The eager limit that the command sets.
    fn eager(&self, carrier: &str) -> Option<Bytes> {
        self.set(&format!("btl_{carrier}_eager_limit")).parse().ok().map(Bytes)
    }

    /// The carrier under the MPI's own mpirun: for Open MPI by `--mca`, for others the one with known costs.
    fn of_mpirun<'w>(&'w self, between: bool, ways: &[&'w Way]) -> &'w str {
        let is_own = |way: &&&Way| self.is_of_mpi(way) && way.carrier != ENGINE && way.network.is_some() == between;
        let of_others = ways.iter().find(is_own).filter(|_| !self.library.starts_with("Open MPI"));
        if let Some(way) = of_others {
            return &way.carrier;
        }
        let has = |name: &str| self.set("btl").split(',').any(|one| one == name);
        match () {
            () if self.set("pml") == "ucx" => "ucx",
            () if between || (has("tcp") && !has("vader") && !has("sm")) => "tcp",
            () => "vader",
        }
    }

    /// The carrier of messages between hosts, or within one.
    fn carried(&self, between: bool, ways: &[&Way]) -> String {
        let plimsoll = self
            .command
            .iter()
            .position(|word| word == "mpirun")
            .is_some_and(|at| at > 0 && self.command[at - 1].rsplit('/').next() == Some("plimsoll"));
        let option = |name: &str| {
            let at = self.command.iter().position(|word| word == name || word.starts_with(&format!("{name}=")))?;
            match self.command[at].split_once('=') {
                Some((_, value)) => Some(value.to_owned()),
                None => self.command.get(at + 1).cloned(),
            }
        };
        if !plimsoll {
            return self.of_mpirun(between, ways).to_owned();
        }
        if let Some(carrier) = option("--carrier") {
            return carrier;
        }
        let site = option("--placement").filter(|site| site != "auto").unwrap_or_else(|| "app".to_owned());
        let site = site.split(':').next().unwrap_or_default().to_owned();
        match option("--network").filter(|_| between) {
            Some(network) => format!("{site}, {}", network.split(':').next().unwrap_or_default()),
            None if between => format!("{site}, udp"),
            None => site,
        }
    }

    /// All other carriers than `ways` whose costs are known here. `core` is the core for an engine; without one, none is offered.
    pub fn others(&self, costs: &Costs, ways: &Ways, core: Option<u32>) -> Vec<Candidate> {
        let here = if self.between { &ways.between } else { &ways.within };
        let fits = |way: &&Way| way.mpi == here.mpi && way.network.is_some() == self.between && *way != here;
        let candidate = |way: &Way| {
            let within = costs.ways().find(|within| {
                within.network.is_none()
                    && within.carrier == way.carrier
                    && within.placement == way.placement
                    && within.mpi == way.mpi
            });
            let within = within.unwrap_or(way).clone();
            let ways = Ways { within, between: way.clone(), shared_links: ways.shared_links, eager: None };
            let mut name = name_of(way);
            let mut options = if way.carrier == ENGINE {
                let mut site = name.split(", ").next().unwrap_or_default().to_owned();
                if way.placement == SiteKind::Core {
                    site = format!("core:{}", core?);
                    name = name.replace("core", &site);
                }
                vec!["--placement".to_owned(), site]
            } else {
                vec!["--carrier".to_owned(), way.carrier.clone()]
            };
            if let Some(network) = way.network.as_ref().filter(|_| way.carrier == ENGINE) {
                let network = if network == "udp" { network.clone() } else { format!("{network}:lab0") };
                options.extend(["--network".to_owned(), network]);
            }
            Some(Candidate { name, ways, options })
        };
        costs.ways().filter(fits).filter_map(candidate).collect()
    }

    fn in_lab(&self) -> bool {
        self.command.iter().any(|word| word == "--lab")
    }

    /// The reason why `candidate` cannot be run in place of the recorded command.
    pub fn refused(&self, candidate: &Candidate) -> Option<String> {
        let way = &candidate.ways.between;
        let kind = way.network.as_deref().filter(|network| way.carrier == ENGINE && *network != "udp");
        match (self.in_lab(), kind) {
            (true, _) if way.carrier != ENGINE => Some("plimsoll mpirun --lab has no --carrier".to_owned()),
            (false, Some(kind)) if self.between => Some(format!("name the interface: --network {kind}:INTERFACE")),
            _ => None,
        }
    }

    /// The command under other options of `plimsoll mpirun`. `program` is the program's index among the words. There is no
    /// `--` before it, which `plimsoll try` has between commands.
    pub fn under(&self, options: &[String], ranks: u32, program: usize) -> Vec<String> {
        let mut words: Vec<String> = ["plimsoll", "mpirun", "-n", &ranks.to_string()].map(str::to_owned).to_vec();
        words.extend_from_slice(options);
        if self.in_lab() {
            words.push("--lab".to_owned());
        }
        words.extend_from_slice(&self.command[program..]);
        words
    }
}

/// `vader`, `app`, `core, udp`.
fn name_of(way: &Way) -> String {
    if way.carrier != ENGINE {
        return way.carrier.clone();
    }
    let site = way.placement.to_string();
    match &way.network {
        Some(network) => format!("{site}, {network}"),
        None => site,
    }
}

#[cfg(test)]
mod tests {
    use machine::costs::{Interval, Item, Row};
    use machine::{Nanoseconds, Reading};

    use super::*;

    fn costs() -> Costs {
        let way = |carrier: &str, placement, network: Option<&str>| Way {
            carrier: carrier.into(),
            mpi: "Open MPI 4.1.4".into(),
            placement,
            network: network.map(Into::into),
        };
        let ways = [
            way("vader", SiteKind::App, None),
            way(ENGINE, SiteKind::App, None),
            way(ENGINE, SiteKind::Core, None),
            way("tcp", SiteKind::App, Some("lab")),
            way(ENGINE, SiteKind::App, Some("xdp")),
        ];
        let row = |way| Row {
            item: Item::HalfTrip(way),
            size: None,
            cost: Reading::Measured(Interval::exactly(1.0)),
            source: String::new(),
            taken: Nanoseconds(1),
        };
        Costs::of(ways.into_iter().map(row).collect())
    }

    fn recorded(command: &str) -> Vec<String> {
        command.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_command_tells_what_carried_its_messages() {
        let of = |command: &str, between| {
            let command = recorded(command);
            let recorded = Recorded { command: &command, library: "Open MPI v4.1.4, package: Debian", between };
            recorded.ways(&costs(), None).map(|ways| name_of(if between { &ways.between } else { &ways.within }))
        };
        assert_eq!(of("mpirun -n 2 ./a", false).unwrap(), "vader");
        assert_eq!(of("mpirun -n 2 ./a", true).unwrap(), "tcp");
        let command = recorded("mpirun -n 2 ./a");
        let of_mpi = Recorded { command: &command, library: "Open MPI v4.1.4", between: true };
        assert_eq!(of_mpi.ways(&costs(), None).unwrap().within.carrier, "vader");
        assert_eq!(of("/x/plimsoll mpirun -n 2 --placement core:3 ./a", false).unwrap(), "core");
        assert_eq!(of("plimsoll mpirun --lab --network=xdp:lab0 ./a", true).unwrap(), "app, xdp");
        assert_eq!(of("plimsoll mpirun --carrier vader ./a", false).unwrap(), "vader");
        assert_eq!(of("mpirun --mca btl self,vader,tcp ./a", false).unwrap(), "vader");
        let command = recorded("mpirun --mca btl_vader_eager_limit 32768 ./a");
        let limited = Recorded { command: &command, library: "Open MPI v4.1.4", between: false };
        assert_eq!(limited.ways(&costs(), None).unwrap().eager, Some(Bytes(32768)));
        assert_eq!(of_mpi.ways(&costs(), None).unwrap().eager, None);
        for (options, carrier) in [("--mca btl tcp,self", "tcp"), ("-mca pml ucx", "ucx")] {
            let fault = of(&format!("mpirun -n 2 {options} ./a"), false).unwrap_err().to_string();
            assert!(fault.contains(&format!("carrier {carrier}")), "{fault}");
        }
        let fault = of("plimsoll mpirun --carrier psm3 ./a", false).unwrap_err().to_string();
        assert!(fault.contains("carrier psm3") && fault.contains("vader"), "{fault}");
    }

    #[test]
    fn a_program_under_another_mpi_is_not_said_to_have_run_under_that_of_the_costs() {
        let command = recorded("mpiexec -n 2 ./a");
        let library = "MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7";
        let of = Recorded { command: &command, library, between: false };
        let ways = of.ways(&costs(), None).unwrap();
        assert_eq!(of.carried_by(&ways), "MPICH Version: 4.0.2, at the costs of vader, one host, Open MPI 4.1.4");
        let open = Recorded { library: "Open MPI v4.1.4, package: Debian", ..of };
        assert_eq!(open.carried_by(&ways), "vader, one host, Open MPI 4.1.4");
        let schedule = Recorded { library: "", ..of };
        assert_eq!(schedule.carried_by(&ways), open.carried_by(&ways));
        // Costs of its own are used if they are known, and are not looked up under the name of another MPI's transport.
        let own = Way { carrier: "ucx".into(), mpi: "MPICH 4.0.2".into(), placement: SiteKind::App, network: None };
        let row = Row {
            item: Item::HalfTrip(own.clone()),
            size: None,
            cost: Reading::Measured(Interval::exactly(1.0)),
            source: String::new(),
            taken: Nanoseconds(1),
        };
        let ways = of.ways(&Costs::of(vec![row]), None).unwrap();
        assert_eq!((&ways.within, of.carried_by(&ways)), (&own, own.to_string()));
    }

    #[test]
    fn others_are_those_that_were_measured_and_their_commands_run() {
        let command = recorded("mpirun -n 2 ./a 5");
        let recorded = Recorded { command: &command, library: "Open MPI v4.1.4", between: false };
        let ways = recorded.ways(&costs(), None).unwrap();
        let names = |core| recorded.others(&costs(), &ways, core).iter().map(|of| of.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(Some(3)), names(None)), (vec!["app".into(), "core:3".into()], vec!["app".to_owned()]));
        let core = &recorded.others(&costs(), &ways, Some(3))[1];
        assert_eq!(recorded.refused(core), None);
        let two = Recorded { between: true, ..recorded };
        let ways = two.ways(&costs(), None).unwrap();
        let xdp = &two.others(&costs(), &ways, None)[0];
        assert!(two.refused(xdp).unwrap().contains("--network xdp:INTERFACE"), "{xdp:?}");
        let words = recorded.under(&core.options, 2, 3).join(" ");
        assert_eq!(words, "plimsoll mpirun -n 2 --placement core:3 ./a 5");
    }
}
