//! The real carriers of a job's messages, as a page of text for standard error.

use std::collections::BTreeMap;

use machine::count::{self, grouped};
use machine::text::Table;
use machine::{Dilation, figure};

use crate::engine::Semantics;
use crate::one_sided::OneSided;
use crate::report::{Port, Report, Reports};

/// Ranks in the table; further ranks are only in the sum.
const LISTED: usize = 32;

/// Properties of a job besides its ranks' reports.
pub struct Subject {
    /// The MPI, by name and version.
    pub mpi: String,
    pub ranks: u32,
    /// The requested placement.
    pub placement: String,
    pub semantics: Semantics,
    /// Requested factor by which the engine's work is stretched.
    pub dilation: Dilation,
    pub one_sided: OneSided,
    /// The job's exit code.
    pub code: u8,
}

/// Ending of a job with an exit code other than 0.
fn ended(code: u8) -> String {
    match code {
        // SIGINT in a shell's numbering: Ctrl-C.
        130 => "you ended it".to_owned(),
        129..=192 => format!("signal {} ended it", code - 128),
        _ => format!("it failed with exit code {code}"),
    }
}

/// The page of a job with at least one report, its table within `width` columns.
pub fn page(subject: &Subject, reports: &Reports, width: usize) -> String {
    let (reported, ranks) = (reports.ranks(), count::of(subject.ranks.into(), "rank"));
    let mut page = match reported >= subject.ranks as usize {
        true if subject.one_sided.is_past(reports) => {
            format!("plimsoll carried its messages, NOT its one-sided operations: {ranks} under {}\n", subject.mpi)
        }
        true => format!("plimsoll carried it: {ranks} under {}\n", subject.mpi),
        false => format!("plimsoll: {reported} of {ranks} under {} REPORTED\n", subject.mpi),
    };
    page += &table(reports).text(width);
    let mut notes = Vec::new();
    if reported < subject.ranks as usize {
        notes.push(match subject.code {
            0 => "ranks that did not report were killed, or did not end MPI by MPI_Finalize".to_owned(),
            code => format!("{}: ranks that did not report had not reached MPI_Finalize", ended(code)),
        });
    }
    let cut: Vec<String> = reports.endpoints.iter().filter(|report| report.cut).map(name).collect();
    if !cut.is_empty() {
        let ranks = match &cut[..] {
            [one] => format!("rank {one}"),
            all if all.len() > 8 => count::of(all.len() as u64, "rank"),
            all => format!("ranks {}", all.join(", ")),
        };
        let ended = if subject.code == 0 { String::new() } else { format!("{}: ", ended(subject.code)) };
        notes.push(format!(
            "{ended}{ranks} did not reach MPI_Finalize; what they carried is counted until shortly before"
        ));
    }
    if !reports.carried() {
        notes.push("no packet moved: the ranks did not talk to each other".to_owned());
    }
    if reports.damaged > 0 {
        let lines = count::of(reports.damaged as u64, "report line");
        notes.push(format!("{lines} came mixed or cut: sums are too small"));
    }
    notes.extend(subject.one_sided.note(reports).map(str::to_owned));
    notes.extend(evidence(reports));
    notes.extend(stretched(reports));
    notes.extend(divided(reports));
    notes.extend(departures(subject, reports));
    for note in notes {
        page += &format!("  {note}\n");
    }
    page
}

/// The page of a job without reports, with `causes` from [`crate::diagnosis::of`]. `is_telling`: the engine surely did not
/// carry the messages.
pub fn nothing(subject: &Subject, is_telling: bool, causes: &[String]) -> String {
    let Subject { mpi, ranks, placement, code, .. } = subject;
    let mut page = match (is_telling, code) {
        (true, _) => format!(
            "plimsoll did NOT carry it: no rank of {ranks} under {mpi} reported. Its messages went another way, or nowhere\n"
        ),
        (false, 0) => {
            format!("plimsoll: what carried it is NOT known: no rank of {ranks} under {mpi} left a whole report\n")
        }
        (false, code) => format!(
            "plimsoll: {} before its ranks said what carried their messages until then; the engine at {placement} was asked for\n",
            ended(*code)
        ),
    };
    for cause in causes {
        page += &format!("  {cause}\n");
    }
    page
}

