//! The carrier of a program's one-sided operations (MPI_Put, MPI_Get, MPI_Accumulate), which an MPI may have carried by
//! other means than its messages.

use std::path::Path;

use crate::Variables;
use crate::elf;
use crate::family::Family;
use crate::installation::Installation;
use crate::report::Remote;

/// Parameter of Open MPI 4: beside which MTLs osc/pt2pt, which sends messages, goes before osc/rdma, which uses BTLs.
const BESIDE: &str = "osc_rdma_mtls";

/// The means that carry operations on a program's windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneSided {
    /// The program names no window, its calls are not known, or the MPI has libfabric carry them.
    Unnoted,
    /// Open MPI's osc/pt2pt carries them in messages, but for windows in shared memory.
    Messages,
    /// Open MPI's osc/rdma carries them over a BTL, which may be btl/ofi, hence the provider; version 5 has nothing else.
    Btl,
    /// The same in version 4, whose osc/pt2pt refuses MPI_THREAD_MULTIPLE, for which the program may ask.
    BtlForThreads,
}

impl OneSided {
    /// What carries the operations of `program` under this MPI, with the user's own options for its launcher.
    pub fn of(installation: &Installation, program: &Path, options: &[String]) -> OneSided {
        let chosen = options.iter().any(|word| word == "osc" || word == BESIDE);
        if installation.family != Family::OpenMpi || chosen {
            return OneSided::Unnoted;
        }
        let called = std::fs::read(program).ok().and_then(|file| elf::called(&file)).unwrap_or_default();
        let multiple = std::env::var_os("OMPI_MPI_THREAD_LEVEL").is_some();
        OneSided::by_calls(installation.major(), &called, multiple)
    }

    fn by_calls(version: u32, called: &[String], multiple: bool) -> OneSided {
        let calls = |name: &str| {
            let fortran = name.to_lowercase();
            called.iter().any(|call| {
                let call = call.strip_prefix('P').unwrap_or(call);
                call == name || call.strip_prefix(&fortran).is_some_and(|rest| ["_", "__", "_f08_"].contains(&rest))
            })
        };
        let windows = ["MPI_Win_create", "MPI_Win_allocate", "MPI_Win_create_dynamic"].into_iter().any(calls);
        match () {
            () if !windows => OneSided::Unnoted,
            () if version > 4 => OneSided::Btl,
            () if calls("MPI_Init") && !calls("MPI_Init_thread") && !multiple => OneSided::Messages,
            () => OneSided::BtlForThreads,
        }
    }

    /// Variables that have the engine carry them.
    pub fn variables(self) -> Variables {
        match self {
            OneSided::Messages => vec![(format!("OMPI_MCA_{BESIDE}"), "ofi".into())],
            _ => Variables::new(),
        }
    }

    /// Whether they went past the engine, where the provider counted `remote` operations.
    pub fn is_past(self, remote: Remote) -> bool {
        matches!(self, OneSided::Btl | OneSided::BtlForThreads) && remote.is_none()
    }

    /// A sentence for the report.
    pub fn note(self, remote: Remote) -> Option<&'static str> {
        match self {
            OneSided::Unnoted => None,
            OneSided::Messages | OneSided::Btl | OneSided::BtlForThreads if !self.is_past(remote) => Some(
                "one-sided operations are counted above, but for those on windows of one host by MPI_Win_allocate, which Open MPI \
                 carries in its own shared memory (osc/sm)",
            ),
            OneSided::Messages | OneSided::Btl => Some(
                "one-sided operations were carried by Open MPI itself and are NOT counted above: on one host it shares the memory of \
                 MPI_Win_allocate. Next: MPI_Win_create in the program gives them to the engine",
            ),
            OneSided::BtlForThreads => Some(
                "one-sided operations were carried by Open MPI itself (osc/rdma, osc/sm) and are NOT counted above. Next: where the \
                 program does not ask for MPI_THREAD_MULTIPLE, --mpirun-args '--mca osc_rdma_mtls ofi'",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_carries_windows_where_open_mpi_can_send_messages_for_them() {
        let of = |version, calls: &str, multiple| {
            let called: Vec<String> = calls.split(' ').map(str::to_owned).collect();
            OneSided::by_calls(version, &called, multiple)
        };
        for (version, calls, multiple, expected) in [
            (4, "MPI_Init MPI_Send", false, OneSided::Unnoted),
            (4, "MPI_Init MPI_Win_create MPI_Put", false, OneSided::Messages),
            (4, "mpi_init_ mpi_win_allocate_ mpi_put_", false, OneSided::Messages),
            (4, "mpi_init_f08_ mpi_win_create_f08_", false, OneSided::Messages),
            (4, "PMPI_Init PMPI_Win_create_dynamic", false, OneSided::Messages),
            (4, "MPI_Init MPI_Win_create", true, OneSided::BtlForThreads),
            (4, "MPI_Init MPI_Init_thread MPI_Win_create", false, OneSided::BtlForThreads),
            // A library may initialize the MPI.
            (4, "MPI_Win_allocate", false, OneSided::BtlForThreads),
            (5, "MPI_Init MPI_Win_create", false, OneSided::Btl),
        ] {
            let found = of(version, calls, multiple);
            assert_eq!(found, expected, "{version} {calls} {multiple}");
            assert_eq!(found.variables().len(), usize::from(found == OneSided::Messages));
            for remote in [Remote::default(), Remote { reads: 1, ..Remote::default() }] {
                let says = found.note(remote).is_some_and(|note| note.contains("NOT counted"));
                assert_eq!(found.is_past(remote), says);
                assert!(remote.is_none() || !says, "what was counted did not go past");
            }
        }
    }
}
