use machine::Reading;
use proptest::prelude::*;

use super::*;

fn head() -> Head {
    let measured = |how: &str| Reading::Measured(how.to_owned());
    Head {
        host: "h".into(),
        boot: "b".into(),
        pid: 7,
        monotonic: 1000,
        realtime: 5000,
        interval: 20,
        for_ranks: Some(2),
        cores: vec![(0, 0), (1, 0), (300, 1)],
        origins: Origins {
            softirq_counts: measured("counted"),
            softirq_times: Reading::not_permitted("no", "be root"),
            softirq_all: Reading::Modelled("ticks".into()),
            interrupts: measured("listed"),
            load: measured("stat"),
            energy: Reading::absent("no sensor"),
            ranks: measured("tables"),
        },
    }
}

fn written(give: impl FnOnce(&mut Writer<&mut Vec<u8>>)) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::begin(&mut file, &head()).unwrap();
    give(&mut writer);
    writer.flush().unwrap();
    file
}

#[test]
fn the_head_is_read_as_it_was_written() {
    let samples = Samples::read(&written(|_| ())).unwrap();
    assert_eq!(samples.head, head());
    assert_eq!((samples.span, samples.ended, samples.notes.len()), (None, None, 0));
}

/// The file is what `two_moments` gave when version 2 was new.
#[test]
fn samples_of_version_2_are_read() {
    let samples = Samples::read(include_bytes!("version-2.samples")).unwrap();
    let again = Samples::read(&two_moments()).unwrap();
    assert_eq!(samples.head, head());
    assert_eq!(format!("{samples:?}"), format!("{again:?}"));
}

fn two_moments() -> Vec<u8> {
    written(|writer| give(writer, &[(false, 5, 0, [1, 2, 3]), (true, 9, 1, [4, 5, 6])]))
}

#[test]
fn power_has_times_of_its_own() {
    use machine::power::{Band, Covers, Measure, Sensor};
    use machine::{Joules, Nanoseconds};
    let counter = Measure::Counter { range: Some(262_143_328_850), step: 62, lag: Nanoseconds(0) };
    let package = Sensor {
        name: "rapl:package-0".into(),
        covers: Covers::Package,
        band: Band::In,
        measure: counter,
        within: Some("rapl:psys".into()),
    };
    let meter = Sensor {
        name: "command:x".into(),
        covers: Covers::Node,
        band: Band::Out,
        measure: Measure::Gauge,
        within: None,
    };
    let second = |second: u64| Nanoseconds(second * 1_000_000_000);
    let file = written(|writer| {
        writer.sensor(&package, second(1)).unwrap();
        writer.sensor(&meter, second(3)).unwrap();
        // The time of the command's number is before that of the counter's.
        writer.power(&[(0, second(5), 262_143_000_000), (1, second(4), 90_000_000)]).unwrap();
        writer.power(&[(0, second(6), 671_150), (1, second(6), 110_000_000)]).unwrap();
        writer.power_stopped(1, second(7), "it printed nothing").unwrap();
        writer.power(&[(1, second(8), 5), (0, second(7), 1_671_150)]).unwrap();
    });
    let samples = Samples::read(&file).unwrap();
    assert_eq!([&samples.power[0].sensor, &samples.power[1].sensor], [&package, &meter]);
    assert_eq!(samples.power[0].track.between(second(5), second(7)).joules, Joules(2.0));
    let told = samples.power[1].track.between(second(4), second(8));
    assert_eq!((told.joules, told.covered), (Joules(200.0), second(2)));
    assert_eq!(told.gaps[0].cause, "it printed nothing");
}

#[test]
fn what_stood_still_grew_only_when_it_did() {
    let work = |net_rx| CoreWork { net_rx, net_rx_time: 10 * net_rx, ..CoreWork::default() };
    let file = written(|writer| {
        for (time, received) in [(1000, 5), (1010, 5), (1020, 5), (1030, 9)] {
            writer.core_work(1, &work(received)).unwrap();
            writer.end_work(time).unwrap();
        }
        writer.end_work(1040).unwrap();
    });
    let samples = Samples::read(&file).unwrap();
    let series = &samples.cores[&1].work;
    assert_eq!(series.points(), [(1000, work(5)), (1020, work(5)), (1030, work(9)), (1040, work(9))]);
    assert_eq!(series.between(1000, 1020, |work| work.net_rx), Some(0.0));
    assert_eq!(series.between(1000, 1025, |work| work.net_rx_time), Some(20.0));
    assert_eq!(series.between(0, 9999, |work| work.net_rx), Some(4.0));
    assert_eq!(series.between(1030, 2000, |work| work.net_rx), Some(0.0));
    assert_eq!(series.between(1040, 2000, |work| work.net_rx), None);
    assert_eq!(series.known(999), None);
    assert_eq!(series.known(1029).unwrap().net_rx, 5);
}

