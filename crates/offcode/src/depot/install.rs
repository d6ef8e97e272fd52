//! Putting a package into a depot: a hidden copy, checked and written to disk, then one rename.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use machine::{Fault, Result};

use super::{Depot, Named, ODF, Stored, clashes, further};
use crate::manifest::Body;

/// Copies that were begun are called `.NAME.PID.installing`.
const PARTIAL: &str = ".installing";

/// `replaces` where a package of the same offcode that is there gives way.
pub(super) fn install(depot: &Depot, folder: &Path, replaces: bool) -> Result<Stored> {
    let new = super::package(folder).map_err(super::Refused::fault)?;
    let package = &new.manifest.package;
    let name = &package.name;
    let refuse = |what: &str, there: &Stored| {
        let cause = format!("{what} {} is installed already", there.manifest.package.version);
        Err(Fault::new(format!("package {name}"), cause, format!("remove {} first", there.folder.display())))
    };
    if let Some(other) = depot.by_name(name).filter(|other| other.manifest.package.guid != package.guid) {
        return refuse("another offcode of this name, version", other);
    }
    let same = depot.exactly(package).filter(|same| same.manifest.package.name == *name);
    let plain = depot.folder.join(name);
    let named = depot.packages.iter().find(|stored| stored.folder == plain);
    let there = match same {
        Some(same) if !replaces => return refuse("version", same),
        same => same.or(named.filter(|_| replaces)),
    };
    let to = match (there, named) {
        (Some(there), _) => there.folder.clone(),
        (None, None) => plain,
        (None, Some(_)) => depot.folder.join(further(&new.manifest)),
    };
    let others = depot.packages.iter().filter(|other| there.is_none_or(|there| there.folder != other.folder));
    let all = others.map(Stored::named).chain([Named { manifest: &new.manifest, place: display(&new.odf()) }]);
    if let Some(clash) = clashes(all).into_iter().next() {
        return Err(clash);
    }
    remove_stale(&depot.folder);
    let partial = depot.folder.join(format!(".{name}.{}{PARTIAL}", std::process::id()));
    let aside = depot.folder.join(format!(".{name}.old.{}{PARTIAL}", std::process::id()));
    let swap = || match there {
        None => fs::rename(&partial, &to),
        Some(_) => {
            fs::rename(&to, &aside)?;
            fs::rename(&partial, &to).inspect_err(|_| drop(fs::rename(&aside, &to)))
        }
    };
    let done = copy(&new, &partial).and_then(|()| swap()).and_then(|()| sync(&depot.folder));
    let _ = fs::remove_dir_all(&aside);
    if let Err(error) = done {
        let _ = fs::remove_dir_all(&partial);
        let next = "check that the depot's folder can be written, has room and no package of this name";
        return Err(Fault::because(format!("package {name} into depot {}", depot.folder.display()), error, next));
    }
    // What is there now is what was copied, unless somebody changed it meanwhile: read it as a user of the depot would.
    super::package(&to).map_err(super::Refused::fault)
}

fn copy(new: &Stored, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    let files = new.manifest.package.bodies.iter().flat_map(Body::files);
    for file in files.chain([ODF]) {
        fs::copy(new.folder.join(file), to.join(file))?;
        sync(&to.join(file))?;
    }
    sync(to)
}

fn sync(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Removes what processes that have ended left half copied.
fn remove_stale(depot: &Path) {
    for entry in fs::read_dir(depot).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_suffix(PARTIAL)).and_then(|name| name.rsplit_once('.'));
        let Some(process) = process.and_then(|(_, process)| process.parse::<u32>().ok()) else { continue };
        if process == std::process::id() || !PathBuf::from(format!("/proc/{process}")).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}
