//! Two ranks on two cores for one second, sampled every 10 ms: core 0 spends a tenth of its time in receive softirqs.

use machine::Reading;
use record::folder;
use record::functions::FunctionId;
use record::image::Image;
use record::layout::{Moment, Phase, Thread, clock, kind, text};
use record::samples::{
    Accounting, CoreClock, CoreDeferred, CoreLoad, CoreWork, Energy, Head, Origins, RankLoad, Samples, ThreadDelay,
    ThreadLoad, ThreadStop, ThreadWork, Writer,
};

use crate::job::Job;
use crate::profile::Profile;
use crate::summary::{Split, Summary};

const REALTIME: u64 = 1_700_000_000_000_000_000;
const MS: u64 = 1_000_000;
/// CLOCK_MONOTONIC when the ranks' MPI_Init returned, half a second after the job began.
const BEGUN: u64 = 5_000 * MS;
const ENDED: u64 = BEGUN + 1_000 * MS;

fn measured(how: &str) -> Reading<String> {
    Reading::Measured(how.to_owned())
}

fn head(softirq_times: Reading<String>) -> Head {
    Head {
        host: "h".into(),
        boot: "b".into(),
        pid: 1,
        monotonic: BEGUN - 200 * MS,
        realtime: REALTIME - 200 * MS,
        interval: 10 * MS,
        for_ranks: Some(2),
        cores: vec![(0, 0), (1, 0)],
        origins: Origins {
            softirq_counts: measured("traced"),
            softirq_times,
            softirq_all: Reading::Modelled("ticks".into()),
            interrupts: measured("listed"),
            load: measured("stat"),
            energy: Reading::absent("no sensor"),
            ranks: measured("tables"),
        },
    }
}

/// Rank 0 stays on core 0, runs for half the time and is in no call; rank 1 is on core 1 until the middle, then on core 0,
/// and from 700 ms on in a call that does not end, stopped from 800 ms to 900 ms. Core 0 loses a tenth to the hypervisor.
fn samples(head: &Head) -> Vec<u8> {
    samples_of(head, None, 1)
}

/// Rank 1 uses a quarter of a core for each of `workers`.
fn samples_of(head: &Head, accounting: Option<&Accounting>, workers: u64) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::begin(&mut file, head).unwrap();
    if let Some(accounting) = accounting {
        writer.accounting(accounting).unwrap();
    }
    for moment in 0..=120u64 {
        let now = head.monotonic + 10 * MS * moment;
        let since = now - head.monotonic;
        let work = CoreWork {
            net_rx: since / MS,
            net_rx_time: since / 10,
            net_tx: 2 * since / MS,
            interrupts: 3 * since / MS,
            softirq_time: since / 10,
            ..CoreWork::default()
        };
        writer.core_work(0, &work).unwrap();
        writer.core_work(1, &CoreWork::default()).unwrap();
        if now >= BEGUN {
            let ran = now - BEGUN;
            let on_zero = ThreadWork { core: 1, calls: 7, ticks: [ran / 24; 12], ..ThreadWork::default() };
            writer.thread_work(10, 0, 10, &on_zero).unwrap();
            let (core, waits) = (if ran < 500 * MS { 2 } else { 1 }, ran >= 700 * MS);
            let inside = if waits { 4 } else { 0 };
            let since = if waits { BEGUN + 700 * MS } else { 0 };
            writer.thread_work(11, 0, 11, &ThreadWork { core, inside, since, ..ThreadWork::default() }).unwrap();
            let stopped = ran.clamp(800 * MS, 900 * MS) - 800 * MS;
            writer.thread_stop(10, 0, 10, &ThreadStop::default()).unwrap();
            writer.thread_stop(11, 0, 11, &ThreadStop { stopped }).unwrap();
        }
        writer.end_work(now).unwrap();
        writer.core_load(0, &CoreLoad { idle: 0, stolen: since / 10 }).unwrap();
        writer.core_load(1, &CoreLoad { idle: since / 2, stolen: 0 }).unwrap();
        if accounting.is_some() {
            writer.core_deferred(0, &CoreDeferred { cpu: since / 20 }).unwrap();
            writer.core_clock(0, &CoreClock { hertz: 2_000_000_000 + moment % 2 * 1_000_000_000 }).unwrap();
            writer.core_clock(1, &CoreClock { hertz: 1_250_000_000 }).unwrap();
        }
        if now >= BEGUN {
            let involuntary = (now - BEGUN) / (10 * MS);
            writer.thread_load(10, 0, 10, &ThreadLoad { voluntary: 0, involuntary }).unwrap();
            writer.thread_load(11, 0, 11, &ThreadLoad { voluntary: 9, involuntary: 5 }).unwrap();
            writer.rank_load(10, &RankLoad { cpu: (now - BEGUN) / 2 }).unwrap();
            writer.rank_load(11, &RankLoad { cpu: (now - BEGUN) * workers / 4 }).unwrap();
            writer.thread_delay(10, 0, 10, &ThreadDelay { delayed: (now - BEGUN) / 2 }).unwrap();
        }
        if let Reading::Measured(_) = head.origins.energy {
            writer.energy(0, "package-0", &Energy { microjoules: 5 }).unwrap();
        }
        writer.end_load(now).unwrap();
    }
    writer.finish(head.monotonic + 1_210 * MS).unwrap();
    file
}

