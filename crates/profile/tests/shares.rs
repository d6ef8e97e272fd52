//! Samples of anything: whatever they say, no page shows a share below 0 or above 100 %, and the parts of a rank's time are no more than
//! its time.

use std::fs;
use std::path::Path;

use crate::synthetic::{RATE, Rank, SECOND, head, job, write};
use machine::Reading;
use machine::budget::Budget;
use profile::live::screen::{Sort, Window, lines};
use profile::live::{Here, Watch};
use profile::page;
use profile::profile::Profile;
use profile::summary::{Stall, Summary};
use profile::terminal::{Screen, render};
use proptest::prelude::*;
use record::folder;
use record::functions::named;
use record::layout::{Thread, kind};
use record::samples::{
    CoreDeferred, CoreLoad, CoreWork, RankLoad, ThreadBlocked, ThreadDelay, ThreadLoad, ThreadRan, ThreadStop,
    ThreadWork, Writer,
};
use serde_json::Value;

/// Whether it is load, ms since the one before, a core, a rank and its thread's index, who has that place, and totals.
type Moment = (bool, u64, u32, (u32, u16), u32, [u64; 4]);

/// Totals that fall and that are far larger than the time; threads' places that are handed on.
fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let total = prop_oneof![0u64..100, 0..2 * SECOND, any::<u64>()];
    let totals = [total.clone(), total.clone(), total.clone(), total];
    prop::collection::vec((any::<bool>(), 1u64..200, 0u32..2, (0u32..2, 0u16..3), 1u32..5, totals), 0..40)
}

fn samples(moments: &[Moment]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::begin(&mut file, &head()).unwrap();
    let mut time = 5 * SECOND;
    for &(is_load, step, core, (rank, index), tid, [a, b, c, d]) in moments {
        time += step * SECOND / 1000;
        let pid = 1000 + rank;
        if is_load {
            writer.core_load(core, &CoreLoad { idle: a, stolen: b }).unwrap();
            writer.core_deferred(core, &CoreDeferred { cpu: c }).unwrap();
            writer.thread_load(pid, index, tid, &ThreadLoad { voluntary: c, involuntary: d }).unwrap();
            writer.thread_delay(pid, index, tid, &ThreadDelay { delayed: b }).unwrap();
            writer.thread_ran(pid, index, tid, &ThreadRan { ran: c }).unwrap();
            writer.rank_load(pid, &RankLoad { cpu: d }).unwrap();
            writer.end_load(time).unwrap();
        } else {
            let of_core =
                CoreWork { net_rx: d, net_rx_time: a, net_tx: c, net_tx_time: b, softirq_time: c, interrupts: d };
            writer.core_work(core, &of_core).unwrap();
            let (inside, since) = (a % 9, b);
            let work = ThreadWork {
                core: 1 + u64::from(core),
                inside,
                since,
                calls: c,
                messages: d,
                bytes: a,
                ticks: [b, c, d, a, b, c, d, a, b, c, d, a],
            };
            writer.thread_work(pid, index, tid, &work).unwrap();
            writer.thread_stop(pid, index, tid, &ThreadStop { stopped: d }).unwrap();
            let blocked = ThreadBlocked { outside: a, inside: b, sleep: c, lock: d, storage: a };
            writer.thread_blocked(pid, index, tid, &blocked).unwrap();
            writer.end_work(time).unwrap();
            // So that a part of the moments makes the beginning of the file.
            writer.end_load(time).unwrap();
        }
    }
    file
}

/// Two ranks for two seconds; the second has two threads, which wait at the same time.
fn ranks() -> [Rank; 2] {
    [0, 1].map(|number| {
        let mut rank = Rank::new(number, 2, 2 * SECOND);
        let steps = || (0..100).map(|step| (if step % 3 == 0 { 12_000_000 } else { 50_000 }, 8));
        rank.calls("Allreduce", 2, steps())
            .calls("Send", 0, (0..50).map(|_| (9_000, 64)))
            .peers(&[(25, 1600), (25, 1600)]);
        if number == 1 {
            let (ticks, wait) = (SECOND / 50 * RATE, named("Wait").unwrap());
            rank.image.header.threads = 2;
            rank.image.row(1, wait.id, 0, (0..80).map(|_| (ticks, 0)));
            let mut thread = Thread { tid: 2, calls: 80, ..Thread::default() };
            thread.ticks[wait.class as usize] = 80 * ticks;
            rank.image.region(kind::THREAD, 1, (0, 0), &[thread]);
        }
        rank
    })
}

