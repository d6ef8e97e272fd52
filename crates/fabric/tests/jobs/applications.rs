//! Applications as their users run them: the same physics over the provider as over TCP.

use testbed::applications::{self, Gromacs, MELT, WATER, installed};
use testbed::{Carrier, Job, Place};

const BAD_WIRE: &[(&str, &str)] =
    &[("SHM", "no"), ("ADDRESS", "127.0.0.1"), ("WIRE", "loss=1%,duplicate=1%,reorder=1%,seed=3")];

/// The table of energies, without the lines of times.
fn thermodynamics(out: &str) -> Vec<Vec<f64>> {
    let lines = out.lines().skip_while(|line| !line.trim_start().starts_with("Step"));
    let rows = lines.skip(1).take_while(|line| !line.starts_with("Loop time"));
    let row = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    rows.map(|line| row(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Sums of forces depend on the order in which neighbours' atoms came, which transports need not repeat.
fn agree(one: &[Vec<f64>], other: &[Vec<f64>], share: f64) {
    assert!(one.len() >= 7, "{one:?}");
    assert_eq!(one.len(), other.len());
    for (left, right) in one.iter().zip(other) {
        assert_eq!(left.len(), right.len());
        for (a, b) in left.iter().zip(right) {
            assert!((a - b).abs() <= share * a.abs().max(b.abs()).max(1e-3), "{left:?} and {right:?}");
        }
    }
}

fn lammps(input: &str) {
    let Some((mpi, lmp)) = installed("lmp") else { return };
    let place = Place::new();
    let arguments = applications::lammps(&place, input);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = |carrier| Job::new(&mpi, 2, carrier, &lmp).arguments(&words).run(&place, skip::LIMIT).well("lmp");
    let reference = thermodynamics(&run(Carrier::Other("tcp")).out);
    for (settings, port) in [(&[][..], "shm"), (BAD_WIRE, "udp")] {
        let ended = run(Carrier::Engine(settings));
        assert!(ended.port(port).packets_received > 1000, "{}", ended.told());
        agree(&thermodynamics(&ended.out), &reference, 1e-6);
    }
}

#[test]
#[ignore = "make check"]
fn lammps_melts_alike() {
    lammps(MELT);
}

#[test]
#[ignore = "make check"]
fn lammps_with_charges_and_bonds_alike() {
    lammps(WATER);
}

#[test]
#[ignore = "make check"]
fn gromacs_moves_water_alike() {
    let Some((mpi, gmx)) = installed("gmx_mpi") else { return };
    let place = Place::new();
    let gromacs = Gromacs::prepare(&place, &mpi, &gmx);
    let run = |carrier, name: &str| {
        let arguments = gromacs.arguments(name);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = Job::new(&mpi, 2, carrier, &gmx).arguments(&words).run(&place, skip::LIMIT).well("gmx_mpi");
        (ended, gromacs.energies(name))
    };
    let (_, reference) = run(Carrier::Other("tcp"), "tcp");
    assert!(reference.iter().any(|line| line.contains("Total Energy")), "{reference:?}");
    for (settings, port) in [(&[][..], "shm"), (BAD_WIRE, "udp")] {
        let (ended, energies) = run(Carrier::Engine(settings), port);
        assert!(ended.port(port).packets_received > 100, "{}", ended.told());
        // -reprod: bit by bit.
        assert_eq!(energies, reference);
    }
}

#[test]
#[ignore = "make check"]
fn netpipe_checks_its_bytes() {
    let Some((mpi, netpipe)) = installed("NPopenmpi") else { return };
    let place = Place::new();
    for settings in [&[][..], BAD_WIRE] {
        // -i: every byte is compared instead of timed.
        let job = Job::new(&mpi, 2, Carrier::Engine(settings), &netpipe);
        let job = job.arguments(&["-i", "-u", "300000", "-p", "3", "-o", "np.out"]);
        let ended = job.run(&place, skip::LIMIT).well("NPopenmpi");
        let told = ended.out + &ended.errors;
        assert!(told.contains("Integrity check passed"), "{told}");
        assert!(!told.contains("Integrity check failed"), "{told}");
    }
}