fn rank(rank: u32, pid: u32) -> Image {
    let mut image = Image::default();
    let header = &mut image.header;
    (header.pid, header.rank, header.size, header.placed) = (pid, rank, 2, 1);
    (header.clock, header.boot, header.host) = (clock::COUNTER, text("b"), text("h"));
    header.started = Moment { ticks: BEGUN - 100 * MS, monotonic: BEGUN - 100 * MS, realtime: REALTIME - 100 * MS };
    header.latest = Moment { ticks: ENDED, monotonic: ENDED, realtime: REALTIME + 1_000 * MS };
    (header.initialized, header.finalized, header.ended) = (BEGUN, ENDED, ENDED + MS);
    image.region(kind::THREAD, 0, (0, 0), &[Thread { tid: pid, ..Thread::default() }]);
    if rank == 1 {
        // The call that is sampled from 700 ms on.
        image.row(0, FunctionId(3), 0, [(300 * MS, 8)]);
    }
    let phase = |after: u64, level| Phase { ticks: BEGUN + after * MS, level, ..Phase::default() };
    image.of_rank(kind::PHASES, &[phase(0, 2), phase(500, 3)]);
    image
}

fn profile(samples: &[u8]) -> (tempfile::TempDir, Profile) {
    profile_of(samples, &[rank(0, 10), rank(1, 11)])
}

fn profile_of(samples: &[u8], ranks: &[Image]) -> (tempfile::TempDir, Profile) {
    let place = tempfile::tempdir().unwrap();
    for part in [folder::RANKS, folder::HOSTS] {
        std::fs::create_dir(place.path().join(part)).unwrap();
    }
    for rank in ranks {
        rank.write(&folder::rank_file(place.path(), "h", rank.header.pid)).unwrap();
    }
    std::fs::write(folder::samples_file(place.path(), "h"), samples).unwrap();
    let job = Job { started: REALTIME - 500 * MS, ended: Some(REALTIME + 1_100 * MS), ..Job::default() };
    job.write(place.path()).unwrap();
    let profile = Profile::open(place.path()).unwrap();
    (place, profile)
}

fn near(reading: &Reading<f64>, wanted: f64) -> bool {
    reading.value().is_some_and(|value| (value - wanted).abs() < 0.011 * wanted.abs().max(0.1))
}

