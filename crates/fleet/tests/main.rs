mod history;
mod spool;
mod totals;

use fleet::Store;
use fleet::summary::{End, Gain, Hindrance, Job, Lever, Owner, Program, Size, Summary, VERSION};

fn store_of(jobs: &[Summary]) -> (tempfile::TempDir, Store) {
    let home = tempfile::tempdir().unwrap();
    let mut store = Store::open(&home.path().join("fleet.db")).unwrap();
    store.add(jobs).unwrap();
    (home, store)
}

/// The summary of a job of this user: an hour on 10 cores.
fn job(number: u64, program: &str) -> Summary {
    Summary {
        version: VERSION,
        job: Job { cluster: "centre".into(), id: number, array: None, step: 0, restart: 0 },
        owner: Owner { user: rustix::process::getuid().as_raw(), group: "physics".into() },
        partition: "small".into(),
        program: Program { hash: Some("0".repeat(32)), name: program.into() },
        started: 1_767_225_600,
        seconds: 3600.0,
        nodes: 1,
        cores: 10,
        ranks: 10,
        expected: 10,
        end: End::Finished,
        library: Some("Open MPI".into()),
        carrier: None,
        mpi: Some(0.5),
        wait: Some(0.25),
        sizes: vec![Size { floor: 8, messages: 3, bytes: 30 }],
        hindrances: vec![Hindrance { cause: "late".into(), share: 0.1 }],
        levers: vec![Gain { lever: Lever::Offload, share: (0.1, 0.2) }],
        unjudged: None,
        model: "test".into(),
        clocks_apart: None,
    }
}
