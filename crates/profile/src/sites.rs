//! Call sites, merged over threads and ranks although each process has its code elsewhere.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use record::functions::{FunctionId, function};
use record::layout::{self, words};

use crate::summarize::ratio;
use crate::summary::SiteSummary;
use crate::symbols::{Module, Symbols, hexadecimal};
use crate::tables::{Tables, counted};

/// A place in the code of a job that calls one function of MPI.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Clone, Copy)]
pub struct Place {
    /// Into the modules of the job.
    module: usize,
    /// Of the address that the call returns to, as the module's file has it.
    offset: u64,
    pub function: FunctionId,
}

/// The places of a job, each once, numbered as they were met.
#[derive(Debug)]
pub struct Places {
    modules: Vec<Module>,
    all: Vec<Place>,
    known: HashMap<Place, u32, RandomState>,
}

impl Default for Places {
    fn default() -> Places {
        // The first is that of code in no file.
        let modules = vec![Module { path: String::new(), build_id: Vec::new() }];
        Places { modules, all: Vec::new(), known: HashMap::default() }
    }
}

impl Places {
    /// The numbers of a process's sites, in their order.
    pub fn add<'s>(&mut self, modules: &[layout::Module], sites: impl Iterator<Item = &'s layout::Site>) -> Vec<u32> {
        let own: Vec<usize> = modules.iter().map(|module| place_of(module, &mut self.modules)).collect();
        let mut number = |site: &layout::Site| {
            let module = (site.module as usize).checked_sub(1).and_then(|place| own.get(place).copied());
            let offset = if module.is_some() { site.offset } else { site.address };
            let place = Place { module: module.unwrap_or(0), offset, function: FunctionId(site.function) };
            *self.known.entry(place).or_insert_with(|| {
                self.all.push(place);
                self.all.len() as u32 - 1
            })
        };
        sites.map(&mut number).collect()
    }

    pub fn get(&self, number: u32) -> Option<Place> {
        self.all.get(number as usize).copied()
    }

    /// By number: which of `summaries` it is.
    pub fn among(&self, summaries: &[SiteSummary]) -> Vec<Option<usize>> {
        let named = |(nth, of): (usize, &SiteSummary)| {
            ((of.module.clone(), of.build_id.clone(), of.offset, of.function.clone()), nth)
        };
        let known: HashMap<_, usize> = summaries.iter().enumerate().map(named).collect();
        let find = |place: &Place| {
            let module = &self.modules[place.module];
            let key = (module.path.clone(), hexadecimal(&module.build_id), place.offset, name(place.function));
            known.get(&key).copied()
        };
        self.all.iter().map(find).collect()
    }
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
    // Neighbours share what was read of the file.
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