fn table(reports: &Reports) -> Table {
    let header =
        ["rank", "host", "placement", "port", "peers", "packets out", "bytes", "packets in", "bytes", "fetched"];
    let mut table = Table::new(header).right(4..10);
    for report in reports.endpoints.iter().take(LISTED) {
        let ran = if report.ran.is_empty() { "unknown".to_owned() } else { report.ran.clone() };
        let stretched = report.dilated.map_or(String::new(), |dilated| format!(", dilated {}", dilated.asked));
        let other = Some(report.semantics).filter(|semantics| *semantics != Semantics::Matched);
        let ran = ran + &other.map_or(String::new(), |semantics| format!(", {semantics}")) + &stretched;
        let mut first = [name(report), report.host.clone(), ran];
        for port in report.ports.iter().filter(|port| !port.is_idle()) {
            row(&mut table, std::mem::take(&mut first), port);
        }
        if !first[0].is_empty() {
            table.row(first);
        }
    }
    if reports.endpoints.len() > 1 {
        let mut first = ["sum".to_owned(), String::new(), String::new()];
        if reports.endpoints.len() > LISTED {
            first[1] = format!("of all {}", reports.endpoints.len());
        }
        for sum in reports.sums().values().filter(|port| !port.is_idle()) {
            row(&mut table, std::mem::take(&mut first), sum);
        }
    }
    table
}

fn name(report: &Report) -> String {
    report.rank.map_or_else(|| format!("pid {}", report.process), |rank| rank.to_string())
}

fn row(table: &mut Table, first: [String; 3], port: &Port) {
    let mut row = first.to_vec();
    row.extend([port.port.clone(), grouped(port.peers)]);
    row.extend([grouped(port.packets_sent), rounded(port.bytes_sent)]);
    row.extend([grouped(port.packets_received), rounded(port.bytes_received), rounded(port.bytes_fetched)]);
    table.row(row);
}

/// Bytes with four digits.
fn rounded(bytes: u64) -> String {
    const K: f64 = 1024.0;
    figure::scaled(bytes as f64, &[(1.0, "B"), (K, "KiB"), (K * K, "MiB"), (K * K * K, "GiB")])
}

/// Sums of counters over all ranks; sums of 0 prove nothing and are left out.
fn evidence(reports: &Reports) -> Vec<String> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for report in &reports.endpoints {
        let named = [
            ("messages sent", Some(report.counters.messages.iter().sum())),
            ("turns of the engine's core", report.engine_turns),
            ("messages copied once out of the sender's memory", Some(report.counters.single_copies)),
            ("such copies refused", Some(report.counters.reads_refused)),
            ("packets retransmitted", Some(report.counters.retransmitted)),
            ("remote writes", Some(report.remote.writes)),
            ("remote reads", Some(report.remote.reads)),
            ("remote atomics", Some(report.remote.atomics)),
            ("duplicates dropped", Some(report.counters.duplicates)),
            ("malformed packets dropped", Some(report.counters.malformed)),
        ];
        let counters = named.into_iter().filter_map(|(name, count)| Some((name, count?)));
        for (name, count) in counters.chain(report.evidence.iter().map(|(name, count)| (name.as_str(), *count))) {
            *sums.entry(name).or_default() += count;
        }
    }
    let seen = sums.into_iter().filter(|(_, count)| *count > 0);
    let parts: Vec<String> = seen.map(|(name, count)| format!("{name} {}", grouped(count))).collect();
    if parts.is_empty() { Vec::new() } else { vec![format!("evidence: {}", parts.join(", "))] }
}

