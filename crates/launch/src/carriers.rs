//! Carriers of a job's messages besides the engine: transports of an MPI, as the variables that make it use them. Also
//! settings that may make a program faster. Both are data: `carriers.toml`, and files that a centre or a user adds.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use machine::fault::line_and_column;
use machine::spelling::meant;
use machine::{Bytes, Fault, Result, optional};
use regex_lite::Regex;
use serde::Deserialize;
use toml::Spanned;

use crate::Variables;
use crate::family::Family;
use crate::installation::Installation;
use crate::transports;

/// Carriers that come with plimsoll.
const BUILT_IN: &str = include_str!("carriers.toml");

/// Placeholder in a variable's value for the interface between hosts.
const INTERFACE: &str = "${interface}";

/// Variables that decide which code is loaded or run, not how messages travel.
const REFUSED: [&str; 4] = ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"];

/// A carrier of messages, with a recipe for each MPI that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carrier {
    pub name: String,
    also: Vec<String>,
    /// Description.
    pub words: String,
    one_host: bool,
    /// Whether the carrier needs an MPI that was built with libfabric.
    libfabric: bool,
    needs: Vec<PathBuf>,
    recipes: Vec<Recipe>,
    /// File that defines the carrier.
    file: PathBuf,
    /// Whether the carrier replaces another of its name.
    instead: bool,
    /// Notes on files that this user may not look for: they may define carriers of this name.
    unseen: Vec<String>,
}

/// Variables by which one MPI uses the carrier.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recipe {
    family: Family,
    version: Option<Version>,
    set: BTreeMap<String, String>,
    between: BTreeMap<String, String>,
    proof: Option<Proof>,
}

/// Variables that make an MPI print its carrier, and the pattern of that output.
#[derive(Debug, Clone)]
pub struct Proof {
    set: BTreeMap<String, String>,
    says: Regex,
}

impl PartialEq for Proof {
    fn eq(&self, other: &Proof) -> bool {
        self.set == other.set && self.says.as_str() == other.says.as_str()
    }
}

impl Eq for Proof {}

impl Proof {
    /// Variables that make the MPI print its carrier. Not for runs that are measured.
    pub fn variables(&self) -> Variables {
        self.set.iter().map(|(name, value)| (name.clone(), value.into())).collect()
    }

