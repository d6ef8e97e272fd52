//! The programs of paper 002 under its mappings, for a terminal.

use claims::programs::figures::{Application, FAR, Mapped, Shares, Under};
use machine::costs::Interval;
use machine::text::{Table, folded};

/// Figures 7, 8, 11 and 12.
pub fn page(applications: &[Application], width: usize) -> String {
    let mut page = folded(
        "",
        "Paper 002's mappings (Tables 1 and 2) on two simulated hosts of four cores, of which core 0 takes the interrupts (*). Modelled, \
         not measured: shares are means over all draws of what the paper does not print, gains are medians with the central 95 % of \
         draws. Figures that judge are not read; plimsoll claims holds these predictions against them.",
        0,
        width,
    );
    applications.iter().for_each(|application| page += &of(application, width));
    page
}

fn of(application: &Application, width: usize) -> String {
    let Application { name, figures, compared, draws, tcp, device } = application;
    let mut page = format!("\n{name} (figures {figures}), TCP: per cent of each rank's time, {draws} draws\n");
    page += &splits(tcp).text(width);
    page.push('\n');
    for mapped in &tcp.mappings {
        page += &folded("", &mechanism(mapped), 4, width);
    }
    let mut table = Table::new([format!("{name}: {compared}").as_str(), "TCP", "device (as iWARP)", ""]).right([1, 2]);
    let of_run = |under: &Under| if *compared == "time" { Vec::new() } else { under.runs.clone() };
    let over_device = device.gains.iter().cloned().chain(of_run(device));
    for (at, (over_tcp, over_device)) in tcp.gains.iter().cloned().chain(of_run(tcp)).zip(over_device).enumerate() {
        let of = if at < tcp.gains.len() { "" } else { ", whole run" };
        let what = format!("{} over {}{of}", over_tcp.from, over_tcp.to);
        let far = format!("TCP: more than {FAR} x in {} of {draws} draws", over_tcp.far);
        table.row([what, times(over_tcp.times), times(over_device.times), far]);
    }
    let deviations = [tcp.deviation, device.deviation].map(|of| interval(of, " %"));
    table.row(["deviation over mappings".to_owned()].into_iter().chain(deviations));
    page.push('\n');
    page + &table.text(width)
}

fn interval(Interval { middle, low, high }: Interval, unit: &str) -> String {
    format!("{middle:.2} ({low:.2}..{high:.2}){unit}")
}

fn times(of: Interval) -> String {
    interval(of, " x")
}

fn core(mapped: &Mapped, rank: usize) -> String {
    let place = |cores: &[usize; 4]| cores.iter().position(|other| *other == rank);
    let found = mapped.cores.iter().enumerate().find_map(|(host, cores)| Some((host, place(cores)?)));
    found.map_or_else(String::new, |(host, core)| format!("{}:{core}{}", host + 1, if core == 0 { "*" } else { " " }))
}

fn splits(under: &Under) -> Table {
    let mut header = vec!["rank".to_owned()];
    for mapped in &under.mappings {
        header.extend([mapped.name.to_string(), "compute".into(), "send".into(), "wait".into()]);
    }
    let figures = (1..header.len()).filter(|column| column % 4 != 1);
    let mut table = Table::new(&header).right(figures);
    for rank in 0..under.mappings[0].ranks.len() {
        let mut row = vec![rank.to_string()];
        for mapped in &under.mappings {
            let Shares { computing, sending, waiting } = mapped.ranks[rank];
            row.push(core(mapped, rank));
            row.extend([computing, sending, waiting].map(|share| format!("{share:.0}")));
        }
        table.row(row);
    }
    table
}

/// Ranks that compute, wait and send for most of their time.
fn mechanism(mapped: &Mapped) -> String {
    let most = |verb: &str, of: fn(&Shares) -> f64| {
        let mut ranks: Vec<usize> = (0..mapped.ranks.len()).collect();
        ranks.sort_by(|one, other| of(&mapped.ranks[*other]).total_cmp(&of(&mapped.ranks[*one])));
        let [one, other] = [ranks[0], ranks[1]];
        let named = |rank: usize| {
            let core = core(mapped, rank);
            format!("{rank} ({}, {:.0} %)", core.trim_end(), of(&mapped.ranks[rank]))
        };
        format!("{verb} {} and {}", named(one), named(other))
    };
    format!(
        "{}: ranks that {}; {}; {}.",
        mapped.name,
        most("compute most:", |of| of.computing),
        most("send most:", |of| of.sending),
        most("wait most:", |of| of.waiting)
    )
}
