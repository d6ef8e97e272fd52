//! MPI's rules, by a program of our own under each MPI over the provider.

use launch::family::Family;
use testbed::conformance::judge;
use testbed::{Carrier, Job, Mpi, Place};

use super::sources;

/// Cases that fail over every provider, by a mistake of the MPI itself.
fn not_ours(mpi: &Mpi) -> &'static [&'static str] {
    match mpi.installation.family {
        // Open MPI 4.1's pml cm takes the bytes of a persistent buffered send only once, when the request is made. Its osc/rdma,
        // also over its own transports, fetches too little into a layout with gaps.
        Family::OpenMpi if mpi.installation.major() == 4 => {
            &["--except", "persistent/buffered_and_ready", "--except", "accumulate/with_gaps"]
        }
        Family::OpenMpi => &["--except", "persistent/buffered_and_ready"],
        // Its MPI_WTIME_IS_GLOBAL is true, and its ranks' clocks differ, also over its own shared memory.
        Family::IntelMpi => &["--except", "collective/barrier"],
        Family::Mpich => &[],
    }
}

const FAULTY: &str = "loss=1%,duplicate=1%,reorder=1%,seed=5";
const OVER_UDP: [(&str, &str); 2] = [("SHM", "no"), ("ADDRESS", "127.0.0.1")];

fn conformance(mpi: &Mpi, ranks: u32, settings: &[(&str, &str)], port: &str, arguments: &[&str]) {
    let place = Place::new();
    let program = mpi.compile(&place, &sources("mpi"), "conformance");
    let job = Job::new(mpi, ranks, Carrier::Engine(settings), program);
    let job = job.arguments(arguments).arguments(not_ours(mpi)).arguments(&["--limit", "120"]);
    let ended = job.run(&place, skip::LIMIT).well(mpi);
    let told = format!("{mpi}: {}", ended.told());
    judge(&ended.out, &told);
    // Each rank's endpoint reports what carried its messages.
    assert!(ended.reports.endpoints.len() >= ranks as usize, "{told}");
    assert!(ended.port(port).packets_sent > 100, "{told}");
    assert!(ended.port(port).packets_received > 100, "{told}");
    let other = if port == "shm" { "udp" } else { "shm" };
    assert_eq!(ended.port(other).packets_sent, 0, "{told}");
}

fn in_shared_memory(mpi: &Mpi) {
    conformance(mpi, 2, &[], "shm", &[]);
    // Orders of several senders, and ranks that neither send nor receive.
    conformance(mpi, 3, &[], "shm", &["--only", "order"]);
}

fn over_a_bad_wire(mpi: &Mpi) {
    let [shm, address] = OVER_UDP;
    conformance(mpi, 2, &[shm, address, ("WIRE", FAULTY)], "udp", &[]);
}

#[test]
#[ignore = "make check"]
fn open_mpi_in_shared_memory() {
    Mpi::carried(Family::OpenMpi).iter().for_each(in_shared_memory);
}

#[test]
#[ignore = "make check"]
fn open_mpi_over_udp() {
    Mpi::carried(Family::OpenMpi).iter().for_each(|mpi| conformance(mpi, 2, &OVER_UDP, "udp", &[]));
}

#[test]
#[ignore = "make check"]
fn open_mpi_over_a_bad_wire() {
    Mpi::carried(Family::OpenMpi).iter().for_each(over_a_bad_wire);
}

#[test]
#[ignore = "make check"]
fn open_mpi_over_queue_pairs() {
    if let Some(mpi) = Mpi::carried(Family::OpenMpi) {
        conformance(&mpi, 2, &[("SEMANTICS", "queue-pair")], "shm", &[]);
        conformance(&mpi, 5, &[("SEMANTICS", "queue-pair-shared")], "shm", &["--only", "order"]);
    }
}

#[test]
#[ignore = "make check"]
fn sixty_four_ranks_write_to_each_other() {
    if let Some(mpi) = Mpi::carried(Family::OpenMpi) {
        conformance(&mpi, 64, &[], "shm", &["--only", "collective/all_to_all"]);
    }
}

#[test]
#[ignore = "make check"]
fn mpich_in_shared_memory() {
    Mpi::carried(Family::Mpich).iter().for_each(in_shared_memory);
}

#[test]
#[ignore = "make check"]
fn mpis_elsewhere_in_shared_memory() {
    Mpi::carried_elsewhere().iter().for_each(in_shared_memory);
}

#[test]
#[ignore = "make check"]
fn mpis_elsewhere_over_a_bad_wire() {
    Mpi::carried_elsewhere().iter().for_each(over_a_bad_wire);
}

/// Whether the MPI is Open MPI 4, which can carry one-sided operations in messages, by the names in a program's file.
fn has_messages(mpi: &Mpi) -> bool {
    mpi.is_open_mpi() && mpi.installation.major() == 4
}

