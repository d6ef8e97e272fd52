//! Checks of plimsoll's own files that are installed beside the command.

use std::path::{Path, PathBuf};

use launch::companion::Companion;
use launch::preload;
use machine::Result;

use crate::check::{Check, Worth};

const PROVIDER: Worth = Worth { name: "provider", gives: "mpirun", cost: "no `plimsoll mpirun`" };
const PROFILER: Worth = Worth { name: "profiler", gives: "profile", cost: "no `plimsoll profile`" };
const OFFCODES: Worth =
    Worth { name: "offcodes", gives: "plan, run, agent, traffic", cost: "no `plimsoll plan`, run, agent nor traffic" };

pub fn checks(command: &Path) -> Vec<Check> {
    let check = |worth: &Worth, found: Result<PathBuf>| match found {
        Ok(path) => worth.yes(path.canonicalize().unwrap_or(path).display().to_string()),
        Err(fault) => worth.failed(&fault),
    };
    vec![
        check(&PROVIDER, Companion::Provider.find(command)),
        check(&PROFILER, preload::library(command)),
        check(&OFFCODES, Companion::Offcodes.find(command)),
    ]
}
