//! Trials of commands: what is told, what is left out, what is gone on with, what is shown.

use experiment::designs::Designed;
use experiment::trial::aside::{Aside, Stage};
use experiment::trial::check::Check;
use experiment::trial::conditions::{Conditions, Ignored};
use experiment::trial::conduct::conduct;
use experiment::trial::design::Design;
use experiment::trial::export::{self, Format};
use experiment::trial::judgement::{Best, differences, judge};
use experiment::trial::page;
use experiment::trial::store::{Store, Trial};
use experiment::trial::terminal;
use machine::Nanoseconds;
use rounds::contrast::{Verdict, looks};
use rounds::random::Random;
use rounds::sitting::End;

use crate::commands::{Conducted, SECOND, Simulated, begin, carry_out, design, surrounded};
use crate::simulated::Notes;

#[test]
#[ignore = "make check"]
fn false_alarms_are_rare_and_two_percent_are_found() {
    let trials = 200;
    let says = |slower: &str, noise| {
        let mut said = [0; 4];
        for seed in 0..trials {
            let mut machine = Simulated::new(seed, noise);
            let conducted = carry_out(design(&["1", slower]), &mut machine, 180).unwrap();
            said[conducted.judgement.arms[1].says as usize] += 1;
        }
        said
    };
    let equal = says("1", 0.01);
    let alarms = equal[Verdict::Better as usize] + equal[Verdict::Worse as usize];
    assert!(alarms <= trials as usize / 20, "{equal:?}");
    assert!(equal[Verdict::Either as usize] >= 9 * trials as usize / 10, "{equal:?}");
    let slower = says("1.02", 0.01);
    assert!(slower[Verdict::Worse as usize] >= 9 * trials as usize / 10, "{slower:?}");
    assert_eq!(slower[Verdict::Better as usize], 0);
}

#[test]
fn runs_at_another_clock_are_not_held_against_each_other() {
    let mut machine = Simulated::new(3, 0.002);
    // For 5 s of every 16 the core is throttled to two thirds.
    let throttled = |at: u64| at / SECOND % 16 >= 11;
    machine.machine = |at| (50_000, if at / SECOND % 16 >= 11 { 1.5 } else { 1.0 });
    machine.mhz = |at| if at / SECOND % 16 >= 11 { 2000 } else { 3000 };
    let Conducted { trial, runs, .. } = carry_out(design(&["1", "1.03"]), &mut machine, 400).unwrap();
    let met = |arm: usize| runs.measured(arm).filter(|run| throttled(run.started.0)).count();
    assert!(met(0) > 0 && met(1) > 0, "the machine was never throttled");
    let found = differences(&trial.design, &runs, 1, 0);
    assert!(found.len() < runs.measured(0).count(), "no round was lost to it");
    assert!(found.iter().all(|ln| (ln + 1.03f64.ln()).abs() < 0.02), "{found:?}");
    let said = terminal::render(&trial.design, &runs, &judge(&trial.design, &runs), End::Finished);
    assert!(said.contains("effective clock of core 0 changed: 3 GHz mostly, 2 GHz to 3 GHz"), "{said}");
}

#[test]
fn the_best_of_several_is_found_and_beaten_ones_get_no_more_rounds() {
    let mut machine = Simulated::new(1, 0.01);
    let Conducted { trial, runs, end, judgement, .. } =
        carry_out(design(&["1", "0.8", "3", "0.79"]), &mut machine, 1000).unwrap();
    assert_eq!(end, End::Finished);
    assert!(matches!(&judgement.best, Best::Either(of) if *of == [1, 3]) || judgement.best == Best::One(3));
    assert_eq!(runs.measured(2).count(), 6, "what is twice as slow shows at the first look");
    let text = terminal::render(&trial.design, &runs, &judgement, end);
    assert!(text.contains("3.0x slower"), "{text}");
    let page = page::render(&trial, &runs, &judgement, end);
    assert!(page.contains("<svg") && page.contains("How it became certain"));
}

/// What was beaten early has fewer rounds, which keeps nothing open.
#[test]
fn a_trial_ends_as_soon_as_the_best_is_known() {
    let mut machine = Simulated::new(2, 0.01);
    let Conducted { runs, end, judgement, .. } = carry_out(design(&["1", "3", "0.97"]), &mut machine, 1000).unwrap();
    assert_eq!((end, judgement.best), (End::Finished, Best::One(2)));
    assert!(runs.measured(1).count() == 6 && runs.measured(2).count() <= 27, "{}", runs.measured(2).count());
}