#[test]
fn work_of_a_core_is_met_by_the_ranks_that_were_there() {
    let (_place, profile) = profile(&samples(&head(measured("traced"))));
    let summary = Summary::of(&profile);
    let [zero, one] = &summary.ranks[..] else { panic!("there are two ranks") };
    assert_eq!((zero.cores.value().unwrap().clone(), one.cores.value().unwrap().len()), (vec![0], 2));
    assert!(near(&zero.softirq, 0.1), "{:?}", zero.softirq);
    assert!(near(&one.softirq, 0.05), "{:?}", one.softirq);
    assert_eq!((&zero.involuntary, &one.involuntary), (&Reading::Measured(100), &Reading::Measured(0)));

    let [first, second] = &summary.cores[..] else { panic!("there are two cores") };
    assert_eq!((first.host.as_str(), first.core, &first.ranks[..]), ("h", 0, &[0, 1][..]));
    assert_eq!(&second.ranks[..], [1]);
    assert!(near(&first.softirq_rx, 1000.0) && near(&first.softirq_rx_seconds, 0.1), "{first:?}");
    assert!(near(&first.softirq_tx, 2000.0) && near(&first.interrupts, 3000.0) && near(&first.busy, 1.0), "{first:?}");
    assert!(near(&second.busy, 0.5) && near(&second.softirq_rx, 0.0), "{second:?}");
    assert_eq!(first.energy, Reading::absent("no sensor"));
    assert_eq!(summary.job.hosts[0].cores, Reading::Measured(2));
    assert!(summary.job.notes.is_empty(), "{:?}", summary.job.notes);
}

/// Rank 0 was not sampled, rank 1 on two cores.
#[test]
fn a_rank_that_is_bound_to_one_core_is_there_whatever_was_sampled() {
    let mut ranks = [rank(0, 12), rank(1, 11)];
    (ranks[0].header.bound, ranks[1].header.bound) = (1, 2);
    let (_place, profile) = profile_of(&samples(&head(measured("traced"))), &ranks);
    let summary = Summary::of(&profile);
    let [zero, one] = &summary.ranks[..] else { panic!("there are two ranks") };
    assert_eq!((&zero.cores, &one.cores), (&Reading::Measured(vec![0]), &Reading::Measured(vec![1])));
    assert!(near(&zero.softirq, 0.1) && near(&one.softirq, 0.0), "{:?} {:?}", zero.softirq, one.softirq);
    assert!(zero.involuntary.value().is_none(), "{:?}", zero.involuntary);
}

#[test]
fn a_counter_that_stands_is_no_energy() {
    let mut head = head(measured("traced"));
    head.origins.energy = measured("RAPL");
    let (_place, profile) = profile(&samples(&head));
    let summary = Summary::of(&profile);
    assert_eq!(summary.cores[0].energy, Reading::absent("the package's counter did not move in this time"));
}

#[test]
fn phases_and_columns_add_up_to_the_run() {
    let (_place, profile) = profile(&samples(&head(measured("traced"))));
    let summary = Summary::of(&profile);
    let [early, late] = &summary.phases[..] else { panic!("there are two phases") };
    assert!((early.from - 0.5).abs() < 1e-6 && (late.to - 1.5).abs() < 1e-6, "{early:?}");
    for phase in [early, late] {
        assert!(near(&phase.cores[0].softirq_seconds, 0.05) && near(&phase.cores[0].softirqs, 1500.0), "{phase:?}");
        assert!(near(&phase.ranks[0].softirq, 0.05) && near(&phase.ranks[0].mpi, 0.25), "{phase:?}");
    }
    assert!(near(&early.ranks[1].softirq, 0.0) && near(&late.ranks[1].softirq, 0.05));
    assert!(near(&late.ranks[1].mpi, 0.3), "a call counts while it lasts: {:?}", late.ranks[1]);

    let series = summary.series.unwrap();
    assert_eq!(series.columns, 100);
    let mean = |column: &[Option<f32>]| {
        column.iter().map(|value| f64::from(value.unwrap())).sum::<f64>() / series.columns as f64
    };
    assert!((mean(&series.cores[0].softirq) - 0.1).abs() < 0.001);
    assert!((mean(&series.cores[0].interrupts) - 3000.0).abs() < 10.0);
    assert!((mean(&series.cores[1].busy) - 0.5).abs() < 0.01);
    let rank = &series.ranks[1];
    assert_eq!((rank.core[10], rank.core[80]), (Some(1), Some(0)));
    assert!(rank.mpi[65].unwrap() < 0.01 && rank.mpi[90].unwrap() > 0.99, "{:?}", rank.mpi);
}

