//! NetPIPE's ping-pong of 8 bytes over shared memory.

use std::path::Path;

use experiment::comparison::Paired;
use experiment::nearness::at_one_place;
use experiment::point::{self, Pattern, PointSpec, Receiver, Stack};
use experiment::random::Random;
use experiment::sample::Probe;
use machine::{Bytes, Result, Site};

use super::{Message, Mode, Profiled, Request, interval};
use crate::reference::netpipe;

const SEED: u64 = 0x0051_1A11_0000_0006;
const PATIENCE: usize = 2;

pub fn measure(
    request: &Request,
    library: &Path,
    probes: &mut Vec<u64>,
    progress: &mut impl FnMut(&str),
) -> Result<Message> {
    let spec = PointSpec {
        stack: Stack::OpenMpi,
        placement: Site::App,
        pattern: Pattern::PingPong,
        size: Bytes(8),
        perturbation: Bytes(0),
        path: point::Path::Loopback,
        local_core: request.cores.0,
        remote_core: request.cores.1,
        protocol_core: None,
        receiver: Receiver::Reads,
    };
    let mut found: [Vec<Option<(f64, Beside)>>; 3] = Default::default();
    let mut failures: [Vec<String>; 3] = Default::default();
    for round in 0..request.rounds {
        let mut order = [0, 1, 2];
        Random::stream(SEED, round.into()).shuffle(&mut order);
        for nth in order {
            if failures[nth].len() >= PATIENCE || linux::signal::interrupted() {
                found[nth].push(None);
                continue;
            }
            progress(&format!("NetPIPE, {}, round {} of {}", Mode::ALL[nth].word(), round + 1, request.rounds));
            let before = probe(request);
            let profiled = Profiled::new(Mode::ALL[nth], library)?;
            let run = netpipe::measure_with(&spec, None, &profiled.variables).map(|reference| reference.value);
            let beside = [before, probe(request)];
            probes.extend(beside.into_iter().flatten().map(|probe| probe.half_round_trip_ps));
            let (sends, _) = profiled.recorded()?;
            let proven = (sends > 0) == (Mode::ALL[nth] != Mode::Bare);
            found[nth].push(match run {
                Ok(value) if proven => Some((value, beside)),
                Ok(_) => {
                    failures[nth].push(format!("NetPIPE, {}: {sends} sends were recorded", Mode::ALL[nth].word()));
                    None
                }
                Err(fault) => {
                    if !linux::signal::interrupted() {
                        failures[nth].push(fault.to_string());
                    }
                    None
                }
            });
        }
    }
    let [bare, tables, timeline] = &found;
    let ratio = |with: &[Option<(f64, Beside)>]| {
        let pairs = bare.iter().zip(with).filter_map(|(bare, with)| Some(((*bare)?, (*with)?)));
        let near = pairs.filter(|(bare, with)| at_one_place(bare.1.into_iter().chain(with.1).flatten()));
        Paired { ratios: near.map(|(bare, with)| with.0 / bare.0).collect() }.interval()
    };
    Ok(Message {
        bare: interval(&bare.iter().flatten().map(|(value, _)| *value).collect::<Vec<_>>()),
        tables: ratio(tables),
        timeline: ratio(timeline),
        failures: failures.concat(),
    })
}

/// The distance of the cores before and after a run.
type Beside = [Option<Probe>; 2];

fn probe(request: &Request) -> Option<Probe> {
    let found = linux::probe::between(request.cores.0, request.cores.1).ok()?;
    Some(Probe { half_round_trip_ps: found.picoseconds })
}