#[test]
fn an_order_and_its_reverse_follow_each_other() {
    let mut machine = Simulated::new(3, 0.05);
    let conducted = carry_out(design(&["1", "1.001", "1.002"]), &mut machine, 60).unwrap();
    let rounds: Vec<&[String]> = machine.runs[3..].chunks_exact(3).collect();
    assert!(rounds.len() > 6);
    for pair in rounds.chunks_exact(2) {
        assert!(pair[0].iter().eq(pair[1].iter().rev()), "{pair:?}");
    }
    assert_eq!(conducted.end, End::OutOfTime);
    let text = terminal::render(&conducted.trial.design, &conducted.runs, &conducted.judgement, End::OutOfTime);
    assert!(text.contains("the budget is spent; about "), "{text}");
}

/// The cores move while everything goes twice as slow, between two runs of the same round as well.
#[test]
fn what_slows_the_first_run_of_each_round_makes_no_winner() {
    for seed in 0..4 {
        let behind = |nth: usize| if nth.is_multiple_of(2) { 1.1 } else { 1.0 };
        let mut machine = Simulated { behind, ..Simulated::new(seed, 0.005) };
        let conducted = carry_out(design(&["1", "1"]), &mut machine, 80).unwrap();
        let best = conducted.judgement.best;
        assert!(!matches!(best, Best::One(_)), "seed {seed}: {best:?}");
    }
}

#[test]
fn a_planted_flip_changes_no_verdict() {
    let flips = |clock: u64| if (clock / (7 * SECOND)).is_multiple_of(2) { (50_000, 1.0) } else { (130_000, 2.0) };
    for (other, best) in [("1", Best::Either(vec![0, 1])), ("0.9", Best::One(1)), ("1.1", Best::One(0))] {
        let mut machine = Simulated { machine: flips, ..Simulated::new(5, 0.005) };
        let conducted = carry_out(design(&["1", other]), &mut machine, 3000).unwrap();
        assert_eq!((conducted.end, conducted.judgement.best), (End::Finished, best), "{other}");
    }
}

/// Cores that move within nearly every round: all rounds are compared, and what they add is width alone.
#[test]
fn a_machine_that_never_stands_still_is_answered_too() {
    let moves = |clock: u64| match (Random::new(clock / (SECOND / 2)).unit() * 4.0) as u64 {
        0 => (25_000, 1.0),
        1 => (50_000, 1.1),
        2 => (130_000, 1.2),
        _ => (300_000, 1.4),
    };
    let (mut alarms, mut found) = (0, 0);
    for seed in 0..40 {
        let best = |other| {
            let mut machine = Simulated { machine: moves, ..Simulated::new(seed, 0.02) };
            let Conducted { trial, runs, judgement, end, .. } =
                carry_out(design(&["1", other]), &mut machine, 80).unwrap();
            let said = terminal::render(&trial.design, &runs, &judgement, end);
            assert!(said.contains(" rounds; all rounds are compared"), "{said}");
            judgement.best
        };
        alarms += usize::from(matches!(best("1"), Best::One(_)));
        found += usize::from(best("0.5") == Best::One(1));
    }
    assert!(alarms <= 4 && found >= 38, "{alarms} false alarms, {found} found");
}

#[test]
fn a_faster_wrong_answer_is_refused() {
    let says = |command: &str, _| (format!("Energy: {}\n", if command == "0.5" { -4.61 } else { -4.70 }), None);
    let check = Some(Check::parse("Energy: (\\S+)~1e-9").unwrap());
    let mut machine = Simulated { says, ..Simulated::new(1, 0.01) };
    let conducted = carry_out(Design { check, ..design(&["1", "0.5", "0.9"]) }, &mut machine, 600).unwrap();
    assert_eq!(conducted.judgement.arms[1].left_out.as_deref(), Some("wrong: -4.61, not -4.7"));
    assert_eq!(conducted.judgement.best, Best::One(2));
    assert_eq!(conducted.notes, ["B: wrong: -4.61, not -4.7"]);
}