/// Factor by which protocol work was stretched, over all ranks.
fn stretched(reports: &Reports) -> Option<String> {
    let all: Vec<_> = reports.endpoints.iter().filter_map(|report| report.dilated).collect();
    let asked = all.first()?.asked;
    let (worked, spun) = all.iter().fold((0.0, 0.0), |(w, s), of| (w + of.worked as f64, s + of.spun as f64));
    Some(format!(
        "dilated {asked}: protocol work took {:.2} times as long as it does; this is no clock: programs, caches and wires were as \
         they are",
        (worked + spun) / f64::max(worked, 1.0)
    ))
}

/// Shares of the ranks' CPU time, where every rank measured it.
fn divided(reports: &Reports) -> Option<String> {
    let parts: Vec<Parts> = reports.endpoints.iter().map(Parts::of).collect::<Option<_>>()?;
    let whole: f64 = parts.iter().map(|of| of.whole).sum();
    let share = |of: fn(&Parts) -> f64| 100.0 * parts.iter().map(of).sum::<f64>() / whole;
    if parts.is_empty() || whole <= 0.0 {
        return None;
    }
    let adapter = match reports.endpoints.iter().any(|report| report.adapter.is_some()) {
        true => format!(", emulated adapter {:.1} % (a device's on real hardware)", share(|of| of.adapter)),
        false => String::new(),
    };
    Some(format!(
        "CPU time of the ranks {}: application and MPI {:.1} %, protocol {:.1} %{adapter}, polls in vain {:.1} %",
        figure::nanoseconds(whole),
        share(|of| of.outside),
        share(|of| of.protocol),
        share(|of| of.waiting)
    ))
}

/// ns of one rank's CPU time.
struct Parts {
    whole: f64,
    outside: f64,
    protocol: f64,
    adapter: f64,
    waiting: f64,
}

impl Parts {
    fn of(report: &Report) -> Option<Parts> {
        let whole = report.cpu_nanoseconds? as f64;
        let inside = report.account_nanoseconds? as f64;
        // A read of completions that finds none may still move packets of the adapter.
        let (waiting, adapter) = match report.adapter {
            Some(adapter) => (adapter.idle_nanoseconds as f64, adapter.nanoseconds as f64),
            None => (report.account_idle_nanoseconds? as f64, 0.0),
        };
        let protocol = (inside - waiting - adapter).max(0.0);
        Some(Parts { whole, outside: (whole - inside).max(0.0), protocol, adapter, waiting })
    }
}