/// A thread that ran for 200 ms of a second and was runnable for 300 ms.
#[test]
fn stops_take_what_the_kernel_counts_for_nothing_else() {
    const MS: u64 = 1_000_000;
    let stopped = |found: u64, blocked: u64| {
        let file = written(|writer| {
            for (time, part) in [(0, 0), (1000 * MS, 1)] {
                writer.thread_stop(9, 0, 9, &ThreadStop { stopped: part * found * MS }).unwrap();
                let outside = part * blocked * MS;
                writer.thread_blocked(9, 0, 9, &ThreadBlocked { outside, ..ThreadBlocked::default() }).unwrap();
                writer.end_work(MS + time).unwrap();
                writer.thread_ran(9, 0, 9, &ThreadRan { ran: part * 200 * MS }).unwrap();
                writer.thread_delay(9, 0, 9, &ThreadDelay { delayed: part * 300 * MS }).unwrap();
                writer.end_load(MS + time).unwrap();
            }
        });
        let samples = Samples::read(&file).unwrap();
        samples.ranks[&9].threads[&0].stop.last().unwrap().1.stopped / MS
    };
    assert_eq!(stopped(300, 0), 500, "looks came late");
    assert_eq!(stopped(800, 0), 500, "or too early");
    assert_eq!(stopped(300, 300), 250);
    assert_eq!(stopped(100, 0), 200, "the rest was taken from it");
    assert_eq!(stopped(0, 100), 0);
}

#[test]
fn subjects_are_kept_apart() {
    let file = written(|writer| {
        let on = |core, calls| ThreadWork { core, calls, ticks: [calls; 12], ..ThreadWork::default() };
        writer.thread_work(10, 0, 10, &on(1, 3)).unwrap();
        writer.thread_work(10, 1, 12, &on(2, 4)).unwrap();
        writer.thread_work(11, 0, 11, &on(0, 5)).unwrap();
        writer.end_work(1001).unwrap();
        writer.thread_load(10, 1, 12, &ThreadLoad { voluntary: 1, involuntary: 2 }).unwrap();
        writer.rank_load(10, &RankLoad { cpu: 77 }).unwrap();
        writer.energy(0, "package-0", &Energy { microjoules: 9 }).unwrap();
        writer.energy(1, "package-0", &Energy { microjoules: 8 }).unwrap();
        writer.cost(&SamplerCost { cpu: 1, looks: 1, core: 2, interval: 20 }).unwrap();
        writer.end_load(1002).unwrap();
        writer.thread_work(10, 0, 10, &on(2, 3)).unwrap();
        writer.end_work(1003).unwrap();
        writer.note("slower").unwrap();
    });
    let samples = Samples::read(&file).unwrap();
    let rank = &samples.ranks[&10];
    assert_eq!(rank.threads[&0].work.known(1002).unwrap().on(), Some(0));
    assert_eq!(rank.threads[&0].work.known(1003).unwrap().on(), Some(1));
    assert_eq!((rank.threads[&1].tid, rank.threads[&1].load.last().unwrap().1.involuntary), (12, 2));
    assert_eq!(rank.load.last(), Some(&(1002, RankLoad { cpu: 77 })));
    assert_eq!(samples.ranks[&11].threads[&0].work.last().unwrap().1.on(), None);
    let zones: Vec<_> = samples.zones.iter().map(|(name, series)| (name.as_str(), series.last().unwrap().1)).collect();
    assert_eq!(zones, [("package-0", Energy { microjoules: 9 }), ("package-0", Energy { microjoules: 8 })]);
    assert_eq!(samples.cost.last().unwrap().1.interval, 20);
    assert_eq!((samples.notes, samples.span), (vec!["slower".to_owned()], Some((1001, 1003))));
}

