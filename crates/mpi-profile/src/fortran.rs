//! Fortran's MPI_IN_PLACE: the address of a variable, where C has a constant.

use crate::real::find_variable;

/// MPI_IN_PLACE of Open MPI, in `mpif.h` and all modules, by the name mangling of each compiler.
const OPEN_MPI: [&std::ffi::CStr; 4] =
    [c"mpi_fortran_in_place_", c"mpi_fortran_in_place", c"mpi_fortran_in_place__", c"MPI_FORTRAN_IN_PLACE"];

/// MPI_IN_PLACE of MPICH's `mpi_f08`.
const MPICH_2008: &std::ffi::CStr = c"MPIR_F08_MPI_IN_PLACE";

/// MPICH's variable with the address of the MPI_IN_PLACE of `mpif.h` and `mpi`, set once MPI is initialized.
const MPICH: &std::ffi::CStr = c"MPIR_F_MPI_IN_PLACE";

#[derive(Debug, Default)]
pub struct Fortran {
    in_place: Vec<usize>,
    kept: Option<usize>,
}

impl Fortran {
    pub fn find() -> Fortran {
        let variable = |name| find_variable(name).map(|address| address as usize);
        Fortran {
            in_place: OPEN_MPI.into_iter().chain([MPICH_2008]).filter_map(variable).collect(),
            kept: variable(MPICH),
        }
    }

    pub fn is_in_place(&self, word: usize) -> bool {
        // SAFETY: the variable holds an address, and lives as long as the MPI.
        let kept = self.kept.map(|variable| unsafe { *(variable as *const usize) });
        word != 0 && (self.in_place.contains(&word) || kept == Some(word))
    }
}

/// The first index in the results of MPI_Waitany and its like: 1 by the standard, but 0 in MPICH's `mpi_f08` (4.0). The
/// changed requests decide: `completed(place)` is whether the request at `place`, counted from 0, has changed.
pub fn first_place(told: &[i32], count: usize, completed: impl Fn(usize) -> bool) -> i32 {
    let from = |first: i32| {
        let place = |told: &i32| usize::try_from(told - first).ok().filter(|place| *place < count);
        told.iter().map(place).collect::<Option<Vec<_>>>()
    };
    match (from(1), from(0)) {
        (None, Some(_)) => 0,
        (Some(_), None) | (None, None) => 1,
        // The handle of a persistent request does not change: where neither reading fits, the standard's holds.
        (Some(one), Some(zero)) => {
            i32::from(one.iter().all(|at| completed(*at)) || !zero.iter().all(|at| completed(*at)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_begin_where_the_completed_requests_are() {
        let done = |which: &'static [usize]| move |place: usize| which.contains(&place);
        assert_eq!(first_place(&[1], 2, done(&[0])), 1);
        assert_eq!(first_place(&[1], 2, done(&[1])), 0);
        assert_eq!(first_place(&[0], 2, done(&[0])), 0);
        assert_eq!(first_place(&[2], 2, done(&[1])), 1);
        assert_eq!(first_place(&[1, 2], 3, done(&[0, 1])), 1);
        assert_eq!(first_place(&[1, 2], 3, done(&[1, 2])), 0);
        // Persistent requests: the standard's index.
        assert_eq!(first_place(&[1, 2], 3, done(&[])), 1);
        assert_eq!(first_place(&[], 3, done(&[])), 1);
    }
}
