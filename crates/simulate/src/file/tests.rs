//! Production engines on a file's machines, and what is refused.

use std::path::Path;

use proptest::prelude::*;

use super::*;

const MESSAGE: u64 = 300_000;
const PACKET: u64 = 100_000;
const BYTE: u64 = 30;
const HANDOVER: u64 = 50_000;
const COPIED: u64 = 10;

/// Two hosts of four cores at half of their clock, their engine's core at a quarter; an empty host behind them.
fn ours(place: &str, mapping: &str, program: &str, loss: &str) -> String {
    let engines = if place == "engine" { "engines = [3]" } else { "" };
    let handed = "\"handover.message\" = { value = { modelled = 50.0 }, source = \"test\" }\n\
                  \"handover.byte\" = { value = { modelled = 0.01 }, source = \"test\" }\n\
                  turn = { value = { modelled = 0.0 }, source = \"test\" }\n";
    let work = ["message = 300.0", "packet = 100.0", "byte = 0.03", "latency = 1000.0", "wire = 0.08"];
    let constants = |carrier: &str, work: &[&str]| {
        let line = |row: &&str| {
            let (name, value) = row.split_once(" = ").unwrap();
            format!("\"{carrier}.{name}\" = {{ value = {{ modelled = {value} }}, source = \"test\" }}\n")
        };
        work.iter().map(line).collect::<String>()
    };
    format!(
        "[[machine]]\nname = \"node\"\ncount = 3\nsockets = [[0, 1, 2, 3]]\nfull_clock_ghz = 4.0\nclock_ghz = 2.0\n\
         clock_ghz_of_core = {{ \"3\" = 1.0 }}\n{engines}\nwatts = 100.0\n\
         [link]\nlatency_us = 2.0\ngigabits_a_second = 100.0\n{loss}\n[protocol]\nprofile = \"plimsoll\"\nplace = \"{place}\"\n\
         [protocol.constants]\n{}{}{}\n[mapping]\n{mapping}\n[program]\n{program}\n",
        constants("within", &[&work[..], &["read = 2000.0", "fetched = 0.02"]].concat()),
        constants("between", &work),
        if place == "engine" { handed } else { "" },
    )
}

fn run(text: &str) -> (Cluster, Outcome) {
    Simulation::parse(text, Path::new(".")).and_then(Simulation::run).unwrap_or_else(|fault| panic!("{fault}\n{text}"))
}

#[test]
fn ping_pong_over_engines_takes_its_closed_form_at_its_cores_clocks() {
    let program = "name = \"ping-pong\"\nbytes = 1000\nrounds = 20";
    for (place, engine, handed) in [("rank", 2, 0), ("engine", 4, 2 * (HANDOVER + COPIED * 1000))] {
        let (cluster, outcome) = run(&ours(place, "table = [[-1, 0], [1]]", program, ""));
        let n = 1000 + 16 + 24;
        let half = 2 * handed + 2 * engine * (MESSAGE + PACKET + BYTE * n) + 1_000_000 + 2_000_000 + (80 + 80) * n;
        let finished = &outcome.finished;
        assert_eq!(finished.ranks[0], 40 * half, "{place}");
        // Cores where the rank's work and its engine's is done.
        let busy = |core: usize| finished.cores[0][core];
        let (own, protocol) = (busy(1).messages, busy(3).protocol);
        assert_eq!((own > 0, protocol > 0, busy(0).total()), (true, place == "engine", 0));
        assert_eq!(cluster.hosts.len(), 3);
        assert!(outcome.joules.unwrap().iter().all(|joules| joules.total() > 0.0));
    }
}

