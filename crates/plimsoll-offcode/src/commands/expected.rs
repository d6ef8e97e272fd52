//! Expected figures of offcodes, in the ledger before they start, and what came beside them; figures of earlier runs
//! for plans.

use std::collections::HashSet;

use attach::control::Report;
use experiment::ledger::{Kind, Ledger, Outcome, Prediction, Subject};
use machine::costs::Interval;
use machine::{Nanoseconds, Result, Site};
use rounds::statistics::predictive_interval;
use runtime::expectation::Expectation;
use runtime::measured::{Build, RATE, SourcedInterval, rate_on, time_at, work_at};
use runtime::site::Evidence;

/// Least number of timed uses: of fewer, the first ones with cold caches would count too much.
const USES: u64 = 32;
/// Number of outcomes from which the next is predicted, sharper than from costs.
const RUNS: usize = 3;

/// Factor by which one or two runs may be off.
const FEW: f64 = 2.0;

/// Measurements of an application's earlier runs, for plans.
pub fn told(ledger: &Ledger, application: &str) -> impl Fn(&Build, &str) -> Option<SourcedInterval> {
    move |build, quantity| {
        let outcomes = earlier(ledger, &subject(application, build), quantity);
        let interval = match outcomes.as_slice() {
            [] => return None,
            few if few.len() < RUNS => {
                let middle = (few.iter().map(|value| value.ln()).sum::<f64>() / few.len() as f64).exp();
                Interval { low: middle / FEW, middle, high: middle * FEW }
            }
            all => predictive_interval(all)?,
        };
        Some(SourcedInterval { interval, how: machine::count::of(outcomes.len() as u64, "earlier run") })
    }
}

/// Stores what is expected of each offcode of an application, by its earlier runs or else by costs and what is stated,
/// unless the same still waits for an outcome.
///
/// # Errors
/// The ledger cannot be written.
pub fn predict(ledger: &mut Ledger, application: &str, expected: &[Expectation]) -> Result<()> {
    for of in expected {
        let site = &of.site;
        predict_one(
            ledger,
            Kind::Offcode,
            subject(application, &of.build),
            time_at(site),
            (of.time, &of.because),
            site,
        )?;
        predict_one(
            ledger,
            Kind::Offcode,
            subject(application, &of.build),
            work_at(site),
            (of.work, &of.because),
            site,
        )?;
        for (quantity, rate) in &of.rates {
            let stated = (*rate, "what the application and the manifests state");
            predict_one(ledger, Kind::Rate, subject(application, &of.whole), quantity.clone(), stated, site)?;
        }
    }
    Ok(())
}

fn predict_one(
    ledger: &mut Ledger,
    kind: Kind,
    subject: Subject,
    quantity: String,
    (by_costs, because): (Interval, &str),
    site: &Site,
) -> Result<()> {
    let earlier = earlier(ledger, &subject, &quantity);
    let told = if earlier.len() < RUNS { None } else { predictive_interval(&earlier) };
    let (expected, because) = match told {
        Some(interval) => (interval, format!("{} earlier runs", earlier.len())),
        None => (by_costs, because.to_owned()),
    };
    let of = Prediction::new(kind, subject, quantity, expected, because);
    let prediction = Prediction { choice: Some(site.to_string()), ..of }.widened(ledger.widening(kind, None));
    if !ledger.open_predictions().any(|open| open.key() == prediction.key()) {
        ledger.predict(prediction)?;
    }
    Ok(())
}

/// Settles the predictions of running offcodes by what the sites timed and counted. Returns a sentence for each time.
///
/// # Errors
/// The ledger cannot be written.
pub fn settle(ledger: &mut Ledger, expected: &[Expectation], last: &Report) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for of in expected {
        let running = last.offcodes.iter().find(|running| running.instance == of.build.instance);
        let Some(Ok(evidence)) = running.map(|running| &running.evidence) else { continue };
        let subject_of = |build| subject(&last.application, build);
        for (quantity, count) in counted(evidence) {
            let value = count as f64 * 1e3 / last.running_ms.max(1) as f64;
            settle_one(ledger, &subject_of(&of.whole), &quantity, value)?;
        }
        let Some(timed) = evidence.timed.filter(|timed| timed.uses >= USES) else { continue };
        let settled = settle_one(ledger, &subject_of(&of.build), &time_at(&of.site), timed.each())?;
        said.extend(settled.last().map(|one| format!("{}: {}", of.build.instance, one.against(timed.each()))));
        // What is left where the ends of its channels took all of it is less than the clock shows.
        let work = (timed.each() - of.ends).max(1.0);
        settle_one(ledger, &subject_of(&of.build), &work_at(&of.site), work)?;
    }
    Ok(said)
}

/// All uses of an offcode, and their part by channel.
fn counted(evidence: &Evidence) -> Vec<(String, u64)> {
    let channels = evidence.received.iter().map(|(channel, count)| (rate_on(channel), *count));
    std::iter::once((RATE.to_owned(), evidence.uses)).chain(channels).filter(|(_, count)| *count >= USES).collect()
}

fn settle_one(ledger: &mut Ledger, subject: &Subject, quantity: &str, value: f64) -> Result<Vec<Prediction>> {
    let outcome = Outcome { id: 0, came: now(), value, interval: None, source: "plimsoll run".to_owned() };
    ledger.settle(subject, quantity, &outcome)
}

/// The outcomes of earlier predictions of the same subject, once a run.
fn earlier(ledger: &Ledger, subject: &Subject, quantity: &str) -> Vec<f64> {
    let same = |of: &&Prediction| of.subject == *subject && of.quantity == quantity;
    let ids: HashSet<u64> = ledger.predictions.iter().filter(same).map(|of| of.id).collect();
    let mut outcomes: Vec<&Outcome> = ledger.outcomes.iter().filter(|outcome| ids.contains(&outcome.id)).collect();
    outcomes.dedup_by_key(|outcome| outcome.came);
    outcomes.iter().map(|outcome| outcome.value).collect()
}

