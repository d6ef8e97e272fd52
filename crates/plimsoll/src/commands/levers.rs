//! Options for levers of `plimsoll whatif`, and for facts that a recording does not hold.

use machine::{Bytes, Costs, Fault, Result};
use profile::profile::ranges;
use profile::summary::Summary;
use whatif::candidate::Recorded;
use whatif::graph::{Graph, Reach};
use whatif::lever::mapping::Hosts;
use whatif::lever::{Change, Lever, Mapping};
use whatif::model::{Progress, Ways};
use whatif::replay::Buffer;

/// What is changed of any program.
#[derive(clap::Args)]
pub struct Changes {
    /// Latency of each trip: +2us, -300ns, x0.5
    #[arg(long, value_name = "CHANGE", allow_hyphen_values = true)]
    pub latency: Option<Change>,
    /// Bandwidth over what it is: 2 for twice
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub bandwidth: Option<f64>,
    /// Clock of the cores over what it is: 0.8
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub clock: Option<f64>,
    /// Messages up to this size are sent at once, larger ones when their receive is posted
    #[arg(long, value_name = "SIZE")]
    pub eager: Option<Bytes>,
    /// Who moves messages whose both halves have begun: the ranks in their calls, or somebody else at any time
    #[arg(long, value_name = "RULE")]
    pub progress: Option<Rule>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Rule {
    Calls,
    Always,
}

impl Changes {
    /// The lever, without the carrier and the mapping.
    pub fn lever(&self) -> Lever {
        let progress = self.progress.map(|rule| match rule {
            Rule::Calls => Progress::Calls,
            Rule::Always => Progress::Always,
        });
        Lever {
            latency: self.latency,
            per_byte: self.bandwidth.map(|factor| 1.0 / factor),
            clock: self.clock,
            follows_clock: None,
            eager: self.eager,
            progress,
            buffer: None,
            mapping: None,
            ways: None,
        }
    }
}

/// What is changed of a recorded program alone, and what its recording does not say.
#[derive(clap::Args, Default)]
pub struct Recording {
    /// Ranks by host: 0,2/1,3 or 0-3/4-7. The n-th of a host has the core that its n-th rank was recorded on
    #[arg(long, value_name = "RANKS", conflicts_with = "swap")]
    pub map: Option<Hosts>,
    /// Two ranks in each other's place
    #[arg(long, value_name = "RANK,RANK", value_parser = pair)]
    pub swap: Vec<(u32, u32)>,
    /// What the core of a rank computes over what the one does that it was recorded on: 2=0.8
    #[arg(long, value_name = "RANK=FACTOR", value_delimiter = ',', value_parser = capable)]
    pub rank_capability: Vec<(u32, f64)>,
    /// What a connection takes in before its receiver takes it out: 64KiB, unlimited
    #[arg(long, value_name = "SIZE")]
    pub buffer: Option<Buffer>,
    /// The same, of the recorded run
    #[arg(long, value_name = "SIZE", default_value_t)]
    pub recorded_buffer: Buffer,
    /// The ranks of a host share its link, in the recorded run too: it passes bytes as slowly as one stream does
    #[arg(long)]
    pub shared_link: bool,
    /// What carried the messages of the recorded run, if its command does not say
    #[arg(long, value_name = "NAME")]
    pub recorded: Option<String>,
    /// The MPI_COMM_WORLD to take, where the profile has several: the N-th that began, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub world: usize,
}

impl Recording {
    /// How its messages travelled; `named` is what carried them, if its command does not say.
    pub fn ways(&self, recorded: &Recorded, costs: &Costs, named: Option<&str>) -> Result<Ways> {
        let mut ways = recorded.ways(costs, named)?;
        ways.shared_links = self.shared_link;
        Ok(ways)
    }

    /// The lever of `changes`, with changes of the connections.
    pub fn lever(&self, changes: &Changes) -> Lever {
        Lever { buffer: self.buffer, ..changes.lever() }
    }

    /// The mapping that the options give, else that of `other`, a recording to predict.
    pub fn mapping(
        &self,
        graph: &Graph,
        other: Option<&Graph>,
        ways: &Ways,
        summary: &Summary,
    ) -> Result<Option<Mapping>> {
        let Recording { map, swap, rank_capability: capability, .. } = self;
        let like = other.filter(|_| swap.is_empty()).and_then(|other| Mapping::like(graph, other));
        if map.is_none() && swap.is_empty() && capability.is_empty() && like.is_none() {
            return Ok(None);
        }
        let mut mapping = match map {
            Some(hosts) => Mapping::on(graph, hosts)?,
            None => like.unwrap_or_else(|| Mapping::recorded(graph)),
        };
        for (one, other) in swap {
            mapping = mapping.swapped(*one, *other)?;
        }
        for (rank, factor) in capability {
            mapping = mapping.capable(*rank, *factor)?;
        }
        for rank in summary.ranks.iter().filter(|rank| rank.world == self.world) {
            if let Some(softirqs) = mapping.softirqs.get_mut(rank.rank as usize) {
                *softirqs = rank.softirq.value().map(|seconds| seconds * 1e9);
            }
        }
        let reach = |of: &Graph, reach| of.kinds.iter().any(|kind| kind.reach == reach);
        let mapped = mapping.of(graph);
        let newly = [Reach::Host, Reach::Between].into_iter().find(|of| reach(&mapped, *of) && !reach(graph, *of));
        match newly.filter(|_| ways.within == ways.between) {
            Some(of) => {
                let of = if of == Reach::Host { "within a host" } else { "between hosts" };
                let cause = format!("what messages {of} cost was never measured for what carried the program");
                Err(Fault::new(
                    "the mapping",
                    cause,
                    "run plimsoll calibrate, between hosts with --path, or name a carrier with --recorded",
                ))
            }
            None => Ok(Some(mapping)),
        }
    }
}

/// Ranks whose softirqs nobody sampled.
pub fn unsampled(mapping: &Mapping) -> Option<String> {
    let ranks = Some(mapping.unsampled()).filter(|ranks| !ranks.is_empty()).map(ranges)?;
    Some(format!("softirqs of a core that is left or got: absent; the gaps of ranks {ranks} stay"))
}

pub fn factor(text: &str) -> Result<f64> {
    let number = text.trim_start_matches('x').parse::<f64>().ok().filter(|number| (0.001..=1000.0).contains(number));
    number.ok_or_else(|| {
        Fault::new(format!("factor '{text}'"), "it is no number from 0.001 to 1000", "write it like 0.8")
    })
}

fn pair(text: &str) -> Result<(u32, u32)> {
    let both = text.split_once(',').and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
    both.ok_or_else(|| Fault::new(format!("swap '{text}'"), "it is not two ranks", "write it like 2,7"))
}

fn capable(text: &str) -> Result<(u32, f64)> {
    let wrong = || Fault::new(format!("capability '{text}'"), "it is no rank with a factor", "write it like 2=0.8");
    let (rank, share) = text.split_once('=').ok_or_else(wrong)?;
    Ok((rank.parse().map_err(|_| wrong())?, factor(share)?))
}
