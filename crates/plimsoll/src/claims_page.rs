//! The papers' claims beside predictions, for a terminal.

use std::collections::BTreeSet;
use std::fmt::Write;

use claims::Calibration;
use claims::judge::{Against, Judged, Judgement};
use claims::open::{BreakEven, CORES, Scaling};
use claims::power::Trade;
use claims::rows::{Contradiction, Published, Range, Row};
use claims::statement::{Null, Statement};
use machine::costs::Interval;
use machine::text::{Table, folded};
use machine::{Fault, Result};

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size < 0.005 => "0.00".to_owned(),
        _ => format!("{value:.2}"),
    }
}

fn interval(of: Interval) -> String {
    match of.low == of.high {
        true => number(of.middle),
        false => format!("{} ({}..{})", number(of.middle), number(of.low), number(of.high)),
    }
}

fn clipped(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// The published figure, with the first word of its unit.
fn published(of: &Published) -> String {
    match of {
        Published::Number { value, within: [low, high], unit, .. } => {
            let unit = match unit.split(' ').next() {
                Some("times") => "x",
                unit => unit.unwrap_or_default(),
            };
            format!("{} {unit}", interval(Interval { middle: *value, low: *low, high: *high }))
        }
        Published::Words { says, .. } => says.clone(),
    }
}

/// A number with its interval, or the share of draws for the published word.
fn says(statement: &Statement, of: &Published) -> String {
    match (statement, of) {
        (Statement::Number(of), _) => interval(*of),
        (Statement::Words(said), Published::Words { says, .. }) => {
            format!("{:.0} % say so", 100.0 * said.get(says).unwrap_or(&0.0))
        }
        (Statement::Words(said), _) => said.keys().cloned().collect::<Vec<_>>().join("; "),
    }
}

fn verdict(judged: &Judged) -> &'static str {
    match &judged.scored {
        None => "no model",
        Some(scored) if scored.inside && judged.constructed => "inside *",
        Some(scored) if scored.inside => "inside",
        Some(_) => "OUTSIDE",
    }
}

fn against(against: Option<Against>) -> &'static str {
    match against {
        None => "",
        Some(Against::Better) => "better",
        Some(Against::Same) => "same",
        Some(Against::Worse) => "worse",
    }
}

fn best(judged: &Judged) -> Option<&Null> {
    let best = judged.nulls.iter().min_by(|(_, one), (_, other)| one.score.total_cmp(&other.score));
    best.map(|(null, _)| null)
}

/// All figures that judge, then why some miss, what feeds, and where the papers contradict themselves.
pub fn table(rows: &Calibration, judgement: &Judgement, width: usize) -> String {
    let header = ["row", "figure", "published", "predicted", "is", "best simple rule", "model", "parameters"];
    let mut table = Table::new(header);
    for judged in &judgement.judged {
        let (fitted, swept) = judged.prediction.counted();
        let counted = format!("{fitted}+{swept} of {}", judged.prediction.rows.len());
        table.row([
            judged.id.clone(),
            judged.prediction.quantity.clone(),
            clipped(&published(&judged.published), 22),
            judged.prediction.says.as_ref().map_or_else(String::new, |of| says(of, &judged.published)),
            verdict(judged).to_owned(),
            best(judged).map_or_else(String::new, |null| says(&null.says, &judged.published)),
            against(judged.against).to_owned(),
            if judged.scored.is_some() { counted } else { String::new() },
        ]);
    }
    let what = "Figures that only judge. Modelled, not measured; *: by the model's form alone; parameters: fitted + swept, of rows read.";
    let mut page = format!("{}\n{}\n", folded("", what, 0, width), table.text(width));
    page += &summary(judgement, width);
    page += "\nNotes\n";
    for judged in judgement.judged.iter().filter(|judged| !judged.note.is_empty()) {
        page += &folded(&format!("{:<4}{}: ", judged.id, judged.prediction.quantity), &judged.note, 4, width);
    }
    page += "\nRows that feed\n";
    for row in rows.rows() {
        let figures: Vec<String> = row.values.iter().map(|(name, of)| format!("{name} {}", published(of))).collect();
        page += &folded(&format!("{:<4}{:<10} ", row.id, row.usage.to_string()), &figures.join(", "), 15, width);
    }
    page += "\nWhere the papers contradict themselves\n";
    page += &judgement.contradictions.iter().map(|of| contradiction(of, width)).collect::<String>();
    page + "\nplimsoll claims ID explains a row; power and open are pages of their own.\n"
}

fn contradiction(of: &Contradiction, width: usize) -> String {
    folded(&format!("{}: ", of.rows.join(", ")), &format!("{}; but {}.", of.says, of.but), 4, width)
}

