//! The carrier of a program's one-sided operations (MPI_Put, MPI_Get, MPI_Accumulate), which an MPI may have carried by
//! other means than its messages. Under Open MPI 4 it is chosen by the names in the program's file, so that results are right.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Variables;
use crate::elf;
use crate::family::Family;
use crate::installation::Installation;
use crate::report::Reports;

/// Parameter of Open MPI 4: beside which MTLs osc/pt2pt, which sends messages, goes before osc/rdma, which uses BTLs.
const BESIDE: &str = "osc_rdma_mtls";

/// The means that carry operations on a program's windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneSided {
    /// The program names no window, or the MPI is none that goes past libfabric.
    Unnoted,
    /// The file names no function of MPI, as that of an interpreter: Open MPI carries them as it does by itself.
    Unseen,
    /// The user's own options for the launcher say.
    Asked,
    /// Open MPI 4's osc/pt2pt carries them in messages, but for windows in shared memory: all of one host, where the program
    /// has none but `allocated` ones.
    Messages { allocated: bool },
    /// Open MPI 5's osc/rdma carries them over btl/ofi, hence the provider.
    Remote,
    /// Open MPI 5 before 5.0.9 makes no window over pml/cm, whatever the provider, but in shared memory.
    Refused,
    /// Open MPI 4's osc/rdma carries them over BTLs of its own on one host. Between hosts it has none, and osc/pt2pt has them.
    Past,
}

/// What the names in a program's file say.
#[derive(Debug, Default)]
struct Names {
    /// Whether there is any of MPI.
    any: bool,
    windows: bool,
    /// Whether windows are made of the program's own memory.
    created: bool,
    /// Whether MPI_THREAD_MULTIPLE, which osc/pt2pt refuses, can be asked for: a library may initialize MPI.
    threads: bool,
    /// Whether a datatype can begin at another place than 0. Where it is one piece, a persistent send of pml/cm reads it from
    /// 0, and osc/pt2pt sends so.
    displaced: bool,
}

impl Names {
    fn of(called: &[String]) -> Names {
        let fortran = ["_f08_", "__", "_", ""];
        let name = |call: &String| {
            let call = call.strip_prefix('P').unwrap_or(call).to_lowercase();
            fortran.iter().find_map(|end| call.strip_suffix(end)?.strip_prefix("mpi_").map(str::to_owned))
        };
        let names: BTreeSet<String> = called.iter().filter_map(name).collect();
        let has = |name: &str| names.contains(name);
        let displaces = |name: &str| ["indexed", "struct", "subarray", "darray"].iter().any(|kind| name.contains(kind));
        let created = has("win_create") || has("win_create_dynamic");
        Names {
            any: !names.is_empty(),
            windows: created || has("win_allocate"),
            created,
            threads: has("init_thread") || !has("init"),
            displaced: names.iter().filter_map(|name| name.strip_prefix("type_")).any(displaces),
        }
    }
}

impl OneSided {
    /// What carries the operations of `program` under this MPI, with the user's own options for its launcher.
    pub fn of(installation: &Installation, program: &Path, options: &[String]) -> OneSided {
        if installation.family != Family::OpenMpi {
            return OneSided::Unnoted;
        }
        let called = std::fs::read(program).ok().and_then(|file| elf::called(&file)).unwrap_or_default();
        let asked = options.iter().any(|word| ["osc", "btl", BESIDE, "osc_rdma_btls"].contains(&word.as_str()));
        let multiple = std::env::var_os("OMPI_MPI_THREAD_LEVEL").is_some();
        OneSided::by_names(installation.numbers(), &called, asked, multiple)
    }

    fn by_names(version: [u32; 3], called: &[String], asked: bool, multiple: bool) -> OneSided {
        let names = Names::of(called);
        match () {
            () if names.any && !names.windows => OneSided::Unnoted,
            () if asked => OneSided::Asked,
            () if !names.any => OneSided::Unseen,
            () if version >= [5, 0, 9] => OneSided::Remote,
            () if version >= [5, 0, 0] => OneSided::Refused,
            () if !names.threads && !multiple && !names.displaced => OneSided::Messages { allocated: !names.created },
            () => OneSided::Past,
        }
    }

    /// Variables that have the engine carry them.
    pub fn variables(self) -> Variables {
        match self {
            OneSided::Messages { .. } => vec![(format!("OMPI_MCA_{BESIDE}"), "ofi".into())],
            _ => Variables::new(),
        }
    }

    /// Whether they went past the engine in the job of these reports.
    pub fn is_past(self, reports: &Reports) -> bool {
        let hosts: BTreeSet<&str> = reports.endpoints.iter().map(|report| report.host.as_str()).collect();
        match self {
            OneSided::Unnoted | OneSided::Unseen | OneSided::Asked | OneSided::Refused => false,
            OneSided::Messages { allocated } => allocated && hosts.len() < 2,
            OneSided::Past => reports.remote().is_none() && hosts.len() < 2,
            OneSided::Remote => reports.remote().is_none(),
        }
    }