#[test]
fn an_exit_status_is_a_result_where_it_is_checked() {
    let check = || Some(Check::parse("status").unwrap());
    let mut machine =
        Simulated { says: |_, _| (String::new(), Some("exit code 7".to_owned())), ..Simulated::new(1, 0.01) };
    let conducted = carry_out(Design { check: check(), ..design(&["1", "0.5"]) }, &mut machine, 600).unwrap();
    assert_eq!(conducted.judgement.best, Best::One(1));
    let one = |command: &str, _| (String::new(), (command == "0.5").then(|| "exit code 7".to_owned()));
    let mut machine = Simulated { says: one, ..Simulated::new(1, 0.01) };
    let conducted = carry_out(Design { check: check(), ..design(&["1", "0.5"]) }, &mut machine, 600).unwrap();
    let left_out = conducted.judgement.arms[1].left_out.as_deref();
    assert_eq!(left_out, Some("wrong: it ends with exit status 7, not 0"));
}

#[test]
fn what_fails_is_named_and_left_out() {
    let at_once = |command: &str, _| (String::new(), (command == "2").then(|| "exit code 7: no input".to_owned()));
    let mut machine = Simulated { says: at_once, ..Simulated::new(1, 0.01) };
    let fault = carry_out(design(&["1", "2"]), &mut machine, 600).err().unwrap().to_string();
    assert!(fault.starts_with("B, 2: the run: exit code 7: no input. Next: run the command alone"), "{fault}");

    let later =
        |command: &str, n| (String::new(), (command == "2" && n > 6).then(|| "exit code 7: it broke".to_owned()));
    let mut machine = Simulated { says: later, ..Simulated::new(1, 0.01) };
    let conducted = carry_out(design(&["1", "2", "1.1"]), &mut machine, 600).unwrap();
    assert_eq!(conducted.judgement.arms[1].left_out.as_deref(), Some("failed: the run: exit code 7: it broke"));
    assert_eq!(conducted.judgement.best, Best::One(0));
    let mut machine = Simulated { says: later, ..Simulated::new(1, 0.01) };
    let conducted = carry_out(design(&["1", "2"]), &mut machine, 600).unwrap();
    assert_eq!((conducted.end, conducted.judgement.best), (End::Finished, Best::One(0)));
}

#[test]
fn a_budget_that_holds_no_answer_is_refused_with_what_it_takes() {
    let fault = carry_out(design(&["10", "10"]), &mut Simulated::new(1, 0.01), 100).err().unwrap().to_string();
    assert!(fault.contains("6 rounds, the fewest") && fault.contains("--budget 3m"), "{fault}");
}

#[test]
fn a_trial_goes_on_where_it_was_cut_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("try.sqlite");
    let design = design(&["1", "1.03"]);
    let mut machine = Simulated::new(9, 0.02);
    let mut rounds = Vec::new();
    let mut store = Store::open(&path).unwrap();
    let trial = begin(&mut store, design.clone(), 4, 0).unwrap();
    drop(store);
    for sitting in 0..100_u32 {
        let mut store = Store::open(&path).unwrap();
        assert_eq!(store.unfinished(&design, "another boot").unwrap(), None);
        let trial = store.unfinished(&design, "host").unwrap().unwrap();
        let runs = machine.runs.len();
        let left = std::cell::Cell::new(7 + sitting % 3);
        let stop = || left.replace(left.get().saturating_sub(1)) == 0;
        let budget = Nanoseconds(10_000 * SECOND);
        let (all, end) = conduct(&mut store, &trial, &mut machine, &mut Notes::default(), budget, &stop).unwrap();
        assert!(machine.runs.len() > runs || end == End::Finished);
        let measured = |arm| all.measured(arm).filter_map(|run| run.round).collect::<Vec<_>>();
        let now: Vec<u32> = measured(0);
        assert!(now.starts_with(&rounds), "nothing is lost");
        assert!(now.windows(2).all(|pair| pair[0] < pair[1]) && measured(1).windows(2).all(|pair| pair[0] < pair[1]));
        rounds = now;
        if end == End::Finished {
            assert_eq!(judge(&design, &all).best, Best::One(0));
            store.finish(&mut trial.clone(), Nanoseconds(1)).unwrap();
            assert_eq!(store.unfinished(&design, "host").unwrap(), None);
            assert_eq!(store.trial(None).unwrap().id, trial.id);
            return;
        }
    }
    panic!("{trial:?} is not settled after {} rounds", rounds.len());
}