#[test]
fn what_tells_ranks_from_other_work_is_read_back_and_earlier_files_have_none() {
    let of = |softirqs_charged, threads: &[(u32, u32)]| Accounting {
        softirqs_charged,
        stolen_charged: Some(true),
        threads: threads.to_vec(),
    };
    for accounting in [of(None, &[]), of(Some(false), &[(0, 0), (300, 0)])] {
        let file = written(|writer| {
            writer.accounting(&accounting).unwrap();
            writer.core_deferred(3, &CoreDeferred { cpu: 5 }).unwrap();
            writer.core_clock(3, &CoreClock { hertz: 7 }).unwrap();
            writer.end_load(1001).unwrap();
            writer.core_deferred(3, &CoreDeferred { cpu: 9 }).unwrap();
            writer.core_clock(3, &CoreClock { hertz: 6 }).unwrap();
            writer.end_load(1002).unwrap();
        });
        let samples = Samples::read(&file).unwrap();
        assert_eq!(samples.accounting, Some(accounting));
        let core = &samples.cores[&3];
        assert_eq!(core.deferred.between(1001, 1002, |deferred| deferred.cpu), Some(4.0));
        assert_eq!(core.clock.points(), [(1001, CoreClock { hertz: 7 }), (1002, CoreClock { hertz: 6 })]);
    }
    assert_eq!(Samples::read(&written(|writer| writer.end_load(1001).unwrap())).unwrap().accounting, None);
}

#[test]
fn what_is_no_file_of_samples_is_refused() {
    let file = written(|_| ());
    for (bytes, wanted) in [
        (&b"PLIM"[..], "does not begin"),
        (&b"PLIMSAMP\x01"[..], "within its start"),
        (&b"PLIMSAMP\x01\0\0\0"[..], "another version"),
        (&b"PLIMSAMP\x03\0\0\0"[..], "another version"),
        (&file[..file.len() - 1], "before their head"),
        (&b"PLIMSAMP\x02\0\0\0\x02\x01\x05\0\0\0\0"[..], "head is damaged"),
    ] {
        let fault = Samples::read(bytes).unwrap_err();
        assert!(fault.cause().contains(wanted), "{fault}");
    }
}

/// A head of an earlier version, without the field.
#[test]
fn a_head_without_cores_for_ranks_is_read() {
    let mut file = Vec::new();
    let before = Head { for_ranks: None, ..head() };
    Writer::begin(&mut file, &before).unwrap();
    assert_eq!(Samples::read(&file).unwrap().head, before);
    let mut longer = Vec::new();
    Writer::begin(&mut longer, &head()).unwrap();
    assert_eq!(longer.len(), file.len() + 1, "it comes after all that earlier heads have");
}

#[test]
fn a_long_file_is_thinned_and_loses_no_sum() {
    let file = written(|writer| {
        for moment in 0..10_000u64 {
            writer.core_work(0, &CoreWork { net_rx: moment, ..CoreWork::default() }).unwrap();
            writer.end_work(2000 + 10 * moment).unwrap();
        }
    });
    let whole = Samples::read(&file).unwrap();
    let thin = Samples::read_within(&file, 500).unwrap();
    assert_eq!((whole.stride, whole.cores[&0].work.points().len()), (1, 10_000));
    assert!(thin.stride > 20 && thin.cores[&0].work.points().len() <= 1001, "{}", thin.stride);
    for samples in [whole, thin] {
        assert_eq!(samples.cores[&0].work.between(0, u64::MAX, |work| work.net_rx), Some(9999.0));
        assert_eq!(samples.cores[&0].work.between(2000, 52_000, |work| work.net_rx), Some(5000.0));
    }
}

