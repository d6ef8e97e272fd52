//! MPI's rules, by a program of ours under each MPI over the provider.

use crate::launcher::{Carrier, Family, LIMIT, Mpi};
use crate::place::{Place, sources};

/// Cases that fail over every provider, by a mistake of the MPI itself.
fn not_ours(mpi: &Mpi) -> &'static [&'static str] {
    match mpi.family {
        // Open MPI 4.1's pml cm takes the bytes of a persistent buffered send once, when the request is made.
        Family::OpenMpi => &["--except", "persistent/buffered_and_ready"],
        Family::Mpich => &[],
    }
}

const FAULTY: &str = "loss=1%,duplicate=1%,reorder=1%,seed=5";
const OVER_UDP: [(&str, &str); 2] = [("SHM", "no"), ("ADDRESS", "127.0.0.1")];

fn conformance(mpi: &Mpi, ranks: usize, settings: &[(&str, &str)], port: &str, arguments: &[&str]) {
    let place = Place::new();
    let program = mpi.compile(&place, &sources("mpi"), "conformance");
    let mut command = mpi.launch(&place, ranks, Carrier::Plimsoll(settings), &program);
    command.args(arguments).args(not_ours(mpi)).args(["--limit", "120"]);
    let ended = place.run(&mut command, LIMIT);
    let told = format!("{}: {:?}\n{}{}", mpi.launcher.display(), ended.status, ended.out, ended.errors);
    assert!(ended.succeeded(), "{told}");
    assert!(ended.out.contains(" 0 failed"), "{told}");
    // Each rank's endpoint tells what carried its messages.
    assert!(ended.reports().len() >= ranks, "{told}");
    assert!(ended.carried(port, "packets_sent") > 100, "{told}");
    assert!(ended.carried(port, "packets_received") > 100, "{told}");
    let other = if port == "shm" { "udp" } else { "shm" };
    assert_eq!(ended.carried(other, "packets_sent"), 0, "{told}");
}

fn in_shared_memory(mpi: Option<Mpi>) {
    let Some(mpi) = mpi else { return };
    conformance(&mpi, 2, &[], "shm", &[]);
    // Orders of several senders, and ranks that are neither.
    conformance(&mpi, 3, &[], "shm", &["--only", "order"]);
}

fn over_a_bad_wire(mpi: Option<Mpi>) {
    let Some(mpi) = mpi else { return };
    let [shm, address] = OVER_UDP;
    conformance(&mpi, 2, &[shm, address, ("WIRE", FAULTY)], "udp", &[]);
}

#[test]
fn open_mpi_in_shared_memory() {
    in_shared_memory(Mpi::open_mpi());
}

#[test]
fn open_mpi_over_udp() {
    let Some(mpi) = Mpi::open_mpi() else { return };
    conformance(&mpi, 2, &OVER_UDP, "udp", &[]);
}

#[test]
fn open_mpi_over_a_bad_wire() {
    over_a_bad_wire(Mpi::open_mpi());
}

#[test]
fn mpich_in_shared_memory() {
    in_shared_memory(Mpi::mpich());
}

#[test]
fn mpis_elsewhere_in_shared_memory() {
    Mpi::elsewhere().into_iter().for_each(|mpi| in_shared_memory(Some(mpi)));
}

#[test]
fn mpis_elsewhere_over_a_bad_wire() {
    Mpi::elsewhere().into_iter().for_each(|mpi| over_a_bad_wire(Some(mpi)));
}
