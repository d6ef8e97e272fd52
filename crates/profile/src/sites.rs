//! Call sites, merged over threads and ranks although each process has its code elsewhere.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use record::functions::{FunctionId, function};
use record::layout::{self, words};

use crate::summarize::ratio;
use crate::summary::SiteSummary;
use crate::symbols::{Module, Symbols};
use crate::tables::{Tables, counted};

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Clone, Copy)]
struct Place {
    /// Into the modules of the job.
    module: usize,
    offset: u64,
    function: u16,
}

#[derive(Default)]
struct Merged {
    ranks: usize,
    /// The last that was counted, plus 1: ranks come one after the other.
    last: usize,
    calls: u64,
    seconds: f64,
    most: f64,
    bytes: u64,
}

/// `mpi`: seconds in MPI of all ranks. `started`: of the job, since 1970. Those with the most time first.
pub fn sites(ranks: &[Tables], mpi: f64, started: Duration) -> Vec<SiteSummary> {
    let mut modules: Vec<Module> = vec![Module { path: String::new(), build_id: Vec::new() }];
    let mut merged: HashMap<Place, Merged, RandomState> = HashMap::default();
    for (number, rank) in ranks.iter().enumerate() {
        let own: Vec<usize> = rank.modules.iter().map(|module| place_of(module, &mut modules)).collect();
        for site in &rank.sites {
            let module = (site.module as usize).checked_sub(1).and_then(|place| own.get(place).copied());
            let place = Place {
                module: module.unwrap_or(0),
                offset: if module.is_some() { site.offset } else { site.address },
                function: site.function,
            };
            let sum = merged.entry(place).or_default();
            sum.ranks += usize::from(sum.last != number + 1);
            sum.last = number + 1;
            sum.calls = sum.calls.saturating_add(site.calls);
            sum.seconds += rank.seconds(site.ticks);
            sum.most = sum.most.max(rank.seconds(site.most));
            sum.bytes = sum.bytes.saturating_add(site.bytes);
        }
    }
    let mut found: Vec<(Place, Merged)> = merged.into_iter().collect();
    // Neighbours share what was read of the file.
    found.sort_unstable_by_key(|(place, _)| *place);
    let mut summaries = Vec::with_capacity(found.len());
    for of_module in found.chunk_by(|a, b| a.0.module == b.0.module) {
        let module = &modules[of_module[0].0.module];
        let symbols = Symbols::of(module, started);
        for (place, sum) in of_module {
            let found = symbols.at(place.offset);
            let counted = counted(FunctionId(place.function));
            summaries.push(SiteSummary {
                function: name(FunctionId(place.function)),
                counted,
                frames: found.frames,
                module: module.path.clone(),
                offset: place.offset,
                ranks: sum.ranks,
                calls: sum.calls,
                seconds: sum.seconds,
                time_share: if counted { ratio(sum.seconds, mpi) } else { 0.0 },
                most: sum.most,
                bytes: sum.bytes,
                note: found.note,
            });
        }
    }
    summaries
        .sort_by(|a, b| b.counted.cmp(&a.counted).then(b.seconds.total_cmp(&a.seconds)).then(b.calls.cmp(&a.calls)));
    summaries
}

/// The same file in another process is the same place in the list.
fn place_of(module: &layout::Module, modules: &mut Vec<Module>) -> usize {
    let id = module.build_id.get(..module.build_id_bytes as usize).unwrap_or(&module.build_id);
    let module = Module { path: words(&module.path), build_id: id.to_vec() };
    modules.iter().position(|known| *known == module).unwrap_or_else(|| {
        modules.push(module);
        modules.len() - 1
    })
}

/// The function's name with `MPI_`.
pub fn name(id: FunctionId) -> String {
    function(id).map_or_else(|| format!("function {}", id.0), |function| format!("MPI_{}", function.name))
}