#[test]
fn totals_go_on_where_a_threads_place_is_handed_on() {
    let file = written(|writer| {
        for moment in 1..=40u64 {
            // Ten threads one after the other, each with the totals of those before it.
            let tid = 100 + moment as u32 / 4;
            writer.thread_work(9, 3, tid, &ThreadWork { calls: 10 * moment, ..ThreadWork::default() }).unwrap();
            let blocked = ThreadBlocked { outside: moment, sleep: moment, ..ThreadBlocked::default() };
            writer.thread_blocked(9, 3, tid, &blocked).unwrap();
            writer.end_work(1000 + 10 * moment).unwrap();
            writer.thread_load(9, 3, tid, &ThreadLoad { voluntary: 0, involuntary: moment }).unwrap();
            writer.thread_ran(9, 3, tid, &ThreadRan { ran: 2 * moment }).unwrap();
            writer.end_load(1000 + 10 * moment).unwrap();
        }
    });
    for most in [u64::MAX, 30] {
        let samples = Samples::read_within(&file, most).unwrap();
        let thread = &samples.ranks[&9].threads[&3];
        assert_eq!(thread.work.between(0, u64::MAX, |work| work.calls), Some(390.0));
        assert_eq!(thread.load.between(0, u64::MAX, |load| load.involuntary), Some(39.0));
        assert_eq!(thread.ran.between(0, u64::MAX, |ran| ran.ran), Some(78.0));
        assert_eq!(thread.blocked.between(0, u64::MAX, |blocked| blocked.sleep), Some(39.0));
        let points = thread.work.points();
        assert!(points.windows(2).all(|pair| pair[0].1.calls <= pair[1].1.calls), "{points:?}");
        assert_eq!((thread.tid, points.last().unwrap().1.calls), (110, 400));
    }
}

/// Random totals of a few cores and threads at random moments, wrapping ones too.
fn moments() -> impl Strategy<Value = Vec<(bool, u64, u32, [u64; 3])>> {
    let total = prop_oneof![0u64..100, any::<u64>()];
    prop::collection::vec((any::<bool>(), 1u64..1 << 40, 0u32..3, [total.clone(), total.clone(), total]), 0..40)
}

fn give(writer: &mut Writer<&mut Vec<u8>>, moments: &[(bool, u64, u32, [u64; 3])]) {
    let mut time = 1000;
    for &(is_work, step, subject, [a, b, c]) in moments {
        time += step;
        if is_work {
            let work = ThreadWork { core: a, inside: b, calls: c, bytes: a, ticks: [b; 12], ..ThreadWork::default() };
            writer.thread_work(subject, 1, 9, &work).unwrap();
            writer.core_work(subject, &CoreWork { net_rx: a, interrupts: c, ..CoreWork::default() }).unwrap();
            writer.end_work(time).unwrap();
        } else {
            writer.core_load(subject, &CoreLoad { idle: a, stolen: b }).unwrap();
            writer.end_load(time).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn every_total_is_known_at_its_moment(moments in moments()) {
        let samples = Samples::read(&written(|writer| give(writer, &moments))).unwrap();
        let mut time = 1000;
        for (is_work, step, subject, [a, b, c]) in moments {
            time += step;
            if is_work {
                let thread = samples.ranks[&subject].threads[&1].work.known(time).unwrap();
                prop_assert_eq!((thread.core, thread.inside, thread.calls, thread.ticks[11]), (a, b, c, b));
                let core = samples.cores[&subject].work.known(time).unwrap();
                prop_assert_eq!((core.net_rx, core.interrupts), (a, c));
            } else {
                let load = samples.cores[&subject].load.known(time).unwrap();
                prop_assert_eq!((load.idle, load.stolen), (a, b));
            }
        }
    }

    #[test]
    fn a_file_that_was_cut_off_is_read_up_to_there(moments in moments(), cut in 0.0..1.0f64) {
        let file = written(|writer| give(writer, &moments));
        let start = written(|_| ()).len();
        let cut = start + ((file.len() - start) as f64 * cut) as usize;
        let whole = Samples::read(&file).unwrap();
        let part = Samples::read(&file[..cut]).unwrap();
        prop_assert!(part.notes.is_empty());
        for (core, samples) in &part.cores {
            let all = whole.cores[core].work.points();
            for (time, work) in samples.work.points() {
                prop_assert_eq!(whole.cores[core].work.known(*time), Some(work), "{:?}", all);
            }
        }
    }

    #[test]
    fn no_byte_makes_it_panic(moments in moments(), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut file = written(|writer| give(writer, &moments));
        let (at, cut) = (at.index(file.len()), cut.index(file.len() + 1));
        file[at] = byte;
        if let Ok(samples) = Samples::read(&file[..cut]) {
            for core in samples.cores.values() {
                let _ = core.work.between(0, u64::MAX, |work| work.net_rx);
            }
        }
    }
}