#[test]
fn what_could_not_be_measured_is_not_nought() {
    let refused = Reading::not_permitted("softirq time: not you", "be root");
    let (_place, profile) = profile(&samples(&head(refused.clone())));
    let summary = Summary::of(&profile);
    let Reading::NotPermitted { reason, .. } = &summary.cores[0].softirq_rx_seconds else { panic!("{summary:?}") };
    assert_eq!(reason, "softirq time: not you");
    assert!(matches!(summary.ranks[0].softirq, Reading::NotPermitted { .. }));
    assert!(near(&summary.cores[0].softirq_rx, 1000.0));
    let series = summary.series.unwrap();
    assert!(series.cores[0].softirq.iter().all(Option::is_none) && series.cores[0].softirqs[5].is_some());
}

#[test]
fn what_kept_a_rank_off_its_core_is_told_apart_and_is_neither_computing_nor_transfer() {
    let (_place, profile) = profile(&samples(&head(measured("traced"))));
    let summary = Summary::of(&profile);
    let [zero, one] = &summary.ranks[..] else { panic!("there are two ranks") };
    assert!(near(&zero.run_delay, 0.5) && near(&zero.stopped, 0.0) && near(&zero.stolen, 0.1), "{zero:?}");
    assert!(near(&zero.compute_off_core, 0.25), "the other half is inside MPI: {:?}", zero.compute_off_core);
    assert!(near(&one.stopped, 0.1) && near(&one.split.off_core, 0.1), "{one:?}");
    assert!(near(&one.compute_off_core, 0.0) && near(&one.stolen, 0.05), "{one:?}");
    assert!(matches!(&one.run_delay, Reading::Absent { reason } if reason.contains("does not tell")), "{one:?}");
    for rank in [zero, one] {
        let split = &rank.split;
        let known = [&split.transfer, &split.wait, &split.off_core].map(|part| part.value().copied().unwrap_or(0.0));
        assert!((known.iter().sum::<f64>() + split.undivided - rank.mpi).abs() < 1e-9, "{split:?} of {}", rank.mpi);
    }
    let off = |split: &Split| split.off_core.value().copied().unwrap_or(0.0);
    let of_functions: f64 = summary.functions.iter().map(|function| off(&function.split)).sum();
    assert!(
        (of_functions - 0.1).abs() < 0.01,
        "what a rank does not wait its functions do not: {:?}",
        summary.functions
    );
    let verdict = summary.verdict.unwrap();
    let said = "Rank 0 (core 0 of h) lost ";
    assert!(verdict.sentence.starts_with(said), "{}", verdict.sentence);
    let second = "rank 1 (core 0 of h) was stopped for 10.0 % of its time";
    assert!(verdict.hindrances[1].words.starts_with(second), "{:?}", verdict.hindrances);
}

/// Core 0 is busy all the time: 0.5 with rank 0 and, from the middle on, 0.25 with rank 1. Core 1 is half busy.
#[test]
fn what_ranks_could_have_of_a_core_is_its_time_less_that_of_others() {
    let (_place, profile) = profile(&samples(&head(measured("traced"))));
    let summary = Summary::of(&profile);
    assert_eq!(crate::capability::of(&profile), summary.capability);
    let [zero, one] = &summary.capability[..] else { panic!("there are two cores") };
    assert_eq!((zero.host.as_str(), zero.core.0, one.core.0), ("h", 0, 1));
    // The accounting of softirqs and stolen time is unknown: of 0.2, the ranks' share of the core is added.
    assert!(near(&zero.taken, 0.375 + 0.2 * 0.625) && matches!(zero.taken, Reading::Modelled(_)), "{zero:?}");
    assert!(near(&one.taken, 0.375) && near(&one.softirq, 0.0) && near(&zero.softirq, 0.1), "{one:?}");
    assert!(matches!(&zero.sibling, Reading::Absent { reason } if reason.contains("recorded")), "{zero:?}");
    assert!(matches!(&zero.clock, Reading::Absent { reason } if reason.contains("no clock was sampled")), "{zero:?}");
    let page = crate::terminal::render(&summary, crate::terminal::Screen { width: 200, colour: false, sites: 3 });
    assert!(page.contains("Capability of cores") && page.contains("clock: absent: no clock was sampled"), "{page}");
}

