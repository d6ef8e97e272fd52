use std::path::Path;

use machine::Result;
use machine::seat::Seats;

use super::*;
use crate::allocation;

fn line(launcher: &str, words: &str, seats: &str) -> Result<SeatedCommand> {
    // A launcher of this name that prints the version of its family; the programs are real.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(launcher.split(' ').next().unwrap());
    skip::program(&path, SCRIPT);
    let first = path.display().to_string();
    let rest = launcher.split(' ').skip(1).chain(words.split_whitespace()).map(str::to_owned);
    let recorded: Vec<String> = std::iter::once(first.clone()).chain(rest).collect();
    let mut line = SeatedCommand::new(&recorded, &seats.parse().unwrap(), Path::new("/f"))?;
    line.words[0] = launcher.split(' ').next().unwrap().to_owned();
    Ok(line)
}

const SCRIPT: &str = "#!/bin/sh
case $0 in
*mpirun) echo 'mpirun (Open MPI) 4.1.4' ;;
*prterun) echo 'prterun (Open MPI) 5.0.11' ;;
*mpiexec.hydra) printf 'HYDRA build details:\\n    Version:   4.0.2\\n' ;;
*) echo 'Intel(R) MPI Library for Linux* OS, Version 2021.12 Build 20240213 (id: 4f55822)' ;;
esac
";

/// A seat on this host and its first core, and Open MPI 5's number of that core.
fn seat() -> (String, u32) {
    let core = linux::affinity::reachable().unwrap().first().unwrap();
    (format!("localhost {}", core.0), core.0)
}

#[test]
fn options_stay_unless_a_seat_makes_them_void() {
    let (seat, core) = seat();
    let one = format!("0 {seat}");
    let said = |launcher, words, seats: &str| line(launcher, words, seats).unwrap();
    let open_mpi = said("mpirun", "--bind-to core -n 1 -x A --mca btl self --mca rmaps_base_verbose 1 sh -n", &one);
    if allocation::around().is_none() {
        let expected = "mpirun --oversubscribe --use-hwthread-cpus --mca rmaps_rank_file_physical 1 --rankfile \
                        /f/rankfile -n 1 -x A --mca btl self sh -n";
        assert_eq!(open_mpi.to_string(), expected);
    }
    assert_eq!(open_mpi.replaced, ["--bind-to core", "--mca rmaps_base_verbose 1"]);
    let two = format!("0 {seat}\n1 {seat}");
    let hydra = said("mpiexec.hydra", "-ppn 1 -hosts a,b -n 1 -genv A b sh : -n 1 cat", &two);
    let expected = format!("mpiexec.hydra -bind-to user:{core},{core} -hosts localhost:2 -n 1 -genv A b sh : -n 1 cat");
    assert_eq!(hydra.to_string(), expected);
    assert_eq!(hydra.replaced, ["-ppn 1", "-hosts a,b"]);
    let each = said("prterun", "--host a -n 1 sh : -n 1 --host b cat", &two);
    assert!(each.to_string().ends_with("--host localhost:2 -n 1 sh : --host localhost:2 -n 1 cat"), "{each}");
    let slurm = said("srun", "-N2 -n2 --ntasks-per-node=1 --mpi=pmi2 -c 4 sh", &two);
    assert!(slurm.to_string().starts_with("SLURM_HOSTFILE=/f/hosts srun --cpu-bind=map_cpu:"), "{slurm}");
    assert!(
        slurm.to_string().ends_with("--overcommit --distribution=arbitrary --nodes=1 -n2 --mpi=pmi2 sh"),
        "{slurm}"
    );
    assert_eq!(slurm.replaced, ["-N2", "--ntasks-per-node=1", "-c 4"]);
    let counted = said("srun", "--label sh", &two);
    assert!(counted.to_string().ends_with("-n 2 --label sh"), "{counted}");
}

#[test]
fn a_trial_keeps_what_places_ranks_and_leaves_out_what_hides_them() {
    let (seat, _) = seat();
    let slurm = line("srun", "-n 1 -o log --mpi=none sh -c true", &format!("0 {seat}")).unwrap();
    let trial = slurm.with(&["plimsoll".to_owned(), "seat".to_owned()]);
    let words: Vec<_> = trial.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    assert!(words.join(" ").ends_with("-n 1 --mpi=none plimsoll seat"), "{words:?}");
    assert!(slurm.words.join(" ").ends_with("-n 1 -o log --mpi=none sh -c true"));
}

#[test]
fn a_command_that_cannot_be_is_refused_before_it_is_started() {
    let (seat, _) = seat();
    let one = format!("0 {seat}");
    for (launcher, words, seats, expected) in [
        ("mpirun", "-n 2 sh", one.as_str(), "1 seat: the command starts 2 ranks"),
        ("mpirun", "-n 1 sh : cat", &one, "does not say how many ranks"),
        ("mpirun", "-n 1 no-such-program-at-all", &one, "no program was found"),
        ("sh", "-c true", &one, "no launcher that is known"),
        ("mpirun", "-n 1 sh", "0 localhost 60000", "rank 0: core 60000 is not among the cores"),
        ("mpirun", "-n 0 sh", "", "seats: there are none"),
        ("mpiexec", "-n 1 sh", &one, "set I_MPI_PIN_DOMAIN"),
    ] {
        let fault = line(launcher, words, seats).unwrap_err().to_string();
        assert!(fault.contains(expected), "{launcher} {words}: {fault}");
    }
    let words = ["srun", "sh"].map(str::to_owned);
    // Hosts as a profile may have them.
    for (host, expected) in [
        ("a", "its seat on a has no core"),
        ("-oProxyCommand=x", "'-oProxyCommand=x', which is no name of a host"),
        ("a\n1 b 0", "which is no name of a host"),
        ("a:9,b", "which is no name of a host"),
    ] {
        let seats = Seats(vec![machine::seat::Seat { host: host.to_owned(), cores: machine::CpuSet::default() }]);
        let fault = SeatedCommand::new(&words, &seats, Path::new("/f")).unwrap_err().to_string();
        assert!(fault.contains(expected), "{fault}");
    }
}