/// Differences between request and run, each once with its ranks, and the ranks' own notes.
fn departures(subject: &Subject, reports: &Reports) -> Vec<String> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for report in &reports.endpoints {
        let departure = (!report.ran.is_empty() && report.ran != subject.placement)
            .then(|| format!("asked for {}, ran at {}", subject.placement, report.ran));
        let undilated = (report.dilated.map_or(Dilation::NONE, |dilated| dilated.asked) != subject.dilation)
            .then(|| format!("asked for dilated {}, which its engine did not do", subject.dilation));
        let otherwise = (report.semantics != subject.semantics)
            .then(|| format!("asked for semantics {}, ran {}", subject.semantics, report.semantics));
        for note in departure.iter().chain(&undilated).chain(&otherwise).chain(&report.notes) {
            let ranks = found.entry(note.clone()).or_default();
            if !ranks.contains(&name(report)) {
                ranks.push(name(report));
            }
        }
    }
    let all = reports.endpoints.len();
    found
        .into_iter()
        .map(|(note, ranks)| match ranks.len() {
            n if n == all && all > 1 => format!("all ranks: {note}"),
            1 => format!("rank {}: {note}", ranks[0]),
            n if n > 8 => format!("{n} ranks: {note}"),
            _ => format!("ranks {}: {note}", ranks.join(", ")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject {
            mpi: "Open MPI 4.1.4".into(),
            ranks: 2,
            placement: "core:1".into(),
            semantics: Semantics::Matched,
            dilation: Dilation::NONE,
            one_sided: OneSided::Unnoted,
            code: 0,
        }
    }

    fn reports(lines: &[&str]) -> Reports {
        Reports::read(&lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>())
    }

    const RANK_0: &str = r#"{"rank":0,"host":"plimsoll-a","process":10,"asked":"core:1","ran":"core:1","engine_turns":1000,
        "ports":[{"port":"shm","peers":1,"packets_sent":1200,"bytes_sent":9600,"packets_received":1100,"bytes_received":8800,
        "bytes_fetched":2097152},{"port":"udp","peers":0}],"counters":{"single_copies":2,"packets_sent":7},"remote":{"writes":5,"bytes":40},"notes":[]}"#;
    const RANK_1: &str = r#"{"rank":1,"host":"plimsoll-b","process":11,"asked":"core:1","ran":"app","engine_turns":500,
        "ports":[{"port":"shm","peers":1,"packets_sent":1100,"bytes_sent":8800,"packets_received":1200,"bytes_received":9600},
        {"port":"udp","peers":1,"packets_sent":3,"bytes_sent":300}],"counters":{"retransmitted":1},
        "notes":["core 1 is needed by others: the engine runs in the caller"]}"#;

    #[test]
    fn a_page_of_two_ranks() {
        let expected = "\
plimsoll carried it: 2 ranks under Open MPI 4.1.4
 rank  host        placement  port  peers  packets out    bytes  packets in    bytes  fetched
 0     plimsoll-a  core:1     shm       1        1,200  9.375 KiB       1,100  8.594 KiB  2 MiB
 1     plimsoll-b  app        shm       1        1,100  8.594 KiB       1,200  9.375 KiB      0 B
                              udp       1            3    300 B           0      0 B      0 B
 sum                          shm       2        2,300  17.97 KiB       2,300  17.97 KiB  2 MiB
                              udp       1            3    300 B           0      0 B      0 B
  evidence: messages copied once out of the sender's memory 2, packets retransmitted 1, remote writes 5, turns of the engine's core 1,500
  rank 1: asked for core:1, ran at app
  rank 1: core 1 is needed by others: the engine runs in the caller
";
        let squeeze =
            |text: &str| text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
        assert_eq!(squeeze(&page(&subject(), &reports(&[RANK_1, RANK_0]), 100)), squeeze(expected));
    }

    #[test]
    fn the_table_keeps_to_its_columns() {
        for width in [40, 80, 200] {
            let table = table(&reports(&[RANK_0, RANK_1])).text(width);
            assert!(table.lines().all(|line| line.chars().count() <= width), "{width}: {table}");
        }
    }

    #[test]
    fn a_rank_that_did_not_report_is_missed() {
        let page = page(&subject(), &reports(&[RANK_0, "{"]), 100);
        assert!(page.starts_with("plimsoll: 1 of 2 ranks under Open MPI 4.1.4 REPORTED\n"), "{page}");
        assert!(
            page.contains("did not end MPI by MPI_Finalize") && page.contains("1 report line came mixed"),
            "{page}"
        );
    }

    #[test]
    fn a_killed_ranks_traffic_is_told_and_so_is_its_end() {
        let mut all = reports(&[RANK_0, RANK_1]);
        all.endpoints[1].cut = true;
        let page = page(&Subject { code: 137, ..subject() }, &all, 100);
        assert!(page.starts_with("plimsoll carried it: 2 ranks under Open MPI 4.1.4\n"), "{page}");
        assert!(page.contains("  signal 9 ended it: rank 1 did not reach MPI_Finalize; what they carried"), "{page}");
    }

    #[test]
    fn what_went_past_the_engine_is_said_first() {
        let mut all = reports(&[RANK_0, RANK_1]);
        let told = |all: &Reports, one_sided| page(&Subject { one_sided, ..subject() }, all, 100);
        assert!(told(&all, OneSided::Remote).starts_with("plimsoll carried it: 2 ranks"), "it counted remote writes");
        all.endpoints[0].remote = Default::default();
        let past = told(&all, OneSided::Remote);
        assert!(past.starts_with("plimsoll carried its messages, NOT its one-sided operations: 2 ranks"), "{past}");
        assert!(past.contains("  one-sided operations were carried by Open MPI itself"), "{past}");
        assert!(told(&all, OneSided::Messages { allocated: false }).starts_with("plimsoll carried it: 2 ranks"));
    }

    #[test]
    fn nothing_is_said_loudly() {
        let page = |is_telling| nothing(&subject(), is_telling, &["because. Next: do".to_owned()]);
        for (is_telling, begins) in [
            (true, "plimsoll did NOT carry it: no rank of 2 under Open MPI 4.1.4 reported."),
            (false, "plimsoll: what carried it is NOT known: no rank of 2 under Open MPI 4.1.4 left"),
        ] {
            let page = page(is_telling);
            assert!(page.starts_with(begins) && page.ends_with("\n  because. Next: do\n"), "{page}");
        }
    }

    /// A job that was ended or failed is not blamed on the engine.
    #[test]
    fn a_job_that_was_ended_or_failed_accuses_nobody() {
        for (code, said) in [(130, "you ended it"), (143, "signal 15 ended it"), (7, "it failed with exit code 7")] {
            let subject = Subject { code, ..subject() };
            let none = nothing(&subject, false, &[]);
            assert!(none.starts_with(&format!("plimsoll: {said} before its ranks said")), "{none}");
            assert!(none.ends_with("the engine at core:1 was asked for\n") && !none.contains("NOT"), "{none}");
            let some = page(&subject, &reports(&[RANK_0]), 100);
            assert!(some.contains(&format!("  {said}: ranks that did not report")), "{some}");
        }
    }

    #[test]
    fn an_idle_job_says_so() {
        let page = page(&subject(), &reports(&[r#"{"rank":0,"process":1}"#, r#"{"rank":1,"process":2}"#]), 100);
        assert!(page.contains("no packet moved"), "{page}");
    }

    #[test]
    fn cpu_time_is_divided_where_every_rank_counted_it() {
        let rank = |rank: u32, more: &str| {
            format!(
                r#"{{"rank":{rank},"process":{rank},"cpu_nanoseconds":1000000000,"account_calls":9,
                "account_nanoseconds":600000000,"account_idle_nanoseconds":300000000{more}}}"#
            )
        };
        let adapter = r#","semantics":"queue-pair","adapter":{"nanoseconds":200000000,"idle_nanoseconds":100000000}"#;
        let lines = [rank(0, adapter), rank(1, adapter)];
        let of =
            |lines: &[String]| page(&subject(), &reports(&lines.iter().map(String::as_str).collect::<Vec<_>>()), 100);
        let queue_pairs = of(&lines);
        let expected = "CPU time of the ranks 2 s: application and MPI 40.0 %, protocol 30.0 %, emulated adapter 20.0 % \
            (a device's on real hardware), polls in vain 10.0 %";
        assert!(queue_pairs.contains(expected), "{queue_pairs}");
        assert!(queue_pairs.contains("all ranks: asked for semantics matched, ran queue-pair"), "{queue_pairs}");
        let matched = of(&[rank(0, ""), rank(1, "")]);
        assert!(matched.contains("protocol 30.0 %, polls in vain 30.0 %"), "{matched}");
        let partly = of(&[rank(0, ""), r#"{"rank":1,"process":1}"#.to_owned()]);
        assert!(!partly.contains("CPU time"), "{partly}");
    }

    #[test]
    fn numbers_for_readers() {
        assert_eq!([0, 1023, 1536, 5 << 30].map(rounded), ["0 B", "1023 B", "1.5 KiB", "5 GiB"]);
    }
}
