//! What an operator sees of the offcodes of a runtime: what their channels carried and lost, and their calls.

use std::time::Instant;

use attach::control::WATCHED;
use attach::watched::{Calls, Carried};
use machine::Result;
use machine::channel::{Content, Loss};

use crate::application::Runtime;
use crate::live::OffcodeId;
use crate::site::EndAt;
use crate::trace::{Trace, Watch};

impl Runtime {
    /// The traffic of each channel of an offcode; the first is out of band.
    pub(crate) fn carried(&mut self, offcode: OffcodeId) -> Result<Vec<Carried>> {
        let seated = self.live(offcode)?.seated;
        let site = &mut self.sites[seated.site];
        let (kind, ends) = (site.site().kind(), site.ends(seated.slot)?);
        let live = self.live(offcode)?;
        let beside = self.switchboard.lost_for(seated.party, &live.bridges);
        let rows = ends.into_iter().map(|end| {
            let mut row = if kind.is_hook() { at_hook(&end) } else { of(&end) };
            let moved = live.lost_in_moves.get(&end.name).map(|lost| (Loss::Move, *lost));
            let here = beside.iter().filter(|(name, ..)| *name == end.name).map(|(_, at, lost)| (*at, *lost));
            here.chain(moved).for_each(|(at, lost)| row.add_lost(at, lost));
            row.peer = live.others.get(&end.name).cloned();
            row
        });
        Ok(rows.collect())
    }

    /// Records the party at the other end of an offcode's channel.
    pub(crate) fn joined(&mut self, offcode: OffcodeId, channel: &str, with: &str) {
        if let Some(live) = self.live_mut(offcode) {
            live.others.insert(channel.into(), with.into());
        }
    }

    pub(crate) fn lost_in_move(&mut self, offcode: OffcodeId, lost: &[(String, u64)]) {
        if let Some(live) = self.live_mut(offcode) {
            for (channel, count) in lost {
                *live.lost_in_moves.entry(channel.clone()).or_default() += count;
            }
        }
    }

    /// The calls that an offcode has got since that of number `from`; it is watched from now on, until nobody has asked for
    /// [`WATCHED`].
    pub(crate) fn calls(&mut self, offcode: OffcodeId, from: Option<u64>) -> Result<Calls> {
        let (seated, manifest) = (self.live(offcode)?.seated, self.live(offcode)?.manifest.clone());
        let watched =
            self.watched.entry(offcode).or_insert_with(|| Watch { trace: Trace::default(), asked: Instant::now() });
        watched.asked = Instant::now();
        let trace = watched.trace.clone();
        self.switchboard.trace(seated.party, Some(trace.clone()));
        let site = &mut self.sites[seated.site];
        // Traced again at each request: the offcode may have moved.
        let seen = site.trace(seated.slot, Some(trace.clone()));
        let unseen =
            (!seen).then(|| format!("calls over channels to {} are not seen, only those out of band", site.site()));
        Ok(Calls { unseen, ..trace.since(from, &manifest) })
    }

    /// Whether anybody watches an offcode. Ends the watch where nobody asks any more.
    pub(crate) fn is_watched(&mut self) -> bool {
        let over: Vec<OffcodeId> =
            self.watched.iter().filter(|(_, watched)| watched.asked.elapsed() > WATCHED).map(|(id, _)| *id).collect();
        for id in over {
            self.watched.remove(&id);
            if let Ok(seated) = self.live(id).map(|live| live.seated) {
                self.switchboard.trace(seated.party, None);
                self.sites[seated.site].trace(seated.slot, None);
            }
        }
        !self.watched.is_empty()
    }
}

fn of(end: &EndAt) -> Carried {
    let counted = &end.counted;
    let mut row = Carried {
        channel: end.name.clone(),
        written: Some(counted.written),
        read: Some(counted.read),
        full: Some(counted.full),
        refused: Some(end.refused),
        waiting: end.unsent,
        ..Carried::default()
    };
    row.add_lost(end.loses, counted.dropped);
    row
}

/// The kernel counts what a program takes out of its `IN`, and nothing else of its channels.
fn at_hook(end: &EndAt) -> Carried {
    let read =
        Some(end.counted.read).filter(|read| *read != u64::MAX && end.specification.content == Content::Messages);
    Carried { channel: end.name.clone(), read, waiting: end.unsent, ..Carried::default() }
}