#[test]
fn what_the_sampler_notes_of_its_host_makes_it_exact() {
    let apart =
        Accounting { softirqs_charged: Some(false), stolen_charged: Some(false), threads: vec![(0, 0), (1, 0)] };
    let of = |accounting: &Accounting, workers| {
        let (_place, profile) = profile(&samples_of(&head(measured("traced")), Some(accounting), workers));
        crate::capability::of(&profile)
    };
    let [zero, one] = &of(&apart, 1)[..] else { panic!("there are two cores") };
    assert!(near(&zero.taken, 0.375) && matches!(zero.taken, Reading::Measured(_)), "{zero:?}");
    assert!(near(&zero.sibling, 0.5) && near(&one.sibling, 1.0), "{zero:?} {one:?}");
    assert!(near(&zero.clock, 1.0) && near(&one.clock, 0.5), "{zero:?} {one:?}");
    // Half of the softirqs are in the kernel's thread for them, which is beside the ranks already.
    let charged = Accounting { softirqs_charged: Some(true), ..apart.clone() };
    let [zero, _] = &of(&charged, 1)[..] else { panic!("there are two cores") };
    assert!(near(&zero.taken, 0.375 + 0.05 * 0.625), "{zero:?}");
    // Rank 1 uses 1.25 cores, and calls MPI from one thread.
    let [zero, one] = &of(&apart, 5)[..] else { panic!("there are two cores") };
    for core in [zero, one] {
        assert!(matches!(&core.taken, Reading::Absent { reason } if reason.contains("call no MPI")), "{core:?}");
        assert_eq!(core.range().0, 0.0);
    }
}

#[test]
fn samples_that_were_cut_off_say_so_and_count_as_far_as_they_go() {
    let whole = samples(&head(measured("traced")));
    // The last 36 bytes and more are of the last tenth of the time.
    let (_place, profile) = profile(&whole[..whole.len() * 9 / 10]);
    let summary = Summary::of(&profile);
    assert!(summary.job.notes[0].contains("the sampler was killed"), "{:?}", summary.job.notes);
    let met = *summary.ranks[0].softirq.value().unwrap();
    assert!(met > 0.07 && met < 0.097, "{met}");
    let series = summary.series.unwrap();
    assert!(series.cores[0].softirq[10].is_some() && series.cores[0].softirq[99].is_none());
}

#[test]
fn without_samples_nothing_is_made_up() {
    let (place, _) = profile(&samples(&head(measured("traced"))));
    std::fs::remove_file(folder::samples_file(place.path(), "h")).unwrap();
    let summary = Summary::of(&Profile::open(place.path()).unwrap());
    assert!(summary.cores.is_empty() && summary.series.is_none());
    assert!(matches!(&summary.ranks[0].softirq, Reading::Absent { reason } if reason.contains("sampled")));
    assert!(Samples::files(place.path()).is_empty());
}

#[test]
fn where_a_rank_was_before_mpi_init_returned_is_not_where_it_ran() {
    let head = head(measured("traced"));
    let mut file = Vec::new();
    let mut writer = Writer::begin(&mut file, &head).unwrap();
    for (now, core) in [(BEGUN - 50 * MS, 1), (BEGUN + 600 * MS, 2), (BEGUN + 900 * MS, 2)] {
        writer.thread_work(11, 0, 11, &ThreadWork { core, calls: now / MS, ..ThreadWork::default() }).unwrap();
        writer.end_work(now).unwrap();
    }
    writer.finish(BEGUN + 1_010 * MS).unwrap();
    let (_place, profile) = profile(&file);
    assert_eq!(Summary::of(&profile).ranks[1].cores, Reading::Measured(vec![1]));
}
