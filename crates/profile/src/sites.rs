//! Call sites, merged over threads and ranks, although each process has its code at other addresses.

use std::collections::HashMap;
use std::time::Duration;

use record::functions::{FunctionId, counted, function};
use timeline::places::{Place, Places};

use crate::summary::{SiteSummary, ratio};
use crate::symbols::{Symbols, hexadecimal};
use crate::tables::Tables;

/// The index in `summaries` of each of `places`, by number.
pub fn summary_index_of_places(places: &Places, summaries: &[SiteSummary]) -> Vec<Option<usize>> {
    let named = |(nth, of): (usize, &SiteSummary)| {
        ((of.module.clone(), of.build_id.clone(), of.offset, of.function.clone()), nth)
    };
    let known: HashMap<_, usize> = summaries.iter().enumerate().map(named).collect();
    let find = |place: &Place| {
        let module = &places.modules[place.module];
        let key = (module.path.clone(), hexadecimal(&module.build_id), place.offset, name(place.function));
        known.get(&key).copied()
    };
    places.all.iter().map(find).collect()
}

#[derive(Default)]
struct Merged {
    ranks: usize,
    /// The last rank counted, plus 1: ranks are added in order.
    last: usize,
    calls: u64,
    seconds: f64,
    most: f64,
    bytes: u64,
}

/// Call sites, most time first. `mpi`: seconds in MPI of all ranks. `started`: the job's start since 1970.
pub fn sites(ranks: &[Tables], mpi: f64, started: Duration) -> Vec<SiteSummary> {
    let (mut places, mut merged) = (Places::default(), Vec::new());
    for (number, rank) in ranks.iter().enumerate() {
        let own = places.add(&rank.modules, rank.sites.iter());
        merged.resize_with(places.all.len(), Merged::default);
        for (site, place) in rank.sites.iter().zip(own) {
            let sum = &mut merged[place as usize];
            sum.ranks += usize::from(sum.last != number + 1);
            sum.last = number + 1;
            sum.calls = sum.calls.saturating_add(site.calls);
            sum.seconds += rank.seconds(site.ticks);
            sum.most = sum.most.max(rank.seconds(site.most));
            sum.bytes = sum.bytes.saturating_add(site.bytes);
        }
    }
    let mut found: Vec<(Place, Merged)> = places.all.into_iter().zip(merged).collect();
    // Places of one module are adjacent, so that its symbols are loaded once.
    found.sort_unstable_by_key(|(place, _)| *place);
    let mut summaries = Vec::with_capacity(found.len());
    for of_module in found.chunk_by(|a, b| a.0.module == b.0.module) {
        let module = &places.modules[of_module[0].0.module];
        let symbols = Symbols::of(module, started);
        for (place, sum) in of_module {
            let found = symbols.at(place.offset);
            let counted = counted(place.function);
            summaries.push(SiteSummary {
                function: name(place.function),
                counted,
                frames: found.frames,
                module: module.path.clone(),
                build_id: hexadecimal(&module.build_id),
                offset: place.offset,
                ranks: sum.ranks,
                calls: sum.calls,
                seconds: sum.seconds,
                time_share: if counted { ratio(sum.seconds, mpi) } else { 0.0 },
                most: sum.most,
                bytes: sum.bytes,
                critical: None,
                note: found.note,
            });
        }
    }
    summaries
        .sort_by(|a, b| b.counted.cmp(&a.counted).then(b.seconds.total_cmp(&a.seconds)).then(b.calls.cmp(&a.calls)));
    summaries
}

/// The function's name with `MPI_`.
pub fn name(id: FunctionId) -> String {
    function(id).map_or_else(|| format!("function {}", id.0), |function| format!("MPI_{}", function.name))
}
