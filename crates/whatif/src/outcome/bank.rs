//! The bank of outcomes: a row for each prediction of one recording by another, as `plimsoll whatif bank` prints them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use machine::costs::{ENGINE, Interval, Way};
use machine::{Fault, Result, figure};
use rounds::conformal::{Quantile, Scored, quantile};

use super::{Features, Forecast, Kind, Quality, farthest};
use crate::answer::{Answer, Program};
use crate::lever::Lever;

/// The share of outcomes that calibrated intervals contain.
pub const LEVEL: f64 = 0.9;

/// The shortest recording, seconds, and the fewest trips on its path, of which a change can be told.
pub(super) const SHORTEST: f64 = 0.2;
const FEWEST: f64 = 200.0;

/// The least change, in logarithms, for which few trips matter.
const SLIGHT: f64 = 0.02;

/// The most that a recording's time is uncertain by its own parts.
const NOISIEST: f64 = 0.25;

/// The most of the path that may be unexplained where the change is `LARGE`, in logarithms.
const UNEXPLAINED: f64 = 0.5;
const LARGE: f64 = 0.1;

/// A feature over the most of it in the bank beyond which an answer is unlike the bank's; and what is always like them.
const BEYOND: f64 = 1.1;
const ALWAYS: f64 = 0.05;

/// One prediction and its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub program: String,
    /// The carrier of the replayed recording, and of the predicted ones.
    pub carriers: [String; 2],
    /// The load beside the recordings, and beside the measuring of costs: `calm` or `hog`.
    pub load: String,
    pub costs: String,
    /// Hosts of the replayed recording.
    pub hosts: u32,
    pub kind: Kind,
    pub features: Features,
    /// The answer, over all draws.
    pub drawn: Interval,
    /// The recorded time over that of the replayed recording.
    pub observed: f64,
    /// Rows of one session were recorded within an hour, on a machine in one state.
    pub session: u32,
}

/// The names of a row's fields.
pub const HEADER: &str = "program\tfrom\tto\tload\tcosts\thosts\tkind\t\
    noise\ttaken\tunexplained\ttrips\tseconds\tcontradicted\tlow\tmiddle\thigh\tobserved\tsession";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { program, carriers: [from, to], load, costs, hosts, kind, features, drawn, observed, session } = self;
        let Features { noise, taken, unexplained, trips, seconds, contradicted, .. } = features;
        let Interval { low, middle, high } = drawn;
        write!(f, "{program}\t{from}\t{to}\t{load}\t{costs}\t{hosts}\t{}", kind.word())?;
        write!(f, "\t{noise:.4}\t{taken:.4}\t{unexplained:.3}\t{trips}\t{seconds:.3}\t{}", u8::from(*contradicted))?;
        write!(f, "\t{low:.4}\t{middle:.4}\t{high:.4}\t{observed:.4}\t{session}")
    }
}

impl FromStr for Row {
    type Err = Fault;

    fn from_str(line: &str) -> Result<Row> {
        let wrong =
            || Fault::new(format!("row '{line}'"), "it is no outcome", "make the bank again: scripts/make-bank");
        let words: Vec<&str> = line.split('\t').collect();
        let [program, from, to, load, costs, hosts, kind, figures @ ..] = words.as_slice() else { return Err(wrong()) };
        let figures: Vec<f64> = figures.iter().map(|word| word.parse().map_err(|_| wrong())).collect::<Result<_>>()?;
        let [noise, taken, unexplained, trips, seconds, contradicted, low, middle, high, observed, session] =
            figures[..]
        else {
            return Err(wrong());
        };
        let drawn = Interval { low, middle, high };
        let features = Features {
            draws: (high / low).ln() / 2.0,
            change: middle.ln().abs(),
            noise,
            taken,
            unexplained,
            trips,
            seconds,
            contradicted: contradicted != 0.0,
            moved: 0.0,
        };
        Ok(Row {
            program: program.to_string(),
            carriers: [from, to].map(|word| word.to_string()),
            load: load.to_string(),
            costs: costs.to_string(),
            hosts: hosts.parse().map_err(|_| wrong())?,
            kind: Kind::ALL.into_iter().find(|of| of.word() == *kind).ok_or_else(wrong)?,
            features,
            drawn,
            observed,
            session: session as u32,
        })
    }
}

