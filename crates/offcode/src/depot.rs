//! Depots: folders of packages, `NAME/odf.xml` with the files of its bodies beside it. A further version of an offcode is in
//! `NAME-VERSION/`.

mod clash;
mod install;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use machine::{Bytes, Fault, Result};

pub use clash::{Named, clashes};

use crate::guid::Guid;
use crate::manifest::{Body, Manifest, Package};
use crate::odf::{self, Problems};

/// The manifest's file in each package.
pub const ODF: &str = "odf.xml";

/// Size above which bodies are refused.
pub const LARGEST_BODY: Bytes = Bytes(64 << 20);

/// A package that was read and whose bodies are there.
#[derive(Debug, Clone)]
pub struct Stored {
    /// What the package's ODF says.
    pub manifest: Arc<Manifest>,
    /// The package's folder, with the files of its bodies.
    pub folder: PathBuf,
}

/// A folder of packages without clashes, as it was when it was opened.
#[derive(Debug, Clone)]
pub struct Depot {
    folder: PathBuf,
    packages: Vec<Stored>,
}

/// All that was found in a folder of packages, with everything that is wrong.
#[derive(Debug)]
pub struct Survey {
    /// The folder that was looked at.
    pub folder: PathBuf,
    /// The packages that can be used, ordered by name.
    pub packages: Vec<Stored>,
    /// Why each other package cannot be used.
    pub refused: Vec<Refused>,
    /// Names and GUIDs that two of the usable packages share.
    pub clashes: Vec<Fault>,
}

/// Why a package cannot be used.
#[derive(Debug)]
pub enum Refused {
    /// Its ODF has mistakes.
    Odf {
        /// The ODF's path.
        file: PathBuf,
        /// The mistakes, with line and column.
        problems: Problems,
    },
    /// Anything else, such as a body that is missing.
    Other(Fault),
}

impl Refused {
    /// The reason as one fault.
    pub fn fault(self) -> Fault {
        match self {
            Refused::Odf { file, problems } => problems.fault(&file.display().to_string()),
            Refused::Other(fault) => fault,
        }
    }
}

/// Looks at every package of a folder. Names that begin with a dot, and files, are no packages.
pub fn survey(folder: &Path) -> Result<Survey> {
    let unreadable = |error| {
        Fault::because(
            format!("depot {}", folder.display()),
            error,
            "name a folder that holds packages, NAME/odf.xml each",
        )
    };
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    let mut survey = Survey { folder: folder.into(), packages: Vec::new(), refused: Vec::new(), clashes: Vec::new() };
    for path in folders {
        match package(&path) {
            Ok(stored) => survey.packages.push(stored),
            Err(refused) => survey.refused.push(refused),
        }
    }
    survey.clashes = clashes(survey.packages.iter().map(Stored::named));
    Ok(survey)
}

/// Reads the package in a folder and looks for its bodies.
pub fn package(folder: &Path) -> Result<Stored, Refused> {
    let manifest = read_odf(&folder.join(ODF))?;
    let stored = Stored { manifest: Arc::new(manifest), folder: folder.into() };
    let name = &stored.manifest.package.name;
    let further = further(&stored.manifest);
    if folder
        .file_name()
        .is_none_or(|folder| ![name, &further].map(String::as_str).contains(&&*folder.to_string_lossy()))
    {
        return Err(Refused::Other(Fault::new(
            format!("package {}", folder.display()),
            format!("its ODF calls it {name}"),
            format!("rename the folder to {name} or {further}, or change the name in its {ODF}"),
        )));
    }
    for file in stored.manifest.package.bodies.iter().flat_map(Body::files) {
        stored.open(file).map_err(Refused::Other)?;
    }
    Ok(stored)
}

/// The name of a further version's folder.
fn further(manifest: &Manifest) -> String {
    format!("{}-{}", manifest.package.name, manifest.package.version)
}

/// Reads one ODF file.
pub fn read_odf(file: &Path) -> Result<Manifest, Refused> {
    let bytes = open_regular(file, "ODF", odf::LARGEST).and_then(|file| read_bounded(file, "ODF", odf::LARGEST));
    let bytes = bytes.map_err(Refused::Other)?;
    odf::read(&bytes).map_err(|problems| Refused::Odf { file: file.into(), problems })
}

impl Stored {
    /// The path of the package's ODF.
    pub fn odf(&self) -> PathBuf {
        self.folder.join(ODF)
    }

    /// The bytes of a body's file, one of [`Body::files`].
    pub fn load(&self, file: &str) -> Result<Arc<[u8]>> {
        read_bounded(self.open(file)?, "body", LARGEST_BODY).map(Arc::from)
    }