/// Every number before a percent sign, and those that are none.
fn percentages(text: &str) -> Vec<f64> {
    let before = text.match_indices(" %").map(|(at, _)| &text[..at]);
    let word = |text: &str| {
        let word = text.rsplit(|of: char| !of.is_ascii_alphanumeric() && of != '.' && of != ',').next().unwrap_or("");
        match word {
            "NaN" | "inf" => Some(f64::NAN),
            word => word.replace(',', "").parse::<f64>().ok(),
        }
    };
    before.filter_map(word).collect()
}

/// What a browser shows of it.
fn shown(html: &str) -> String {
    let mut shown = html.to_owned();
    for (open, close) in [("<script", "</script>"), ("<style", "</style>")] {
        while let Some(from) = shown.find(open) {
            let to = shown[from..].find(close).map_or(shown.len(), |length| from + length + close.len());
            shown.replace_range(from..to, "");
        }
    }
    shown
}

/// Fields of the JSON that are shares, alone or in lists.
const SHARES: [&str; 9] =
    ["mpi_share", "calls_share", "time_share", "balance", "busy", "wait_share", "taken", "sibling", "coverage"];
/// Those that are shares in lists alone.
const COLUMNS: [&str; 2] = ["mpi", "softirq"];

fn outside_of_a_share(value: &Value, is_share: bool) -> Option<String> {
    match value {
        Value::Number(number) if is_share => {
            let number = number.as_f64()?;
            (!(0.0..=1.0 + 1e-6).contains(&number)).then(|| number.to_string())
        }
        Value::Array(all) => all.iter().find_map(|value| outside_of_a_share(value, is_share)),
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let is_share = match name.as_str() {
                "measured" | "modelled" => is_share,
                name if SHARES.contains(&name) => true,
                name => COLUMNS.contains(&name) && value.is_array(),
            };
            Some(format!("{name}: {}", outside_of_a_share(value, is_share)?))
        }),
        _ => None,
    }
}

fn open(folder: &Path, samples: &[u8]) -> Summary {
    write(folder, &job(), &mut ranks());
    let file = folder::samples_file(folder, "node-a");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, samples).unwrap();
    Summary::of(&Profile::open(folder).unwrap())
}