    /// The words that prove the carrier, within a run's output.
    ///
    /// # Errors
    /// The words are missing: something else carried the messages.
    pub fn among<'a>(&self, carrier: &Carrier, said: &'a str) -> Result<&'a str> {
        self.says.find(said).map(|found| found.as_str()).ok_or_else(|| {
            let cause = format!("the MPI did not say '{}': something else carried the messages", self.says.as_str());
            let next = "see what it says with its variables of `proof` in the carriers' file, or choose another";
            Fault::new(format!("carrier {carrier}"), cause, next)
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    From(u32),
    Below(u32),
}

/// Placement of a job's ranks on hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach<'a> {
    /// All on this host.
    Host,
    /// On hosts that this interface joins.
    Between(&'a str),
    /// By the launcher's choice.
    Anywhere,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl Carrier {
    /// Variables that make `installation` use the carrier. `None` where this MPI cannot use it, or not between hosts.
    pub fn variables(&self, installation: &Installation, reach: Reach) -> Option<Variables> {
        let recipe = fitting(&self.recipes, installation)?;
        let (interface, between) = match reach {
            Reach::Between(_) if self.one_host => return None,
            Reach::Between(interface) => (Some(interface), Some(&recipe.between)),
            Reach::Host => (Some("lo"), None),
            Reach::Anywhere => (None, None),
        };
        let all = recipe.set.iter().chain(between.into_iter().flatten());
        let known = all.filter_map(|(name, value)| match interface {
            Some(interface) => Some((name.clone(), value.replace(INTERFACE, interface).into())),
            None => (!value.contains(INTERFACE)).then(|| (name.clone(), value.into())),
        });
        Some(known.collect())
    }

    /// Proof that `installation` uses the carrier, where one is known.
    pub fn proof(&self, installation: &Installation) -> Option<&Proof> {
        fitting(&self.recipes, installation)?.proof.as_ref()
    }

    /// Whether `name` is the carrier's name or one of its other names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.also.iter().any(|also| also == name)
    }

    /// Note for the reader where the carrier may not be the built-in one.
    pub fn note(&self) -> Option<String> {
        let instead =
            || format!("carrier {self} is what {} says, in place of another of that name", self.file.display());
        let said: Vec<String> = self.unseen.iter().cloned().chain(self.instead.then(instead)).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Reason why this machine or this MPI lacks the carrier, where it can be seen.
    pub fn missing(&self, installation: &Installation) -> Option<String> {
        let file = self.needs.iter().find(|file| !file.exists()).map(|file| format!("there is no {}", file.display()));
        file.or_else(|| self.libfabric.then(|| transports::without_libfabric(installation)).flatten())
    }
}

/// A setting of an MPI that may make a program faster, whatever the carrier of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MpiSetting {
    pub name: String,
    /// Names of the carriers to which the setting applies; empty: all.
    carriers: Vec<String>,
    /// Messages up to this size are sent eagerly with the setting.
    pub eager: Option<Bytes>,
    /// Whether the setting is only for hosts with more ranks than cores.
    oversubscribed: bool,
    recipes: Vec<Recipe>,
}

impl MpiSetting {
    /// Variables of the setting for `installation` and `carrier`; `None` where it does not apply to them or to such a job.
    pub fn variables(&self, installation: &Installation, carrier: &str, oversubscribed: bool) -> Option<Variables> {
        let has = self.carriers.is_empty() || self.carriers.iter().any(|name| name == carrier);
        let recipe =
            fitting(&self.recipes, installation).filter(|_| has && (oversubscribed || !self.oversubscribed))?;
        Some(recipe.set.iter().map(|(name, value)| (name.clone(), value.into())).collect())
    }
}

/// The first recipe that fits an MPI.
fn fitting<'a>(recipes: &'a [Recipe], installation: &Installation) -> Option<&'a Recipe> {
    let major = installation.major();
    let fits = |recipe: &&Recipe| {
        recipe.family == installation.family
            && match recipe.version {
                None => true,
                Some(Version::From(least)) => major >= least,
                Some(Version::Below(most)) => major < most,
            }
    };
    recipes.iter().find(fits)
}

/// Contents of carriers' files.
#[derive(Debug, Default, PartialEq)]
struct Catalogue {
    carriers: Vec<Carrier>,
    settings: Vec<MpiSetting>,
}

/// All known carriers: the user's first, then the centre's, then the built-in ones.
///
/// # Errors
/// A file cannot be read or is not valid; the fault gives line and column.
pub fn known() -> Result<Vec<Carrier>> {
    Ok(catalogue()?.carriers)
}

/// All known settings, of the same files.
///
/// # Errors
/// The errors of [`known`].
pub fn settings() -> Result<Vec<MpiSetting>> {
    Ok(catalogue()?.settings)
}

fn catalogue() -> Result<Catalogue> {
    let mut all = Catalogue::default();
    let named = std::env::var_os("PLIMSOLL_CARRIERS").filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".config"));
    let users = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from).or_else(home);
    let users = users.map(|folder| folder.join("plimsoll/carriers.toml"));
    let fault = |path: &Path, error: io::Error| {
        let next = "correct its name or its permissions; PLIMSOLL_CARRIERS may name a file";
        Fault::because(format!("carriers {}", path.display()), error, next)
    };
    if let Some(path) = named {
        add(&mut all, &fs::read_to_string(&path).map_err(|error| fault(&path, error))?, &path)?;
    }
    let mut unseen = Vec::new();
    for path in users.into_iter().chain([PathBuf::from("/etc/plimsoll/carriers.toml")]) {
        if let Some(text) = beside(&path, &mut unseen).map_err(|error| fault(&path, error))? {
            add(&mut all, &text, &path)?;
        }
    }
    add(&mut all, BUILT_IN, Path::new("carriers.toml"))?;
    all.carriers.iter_mut().for_each(|carrier| carrier.unseen.clone_from(&unseen));
    Ok(all)
}