    /// A sentence for the report.
    pub fn note(self, reports: &Reports) -> Option<&'static str> {
        let counted = !reports.remote().is_none();
        Some(match self {
            OneSided::Unnoted => return None,
            OneSided::Unseen if !counted => {
                "one-sided operations, if the program has any, are NOT counted above where Open MPI carried them itself (osc/rdma, \
                 osc/sm), as it then does on one host: its file names no function of MPI by which to choose"
            }
            OneSided::Asked if !counted => {
                "one-sided operations went as --mpirun-args says; those that Open MPI carried itself are not counted above"
            }
            OneSided::Refused => {
                "Open MPI 5 before 5.0.9 ends a job that makes a window (MPI_ERR_WIN) over any libfabric provider, but for \
                 MPI_Win_allocate on one host. Next: Open MPI 5.0.9 or MPICH (--mpi PREFIX), or its own transports: --carrier vader"
            }
            OneSided::Past if self.is_past(reports) => {
                "one-sided operations were carried by Open MPI itself (osc/rdma, osc/sm) and are NOT counted above. Next: where no \
                 rank waits for others by looking into its own memory, or swaps there, --mpirun-args '--mca btl ^uct,openib --mca \
                 osc_rdma_btls ofi' gives them to the engine"
            }
            _ if self.is_past(reports) => {
                "one-sided operations were carried by Open MPI itself and are NOT counted above: on one host it shares the memory of \
                 MPI_Win_allocate. Next: MPI_Win_create in the program gives them to the engine"
            }
            _ => {
                "one-sided operations are counted above, but for those on windows of one host by MPI_Win_allocate, which Open MPI \
                 carries in its own shared memory (osc/sm)"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Remote, Report};

    const CREATED: OneSided = OneSided::Messages { allocated: false };
    const ALLOCATED: OneSided = OneSided::Messages { allocated: true };

    fn of(version: [u32; 3], called: &str) -> OneSided {
        let called: Vec<String> = called.split_whitespace().map(str::to_owned).collect();
        OneSided::by_names(version, &called, false, false)
    }

    #[test]
    fn names_of_the_program_choose_what_gives_right_results_under_open_mpi_4() {
        for (called, expected) in [
            ("MPI_Init MPI_Send", OneSided::Unnoted),
            ("Py_BytesMain malloc", OneSided::Unseen),
            ("", OneSided::Unseen),
            ("MPI_Init MPI_Win_create MPI_Put MPI_Accumulate MPI_Win_lock", CREATED),
            ("MPI_Init MPI_Win_allocate MPI_Type_vector MPI_Type_free", ALLOCATED),
            ("mpi_init_ mpi_win_allocate_ mpi_win_create_ mpi_put_", CREATED),
            ("mpi_init_f08_ mpi_win_create_f08_", CREATED),
            ("PMPI_Init PMPI_Win_create_dynamic", CREATED),
            ("MPI_Init MPI_Init_thread MPI_Win_create MPI_Win_fence", OneSided::Past),
            // A library may initialize the MPI.
            ("MPI_Win_allocate MPI_Win_lock", OneSided::Past),
            ("MPI_Init MPI_Win_create MPI_Type_create_subarray", OneSided::Past),
            ("mpi_init_ mpi_win_create_ mpi_win_lock_ mpi_type_create_hindexed_", OneSided::Past),
        ] {
            let found = of([4, 1, 4], called);
            assert_eq!(found, expected, "{called}");
            let messages = matches!(found, OneSided::Messages { .. });
            assert_eq!(!found.variables().is_empty(), messages, "{called}");
        }
        let called = ["MPI_Init".to_owned(), "MPI_Win_create".to_owned()];
        assert_eq!(OneSided::by_names([4, 1, 4], &called, false, true), OneSided::Past);
        assert_eq!(OneSided::by_names([4, 1, 4], &called, true, false), OneSided::Asked);
        let windows = "MPI_Init_thread MPI_Win_create MPI_Win_lock";
        assert_eq!(of([5, 0, 9], windows), OneSided::Remote);
        assert_eq!(of([5, 0, 8], windows), OneSided::Refused);
        assert_eq!(of([5, 0, 8], "MPI_Init MPI_Send"), OneSided::Unnoted);
    }

    #[test]
    fn what_went_past_the_engine_is_noted_and_nothing_else() {
        let reports = |hosts: &[&str], reads| {
            let remote = Remote { reads, ..Remote::default() };
            let of = |host: &&str| Report { host: (*host).to_owned(), remote, ..Report::default() };
            Reports { endpoints: hosts.iter().map(of).collect(), damaged: 0 }
        };
        let (silent, between, counted) = (reports(&["a", "a"], 0), reports(&["a", "b"], 0), reports(&["a", "a"], 1));
        for (means, past) in [
            (OneSided::Unnoted, [false; 3]),
            (OneSided::Unseen, [false; 3]),
            (OneSided::Asked, [false; 3]),
            (OneSided::Refused, [false; 3]),
            (CREATED, [false; 3]),
            (ALLOCATED, [true, false, true]),
            (OneSided::Remote, [true, true, false]),
            (OneSided::Past, [true, false, false]),
        ] {
            for (reports, past) in [&silent, &between, &counted].into_iter().zip(past) {
                assert_eq!(means.is_past(reports), past, "{means:?}");
                let note = means.note(reports);
                assert_eq!(note.is_none(), means == OneSided::Unnoted);
                let denied = note.is_some_and(|note| note.contains("NOT counted above"));
                let unseen = means == OneSided::Unseen && reports.remote().is_none();
                assert_eq!(denied, past || unseen, "{means:?}: {note:?}");
            }
        }
    }
}
