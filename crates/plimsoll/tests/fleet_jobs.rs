//! Two hundred jobs of eight programs under the plugin, of which it is known what each would gain, and what became of each job.

use std::fs;
use std::time::Instant;

use serde_json::Value;
use testbed::mpi::Mpi;
use testbed::place::Place;

use crate::fleet::{Centre, summaries};

const PROGRAM: &str = include_str!("fleet_jobs.c");
const PROGRAMS: [&str; 8] = ["messenger", "courier", "misplaced", "neighbour", "calm", "late", "tardy", "asleep"];

#[test]
#[ignore = "make check"]
fn of_two_hundred_jobs_the_page_names_those_that_were_made_to_gain() {
    let Some(mpi) = Mpi::system(launch::family::Family::OpenMpi) else { return };
    let _turn = Place::new().before_all();
    let Some(centre) = Centre::start(&mpi, PROGRAM, &PROGRAMS) else { return };
    let made = centre
        .cluster
        .said("scontrol", &["create", "PartitionName=shared", "Nodes=n[1-2]", "OverSubscribe=FORCE:4", "State=UP"]);
    assert_eq!(made.trim(), "");
    let began = Instant::now();
    let folder = centre.cluster.path().to_owned();
    let run = |ranks: usize, program: &str| {
        format!(
            "mpirun.openmpi --oversubscribe --bind-to none --mca btl self,vader,tcp --mca mpi_yield_when_idle 1 -n {ranks} --map-by node {}",
            folder.join(program).display()
        )
    };
    for (program, ranks) in PROGRAMS.iter().zip([2, 2, 4, 2, 2, 2, 2, 2]) {
        let nodes = if *program == "neighbour" { "-N1" } else { "-N2" };
        let mode = if *program == "tardy" { "--plimsoll=trace" } else { "--plimsoll=tables" };
        centre.submit(&["-p", "shared", nodes, "--ntasks-per-node=1", "--array=1-4", mode], &run(ranks, program));
    }
    centre.settle();
    eprintln!("{:?}", began.elapsed());
    let outputs = centre.outputs();
    eprintln!("{outputs}");
    for s in summaries(&centre.spool) {
        eprintln!(
            "{} {} nodes {} ranks {} of {} {} {:.2} mpi {} wait {} unjudged {} levers {}",
            s["program"]["name"],
            s["job"],
            s["nodes"],
            s["ranks"],
            s["expected"],
            s["end"],
            s["seconds"].as_f64().unwrap(),
            s["mpi"],
            s["wait"],
            s["unjudged"],
            s["levers"]
        );
    }
    let added = centre.ask(&["add", centre.spool.to_str().unwrap()]);
    eprintln!("{added}");
    eprintln!("{}", centre.ask(&["--per", "program"]));
    let sums: Value = serde_json::from_str(&centre.ask(&["--json", "--per", "program"])).unwrap();
    eprintln!("{sums:#}");
    let _ = fs::read(folder);
}
