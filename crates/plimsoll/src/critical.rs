//! The critical path of a recorded program: by call site, for its profile and for `plimsoll whatif`.

use machine::{Costs, Result};
use profile::summary::{Critical, OnPath, SiteSummary, Summary};
use profile::terminal::place;
use record::worlds;
use timeline::Timeline;
use timeline::places::Places;
use whatif::answer::walk;
use whatif::candidate::Recorded;
use whatif::graph::{Graph, NO_SITE, Reach};
use whatif::model::{Draw, Prices, Ways};
use whatif::path::{self, Path};

/// Adds the critical path to a profile's figures, with `costs` if they include those of the messages' carrier.
///
/// # Errors
/// The timeline contradicts itself.
pub fn put(summary: &mut Summary, timeline: &Timeline, graph: &Graph, costs: &Costs) -> Result<()> {
    if graph.is_empty() {
        return Ok(());
    }
    if timeline.worlds.len() > 1 {
        let which = worlds::named(&timeline.worlds, 0);
        let others = "`plimsoll whatif DIR --world N` goes by that of another";
        summary.job.notes.push(format!("the critical path is that of {which}; {others}"));
    }
    let (recorded, between) = recorded(summary, graph);
    let priced = recorded.ways(costs, None).and_then(|ways| {
        let prices = Prices::of(graph, costs, &ways, &Draw::default())?;
        Ok((prices, ways))
    });
    let (prices, ways) = priced.ok().unzip();
    let path = walk(graph, prices, ways.as_ref().map(Ways::progress).unwrap_or_default())?;
    let seconds = |ps: i64| ps as f64 / 1e12;
    let whole = seconds(path.parts.total());
    let shown = |of: path::OnPath| OnPath {
        calls: of.calls,
        trips: of.counts.trips,
        seconds: seconds(of.time),
        share: seconds(of.time) / whole.max(1e-12),
        compute: seconds(of.computing),
    };
    let mut by_site = path.by(|spot| spot.site);
    let elsewhere = by_site.remove(&NO_SITE).unwrap_or_default();
    let critical = Critical {
        seconds: whole,
        compute: seconds(path.parts.computing),
        elsewhere: seconds(elsewhere.time),
        costs: ways.map(|ways| {
            let way = if between { ways.between } else { ways.within };
            let foreign = if recorded.is_of_mpi(&way) { "" } else { ", another MPI than the program's," };
            format!("{way}{foreign}")
        }),
    };
    let by_site = by_site.into_iter().map(|(site, of)| (site, shown(of))).collect();
    summary.put_critical(critical, &timeline.places, &by_site);
    Ok(())
}

/// The recorded command of a profile as far as it tells the carrier, and whether messages went between hosts.
pub fn recorded<'s>(summary: &'s Summary, graph: &Graph) -> (Recorded<'s>, bool) {
    let between = graph.kinds.iter().any(|kind| kind.reach == Reach::Between);
    let library = summary.job.libraries.first().map_or("", String::as_str);
    (Recorded { command: &summary.job.command, library, between }, between)
}

/// Call sites of a timeline by the names that its profile has for them, and its ranks' cores.
#[derive(Debug)]
pub struct Names<'s> {
    /// `None` of a schedule.
    summary: Option<&'s Summary>,
    world: usize,
    among: Vec<Option<usize>>,
}

impl<'s> Names<'s> {
    pub fn of(summary: Option<&'s Summary>, world: usize, places: &Places) -> Names<'s> {
        Names {
            summary,
            world,
            among: summary
                .map(|summary| profile::sites::summary_index_of_places(places, &summary.sites))
                .unwrap_or_default(),
        }
    }

    pub fn site(&self, site: u32) -> Option<&'s SiteSummary> {
        let place = self.among.get(site as usize).copied().flatten()?;
        self.summary?.sites.get(place)
    }

    /// `MPI_Send exchange.c:88 exchange`
    pub fn call(&self, spot: &path::Spot) -> String {
        let name = profile::sites::name(spot.function);
        self.site(spot.site)
            .map_or_else(|| format!("{name} (place not known)"), |site| format!("{name} {}", place(site)))
    }

    /// The core that a rank was seen on most often, with its host.
    pub fn core(&self, rank: u32) -> Option<(&'s str, u32)> {
        let of = self.summary?.ranks.iter().find(|of| of.world == self.world && of.rank == rank)?;
        Some((of.host.as_str(), *of.cores.value()?.first()?))
    }
}

/// The call sites on a path, the longest time first.
pub fn lines(path: &Path) -> Vec<(path::Spot, path::OnPath)> {
    let line = |spot: &path::Spot| path::Spot { rank: 0, bits: 0, ..*spot };
    let mut lines: Vec<_> = path.by(line).into_iter().collect();
    lines.sort_by_key(|(_, of)| std::cmp::Reverse((of.time, of.counts.trips, of.calls)));
    lines
}
