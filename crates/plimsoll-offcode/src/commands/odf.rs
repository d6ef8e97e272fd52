use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use machine::Result;
use offcode::depot::{self, Depot, ODF, Refused};
use offcode::{Manifest, odf};

use linux::output;

/// Checks Offcode Description Files (manifests) and the depots that hold them; installs packages
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Check(Check),
    /// Print the XML schema of ODFs
    Schema,
    Install(Install),
}

/// Explain every mistake in ODFs, packages or depots, with line and column; exit status 1 if there is one
#[derive(clap::Args)]
struct Check {
    /// An ODF; a package (a folder with odf.xml and its bodies); or a depot (a folder of packages)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Copy packages into a depot; a package is copied whole or not at all
#[derive(clap::Args)]
struct Install {
    /// Depot to copy into: a folder of packages
    depot: PathBuf,
    /// Packages: folders that hold odf.xml and its bodies
    #[arg(required = true)]
    package: Vec<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.action {
        Action::Check(check) => {
            let colour = output::colour(&std::io::stderr());
            let mut verdict = Verdict { well: String::new(), mistakes: String::new(), colour };
            for file in &check.files {
                verdict.look(file);
            }
            eprint!("{}", verdict.mistakes);
            output::print(&verdict.well)?;
            Ok(if verdict.mistakes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Action::Schema => output::print(odf::XSD).map(|()| ExitCode::SUCCESS),
        Action::Install(install) => {
            let mut depot = Depot::open(&install.depot)?;
            for package in &install.package {
                let stored = depot.install(package)?;
                output::print(&format!("{}: {}\n", stored.odf().display(), summary(&stored.manifest)))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

struct Verdict {
    well: String,
    mistakes: String,
    colour: bool,
}

impl Verdict {
    fn look(&mut self, path: &Path) {
        if !path.is_dir() {
            return match depot::read_odf(path) {
                Ok(manifest) => self.well(path, &manifest),
                Err(refused) => self.refused(refused),
            };
        }
        if path.join(ODF).exists() {
            return match depot::package(path) {
                Ok(stored) => self.well(&stored.odf(), &stored.manifest),
                Err(refused) => self.refused(refused),
            };
        }
        match depot::survey(path) {
            Ok(survey) => {
                for stored in &survey.packages {
                    self.well(&stored.odf(), &stored.manifest);
                }
                if survey.packages.is_empty() && survey.refused.is_empty() {
                    let _ = writeln!(self.well, "{}: a depot without packages", path.display());
                }
                survey.refused.into_iter().for_each(|refused| self.refused(refused));
                survey.clashes.into_iter().for_each(|clash| self.refused(Refused::Other(clash)));
            }
            Err(fault) => self.refused(Refused::Other(fault)),
        }
    }

    fn well(&mut self, file: &Path, manifest: &Manifest) {
        let _ = writeln!(self.well, "{}: {}", file.display(), summary(manifest));
    }

    fn refused(&mut self, refused: Refused) {
        match refused {
            Refused::Odf { file, problems } => {
                self.mistakes += &problems.render(&file.display().to_string(), self.colour);
            }
            Refused::Other(fault) => {
                let _ = writeln!(self.mistakes, "plimsoll: {fault}");
            }
        }
    }
}

/// The content of an ODF in one line.
pub fn summary(manifest: &Manifest) -> String {
    let package = &manifest.package;
    let listed = |words: Vec<String>| if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    let interfaces = listed(package.interfaces.iter().map(|interface| interface.name.clone()).collect());
    let bodies = listed(package.bodies.iter().map(|body| format!("{:?}", body.kind).to_lowercase()).collect());
    let sites = listed(manifest.hardware.iter().map(|target| target.site.to_string()).collect());
    let peers = manifest.software.peers.iter();
    let peers = listed(peers.map(|peer| format!("{} by {:?}", peer.name, peer.constraint)).collect());
    format!(
        "{} {}: interfaces {interfaces}; bodies {bodies}; for {sites}; peers {peers}",
        package.name, package.version
    )
}