/// However often it was cut short, and though one arm has been beaten early.
#[test]
#[ignore = "make check"]
fn a_trial_that_goes_on_decides_at_its_looks_alone() {
    for seed in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("try.sqlite")).unwrap();
        let trial = begin(&mut store, design(&["1", "3", "0.985"]), seed, 0).unwrap();
        let mut machine = Simulated::new(seed, 0.03);
        let mut sit = || {
            let left = std::cell::Cell::new(12_u32);
            let stop = || left.replace(left.get().saturating_sub(1)) == 0;
            let budget = Nanoseconds(100_000 * SECOND);
            conduct(&mut store, &trial, &mut machine, &mut Notes::default(), budget, &stop).unwrap()
        };
        let runs = (0..1000).find_map(|_| Some(sit()).filter(|(_, end)| *end == End::Finished)).expect("it ends").0;
        assert_eq!(runs.measured(1).count(), 6, "beaten at the first look");
        let rounds = judge(&trial.design, &runs).rounds(2);
        assert!(looks().take_while(|look| *look as usize <= rounds).any(|look| look as usize == rounds), "{rounds}");
    }
}

#[test]
fn each_run_is_prepared_and_concluded_and_each_arm_set_up_and_cleaned_up_once() {
    let mut machine = Simulated::new(1, 0.001);
    let Conducted { runs, end, judgement, .. } = carry_out(surrounded(), &mut machine, 600).unwrap();
    assert_eq!((end, judgement.best), (End::Finished, Best::One(0)));
    let count = |what: &str| machine.all.iter().filter(|of| *of == what).count();
    for (arm, name) in ["1", "2"].into_iter().enumerate() {
        assert_eq!([count(&format!("setup {name}")), count(&format!("cleanup {name}"))], [1, 1]);
        let around = [count(&format!("prepare {name}")), count(name), count(&format!("conclude {name}"))];
        assert_eq!(around, [runs.done[arm].len(); 3]);
    }
    assert_eq!(machine.all[..4], ["setup 1", "prepare 1", "1", "conclude 1"]);
    assert_eq!(machine.all[machine.all.len() - 2..], ["cleanup 1", "cleanup 2"]);
    assert!(runs.measured(0).all(|run| run.elapsed.0 < 2 * SECOND), "their time is none of the runs'");
    assert!(runs.spent.0 >= (machine.all.len() as u64 - 2) * SECOND, "and the budget is of all of it");
}

#[test]
fn a_command_beside_the_runs_that_fails_ends_the_trial_and_all_is_cleaned_up() {
    for (breaks, last) in [
        (Stage::Setup, &["setup 1", "cleanup 1"][..]),
        (Stage::Prepare, &["setup 1", "prepare 1", "cleanup 1"]),
        (Stage::Conclude, &["setup 1", "prepare 1", "1", "conclude 1", "cleanup 1"]),
    ] {
        let mut machine = Simulated { breaks: Some(breaks), ..Simulated::new(1, 0.001) };
        let fault = carry_out(surrounded(), &mut machine, 600).err().unwrap().to_string();
        let name = breaks.name();
        assert!(fault.starts_with(&format!("A, 1: --{name} {name}: exit code 9: no room. Next: ")), "{fault}");
        assert_eq!(machine.all, last);
    }
    let mut machine = Simulated { breaks: Some(Stage::Cleanup), ..Simulated::new(1, 0.001) };
    let fault = carry_out(surrounded(), &mut machine, 600).err().unwrap().to_string();
    assert!(fault.contains("--cleanup") && machine.all.ends_with(&["cleanup 1".into(), "cleanup 2".into()]), "{fault}");
}

#[test]
fn what_was_set_up_is_cleaned_up_after_an_interruption() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("try.sqlite")).unwrap();
    let trial = begin(&mut store, surrounded(), 1, 0).unwrap();
    let mut machine = Simulated::new(1, 0.001);
    let left = std::cell::Cell::new(1_u32);
    let stop = || left.replace(left.get().saturating_sub(1)) == 0;
    let budget = Nanoseconds(600 * SECOND);
    let (_, end) = conduct(&mut store, &trial, &mut machine, &mut Notes::default(), budget, &stop).unwrap();
    assert_eq!(end, End::Interrupted);
    assert_eq!(machine.all, ["setup 1", "prepare 1", "1", "conclude 1", "cleanup 1"]);
}

