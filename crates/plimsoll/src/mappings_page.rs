//! The programs of paper 002 under its mappings, for a terminal.

use std::fmt::Write;

use whatif::claims::programs::figures::{Application, FAR, Mapped, Shares, Under};
use whatif::claims::statement::Interval;

use crate::claims_page::folded;

/// Figures 7, 8, 11 and 12.
pub fn page(applications: &[Application]) -> String {
    let mut page = folded(
        "",
        "Paper 002's mappings (Tables 1 and 2) on two simulated hosts of four cores, of which core 0 takes the interrupts (*). Modelled, \
         not measured: shares are means over all draws of what the paper does not print, gains are medians with the central 95 % of \
         draws. Figures that judge are not read; plimsoll claims holds these predictions against them.",
        0,
    );
    applications.iter().for_each(|application| page += &of(application));
    page
}

fn of(application: &Application) -> String {
    let Application { name, figures, compared, draws, tcp, device } = application;
    let mut page = format!("\n{name} (figures {figures}), TCP: per cent of each rank's time, {draws} draws\n");
    page += &splits(tcp);
    page.push('\n');
    for mapped in &tcp.mappings {
        page += &folded("", &mechanism(mapped), 4);
    }
    let _ = writeln!(page, "\n{:<26} {:>22} {:>22}", format!("{name}: {compared}"), "TCP", "device (as iWARP)");
    for (over_tcp, over_device) in tcp.gains.iter().zip(&device.gains) {
        let what = format!("{} over {}", over_tcp.from, over_tcp.to);
        let far = format!("TCP: more than {FAR} x in {} of {draws} draws", over_tcp.far);
        let _ = writeln!(page, "{what:<26} {:>22} {:>22}   {far}", times(over_tcp.times), times(over_device.times));
    }
    let _ = writeln!(
        page,
        "{:<26} {:>22} {:>22}",
        "deviation over mappings",
        interval(tcp.deviation, " %"),
        interval(device.deviation, " %")
    );
    page
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

fn splits(under: &Under) -> String {
    let mut page = "rank".to_owned();
    for mapped in &under.mappings {
        let _ = write!(page, "  {:<5}{:>7}{:>6}{:>6}", mapped.name, "compute", "send", "wait");
    }
    page.push('\n');
    for rank in 0..under.mappings[0].ranks.len() {
        let _ = write!(page, "{rank:<4}");
        for mapped in &under.mappings {
            let Shares { computing, sending, waiting } = mapped.ranks[rank];
            let _ = write!(page, "  {:<5}{computing:>7.0}{sending:>6.0}{waiting:>6.0}", core(mapped, rank));
        }
        page.push('\n');
    }
    page
}

/// Who computes, who waits and who sends most of its time.
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
