//! The places in the code of a job that call MPI, merged over processes, which load code at different addresses.

use foldhash::{HashMap, HashMapExt};
use record::functions::FunctionId;
use record::layout::{self, words};

/// A file of code that a process had loaded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Module {
    pub path: String,
    pub build_id: Vec<u8>,
}

/// A place in the code of a job that calls one function of MPI.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Clone, Copy)]
pub struct Place {
    /// Index into the modules of the job.
    pub module: usize,
    /// Return address of the call, as an address in the module's file.
    pub offset: u64,
    pub function: FunctionId,
}

/// The places of a job, each once, numbered as they were found.
#[derive(Debug)]
pub struct Places {
    pub modules: Vec<Module>,
    pub all: Vec<Place>,
    known: HashMap<Place, u32>,
}

impl Default for Places {
    fn default() -> Places {
        // Index 0 stands for code that is in no file.
        let modules = vec![Module { path: String::new(), build_id: Vec::new() }];
        Places { modules, all: Vec::new(), known: HashMap::new() }
    }
}

impl Places {
    /// The place numbers of a process's sites, in their order.
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
}

/// The index of a module; one file loaded by several processes has one.
fn place_of(module: &layout::Module, modules: &mut Vec<Module>) -> usize {
    let id = module.build_id.get(..module.build_id_bytes as usize).unwrap_or(&module.build_id);
    let module = Module { path: words(&module.path), build_id: id.to_vec() };
    modules.iter().position(|known| *known == module).unwrap_or_else(|| {
        modules.push(module);
        modules.len() - 1
    })
}