impl Row {
    fn residual(&self) -> f64 {
        (self.observed / self.drawn.middle).ln() / self.features.scale()
    }
}

/// Outcomes, with what they say of each kind of lever.
#[derive(Debug, Clone, Default)]
pub struct Bank {
    pub rows: Vec<Row>,
    /// By kind, and whether others had the cores.
    kinds: BTreeMap<(Kind, bool), Calibrated>,
}

/// A kind of lever with enough outcomes.
#[derive(Debug, Clone)]
struct Calibrated {
    quantile: Quantile,
    /// By feature, the most of it.
    most: [f64; 4],
}

const QUIETER: &str = "record it again while nothing else runs, or measure: plimsoll try";
const MEASURED: &str = "run plimsoll calibrate and record it again, or measure: plimsoll try";

/// The features that an answer must share with the bank, and the step where it does not.
fn compared(features: &Features) -> [(f64, &'static str, &'static str); 4] {
    [
        (features.draws, "uncertain costs", MEASURED),
        (features.noise, "noise of the recording", QUIETER),
        (features.taken, "time of others on its cores", QUIETER),
        (features.unexplained, "unexplained part of the path", MEASURED),
    ]
}

impl Bank {
    /// The bank of this version.
    pub fn shipped() -> &'static Bank {
        static BANK: OnceLock<Bank> = OnceLock::new();
        BANK.get_or_init(|| Bank::read(include_str!("bank.tsv")).unwrap_or_default())
    }

    /// # Errors
    /// A line is no row.
    pub fn read(text: &str) -> Result<Bank> {
        Ok(Bank::of(text.lines().skip(1).map(str::parse).collect::<Result<_>>()?))
    }

    /// Rows that would be refused calibrate nothing. A kind with too few programs has the errors of all kinds.
    pub fn of(rows: Vec<Row>) -> Bank {
        let answered: Vec<&Row> = rows.iter().filter(|row| refused(&row.features).is_none()).collect();
        let programs: BTreeSet<&str> = rows.iter().map(|row| row.program.as_str()).collect();
        let group: BTreeMap<&str, u32> = programs.into_iter().zip(0..).collect();
        let scored = |row: &Row| Scored { group: group[row.program.as_str()], residual: row.residual() };
        let quantile_of = |fits: &dyn Fn(&Row) -> bool| {
            let scored: Vec<Scored> = answered.iter().filter(|row| fits(row)).map(|row| scored(row)).collect();
            quantile(&scored, LEVEL)
        };
        let calibrated = |(kind, loaded): (Kind, bool)| {
            let alike = |row: &Row| row.kind == kind && row.features.is_loaded() == loaded;
            let pooled = |row: &Row| row.kind != Kind::Same && row.features.is_loaded() == loaded;
            let own = quantile_of(&alike);
            let fits: &dyn Fn(&Row) -> bool = if own.is_some() { &alike } else { &pooled };
            let quantile = own.or_else(|| quantile_of(fits))?;
            let most = |most: [f64; 4], row: &Row| {
                let of = compared(&row.features);
                [0, 1, 2, 3].map(|nth| f64::max(most[nth], of[nth].0))
            };
            let most = answered.iter().filter(|row| fits(row)).fold([0.0; 4], |all, row| most(all, row));
            Some(((kind, loaded), Calibrated { quantile, most }))
        };
        let kinds = Kind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]);
        let kinds = kinds.filter_map(calibrated).collect();
        Bank { rows, kinds }
    }

    /// Each row with its forecast by the other programs; `apart`: by what they did in other sessions.
    pub fn cross_judged(&self, apart: bool) -> Vec<(&Row, Forecast)> {
        let mut by_others: BTreeMap<(&str, u32), Bank> = BTreeMap::new();
        let mut all = Vec::new();
        for row in &self.rows {
            let left_out = |other: &Row| other.program == row.program || apart && other.session == row.session;
            let others = || Bank::of(self.rows.iter().filter(|other| !left_out(other)).cloned().collect());
            let session = if apart { row.session } else { 0 };
            let others = by_others.entry((&row.program, session)).or_insert_with(others);
            all.push((row, others.judged(Some(row.kind), &row.features, row.drawn)));
        }
        all
    }

    /// The forecast of an answer to a lever, as a replay of the program gave it.
    pub fn of_answer(&self, program: &Program, quality: &Quality, lever: &Lever, answer: &Answer) -> Forecast {
        let reach = farthest(program.graph);
        let ways = [&program.ways, lever.ways.as_ref().unwrap_or(&program.ways)].map(|ways| ways.of(reach));
        let kind = Kind::of(program, lever).filter(|kind| self.knows(*kind, ways));
        self.forecast(kind, &quality.features(answer), answer.time)
    }

    /// Whether programs were recorded from the one carrier and to the other.
    fn knows(&self, kind: Kind, [from, to]: [&Way; 2]) -> bool {
        let is = |way: &Way, name: &str| match way.network.as_deref() {
            _ if way.carrier != ENGINE => way.carrier == name,
            None => name == "engine",
            Some(network) => network == name,
        };
        let both = |row: &Row| row.kind == kind && is(from, &row.carriers[0]) && is(to, &row.carriers[1]);
        !matches!(kind, Kind::Carrier | Kind::Network) || self.rows.iter().any(both)
    }

    /// The forecast of a lever of this `kind`. `drawn`: the answer over all draws.
    pub fn forecast(&self, kind: Option<Kind>, features: &Features, drawn: Interval) -> Forecast {
        if drawn != Interval::exactly(1.0) {
            return self.judged(kind, features, drawn);
        }
        match self.judged(Some(Kind::Same), features, drawn) {
            Forecast::Within { time, .. } => Forecast::Unchanged { again: Some(time) },
            _ => Forecast::Unchanged { again: None },
        }
    }

    fn judged(&self, kind: Option<Kind>, features: &Features, drawn: Interval) -> Forecast {
        let Some(Calibrated { quantile, most }) = kind.and_then(|kind| self.kinds.get(&(kind, features.is_loaded())))
        else {
            return Forecast::Uncalibrated(drawn);
        };
        if let Some((reason, next)) = refused(features).or_else(|| unlike(features, most)) {
            return Forecast::CannotTell { reason, next };
        }
        let scale = features.scale();
        let at = |residual: f64| drawn.middle * (scale * residual).exp();
        let Quantile { bias, half, .. } = *quantile;
        let time = Interval { low: at(bias - half), middle: at(bias), high: at(bias + half) };
        Forecast::Within { time, widened: features.widenings() }
    }
}