fn summary(judgement: &Judgement, width: usize) -> String {
    let all = &judgement.judged;
    let with = |word: &str| all.iter().filter(|judged| verdict(judged).starts_with(word)).count();
    let constructed = all.iter().filter(|judged| judged.constructed).count();
    let model = |word: Against| all.iter().filter(|judged| judged.against == Some(word)).count();
    let seen = all.iter().filter(|judged| judged.seen).count();
    let evidence = all.iter().filter(|judged| verdict(judged) == "inside" && judged.against == Some(Against::Better));
    let evidence = evidence.count();
    let parameters = |fitted: bool| {
        let of_all = all.iter().flat_map(|judged| &judged.prediction.parameters);
        of_all.filter(|of| of.fitted == fitted).map(|of| &of.name).collect::<BTreeSet<_>>().len()
    };
    let read: BTreeSet<&String> = all.iter().flat_map(|judged| &judged.prediction.rows).collect();
    folded(
        "",
        &format!(
            "{} figures: {} inside ({constructed} of them by the model's form alone), {} outside, {} without a model. Against the \
             best simple rule the model is better in {}, the same in {}, worse in {}; inside, better and not by its form alone \
             in {evidence}. {} parameters are fitted and {} swept, over {} rows that feed. {seen} of the figures were known to \
             those who chose the models: none of them is a prediction in the strict sense.",
            all.len(),
            with("inside"),
            with("OUTSIDE"),
            with("no model"),
            model(Against::Better),
            model(Against::Same),
            model(Against::Worse),
            parameters(true),
            parameters(false),
            read.len(),
        ),
        0,
        width,
    )
}

/// One row: its wording, the predictions with their models, and the scores.
///
/// # Errors
/// No row has this name.
pub fn explain(id: &str, rows: &Calibration, judgement: &Judgement, width: usize) -> Result<String> {
    let figures: Vec<&Judged> = judgement.judged.iter().filter(|judged| judged.id == id).collect();
    let mut page = String::new();
    if let Some(row) = rows.rows().iter().find(|row| row.id == id) {
        page += &feeding(row, judgement, width);
    } else if let Some(first) = figures.first() {
        page += &format!("{id}  {}, paper {}, {}: only judges\n", first.quantity, first.paper, first.place);
        page += &described(&first.conditions, &first.wording, width);
        figures.iter().for_each(|judged| page += &figure(judged, width));
    } else {
        let mut ids: Vec<&str> = rows.rows().iter().map(|row| row.id.as_str()).collect();
        ids.extend(judgement.judged.iter().map(|judged| judged.id.as_str()));
        ids.dedup();
        return Err(Fault::new(id, "no row has this name", format!("choose one of {}", ids.join(", "))));
    }
    for of in judgement.contradictions.iter().filter(|of| of.rows.iter().any(|row| row == id)) {
        page += &format!("\nContradiction. {}", contradiction(of, width));
    }
    Ok(page)
}

fn described(conditions: &str, wording: &str, width: usize) -> String {
    let mut page = folded("", &format!("'{wording}'"), 0, width);
    if !conditions.is_empty() {
        page += &folded("", conditions, 0, width);
    }
    page
}

fn feeding(row: &Row, judgement: &Judgement, width: usize) -> String {
    let mut page = format!("{}  {}, paper {}, {}: {}\n", row.id, row.quantity, row.paper, row.place, row.usage);
    page += &described(&row.conditions, &row.wording, width);
    for (name, of) in &row.values {
        let _ = writeln!(page, "  {name:<28} {}", published(of));
    }
    let read_by = judgement.judged.iter().filter(|judged| judged.prediction.rows.contains(&row.id));
    let read_by: Vec<&str> = read_by.map(|judged| judged.prediction.quantity.as_str()).collect();
    match read_by.is_empty() {
        true => page + "Read by no prediction of a figure that judges.\n",
        false => page + &folded("Read by the predictions of ", &format!("{}.", read_by.join(", ")), 4, width),
    }
}

fn figure(judged: &Judged, width: usize) -> String {
    let prediction = &judged.prediction;
    let mut page = format!("\n{}\n  published   {}\n", prediction.quantity, published(&judged.published));
    let (Some(statement), Some(scored)) = (&prediction.says, &judged.scored) else {
        return page + &folded("  no model    ", &prediction.model, 14, width);
    };
    let predicted = says(statement, &judged.published);
    let _ = writeln!(
        page,
        "  predicted   {predicted}: {}, score {} (less is better)",
        verdict(judged),
        number(scored.score)
    );
    if let (Statement::Words(said), true) = (statement, matches!(judged.published, Published::Words { .. })) {
        for (word, share) in said {
            let _ = writeln!(page, "              {:>3.0} %  {word}", 100.0 * share);
        }
    }
    for (null, scored) in &judged.nulls {
        let held = if scored.inside { "inside" } else { "outside" };
        let said = says(&null.says, &judged.published);
        let _ = writeln!(page, "  simple rule {}: {said}, {held}, score {}", null.rule, number(scored.score));
    }
    let _ = writeln!(
        page,
        "  the model   is {} than the best of these",
        match judged.against {
            Some(Against::Better) => "better",
            Some(Against::Worse) => "worse",
            Some(Against::Same) | None => "no better",
        }
    );
    page += &folded("  equation    ", &prediction.model, 14, width);
    if !prediction.rows.is_empty() {
        let _ = writeln!(page, "  reads       {}", prediction.rows.join(", "));
    }
    for of in &prediction.parameters {
        let Range { low, high } = of.range;
        let range = interval(Interval { middle: (low + high) / 2.0, low, high });
        let how = if of.fitted { "fitted to" } else { "swept:" };
        page += &folded("  parameter   ", &format!("{}: {range} {}, {how} {}", of.name, of.unit, of.from), 14, width);
    }
    if judged.seen {
        page += "  seen        whoever chose this form knew the row\n";
    }
    if !judged.note.is_empty() {
        page += &folded("  note        ", &judged.note, 14, width);
    }
    page
}

