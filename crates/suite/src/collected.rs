//! Test programs as cargo starts them: folder, environment and words. Cargo is given [`MODE`] as its runner, which writes them down
//! in place of running them.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

pub const MODE: &str = "collect";

/// The most time of a program; one that runs longer hangs, and is killed and counted as failed.
pub const LIMIT: Duration = Duration::from_secs(1800);

#[derive(Debug)]
pub struct Program {
    pub package: String,
    /// `main` for a crate's integration tests, else the name of its library or program.
    pub name: String,
    /// The file's name, which is unique.
    pub file: String,
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
    words: Vec<OsString>,
}

/// Writes down a program and its words; `words` begin with the folder of notes.
pub fn note(words: &[OsString]) -> ExitCode {
    let mut text = Vec::new();
    let mut field = |value: &OsStr| text.extend(value.as_bytes().iter().chain(&[0]));
    field(env::current_dir().unwrap_or_default().as_os_str());
    field(OsStr::new(&(words.len() - 1).to_string()));
    words[1..].iter().for_each(|word| field(word));
    for (name, value) in env::vars_os() {
        field(&name);
        field(&value);
    }
    let file = Path::new(&words[0]).join(std::process::id().to_string());
    match fs::write(&file, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("suite: {}: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}

/// Reads the programs that were noted in `folder`.
pub fn read(folder: &Path) -> Result<Vec<Program>, String> {
    let entries = fs::read_dir(folder).map_err(|e| e.to_string())?.flatten();
    entries
        .map(|entry| parse(&fs::read(entry.path()).map_err(|e| e.to_string())?).ok_or("a note is cut".into()))
        .collect()
}

fn parse(text: &[u8]) -> Option<Program> {
    let mut fields = text.strip_suffix(&[0])?.split(|byte| *byte == 0).map(|field| OsString::from_vec(field.to_vec()));
    let folder = fields.next()?.into();
    let count: usize = fields.next()?.to_str()?.parse().ok()?;
    let words: Vec<OsString> = fields.by_ref().take(count).collect();
    let mut environment = BTreeMap::new();
    while let Some(name) = fields.next() {
        environment.insert(name, fields.next()?);
    }
    let package = environment.get(OsStr::new("CARGO_PKG_NAME"))?.to_str()?.to_owned();
    let file = Path::new(words.first()?).file_name()?.to_str()?.to_owned();
    let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name).to_owned();
    Some(Program { package, name, file, folder, environment: environment.into_iter().collect(), words })
}

impl Program {
    /// A command that starts the program with libtest's `arguments`, prefixed by the words of `under`.
    pub fn command(&self, under: &[OsString], arguments: &[&str]) -> Command {
        // `times` writes the processor time of the program and of all that it waited for into $TIMES.
        let mut command = Command::new("sh");
        command.args(["-c", r#""$@"; s=$?; times >"$TIMES"; exit $s"#, "sh"]);
        command.args(["timeout", "--foreground", "--signal", "KILL", &LIMIT.as_secs().to_string()]);
        command.args(under).args(&self.words).args(arguments);
        command.env_clear().envs(self.environment.iter().cloned()).current_dir(&self.folder);
        command
    }
}
