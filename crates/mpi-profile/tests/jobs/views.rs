//! The verdict on a job's recording, with its timeline and without.

use launch::family::Family;
use profile::profile::Profile;
use profile::summary::Summary;
use profile::verdict::{Cause, Choice};
use testbed::recording::Recording;
use testbed::{Mpi, Place};

/// Rank 1 computes nine times as long as rank 0, which waits for it in each send.
const PROGRAM: &str = r#"
#include <mpi.h>
enum { BYTES = 1 << 20 };
static char data[BYTES];
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 100; i++) {
        double until = MPI_Wtime() + (rank == 0 ? 1e-3 : 9e-3);
        while (MPI_Wtime() < until) { }
        if (rank == 0)
            MPI_Send(data, BYTES, MPI_CHAR, 1, 7, MPI_COMM_WORLD);
        if (rank == 1)
            MPI_Recv(data, BYTES, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
"#;

#[test]
#[ignore = "make check"]
fn a_late_receiver_is_named_with_and_without_a_timeline() {
    let place = Place::new().before_all();
    let Some(mpi) = Mpi::system(Family::OpenMpi) else { return };
    let program = mpi.compile_text(PROGRAM, &place.path().join("late"));
    let recordings = Recording::under(&mpi, 2, program).trace(64 << 20).run(&place, "profile", skip::LIMIT).well(&mpi);
    let traced = Summary::of(&Profile::open(&recordings.folder).unwrap());
    let plain = Summary::of(&Profile::without_timeline(&recordings.folder).unwrap());
    let [with, without] = [&traced, &plain].map(|summary| summary.verdict.as_ref().unwrap());
    for verdict in [with, without] {
        let first = &verdict.hindrances[0];
        // Other work may take its core too, which is then named with it.
        let is_late = first.cause == Cause::Late || first.words.contains("the others wait");
        assert!(is_late && first.rank == Some(1), "{verdict:#?}");
    }
    let of_core = |verdict: &profile::verdict::Verdict| {
        verdict.judgements.iter().find(|judgement| judgement.choice == Choice::DedicatedCore).unwrap().gain
    };
    if let (Some(seen), Some(told)) = (of_core(with), of_core(without)) {
        assert!(told.0 <= seen.0 + 0.01 && seen.1 <= told.1 + 0.01, "{with:#?}\n{without:#?}");
    }
}
