//! What a year of jobs takes: how fast summaries are added, how large the store is, how soon sums are there.
//! `cargo bench -p fleet --bench store -- [JOBS]`; a million where none is named.

use std::time::Instant;

use fleet::store::Store;
use fleet::summary::{Gain, Lever, Owner, Program, Size, Summary};
use fleet::totals::{Asked, By, totals};
use fleet::{example, history, page, spool};
use rounds::random::Random;

const SPOOLED: usize = 20_000;
const PROGRAMS: usize = 4_000;

fn summary(number: u64, started: u64, random: &mut Random) -> Summary {
    // A few programs have most of the jobs.
    let program = (PROGRAMS as f64 * random.unit().powi(4)) as usize;
    let gain = 0.1 * (program % 7) as f64 / 7.0;
    let more = 0.01 * random.unit();
    let lever = |lever| Gain { lever, share: (0.5 * gain, gain + more) };
    let name = format!("program-{program}");
    Summary {
        owner: Owner { user: 1000 + (program % 300) as u32, group: format!("group-{}", program % 60) },
        partition: ["small", "large", "long", "gpu"][program % 4].into(),
        program: Program { hash: Some(format!("{program:032x}")), name: name.clone() },
        started,
        seconds: 10.0 + 20_000.0 * random.unit().powi(3),
        nodes: 1 + (program % 16) as u32,
        cores: 128 * (1 + (program % 16) as u32),
        mpi: Some(random.unit()),
        wait: Some(0.1 * random.unit()),
        sizes: (0..12)
            .map(|class| Size { floor: 8 << class, messages: random.draw() >> 40, bytes: random.draw() >> 30 })
            .collect(),
        levers: Lever::ALL.map(lever).to_vec(),
        ..example::job(number, &name)
    }
}

fn main() {
    let jobs = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(1_000_000);
    // They come in the order of time.
    let started = |number: u64| 1_767_225_600 + 31_536_000 * number / jobs;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fleet.db");
    let mut store = Store::open(&path).expect("a store");
    let mut random = Random::new(7);
    let began = Instant::now();
    for from in (0..jobs).step_by(2_000) {
        let batch: Vec<Summary> =
            (from..(from + 2_000).min(jobs)).map(|number| summary(number, started(number), &mut random)).collect();
        store.add(&batch).expect("added");
    }
    let took = began.elapsed().as_secs_f64();
    println!("{jobs} summaries added from memory: {:.0} a second", jobs as f64 / took);
    let spooled = folder.path().join("spool");
    std::fs::create_dir(&spooled).expect("a spool");
    let mut bytes = 0;
    for number in 0..SPOOLED as u64 {
        let mut summary = summary(jobs + number, started(jobs + number), &mut random);
        summary.owner.user = rustix::process::getuid().as_raw();
        let text = serde_json::to_vec(&summary).expect("text");
        bytes += text.len();
        std::fs::write(spooled.join(format!("{number}.job")), text).expect("a file");
    }
    let began = Instant::now();
    let added = spool::add(&spooled, &mut store).expect("added");
    assert_eq!(added.new, SPOOLED as u64);
    println!(
        "{SPOOLED} summaries of {} B added from a spool: {:.0} a second (asked: 2,000)",
        bytes / SPOOLED,
        SPOOLED as f64 / began.elapsed().as_secs_f64()
    );
    drop(store);
    let length = std::fs::metadata(&path).expect("a store").len();
    println!(
        "store: {:.2} GiB, {:.0} B a job; of 10 million {:.2} GiB (asked: 5)",
        length as f64 / (1_u64 << 30) as f64,
        length as f64 / jobs as f64,
        length as f64 / jobs as f64 * 1e7 / (1_u64 << 30) as f64
    );
    let began = Instant::now();
    let store = Store::read(&path).expect("a store");
    let sums = totals(&store, Asked::default(), By::Month).expect("sums");
    println!("totals of {} jobs, {PROGRAMS} programs: {:.2} s (asked: 5)", sums.jobs, began.elapsed().as_secs_f64());
    let began = Instant::now();
    // Of 4,000 programs, the first has most jobs.
    let history = history::history(&store, "program-0").expect("a history").expect("jobs");
    println!("history of {} jobs of one program: {:.2} s", history.sums.jobs, began.elapsed().as_secs_f64());
    println!("page: {:.2} MB (asked: 2)", page::render(&sums, None, "bench").len() as f64 / 1e6);
}