/// The program calls MPI_Init and names no datatype that begins elsewhere than at 0.
fn puts_by_the_engine(mpi: &Mpi) {
    let place = Place::new();
    let program = mpi.compile(&place, &sources("mpi-put"), "put");
    let ended = Job::new(mpi, 2, Carrier::Engine(&[]), program).run(&place, skip::LIMIT).well(mpi);
    let told = format!("{mpi}: {}", ended.told());
    assert!(ended.out.contains("put 6553600 B"), "{told}");
    let shm = ended.port("shm");
    assert!(shm.bytes_sent + shm.bytes_fetched >= 2 * 6_553_600, "{told}");
    let remote = ended.reports.remote();
    assert_eq!(remote.is_none(), has_messages(mpi), "{told}");
    assert!(remote.is_none() || remote.writes >= 200 && remote.bytes >= 2 * 6_553_600, "{told}");
}

#[test]
fn open_mpi_puts_by_the_engine() {
    Mpi::carried(Family::OpenMpi).iter().for_each(puts_by_the_engine);
}

#[test]
fn other_mpis_put_by_the_engine() {
    Mpi::carried(Family::Mpich).iter().chain(&Mpi::carried_elsewhere()).for_each(puts_by_the_engine);
}

/// Open MPI 5's osc/rdma carries out a rank's operations on its own memory without progress, so that a rank that waits for
/// others by swaps there never serves them.
const NOT_BY_BTLS: [&str; 2] = ["--except", "window/compare_and_swap"];

/// Groups of one-sided operations.
pub const ONE_SIDED: [&str; 5] = ["window", "accumulate", "passive", "epoch", "layout"];

/// Files whose datatypes begin elsewhere than at 0: a program that names such ones is not carried in messages.
const DISPLACED: [&str; 3] = ["datatype.c", "layout.c", "huge.c"];

/// Every window goes by the engine: none is memory that the MPI allocates and may share itself.
fn one_sided(mpi: &Mpi, ranks: u32, settings: &[(&str, &str)]) {
    let place = Place::new();
    let messages = has_messages(mpi);
    let mut files = sources("mpi");
    let flags: &[&str] = if messages { &["-DCREATED", "-DIN_MESSAGES"] } else { &["-DCREATED"] };
    files.retain(|file| !messages || !DISPLACED.iter().any(|name| file.ends_with(name)));
    let program = place.compile(&mpi.compiler, &files, "one-sided", flags);
    let job = Job::new(mpi, ranks, Carrier::Engine(settings), program)
        .arguments(&ONE_SIDED.map(|group| ["--only", group]).concat());
    let job = job.arguments(&["--limit", "120"]);
    let job = match (mpi.is_open_mpi(), messages) {
        (false, _) => job,
        (true, false) => job.arguments(&NOT_BY_BTLS),
        (true, true) => job.arguments(&["--except", "passive/from_threads"]),
    };
    let ended = job.run(&place, skip::LIMIT).well(mpi);
    let counted = ended.reports.remote();
    let told = format!("{mpi}: {counted:?} {}", ended.told());
    judge(&ended.out, &told);
    match messages {
        false => assert!(counted.writes > 70_000 && counted.reads > 8_000 && counted.atomics > 1_000, "{told}"),
        true => assert!(counted.is_none() && ended.port("shm").packets_sent > 10_000, "{told}"),
    }
}

/// A program whose names leave Open MPI 4 to carry them itself gets right results, and no word that the engine carried them.
#[test]
#[ignore = "make check"]
fn open_mpi_4_carries_other_one_sided_operations_right() {
    let all = Mpi::all_carried();
    for mpi in all.iter().filter(|mpi| has_messages(mpi)) {
        let place = Place::new();
        let program = place.compile(&mpi.compiler, &sources("mpi"), "one-sided", &["-DCREATED"]);
        let job = Job::new(mpi, 3, Carrier::Engine(&[]), program).arguments(not_ours(mpi));
        let job = job.arguments(&ONE_SIDED.map(|group| ["--only", group]).concat()).arguments(&["--limit", "120"]);
        let ended = job.run(&place, skip::LIMIT).well(mpi);
        let told = format!("{mpi}: {}", ended.told());
        judge(&ended.out, &told);
        assert!(ended.reports.remote().is_none(), "{told}");
    }
}

#[test]
#[ignore = "make check"]
fn one_sided_operations_of_every_mpi() {
    for mpi in Mpi::all_carried() {
        one_sided(&mpi, 2, &[]);
        one_sided(&mpi, 3, &[]);
    }
}

#[test]
#[ignore = "make check"]
fn one_sided_operations_over_a_bad_wire() {
    let [shm, address] = OVER_UDP;
    let over = [shm, address, ("WIRE", FAULTY)];
    // Open MPI keeps few operations in progress, so that each loss delays all: minutes for what takes MPICH seconds.
    let elsewhere = Mpi::carried_elsewhere();
    let others = elsewhere.iter().filter(|mpi| !mpi.is_open_mpi());
    Mpi::carried(Family::Mpich).iter().chain(others).for_each(|mpi| one_sided(mpi, 2, &over));
}