    fn named(&self) -> Named<'_> {
        Named { manifest: &self.manifest, place: self.odf().display().to_string() }
    }

    fn open(&self, file: &str) -> Result<Opened> {
        let path = self.folder.join(file);
        let is_inside = path.canonicalize().and_then(|file| Ok(file.starts_with(self.folder.canonicalize()?)));
        // Else a link to a file that only the installing user can read would be installed, and sent to agents.
        if is_inside.is_ok_and(|is_inside| !is_inside) {
            let subject = format!("body {}", path.display());
            return Err(Fault::new(subject, "it is a link out of its package", "put the file itself there"));
        }
        open_regular(&path, "body", LARGEST_BODY)
    }
}

impl Depot {
    /// The first thing that is wrong is the fault; `plimsoll odf check FOLDER` lists all.
    pub fn open(folder: &Path) -> Result<Depot> {
        let survey = survey(folder)?;
        let wrong = survey.refused.into_iter().map(Refused::fault).chain(survey.clashes).next();
        match wrong {
            Some(fault) => Err(fault),
            None => Ok(Depot { folder: survey.folder, packages: survey.packages }),
        }
    }

    /// The folder that was opened.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The manifest of every package, ordered by its folder.
    pub fn manifests(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        self.packages.iter().map(|stored| &stored.manifest)
    }

    /// The packages, ordered by folder.
    pub fn packages(&self) -> &[Stored] {
        &self.packages
    }

    /// The depot reduced to one package.
    pub fn only(&self, package: &Package) -> Depot {
        Depot { folder: self.folder.clone(), packages: self.exactly(package).into_iter().cloned().collect() }
    }

    /// The package of this name, if it is there: of several versions the one to be preferred.
    pub fn by_name(&self, name: &str) -> Option<&Stored> {
        self.best(|package| package.name == name)
    }

    /// The package of this offcode, if it is there: of several versions the one to be preferred.
    pub fn by_guid(&self, offcode: Guid) -> Option<&Stored> {
        self.best(|package| package.guid == offcode)
    }

    /// The package of this offcode in this version, if it is there.
    pub fn exactly(&self, wanted: &Package) -> Option<&Stored> {
        self.best(|package| (package.guid, &package.version) == (wanted.guid, &wanted.version))
    }

    fn best(&self, is: impl Fn(&Package) -> bool) -> Option<&Stored> {
        let those = self.packages.iter().filter(|stored| is(&stored.manifest.package));
        those.max_by_key(|stored| stored.manifest.package.preference())
    }

    /// Copies the package in `folder` in: the depot has all of it or nothing, also after a crash. It goes beside other
    /// versions of the offcode. A fault where it clashes with what is there.
    pub fn install(&mut self, folder: &Path) -> Result<&Stored> {
        let stored = install::install(self, folder, false)?;
        self.add(stored)
    }

    /// The same in place of the package of this offcode that is there: of its own version, else of the one whose folder has
    /// the name alone.
    pub fn update(&mut self, folder: &Path) -> Result<&Stored> {
        let stored = install::install(self, folder, true)?;
        self.packages.retain(|other| other.folder != stored.folder);
        self.add(stored)
    }

    fn add(&mut self, stored: Stored) -> Result<&Stored> {
        let place = self.packages.partition_point(|other| other.folder < stored.folder);
        self.packages.insert(place, stored);
        Ok(&self.packages[place])
    }
}

struct Opened {
    file: File,
    path: PathBuf,
}

/// Opens a regular file, without waiting for a pipe's writer.
fn open_regular(path: &Path, what: &str, largest: Bytes) -> Result<Opened> {
    let subject = || format!("{what} {}", path.display());
    let failed = |error| Fault::because(subject(), error, "put the file there, readable");
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(Fault::new(subject(), "it is no regular file", "put the file itself there"));
    }
    if metadata.len() > largest.0 {
        let cause = format!("it has {}, more than {largest}", Bytes(metadata.len()));
        return Err(Fault::new(subject(), cause, "make it smaller"));
    }
    File::open(path).map(|file| Opened { file, path: path.into() }).map_err(failed)
}

/// Reads to the end, but no more than the size that was allowed: the file may have grown since it was opened.
fn read_bounded(opened: Opened, what: &str, largest: Bytes) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let subject = || format!("{what} {}", opened.path.display());
    let read = (&opened.file).take(largest.0 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Fault::because(subject(), error, "check the disk"))?;
    if bytes.len() as u64 > largest.0 {
        return Err(Fault::new(subject(), format!("it is longer than {largest}"), "make it smaller"));
    }
    Ok(bytes)
}