/// The curves of watts saved against performance lost.
pub fn power(curves: &[Vec<Trade>; 2], knee: Interval, shares: [Interval; 2], width: usize) -> String {
    let mut page = folded(
        "",
        "Watts saved against performance lost, in per cent of 3.8 GHz, for a stream. Modelled, not measured: bandwidth is fitted \
         to 2.9 and 1.9 GHz of onload and to 2.9 GHz of offload, watts to 2.9 GHz of each; v, below which the voltage does not \
         follow the clock, is swept.",
        0,
        width,
    );
    let _ = writeln!(page, "The core is the bottleneck of onload's stream below {} GHz.", interval(knee));
    let [onload, offload] = shares.map(interval);
    page += &folded(
        "",
        &format!(
            "The paper does not agree with itself: clock and use move {onload} % of one processor's watts by onload's row, \
             {offload} % by offload's."
        ),
        0,
        width,
    );
    for (card, curve) in ["onload", "offload"].iter().zip(curves) {
        let lowest = curve.iter().map(|trade| trade.clock).fold(f64::INFINITY, f64::min);
        let mut table = Table::new(["GHz", "watts saved %", "performance lost %", "energy a byte", ""]).right([0]);
        for trade in curve {
            table.row([
                format!("{:.1}", trade.clock),
                interval(trade.saved),
                interval(trade.lost),
                interval(trade.energy),
                match (trade.knee, trade.clock == lowest) {
                    (false, _) => "",
                    (true, false) => "<- knee: most saved less lost",
                    (true, true) => "<- no knee: each lower clock saves more than it loses",
                }
                .to_owned(),
            ]);
        }
        let _ = write!(page, "\n{card}\n{}", table.text(width));
    }
    page
}

/// Break-even of onload and offload, and the scaling of an engine that a node shares.
pub fn open(surface: &[BreakEven], scaling: &Scaling, width: usize) -> String {
    let mut page = folded(
        "",
        "How many cores at which clock make onload equal to offload? Bandwidth of a stream, onload over offload, both taken to \
         be as fast at full clock; modelled from the losses at 2.9 and 1.9 GHz. No number of cores shortens what one message \
         waits for.",
        0,
        width,
    );
    let mut header = vec!["slower by".to_owned(), "GHz of 3.8".to_owned()];
    header.extend(CORES.map(|cores| format!("{cores} cores")));
    header.push("equal at".into());
    let mut table = Table::new(header).right([0, 1]);
    for row in surface {
        let mut cells = vec![format!("{:.2}", row.dilation), format!("{:.2}", 3.8 / row.dilation)];
        cells.extend(row.ratio.iter().map(|ratio| number(ratio.middle)));
        cells.push(interval(row.cores) + " cores");
        table.row(cells);
    }
    let _ = writeln!(page, "\n{}", table.text(width));
    page += &folded(
        "",
        "From how many cells a core does one engine for a node stop scaling? A step of n cells a core takes n + v where cores do \
         their messages, n + u where all cores of a node share one engine; gain of onload (u - v) / (n + v), from the two runs \
         of paper 004 (366 % at 1070 cells, 20 % at 285,000).",
        0,
        width,
    );
    let _ = writeln!(
        page,
        "\n  messages of a step   {} cells' worth on the core, {} in the shared engine",
        interval(scaling.on_core),
        interval(scaling.in_engine)
    );
    let _ = writeln!(
        page,
        "  ratio                {}: most that onload can gain; paper 004 has 'almost five times' the cycles",
        interval(scaling.ratio)
    );
    let _ = writeln!(
        page,
        "  cores of a node      {} keep one engine busy at full clock, as many times more as clocks are slower",
        interval(scaling.cores)
    );
    for (gain, cells) in &scaling.cells {
        let _ = writeln!(page, "  gain of {gain:>3.0} %        below {} cells a core", interval(*cells));
    }
    page += &folded(
        "  by surface           ",
        &format!(
            "messages that grow with n^(2/3) would need v = {} < 0: both runs cannot be of such a law",
            interval(scaling.by_surface)
        ),
        23,
        width,
    );
    page.push('\n');
    page + &folded(
        "",
        &format!(
            "Which of the gains do the semantics explain, queue pairs against matched messages? That is measured, here: plimsoll \
             bench semantics matched,queue-pair --peers 2,128 holds it against the ratio above, and plimsoll try -n 2 --vary \
             semantics=matched,queue-pair -- PROGRAM says how much of it a program feels ({}).",
            machine::page("docs/claims.md")
        ),
        0,
        width,
    )
}