fn part(reading: &Reading<f64>) -> f64 {
    reading.value().copied().unwrap_or(0.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_page_shows_a_share_that_is_none(moments in moments()) {
        let folder = tempfile::tempdir().unwrap();
        let summary = open(folder.path(), &samples(&moments));
        let terminal = render(&summary, Screen { width: 200, colour: false, sites: 9 });
        for (page, text) in [("terminal", terminal), ("HTML", shown(&page::render(&summary)))] {
            let beyond = percentages(&text).into_iter().find(|share| share.is_nan() || *share > 100.0);
            prop_assert!(beyond.is_none(), "{page}: {beyond:?} in\n{text}");
        }
        let json = serde_json::to_value(&summary).unwrap();
        let beyond = outside_of_a_share(&json, false);
        prop_assert!(beyond.is_none(), "{beyond:?}");
        let verdict = summary.verdict.as_ref().unwrap();
        prop_assert!(verdict.hindrances.iter().all(|of| (0.0..=1.0).contains(&of.share)), "{:?}", verdict.hindrances);
        for rank in &summary.ranks {
            let split = &rank.split;
            let inside = [&split.transfer, &split.wait, &split.off_core].map(part);
            let outside = [&rank.outside.runnable, &rank.outside.stopped, &rank.outside.blocked].map(part);
            prop_assert!(inside.iter().chain(&outside).all(|part| *part >= 0.0), "{rank:?}");
            let (inside, outside) = (inside.iter().sum::<f64>() + split.undivided, outside.iter().sum::<f64>());
            prop_assert!((inside - rank.mpi).abs() < 1e-6, "{inside} of {}", rank.mpi);
            prop_assert!(outside + rank.computing() <= rank.compute + 1e-6, "{outside} of {}", rank.compute);
            prop_assert!(part(&rank.stopped) + part(&rank.run_delay) <= rank.thread_seconds + 1e-6, "{rank:?}");
        }
    }

    #[test]
    fn nor_does_a_look_at_a_running_job(moments in moments()) {
        let folder = tempfile::tempdir().unwrap();
        open(folder.path(), &samples(&moments[..moments.len() / 2]));
        let now = std::cell::Cell::new(6 * SECOND);
        let monotonic = || now.get();
        let here = Here { boot: "a-boot".into(), monotonic: &monotonic, pid_namespace: 0, is_alive: &|_| true };
        let mut watch = Watch::open(folder.path(), None, Budget::new(1 << 30)).unwrap();
        watch.look(&here);
        fs::write(folder::samples_file(folder.path(), "node-a"), samples(&moments)).unwrap();
        now.set(7 * SECOND);
        let look = watch.look(&here);
        let text = lines(&look, Window { columns: 400, rows: None, sort: Sort::Rank, scroll: 0, colour: false }).join("\n");
        let beyond = percentages(&text).into_iter().find(|share| share.is_nan() || *share > 100.0);
        prop_assert!(beyond.is_none(), "{beyond:?} in\n{text}");
        let shares = look.ranks.iter().flat_map(|rank| [rank.mpi, rank.wait, rank.blocked]).flatten();
        prop_assert!(shares.into_iter().all(|share| (0.0..=1.0).contains(&share)), "{:?}", look.ranks);
    }
}

/// Rank 0 sleeps for three quarters of its two seconds.
#[test]
fn a_rank_that_sleeps_is_blocked_on_every_page() {
    let mut file = Vec::new();
    let mut writer = Writer::begin(&mut file, &head()).unwrap();
    for moment in 0..=110u64 {
        let since = moment * SECOND / 50;
        writer.thread_work(1000, 0, 1, &ThreadWork { core: 1, ..ThreadWork::default() }).unwrap();
        let slept = since / 4 * 3;
        let blocked = ThreadBlocked { outside: slept, sleep: slept, ..ThreadBlocked::default() };
        writer.thread_blocked(1000, 0, 1, &blocked).unwrap();
        writer.end_work(5 * SECOND + since).unwrap();
        writer.thread_ran(1000, 0, 1, &ThreadRan { ran: since / 4 }).unwrap();
        writer.thread_delay(1000, 0, 1, &ThreadDelay::default()).unwrap();
        writer.end_load(5 * SECOND + since).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let summary = open(folder.path(), &file);
    let rank = &summary.ranks[0];
    let (seconds, stall) = rank.outside.stall().unwrap();
    assert!((seconds - 1.5).abs() < 0.01 && stall == Stall::Sleep, "{:?}", rank.outside);
    assert!((rank.computing() - (rank.compute - 1.5)).abs() < 0.01 && rank.computing() < 0.1, "{rank:?}");
    assert!((part(&rank.outside.on_core) - rank.computing()).abs() < 1e-9, "{:?}", rank.outside);
    assert!(matches!(&summary.ranks[1].outside.on_core, Reading::Absent { .. }), "{:?}", summary.ranks[1].outside);
    let terminal = render(&summary, Screen { width: 400, colour: false, sites: 9 });
    assert!(terminal.contains("blocked") && terminal.contains("75.0 %"), "{terminal}");
    assert!(terminal.contains("as rank 0, which was asleep outside MPI"), "{terminal}");
    let html = page::render(&summary);
    assert!(html.contains("Blocked") && html.contains("asleep outside MPI"), "{html}");
}

#[test]
fn percentages_are_found() {
    assert_eq!(percentages("7 %, 12.5 % of it, 1,900 %; a % b"), [7.0, 12.5, 1900.0]);
    assert!(percentages("NaN %")[0].is_nan());
    assert_eq!(shown("a<style>width: 900 %</style>b<script>x % y</script>"), "ab");
}

/// Both threads of a rank wait for 1.6 s of 2 at the same time.
#[test]
fn a_rank_whose_threads_wait_together_waits_for_no_more_than_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let summary = open(folder.path(), &samples(&[]));
    let evidence = profile::verdict::Evidence::of(&summary);
    for rank in &evidence.ranks {
        assert!(rank.mpi <= rank.runtime && rank.wait.most <= rank.mpi + 1e-9, "{rank:?}");
        assert!(rank.compute + rank.mpi <= rank.runtime + 1e-9, "{rank:?}");
    }
    assert!(summary.ranks[1].thread_seconds > 1.9 * summary.ranks[1].seconds);
}