#[test]
fn a_run_counts_that_ends_with_an_ignored_status() {
    let says = |_: &str, _| ("x".to_owned(), Some("exit code 7: it says so".to_owned()));
    let with = |ignored| {
        let conditions = Conditions { ignored, ..Conditions::default() };
        let mut machine = Simulated { says, ..Simulated::new(1, 0.01) };
        carry_out(Design { conditions, ..design(&["1", "0.5"]) }, &mut machine, 600)
    };
    for ignored in [Ignored::All, Ignored::Only(vec![3, 7])] {
        let Conducted { trial, runs, end, judgement, .. } = with(ignored).unwrap();
        assert_eq!((end, &judgement.best), (End::Finished, &Best::One(1)));
        assert!(runs.measured(0).all(|run| run.status == Some(7)));
        let said = terminal::render(&trial.design, &runs, &judgement, end);
        assert!(said.contains("B: 6 of 6 runs ended with another exit status than 0; they count"), "{said}");
    }
    for ignored in [Ignored::None, Ignored::Only(vec![1, 2])] {
        let fault = with(ignored).err().unwrap().to_string();
        assert!(fault.contains("exit code 7: it says so") && fault.contains("--ignore-failure"), "{fault}");
    }
}

#[test]
fn an_arm_that_was_only_proposed_is_left_out_where_it_cannot_run() {
    let says = |arm: &str, _| ("x".to_owned(), (arm == "2").then(|| "exit code 3: it says so".to_owned()));
    let with = |proposed, arms: &[&str]| {
        let conditions = Conditions { proposed, ..Conditions::default() };
        let mut machine = Simulated { says, ..Simulated::new(1, 0.01) };
        carry_out(Design { conditions, ..design(arms) }, &mut machine, 600)
    };
    let Conducted { end, judgement, .. } = with(true, &["1", "2", "0.5"]).unwrap();
    assert_eq!((end, &judgement.best), (End::Finished, &Best::One(2)));
    assert!(judgement.arms[1].left_out.as_ref().is_some_and(|why| why.contains("exit code 3")), "{judgement:?}");
    assert!(with(false, &["1", "2", "0.5"]).is_err() && with(true, &["2", "1"]).is_err());
}

#[test]
fn too_few_rounds_give_no_interval() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("try.sqlite")).unwrap();
    let trial = begin(&mut store, design(&["1", "2"]), 1, 0).unwrap();
    let mut machine = Simulated::new(1, 0.01);
    // Both warm up, and two rounds follow.
    let left = std::cell::Cell::new(6_u32);
    let stop = || left.replace(left.get().saturating_sub(1)) == 0;
    let budget = Nanoseconds(600 * SECOND);
    let (runs, end) = conduct(&mut store, &trial, &mut machine, &mut Notes::default(), budget, &stop).unwrap();
    let judgement = judge(&trial.design, &runs);
    let said = terminal::render(&trial.design, &runs, &judgement, end);
    assert!(said.contains("  B  2  cannot tell: 2 of 6 rounds\n"), "{said}");
    assert!(said.contains("Cannot tell A and B apart: 2 of 6 rounds.") && !said.contains(" .. "), "{said}");
    assert!(!page::render(&trial, &runs, &judgement, end).contains("after 2 rounds"));
    let json: serde_json::Value =
        serde_json::from_str(&export::render(Format::Json, &trial, &runs, &judgement)).unwrap();
    assert!(json["arms"][1]["over_first"].is_null() && json["arms"][1]["rounds_compared"] == 2, "{json}");
}

#[test]
fn rounds_that_are_all_the_same_have_no_interval_of_zero_width() {
    let mut machine = Simulated::new(1, 0.0);
    let Conducted { trial, runs, end, judgement, .. } = carry_out(design(&["1", "2"]), &mut machine, 600).unwrap();
    let said = terminal::render(&trial.design, &runs, &judgement, end);
    assert!(said.contains("  B  2  100 % slower (the same in all 6 rounds)\n"), "{said}");
    assert!(said.contains("mean 1.000 ± 0 s, min 1.000 s, max 1.000 s, median 1.000 s"), "{said}");
}