fn subject(application: &str, build: &Build) -> Subject {
    let mut words = format!("{} {}", build.offcode, build.version);
    if build.instance != build.offcode {
        words += &format!(" as {}", build.instance);
    }
    words += &format!(" of {application}");
    if let Some(body) = build.body {
        words += &format!(", {body}");
    }
    Subject { words, digest: build.digest.clone() }
}

fn now() -> Nanoseconds {
    machine::here::now()
}

#[cfg(test)]
mod tests {
    use machine::costs::Interval;
    use machine::{BodyKind, Site};
    use runtime::Running;
    use runtime::site::Evidence;
    use runtime::site::evidence::Timed;

    use super::*;

    fn expectation() -> Expectation {
        let (offcode, version) = ("test.counter".to_owned(), "1".to_owned());
        let build = |body| Build {
            instance: offcode.clone(),
            offcode: offcode.clone(),
            version: version.clone(),
            body,
            digest: "d".into(),
        };
        Expectation {
            build: build(Some(BodyKind::Wasm)),
            whole: build(None),
            site: Site::App,
            time: Interval { low: 10.0, middle: 100.0, high: 1000.0 },
            ends: 30.0,
            work: Interval { low: 10.0, middle: 100.0, high: 1000.0 },
            because: "costs".into(),
            rates: vec![(RATE.into(), Interval { low: 1.0, middle: 1000.0, high: 1e6 })],
        }
    }

    fn report(uses: u64, each: u64) -> Report {
        let timed = Some(Timed { uses, time: Nanoseconds(uses * each) });
        let evidence = Ok(Evidence { uses, timed, ..Evidence::default() });
        let (instance, offcode, version) = ("test.counter".into(), "test.counter".into(), "1".into());
        let (attributes, channels) = (Vec::new(), Ok(Vec::new()));
        let running = Running { instance, offcode, version, site: Site::App, attributes, evidence, channels };
        Report { process: 1, application: "monitor".into(), running_ms: 1, offcodes: vec![running] }
    }

    fn time(ledger: &Ledger) -> &Prediction {
        ledger.predictions.iter().rfind(|of| of.quantity == "time for a message at app").unwrap()
    }

    #[test]
    fn one_run_tells_a_plan_what_an_offcode_takes_and_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        let expected = [expectation()];
        assert_eq!(told(&ledger, "monitor")(&expected[0].build, &work_at(&Site::App)), None);
        predict(&mut ledger, "monitor", &expected).unwrap();
        settle(&mut ledger, &expected, &report(64, 150)).unwrap();
        let told = told(&ledger, "monitor");
        let work = told(&expected[0].build, &work_at(&Site::App)).unwrap();
        assert_eq!((work.interval.middle.round(), work.how.as_str()), (120.0, "1 earlier run"));
        assert_eq!(told(&expected[0].whole, RATE).unwrap().interval.middle.round(), 64_000.0);
        let rebuilt = Build { digest: "another".into(), ..expected[0].build.clone() };
        assert_eq!(told(&rebuilt, &work_at(&Site::App)), None);
    }

    #[test]
    fn instances_of_one_offcode_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        let named = |name: &str| {
            let mut of = expectation();
            (of.build.instance, of.whole.instance) = (name.into(), name.into());
            of
        };
        let expected = [named("left"), named("right")];
        predict(&mut ledger, "monitor", &expected).unwrap();
        let mut last = report(64, 150);
        last.offcodes[0].instance = "right".into();
        let said = settle(&mut ledger, &expected, &last).unwrap();
        assert!(said.len() == 1 && said[0].starts_with("right: time"), "{said:?}");
        let told = told(&ledger, "monitor");
        assert_eq!(told(&expected[0].build, &work_at(&Site::App)), None, "left was not there");
        assert!(told(&expected[1].build, &work_at(&Site::App)).is_some());
        assert_eq!(told(&expectation().build, &work_at(&Site::App)), None);
        let words = |of: &Prediction| of.subject.words == "test.counter 1 as right of monitor, wasm";
        assert!(ledger.predictions.iter().any(words), "{:?}", ledger.predictions);
    }

    #[test]
    fn earlier_runs_tell_more_than_costs() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        let expected = [expectation()];
        for each in [150, 152, 149] {
            predict(&mut ledger, "monitor", &expected).unwrap();
            assert_eq!(time(&ledger).because, "costs");
            let said = settle(&mut ledger, &expected, &report(64, each)).unwrap();
            assert_eq!(
                said,
                [format!("test.counter: time for a message at app: {each} ns, expected 10 ns .. 1000 ns: held")]
            );
        }
        predict(&mut ledger, "monitor", &expected).unwrap();
        let last = time(&ledger);
        assert!(last.because == "3 earlier runs" && last.expected.high < 200.0, "{last:?}");
        // Of another application it is not known.
        predict(&mut ledger, "other", &expected).unwrap();
        assert_eq!(time(&ledger).because, "costs");
    }

    #[test]
    fn what_too_few_messages_tell_leaves_the_prediction_open_and_it_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::at(&folder.path().join("l")).unwrap();
        let expected = [expectation()];
        for _ in 0..2 {
            predict(&mut ledger, "monitor", &expected).unwrap();
            assert_eq!(settle(&mut ledger, &expected, &report(USES - 1, 150)).unwrap(), Vec::<String>::new());
        }
        assert_eq!((ledger.predictions.len(), ledger.open_predictions().count()), (3, 3));
    }
}
