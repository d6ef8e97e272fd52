//! The state of runtimes in the text format of Prometheus.

use attach::control::{Report, Running};
use attach::evidence::Evidence;
use attach::watched::Carried;
use linux::metrics::{Kind, Metrics};

type Labels<'a> = Vec<(&'a str, &'a str)>;

/// All figures. Unknown ones have no line.
pub fn text(reports: &[Report]) -> String {
    let mut all = Metrics::default();
    let processes: Vec<String> = reports.iter().map(|report| report.process.to_string()).collect();
    let mut up = all.family(Kind::Gauge, "plimsoll_application_up_seconds", "Since when the application runs.");
    for (report, process) in reports.iter().zip(&processes) {
        up.sample(&[("application", &report.application), ("process", process)], report.running_ms as f64 / 1e3);
    }
    let sites: Vec<Vec<String>> =
        reports.iter().map(|report| report.offcodes.iter().map(|line| line.site.to_string()).collect()).collect();
    let offcodes: Vec<(Labels, &Running)> = (reports.iter().zip(&processes).zip(&sites))
        .flat_map(|((report, process), sites)| {
            report.offcodes.iter().zip(sites).map(move |(line, site)| {
                let application = ("application", report.application.as_str());
                (vec![application, ("process", process), ("offcode", &line.instance), ("site", site)], line)
            })
        })
        .collect();
    of_offcodes(&mut all, &offcodes);
    of_channels(&mut all, &offcodes);
    all.text()
}

fn of_offcodes(all: &mut Metrics, offcodes: &[(Labels, &Running)]) {
    let mut versions =
        all.family(Kind::Gauge, "plimsoll_offcode_info", "An offcode that runs, its package and its version.");
    for (labels, line) in offcodes {
        versions.sample(&with(labels, &[("package", &line.offcode), ("version", &line.version)]), 1.0);
    }
    type Figure = fn(&Evidence) -> Option<f64>;
    let figures: [(&str, &str, Figure); 3] = [
        ("uses", "Calls, messages and packets that reached an offcode.", |evidence| Some(evidence.uses as f64)),
        ("timed_uses", "Those that were timed.", |evidence| Some(evidence.timed?.uses as f64)),
        ("timed_seconds", "Core time of those that were timed.", |evidence| Some(evidence.timed?.time.0 as f64 / 1e9)),
    ];
    for (name, help, of) in figures {
        let mut family = all.family(Kind::Counter, &format!("plimsoll_offcode_{name}_total"), help);
        for (labels, line) in offcodes {
            if let Some(value) = line.evidence.as_ref().ok().and_then(of) {
                family.sample(labels, value);
            }
        }
    }
    let help = "What proves that an offcode works at its site, as counted by the site or the kernel.";
    let mut counted = all.family(Kind::Counter, "plimsoll_offcode_counted_total", help);
    for (labels, line) in offcodes {
        for counter in line.evidence.iter().flat_map(|evidence| &evidence.counters) {
            counted.sample(&with(labels, &[("counter", &counter.name)]), counter.value as f64);
        }
    }
}

fn of_channels(all: &mut Metrics, offcodes: &[(Labels, &Running)]) {
    let channels: Vec<(Labels, &Carried)> = offcodes
        .iter()
        .flat_map(|(labels, line)| {
            line.channels.iter().flatten().map(move |row| {
                let peer = row.peer.as_deref().map(|peer| ("peer", peer));
                let own: Labels = [("channel", row.channel.as_str())].into_iter().chain(peer).collect();
                (with(labels, &own), row)
            })
        })
        .collect();
    type Figure = fn(&Carried) -> Option<u64>;
    let figures: [(Kind, &str, &str, Figure); 5] = [
        (Kind::Counter, "written_total", "Messages that an offcode wrote to a channel.", |row| row.written),
        (Kind::Counter, "read_total", "Messages that an offcode read from a channel.", |row| row.read),
        (Kind::Counter, "full_total", "Writes for which a reliable channel had no room.", |row| row.full),
        (Kind::Counter, "refused_total", "Writes that the channel does not take.", |row| row.refused),
        (Kind::Gauge, "waiting", "Messages that wait for room to go out.", |row| Some(row.waiting)),
    ];
    for (kind, name, help, of) in figures {
        let mut family = all.family(kind, &format!("plimsoll_channel_{name}"), help);
        for (labels, row) in &channels {
            if let Some(value) = of(row) {
                family.sample(labels, value as f64);
            }
        }
    }
    let help = "Messages of a channel that were lost, by the place.";
    let mut lost = all.family(Kind::Counter, "plimsoll_channel_lost_total", help);
    for (labels, row) in &channels {
        for (at, count) in &row.lost {
            lost.sample(&with(labels, &[("place", at.place())]), *count as f64);
        }
    }
}

fn with<'a>(labels: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Labels<'a> {
    labels.iter().chain(more).copied().collect()
}