proptest! {
    #[test]
    fn bytes_and_time_are_conserved_over_engines_and_a_file_gives_one_run(
        engine in any::<bool>(), swapped in any::<bool>(), bytes in 1u64..100_000, lost in 0u32..3, clocked in 0.0f64..1.0,
    ) {
        let mapping = if swapped { "table = [[4, 1, 2], [3, 0, 5]]" } else { "ranks_a_host = 3" };
        let spare = if swapped { "" } else { "\n" };
        let program = format!(
            "name = \"halo\"\ndimensions = 2\nsteps = 3\nbytes = {bytes}\ncomputing_us = 20.0\nuneven_us = 0.0\nseed = 3\nsum = true\n\
             follows_clock = {clocked}{spare}"
        );
        let loss = if lost > 0 { format!("loss = 0.0{lost}\nseed = 5") } else { String::new() };
        let text = ours(if engine { "engine" } else { "rank" }, mapping, &program, &loss);
        let (cluster, outcome) = run(&text);
        prop_assert_eq!(&outcome, &run(&text).1);
        let (finished, engines) = (&outcome.finished, outcome.engines.as_ref().unwrap());
        prop_assert_eq!(finished.sent, finished.received);
        if lost == 0 {
            prop_assert_eq!(engines.lost, 0);
        }
        for (rank, (split, end)) in finished.splits.iter().zip(&finished.ranks).enumerate() {
            prop_assert_eq!(split.computing + split.sending + split.waiting, *end);
            // Three steps at half of the clock, which a share of the computing follows.
            prop_assert!(split.computing.abs_diff((60_000_000.0 * (1.0 + clocked)) as u64) <= 3, "{}", split.computing);
            let Seat { host, core } = cluster.seats[rank];
            prop_assert_eq!(finished.cores[host][core].computing, split.computing);
        }
        let busy: u64 = finished.cores.iter().flatten().map(crate::cluster::Busy::total).sum();
        prop_assert_eq!(busy, finished.charged);
        prop_assert_eq!(finished.cores.iter().all(|cores| cores[3].protocol == 0), !engine);
    }
}

const PLAIN: &str = "[[machine]]\nname = \"a\"\ncount = 2\nsockets = [[0, 1]]\nfull_clock_ghz = 2.0\nwatts = 50.0\n\
    [link]\nlatency_us = 1.0\ngigabits_a_second = 32.0\n[protocol]\nprofile = \"psm\"\n[mapping]\nranks_a_host = 1\n\
    [program]\nname = \"ping-pong\"\nbytes = 1000\nrounds = 20\n";

#[test]
fn what_no_machine_or_program_can_be_is_refused() {
    run(PLAIN);
    let program = "name = \"ping-pong\"\nbytes = 1000\nrounds = 20";
    let lammps = |us: &str| format!("name = \"lammps\"\nsteps = 1\nbytes = 1\ncomputing_us = {us}");
    let many = |rest: &str| format!("name = {rest}\nbytes = 1\ncomputing_us = 1.0");
    for (from, to, said) in [
        ("count = 2", "count = 1000000000000", "more than 1,048,576 cores"),
        ("ranks_a_host = 1", "ranks_a_host = 1000000000000", "more than 1,048,576 ranks"),
        ("ranks_a_host = 1", "ranks_a_host = 0", "mapping: it has no rank"),
        ("[[0, 1]]", "[[0, 1], [1]]", "it has core 1 twice"),
        ("full_clock_ghz = 2.0", "full_clock_ghz = inf", "without a clock"),
        ("full_clock_ghz = 2.0", "full_clock_ghz = 2.0\nclock_ghz = 1e-300", "without a clock"),
        ("watts = 50.0", "watts = nan", "watts: NaN is not from 0"),
        ("watts = 50.0", "watts = -1.0", "watts: -1 is not from 0"),
        ("\"a\"", "\"\\u001b[2J\"", "it will not do as a name"),
        ("sockets = [[0, 1]]", "description = \"/dev/zero\"", "/dev/zero: it is no regular file"),
        ("rounds = 20", "rounds = 0", "the program: it takes no time"),
        ("rounds = 20", "rounds = 2147483648", "4,294,967,296 phases"),
        (program, "name = \"goal\"\nfile = \"/dev/zero\"", "/dev/zero: it is no regular file"),
        (program, &lammps("nan"), "computing_us: NaN is not from 0"),
        (program, &lammps("-1.0"), "computing_us: -1 is not from 0"),
        (program, &lammps("inf"), "computing_us: inf is not from 0"),
        (program, &many("\"gromacs\"\nsteps = 1\nidle = 0.0\npulses = 4294967295"), "phases"),
        (program, &many("\"gromacs\"\nsteps = 1\nidle = nan\npulses = 1"), "idle: NaN is not from 0 to 1"),
        (
            program,
            &many("\"milc\"\niterations = 0\ngathers = 2147483648\nuneven_us = 0.0\nseed = 1"),
            "4,294,967,332 phases",
        ),
    ] {
        let text = PLAIN.replacen(from, to, 1);
        assert_ne!(text, PLAIN);
        let fault = Simulation::parse(&text, Path::new(".")).and_then(Simulation::run).err().map(|of| of.to_string());
        assert!(fault.as_ref().is_some_and(|fault| fault.contains(said)), "{to}: {fault:?}");
    }
}