/// Text of a file; `None` where it is absent, or where this user may not look for it, with a note in `unseen`.
fn beside(path: &Path, unseen: &mut Vec<String>) -> io::Result<Option<String>> {
    let text = |bytes| String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
    optional::read(path, unseen)?.map(text).transpose()
}

/// Adds the carriers and settings of another file, except those already known by name.
fn add(all: &mut Catalogue, text: &str, path: &Path) -> Result<()> {
    let Catalogue { carriers, settings } = read(text, path)?;
    for carrier in carriers {
        match all.carriers.iter_mut().find(|known| known.name == carrier.name) {
            Some(known) => known.instead = true,
            None => all.carriers.push(carrier),
        }
    }
    let known = std::mem::take(&mut all.settings);
    let is_new =
        |setting: &MpiSetting| !known.iter().any(|of| (&of.name, &of.carriers) == (&setting.name, &setting.carriers));
    let new: Vec<MpiSetting> = settings.into_iter().filter(is_new).collect();
    all.settings = known.into_iter().chain(new).collect();
    Ok(())
}

/// The carrier of that name.
///
/// # Errors
/// There is none, or a file cannot be read.
pub fn named(name: &str) -> Result<Carrier> {
    let mut all = known()?;
    let found = all.iter().position(|carrier| carrier.is_called(name));
    match found {
        Some(found) => Ok(all.swap_remove(found)),
        None => {
            let names: Vec<&str> = all.iter().map(|carrier| carrier.name.as_str()).collect();
            let next = format!("choose one of {}, or add it to ~/.config/plimsoll/carriers.toml", names.join(", "));
            let unseen = all.first().map(|carrier| carrier.unseen.clone()).unwrap_or_default();
            let cause: Vec<String> = ["there is no such carrier".to_owned()].into_iter().chain(unseen).collect();
            Err(Fault::new(format!("carrier '{name}'"), cause.join("; "), next))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    carrier: Vec<WrittenCarrier>,
    #[serde(default)]
    setting: Vec<WrittenSetting>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCarrier {
    name: Spanned<String>,
    #[serde(default)]
    also: Vec<String>,
    words: String,
    hosts: Option<Spanned<String>>,
    #[serde(default)]
    libfabric: bool,
    #[serde(default)]
    needs: Vec<PathBuf>,
    #[serde(rename = "for")]
    recipes: Vec<WrittenRecipe>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSetting {
    name: String,
    #[serde(default)]
    carriers: Vec<String>,
    eager: Option<u64>,
    when: Option<Spanned<String>>,
    #[serde(rename = "for")]
    recipes: Vec<WrittenRecipe>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRecipe {
    mpi: Spanned<String>,
    version: Option<Spanned<String>>,
    set: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    between: BTreeMap<Spanned<String>, Spanned<String>>,
    proof: Option<WrittenProof>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProof {
    set: BTreeMap<Spanned<String>, Spanned<String>>,
    says: Spanned<String>,
}

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
}

fn read(text: &str, path: &Path) -> Result<Catalogue> {
    let reader = Reader { text, path };
    let written: Written = toml::from_str(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        let next = meant(error.message(), "see what can stand there in the file that comes with plimsoll");
        reader.fault(at, error.message().replace('\n', " "), next)
    })?;
    let mut carriers: Vec<Carrier> = Vec::new();
    for written in written.carrier {
        let name = written.name.get_ref().clone();
        let at = written.name.span();
        if name == "plimsoll" || carriers.iter().any(|other| other.name == name) {
            return Err(reader.fault(
                at,
                format!("there is another carrier of the name '{name}'"),
                "choose another name",
            ));
        }
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            let cause = format!("'{}' will not do as a name", name.escape_debug());
            return Err(reader.fault(at, cause, "write letters, digits, -, _ and dots"));
        }
        let one_host = match &written.hosts {
            None => false,
            Some(hosts) if hosts.get_ref() == "one" => true,
            Some(hosts) => {
                let cause = format!("hosts can be \"one\", not \"{}\"", hosts.get_ref());
                return Err(reader.fault(hosts.span(), cause, "leave it out where ranks may be on several hosts"));
            }
        };
        if written.recipes.is_empty() {
            return Err(reader.fault(at, "it is for no MPI", "add for = [{ mpi = \"openmpi\", set = { .. } }]"));
        }
        let recipes = written.recipes.into_iter().map(|recipe| reader.recipe(recipe)).collect::<Result<_>>()?;
        let WrittenCarrier { also, words, libfabric, needs, .. } = written;
        let file = path.to_owned();
        carriers.push(Carrier {
            name,
            also,
            words,
            one_host,
            libfabric,
            needs,
            recipes,
            file,
            instead: false,
            unseen: vec![],
        });
    }
    let settings = written.setting.into_iter().map(|setting| reader.setting(setting)).collect::<Result<_>>()?;
    Ok(Catalogue { carriers, settings })
}

impl Reader<'_> {
    fn fault(&self, at: Range<usize>, cause: impl Into<String>, next: impl Into<String>) -> Fault {
        let (line, column) = line_and_column(self.text, at.start);
        Fault::new(format!("{}:{line}:{column}", self.path.display()), cause, next)
    }

    fn setting(&self, written: WrittenSetting) -> Result<MpiSetting> {
        let WrittenSetting { name, carriers, eager, when, recipes } = written;
        if let Some(when) = when.as_ref().filter(|when| when.get_ref() != "oversubscribed") {
            let cause = format!("when can be \"oversubscribed\", not \"{}\"", when.get_ref());
            return Err(self.fault(when.span(), cause, "leave it out where it is for any job"));
        }
        let recipes = recipes.into_iter().map(|recipe| self.recipe(recipe)).collect::<Result<_>>()?;
        Ok(MpiSetting { name, carriers, eager: eager.map(Bytes), oversubscribed: when.is_some(), recipes })
    }

    fn recipe(&self, written: WrittenRecipe) -> Result<Recipe> {
        let family = match written.mpi.get_ref().as_str() {
            "openmpi" => Family::OpenMpi,
            "mpich" => Family::Mpich,
            "intelmpi" => Family::IntelMpi,
            other => {
                let cause = format!("there is no MPI '{other}'");
                return Err(self.fault(written.mpi.span(), cause, "write openmpi, mpich or intelmpi"));
            }
        };
        let version = written.version.map(|version| {
            let text = version.get_ref();
            let read = |rest: &str, make: fn(u32) -> Version| rest.trim().parse().ok().map(make);
            let found = text.strip_prefix(">=").and_then(|rest| read(rest, Version::From));
            let found = found.or_else(|| text.strip_prefix('<').and_then(|rest| read(rest, Version::Below)));
            found
                .ok_or_else(|| self.fault(version.span(), format!("'{text}' is no version"), "write \">=5\" or \"<5\""))
        });
        let (set, between) = (self.variables(written.set)?, self.variables(written.between)?);
        let proof = written.proof.map(|proof| -> Result<Proof> {
            let set = self.variables(proof.set)?;
            let says = Regex::new(proof.says.get_ref()).map_err(|error| {
                let next = "write a regular expression that is among what the MPI then says";
                self.fault(proof.says.span(), error.to_string(), next)
            })?;
            Ok(Proof { set, says })
        });
        Ok(Recipe { family, version: version.transpose()?, set, between, proof: proof.transpose()? })
    }

    fn variables(&self, written: BTreeMap<Spanned<String>, Spanned<String>>) -> Result<BTreeMap<String, String>> {
        let mut variables = BTreeMap::new();
        for (name, value) in written {
            let (at, within) = (name.span(), value.span());
            let (name, value) = (name.into_inner(), value.into_inner());
            if REFUSED.contains(&name.as_str()) {
                let next = "set it where the program is started";
                return Err(self.fault(at, format!("{name} decides what is loaded, not what carries messages"), next));
            }
            if value.replace(INTERFACE, "").contains("${") {
                return Err(self.fault(within, "there is nothing else to fill in", format!("write {INTERFACE}")));
            }
            variables.insert(name, value);
        }
        Ok(variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation(family: Family, version: &str) -> Installation {
        let launcher = PathBuf::from("mpirun");
        Installation { family, version: version.to_owned(), launcher, device: None, libraries: None }
    }

    fn built_in(name: &str) -> Carrier {
        let all = read(BUILT_IN, Path::new("carriers.toml")).unwrap();
        all.carriers.into_iter().find(|carrier| carrier.name == name).unwrap()
    }

    #[test]
    fn variables_differ_by_version_and_reach() {
        let find = |carrier, version, reach, name: &str| {
            let all = built_in(carrier).variables(&installation(Family::OpenMpi, version), reach)?;
            all.into_iter().find(|(found, _)| found == name).map(|(_, value)| value.into_string().unwrap())
        };
        assert_eq!(find("vader", "4.1.4", Reach::Host, "OMPI_MCA_btl").unwrap(), "self,vader");
        assert_eq!(find("vader", "5.0.11", Reach::Host, "OMPI_MCA_btl").unwrap(), "self,sm");
        assert_eq!(find("vader", "5.0.11", Reach::Between("eth0"), "OMPI_MCA_btl"), None);
        let interface = |reach| find("tcp", "4.1.4", reach, "OMPI_MCA_btl_tcp_if_include");
        assert_eq!(interface(Reach::Between("lab0")).unwrap(), "lab0");
        assert_eq!((interface(Reach::Host).unwrap().as_str(), interface(Reach::Anywhere)), ("lo", None));
        assert_eq!(find("ucx", "4.1.4", Reach::Between("lab0"), "UCX_NET_DEVICES").unwrap(), "lab0");
        assert_eq!(find("ucx", "4.1.4", Reach::Host, "UCX_TLS"), None);
        assert!(built_in("tcp").variables(&installation(Family::Mpich, "4.0"), Reach::Host).is_none());
        let mpich = installation(Family::Mpich, "4.0");
        assert!(built_in("ofi-tcp").variables(&mpich, Reach::Host).is_some());
        assert!(built_in("mpich-shm").variables(&mpich, Reach::Host).is_some());
        assert!(built_in("mpich-shm").variables(&mpich, Reach::Between("lab0")).is_none());
    }

    #[test]
    fn one_that_takes_the_place_of_another_is_told() {
        let users = "[[carrier]]\nname = \"vader\"\nwords = \"mine\"\nfor = [{ mpi = \"openmpi\", set = {} }]\n";
        let mut known = Catalogue::default();
        add(&mut known, users, Path::new("/home/me/carriers.toml")).unwrap();
        assert_eq!(known.carriers[0].note(), None);
        add(&mut known, BUILT_IN, Path::new("carriers.toml")).unwrap();
        let all = known.carriers;
        let vaders: Vec<_> = all.iter().filter(|carrier| carrier.name == "vader").collect();
        assert_eq!((vaders.len(), vaders[0].words.as_str()), (1, "mine"));
        let said = "carrier vader is what /home/me/carriers.toml says, in place of another of that name";
        assert_eq!(vaders[0].note().unwrap(), said);
        assert!(all[1..].iter().all(|carrier| carrier.note().is_none()));
    }

    #[test]
    fn a_setting_is_for_its_carriers_its_mpi_and_its_jobs() {
        let settings = read(BUILT_IN, Path::new("carriers.toml")).unwrap().settings;
        let names = |carrier, oversubscribed, version| {
            let of = installation(Family::OpenMpi, version);
            let has = |setting: &&MpiSetting| setting.variables(&of, carrier, oversubscribed).is_some();
            settings.iter().filter(has).map(|setting| setting.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names("vader", false, "4.1.4"), [""; 0]);
        assert_eq!(names("tcp", true, "4.1.4"), ["eager limit 256 KiB", "yield when idle"]);
        let variables = settings[1].variables(&installation(Family::OpenMpi, "5.0.1"), "ucx", false).unwrap();
        assert_eq!(variables, [("UCX_RNDV_THRESH".to_owned(), "262144".into())]);
        assert_eq!(settings[1].eager, Some(Bytes(262_144)));
        let mpich = installation(Family::Mpich, "4.0");
        assert!(settings.iter().all(|setting| setting.variables(&mpich, "mpich-shm", true).is_none()));
    }

    #[test]
    fn a_file_that_may_not_be_looked_for_leaves_those_that_come_with_plimsoll() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::write(&home, "").unwrap();
        let mut unseen = Vec::new();
        assert_eq!(beside(&home.join("carriers.toml"), &mut unseen).unwrap(), None);
        let tcp = Carrier { unseen, ..built_in("tcp") };
        let note = tcp.note().unwrap();
        assert!(note.contains("home/carriers.toml may not be looked for"), "{note}");
        fs::write(&home, b"\xff").unwrap();
        assert_eq!(beside(&home, &mut Vec::new()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn what_cannot_be_is_refused_with_line_and_column() {
        let carrier = |rest: &str| format!("[[carrier]]\nname = \"a\"\nwords = \"b\"\n{rest}");
        let recipe = |rest: &str| carrier(&format!("for = [{{ mpi = \"openmpi\", {rest} }}]\n"));
        for (text, said) in [
            (carrier("vars = 1\n"), "file.toml:4:1: unknown field `vars`"),
            (carrier("need = []\n"), "Next: did you mean 'needs'?"),
            (carrier("for = []\n"), "file.toml:2:8: it is for no MPI"),
            (carrier("hosts = \"two\"\nfor = []\n"), "file.toml:4:9: hosts can be \"one\", not \"two\""),
            (carrier("for = [{ mpi = \"lam\", set = {} }]\n"), "file.toml:4:16: there is no MPI 'lam'"),
            (recipe("version = \"5\", set = {}"), "file.toml:4:37: '5' is no version"),
            (recipe("set = { LD_PRELOAD = \"x\" }"), "file.toml:4:35: LD_PRELOAD decides what is loaded"),
            (recipe("set = { A = \"${device}\" }"), "file.toml:4:39: there is nothing else to fill in"),
            (recipe("set = {}, proof = { set = {}, says = 'a(' }"), "file.toml:4:64: found open group"),
            (recipe("set = {}") + &recipe("set = {}"), "file.toml:6:8: there is another carrier of the name 'a'"),
            ("[[carrier]]\nname = \"plimsoll\"\nwords = \"\"\nfor = []".to_owned(), "there is another carrier"),
            ("carrier = 3".to_owned(), "file.toml:1:11: "),
            ("[[setting]]\nname = \"a\"\nwhen = \"full\"\nfor = []\n".to_owned(), "file.toml:3:8: when can be"),
        ] {
            let fault = read(&text, Path::new("file.toml")).unwrap_err().to_string();
            assert!(fault.contains(said) && fault.contains("Next: "), "{text}\n{fault}");
        }
    }
}
