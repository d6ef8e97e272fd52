//! `plimsoll whatif against DIR2 DIR`: what a recording says of another one, whose time is known.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chart::number::nanoseconds;
use machine::Result;
use machine::costs::{Interval, store};
use serde_json::{Value, json};
use whatif::answer::{Against, Program};
use whatif::lever::mapping::Hosts;

use super::expectation::CONTRADICTED;
use super::levers::{Changes, Recording, unsampled};
use super::outputs::Json;
use crate::critical::Names;
use crate::opened::Opened;
use crate::progress::Working;
use crate::whatif_page::{path, shares};

/// Judges the model: predicts from one profile what another one of the program took, of which only the computing between calls
/// is used, and prints that over the recorded time
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder of the profile that is predicted. Ranks that it has on other hosts are mapped so
    #[arg(value_name = "DIR2")]
    other: PathBuf,
    /// Folder of the profile that is replayed
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// What carried the messages of DIR2, if its command does not say
    #[arg(long, value_name = "NAME")]
    carried: Option<String>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    recording: Recording,
    #[command(flatten)]
    json: Json,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { other: path, folder, carried, changes, recording, json } = arguments;
    let known = store::live()?;
    let named = recording.recorded.as_deref();
    let working = Working::on("replaying what was recorded");
    let opened = Opened::priced(folder, recording.world, &known.costs, named)?;
    let Opened { graph, folder, .. } = &opened;
    let recorded = opened.recorded();
    let ways = recording.ways(&recorded, &known.costs, named)?;
    let mut notes = graph.notes.clone();
    notes.extend(known.note);
    let program = Program::over(graph, &known.costs, ways.clone(), recording.recorded_buffer)?;
    if program.contradicted {
        notes.push(CONTRADICTED.to_owned());
    }
    let other = Opened::profile(path, recording.world)?;
    let judged = other.recorded().ways(&known.costs, carried.as_deref())?;
    let carried = [recorded.carried_by(&ways), other.recorded().carried_by(&judged)];
    let mut lever = recording.lever(changes);
    if let Some(summary) = &opened.summary {
        lever.mapping = recording.mapping(graph, Some(&other.graph), &judged, summary)?;
    }
    notes.extend(lever.mapping.as_ref().and_then(unsampled));
    let hosts = [graph, &other.graph].map(|graph| Hosts::of(&graph.hosts));
    if hosts[0] != hosts[1] {
        notes.push(format!("ranks were at {}, of {} at {}: mapped so", hosts[0], path.display(), hosts[1]));
    }
    lever.ways = Some(judged).filter(|judged| *judged != ways);
    notes.extend(other.graph.notes.iter().map(|note| format!("{}: {note}", path.display())));
    let against = program.against(&other.graph, &lever).map_err(|fault| fault.within(path.display()))?;
    let page = Page { folder, other: path, carried, against: &against, names: &other.names(), notes: &notes };
    drop(working);
    json.print(|| page.terminal(), || page.json())?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a prediction and the recorded outcome.
#[derive(Debug)]
pub struct Page<'a> {
    pub folder: &'a str,
    pub other: &'a Path,
    /// The carriers of both.
    pub carried: [String; 2],
    pub against: &'a Against,
    /// The names in the other profile.
    pub names: &'a Names<'a>,
    pub notes: &'a [String],
}

impl Page<'_> {
    pub fn terminal(&self) -> String {
        let Against { recorded, predicted, unchanged, mapped, unseen, path } = self.against;
        let [from, to] = &self.carried;
        let figures = |Interval { low, middle, high }: &Interval| format!("{middle:.3}x ({low:.3} .. {high:.3})");
        let mut text = format!(
            "{}: {} recorded, carried by {to}\n\nPredicted       {} of it: calls as in {}, carried by {from}; computing as recorded\n",
            self.other.display(),
            nanoseconds(*recorded),
            figures(predicted),
            self.folder,
        );
        if let Some(mapped) = mapped {
            text += &format!("Mapped          {} of it: computing too as in {}\n", figures(mapped), self.folder);
        }
        text += &format!("Unchanged       {unchanged:.3}x of it: what {} itself took\n", self.folder);
        text += &format!("Critical path   {}\n", shares(&path.parts));
        if *unseen > 0.0 {
            text += &format!(
                "Not seen        {:.1} % of its calls are of a kind that {} has not (function, size, reach): the nearest size stands in\n",
                100.0 * unseen,
                self.folder
            );
        }
        self.notes.iter().for_each(|note| text += &format!("Note: {note}\n"));
        text
    }

    pub fn json(&self) -> Value {
        let Against { recorded, predicted, unchanged, mapped, unseen, path: critical } = self.against;
        json!({
            "folder": self.folder, "against": self.other, "carried": self.carried, "recorded_ns": recorded,
            "predicted": predicted, "whole_mapped": mapped, "unchanged": unchanged, "unseen_calls": unseen, "path": path(critical, self.names),
            "notes": self.notes,
        })
    }
}