fn percent(share: f64) -> String {
    format!("{} %", figure::significant(100.0 * share, 2))
}

/// The reason why a recording tells nothing of this, and what would.
fn refused(of: &Features) -> Option<(String, String)> {
    let longer = |times: f64| format!("record {:.0} times as many steps", times.ceil());
    if of.contradicted {
        let reason = "calls were over sooner than the costs say";
        return Some((reason.to_owned(), "run plimsoll calibrate, and record it again".to_owned()));
    }
    if of.seconds < SHORTEST {
        return Some((
            format!("the recording lasts {} s", figure::significant(of.seconds, 2)),
            longer(SHORTEST / of.seconds.max(1e-3)),
        ));
    }
    if of.noise.is_infinite() {
        return Some(("the recording has too few calls".to_owned(), longer(10.0)));
    }
    if of.trips < FEWEST && of.change > SLIGHT {
        return Some((format!("only {} trips are on the critical path", of.trips), longer(FEWEST / of.trips.max(1.0))));
    }
    if of.noise > NOISIEST {
        let reason = format!("the recording's time is uncertain by {} by its own parts", percent(of.noise));
        return Some((reason, QUIETER.to_owned()));
    }
    if of.unexplained > UNEXPLAINED && of.change > LARGE {
        let reason = format!("{} of the critical path are unexplained", percent(of.unexplained));
        return Some((reason, MEASURED.to_owned()));
    }
    None
}

/// The feature of which no recorded program had as much.
fn unlike(features: &Features, most: &[f64; 4]) -> Option<(String, String)> {
    let beyond = |((value, ..), most): &((f64, &str, &str), &f64)| *value > (**most * BEYOND).max(ALWAYS);
    let ((value, name, next), most) = compared(features).into_iter().zip(most).find(beyond)?;
    let there = percent(*most);
    Some((
        format!("no calibrated program is like this: {name} {}, at most {there} there", percent(value)),
        next.to_owned(),
    ))
}
