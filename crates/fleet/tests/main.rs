mod centre_tools;
mod example;
mod export;
mod history;
mod metrics;
mod rows;
mod spool;
mod sweep;
mod totals;

use fleet::{Store, Summary};

fn store_of(jobs: &[Summary]) -> (tempfile::TempDir, Store) {
    let home = tempfile::tempdir().unwrap();
    let mut store = Store::open(&home.path().join("fleet.db")).unwrap();
    store.add(jobs).unwrap();
    (home, store)
}

/// The summary of a job of this user: an hour on 10 cores.
fn job(number: u64, program: &str) -> Summary {
    let mut job = fleet::example::job(number, program);
    job.owner.user = rustix::process::getuid().as_raw();
    job
}