#[test]
fn every_run_is_exported_in_its_order() {
    let mut machine = Simulated::new(1, 0.01);
    let mut piped = design(&["1", "2"]);
    piped.arms[1].line = "2|".to_owned();
    let Conducted { trial, runs, judgement, .. } = carry_out(piped, &mut machine, 600).unwrap();
    let all = machine.runs.len();
    let of = |format| export::render(format, &trial, &runs, &judgement);
    let json: serde_json::Value = serde_json::from_str(&of(Format::Json)).unwrap();
    let exported = json["runs"].as_array().unwrap();
    assert_eq!((exported.len(), json["arms"].as_array().unwrap().len()), (all, 2));
    let arms: Vec<&str> = exported.iter().map(|run| run["arm"].as_str().unwrap()).collect();
    let ran: Vec<&str> = machine.runs.iter().map(|run| if run == "1" { "A" } else { "B" }).collect();
    assert_eq!(arms, ran);
    let last = &exported[all - 1];
    assert_eq!((last["index"].as_u64(), last["exit_status"].as_u64()), (Some(all as u64 - 1), Some(0)));
    let seconds = |name: &str| last[name].as_f64().unwrap();
    assert!((seconds("user_seconds") + seconds("system_seconds") - seconds("seconds")).abs() < 1e-6, "{last}");
    assert!(last["probe_after_ps"] == 50_000 && last["clocks_before_hz"][0][1] == 3_000_000_000_u64, "{last}");
    let csv = of(Format::Csv);
    assert_eq!(csv.lines().count(), all + 1);
    assert!(csv.starts_with("index,arm,name,round,") && csv.contains(",0:3000000000\n"), "{csv}");
    let markdown = of(Format::Markdown);
    assert_eq!(markdown.lines().filter(|line| line.starts_with("| ")).count(), 1 + 2 + 1 + all, "{markdown}");
    assert!(markdown.contains("| B | 2\\| |"), "{markdown}");
}

#[test]
fn conditions_are_a_part_of_what_is_gone_on_with() {
    let plain = design(&["1", "2"]);
    let conditions = |change: fn(&mut Conditions)| {
        let mut design = plain.clone();
        change(&mut design.conditions);
        design.hash()
    };
    let hashes = [
        plain.hash(),
        conditions(|of| of.input = Some("in".into())),
        conditions(|of| of.shell = Some("sh -c".into())),
        conditions(|of| of.ignored = Ignored::All),
        conditions(|of| of.aside = vec![Aside { setup: vec!["make".into()], ..Aside::default() }]),
        conditions(|of| of.aside = vec![Aside { prepare: vec!["make".into()], ..Aside::default() }]),
    ];
    let different: std::collections::BTreeSet<&String> = hashes.iter().collect();
    assert_eq!(different.len(), hashes.len());
}

#[test]
fn a_page_of_another_trial_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let of = |seed| carry_out(design(&["1", "2"]), &mut Simulated::new(seed, 0.01), 600).unwrap();
    let (first, second) = (of(1), of(2));
    let second = Conducted { trial: Trial { started: Nanoseconds(1), ..second.trial }, ..second };
    let wanted = folder.path().join("try.html");
    let write = |of: &Conducted| {
        let place = page::place(&wanted, &of.trial);
        std::fs::write(&place, page::render(&of.trial, &of.runs, &of.judgement, of.end)).unwrap();
        place.file_name().unwrap().to_str().unwrap().to_owned()
    };
    let written = [&first, &second, &first, &second].map(write);
    assert_eq!(written, ["try.html", "try-2.html", "try.html", "try-2.html"]);
    std::fs::write(&wanted, "a page of the user's").unwrap();
    assert_eq!(write(&first), "try-3.html");
}

#[test]
fn earlier_trials_are_listed_and_found_by_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("try.sqlite")).unwrap();
    assert!(store.trial(None).unwrap_err().cause().contains("holds no trial"));
    let begun: Vec<Trial> =
        [&["1", "2"], &["3", "4"]].into_iter().map(|arms| begin(&mut store, design(arms), 1, 7).unwrap()).collect();
    store.finish(&mut begun[0].clone(), Nanoseconds(9)).unwrap();
    let trials = store.all().unwrap();
    assert_eq!((trials[0].finished, trials[1].finished), (Some(Nanoseconds(9)), None));
    assert_eq!(store.trial(Some(begun[0].id)).unwrap().design, design(&["1", "2"]));
    assert!(store.trial(Some(77)).unwrap_err().next().contains("1 to 2"));
    let runs = store.runs(&trials[1]).unwrap();
    let entry = terminal::entry(&trials[1], &runs, &judge(&trials[1].design, &runs));
    assert!(entry.starts_with("2  1970-01-01 00:00 UTC  0 rounds (unfinished)  Cannot tell A and B apart"), "{entry}");
    assert!(entry.ends_with("\n   A  3\n   B  4\n"), "{entry}");
}

#[test]
fn there_must_be_something_to_compare() {
    for (arms, why) in [(vec![], "no command"), (vec!["1"], "one command alone"), (vec!["1"; 13], "13 are more")] {
        let fault = design(&arms).checked().unwrap_err().to_string();
        assert!(fault.contains(why), "{fault}");
    }
}
