//! Speeds of a study file's store: `cargo bench -p experiment --bench campaign`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use experiment::campaign::definition::{Campaign, Shard};
use experiment::campaign::file;
use experiment::campaign::merge::merge;
use experiment::campaign::store::{NewRun, Outcome, Session, Store};
use machine::{Nanoseconds, Result};

/// Shards, points, and runs whose commits are timed one by one.
const SHARDS: u32 = 100;
const POINTS: usize = 10_000;
const COMMITS: usize = 20_000;

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str| folder.path().join(name);
    let campaign = campaign(&path("study.toml"), POINTS)?;

    let mut store = Store::open(&path("one"), &campaign.identity)?;
    begin(&mut store, &campaign, 0)?;
    let began = Instant::now();
    for nth in 0..COMMITS {
        store.keep(&[kept(nth % POINTS, (nth / POINTS) as u32)], Nanoseconds(1))?;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("append, a commit each          {:>9.0} runs/s", COMMITS as f64 / seconds);

    let mut store = Store::open(&path("many"), &campaign.identity)?;
    begin(&mut store, &campaign, 1)?;
    let all: Vec<NewRun> = (0..200_000).map(|nth| kept(nth % POINTS, (nth / POINTS) as u32)).collect();
    let began = Instant::now();
    for several in all.chunks(512) {
        store.keep(several, Nanoseconds(1))?;
    }
    println!("append, 512 runs a commit      {:>9.0} runs/s", all.len() as f64 / began.elapsed().as_secs_f64());

    let mut inputs = Vec::new();
    for shard in 0..SHARDS {
        let input = path(&format!("shard-{shard}"));
        let mut store = Store::open(&input, &campaign.identity)?;
        begin(&mut store, &campaign, 10 + shard)?;
        let runs: Vec<NewRun> = (0..POINTS).map(|point| kept(point, shard)).collect();
        store.keep(&runs, Nanoseconds(1))?;
        inputs.push(input);
    }
    let began = Instant::now();
    let merged = merge(&path("merged"), &inputs, |_, _| {})?;
    let seconds = began.elapsed().as_secs_f64();
    println!("merge of {SHARDS} shards of {POINTS} runs {seconds:>6.1} s, {:.0} runs/s", 1e6 / seconds);
    let began = Instant::now();
    let runs = merged.results()?.runs.len();
    println!("results of {runs} runs         {:>6.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    drop(merged);
    merge(&path("merged"), &inputs[..1], |_, _| {})?;
    println!("one shard merged again           {:>6.2} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// A study of so many points.
fn campaign(path: &Path, points: usize) -> Result<Campaign> {
    let values: Vec<String> = (0..points).map(|value| value.to_string()).collect();
    let text = format!(
        "[axes]\nvalue = [{}]\n[[program]]\nname = \"p\"\ncommand = \"p {{value}}\"\n[[figure]]\nname = \"time\"\n",
        values.join(", ")
    );
    std::fs::write(path, text).expect("the folder is new");
    file::read(path, &[])
}

fn begin(store: &mut Store, campaign: &Campaign, process: u32) -> Result<()> {
    store.add_points(&campaign.points, &campaign.of_shard(Shard::WHOLE))?;
    store.begin(&Session {
        host: format!("node{}", process % 8),
        boot: String::new(),
        version: String::new(),
        shard: "1/1".into(),
        nodes: String::new(),
        programs: BTreeMap::new(),
        started: Nanoseconds(process.into()),
        process,
    })
}

fn kept(point: usize, round: u32) -> NewRun {
    let outcome = Outcome { values: vec![Some(point as f64 + 0.5), Some(70.0), Some(3.5)], ..Outcome::default() };
    NewRun { point, round, place: point as u32, started: Nanoseconds(point as u64), outcome: Ok(outcome) }
}
