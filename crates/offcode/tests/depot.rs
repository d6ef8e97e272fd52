//! Depots: what is found in them, what is refused, and installing.

use std::fs;
use std::path::Path;

use machine::Bytes;
use machine::SiteKind;
use offcode::depot::{self, Depot, Refused};
use offcode::manifest::{Body, BodyKind, Interface, Package, Software, Target};
use offcode::{Guid, Manifest, odf};

fn manifest(name: &str, interfaces: &[(&str, &[&str])]) -> Manifest {
    let interface = |(name, methods): &(&str, &[&str])| Interface {
        guid: Guid::named(name),
        name: (*name).to_owned(),
        methods: methods.iter().map(|method| (*method).to_owned()).collect(),
    };
    Manifest {
        package: Package {
            guid: Guid::named(&format!("offcode {name}")),
            name: name.into(),
            version: "1.0.0".into(),
            description: String::new(),
            interfaces: interfaces.iter().map(interface).collect(),
            bodies: vec![Body {
                kind: BodyKind::Wasm,
                file: Some("body.wasm".into()),
                libraries: Vec::new(),
                sites: vec![SiteKind::App, SiteKind::Core],
                program: None,
                tc: None,
            }],
            attributes: Vec::new(),
            state: Default::default(),
        },
        hardware: vec![Target { site: SiteKind::App, modes: Vec::new(), memory: Bytes(1024), work: None }],
        software: Software::default(),
    }
}

fn put(depot: &Path, manifest: &Manifest) {
    let folder = depot.join(&manifest.package.name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("odf.xml"), odf::write(manifest).unwrap()).unwrap();
    fs::write(folder.join("body.wasm"), format!("code of {}", manifest.package.name)).unwrap();
}

#[test]
fn packages_are_found_by_name_guid_and_interface() {
    let folder = tempfile::tempdir().unwrap();
    let (filter, other) =
        (manifest("a.filter", &[("Filter", &["admit"])]), manifest("b.filter", &[("Filter", &["admit"])]));
    let counter = manifest("counter", &[("Counter", &["add", "total"])]);
    for manifest in [&counter, &other, &filter] {
        put(folder.path(), manifest);
    }
    // Neither is a package.
    fs::write(folder.path().join("README"), "text").unwrap();
    fs::create_dir(folder.path().join(".hidden")).unwrap();
    let depot = Depot::open(folder.path()).unwrap();
    let names: Vec<_> = depot.packages().iter().map(|stored| stored.manifest.package.name.as_str()).collect();
    assert_eq!(names, ["a.filter", "b.filter", "counter"]);
    assert_eq!(*depot.by_name("counter").unwrap().manifest, counter);
    assert_eq!(*depot.by_guid(other.package.guid).unwrap().manifest, other);
    assert!(depot.by_guid(Guid::named("Filter")).is_none());
    let stored = depot.by_name("counter").unwrap();
    assert_eq!(&*stored.load("body.wasm").unwrap(), b"code of counter");
    // A link within the package is what it leads to.
    fs::rename(folder.path().join("counter/body.wasm"), folder.path().join("counter/body-1.wasm")).unwrap();
    std::os::unix::fs::symlink("body-1.wasm", folder.path().join("counter/body.wasm")).unwrap();
    assert_eq!(&*stored.load("body.wasm").unwrap(), b"code of counter");
}

#[test]
fn clashes_name_both_files() {
    let two = |interfaces: &[(&str, &[&str])], change: &dyn Fn(&mut Package)| {
        let mut manifest = manifest("two", interfaces);
        change(&mut manifest.package);
        manifest
    };
    let almost = |guid: Guid| Guid::from_bytes((u128::from_be_bytes(*guid.bytes()) ^ (1 << 64 | 1)).to_be_bytes());
    let cases: [(&str, Manifest, &[&str]); 5] = [
        (
            "an offcode twice",
            two(&[], &|two| two.guid = manifest("one", &[]).package.guid),
            &["offcode one", "offcode two"],
        ),
        (
            "another name",
            two(&[("I", &["a"])], &|two| two.interfaces[0].name = "J".into()),
            &["interface I,", "calls it J"],
        ),
        ("other methods", two(&[("I", &["a", "b"])], &|_| {}), &["a in ", "a, b in "]),
        ("an interface's GUID", two(&[], &|two| two.guid = Guid::named("I")), &["interface I", "offcode two"]),
        ("equal in 64 bits", two(&[], &|two| two.guid = almost(Guid::named("I"))), &["64 bits"]),
    ];
    for (what, two, words) in cases {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &manifest("one", &[("I", &["a"])]));
        Depot::open(folder.path()).unwrap();
        put(folder.path(), &two);
        let survey = depot::survey(folder.path()).unwrap();
        assert_eq!((survey.packages.len(), survey.refused.len(), survey.clashes.len()), (2, 0, 1), "{what}");
        let fault = Depot::open(folder.path()).unwrap_err().to_string();
        for word in words.iter().copied().chain(["one/odf.xml", "two/odf.xml"]) {
            assert!(fault.contains(word), "{what}: {fault}");
        }
    }
}

#[test]
fn a_package_that_is_not_whole_is_refused() {
    let refused = |damage: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), &manifest("one", &[]));
        damage(&folder.path().join("one"));
        let survey = depot::survey(folder.path()).unwrap();
        assert!(survey.packages.is_empty());
        let fault = survey.refused.into_iter().next().unwrap().fault().to_string();
        assert!(Depot::open(folder.path()).unwrap_err().to_string() == fault);
        fault
    };
    let missing = refused(&|package| fs::remove_file(package.join("body.wasm")).unwrap());
    assert!(missing.contains("body.wasm") && missing.contains("No such file"), "{missing}");
    let folder = refused(&|package| {
        fs::remove_file(package.join("body.wasm")).unwrap();
        fs::create_dir(package.join("body.wasm")).unwrap();
    });
    assert!(folder.contains("no regular file"), "{folder}");
    let device = refused(&|package| {
        fs::remove_file(package.join("odf.xml")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", package.join("odf.xml")).unwrap();
    });
    assert!(device.contains("no regular file"), "{device}");
    let away = refused(&|package| {
        fs::write(package.join("../secret"), "of somebody else").unwrap();
        fs::remove_file(package.join("body.wasm")).unwrap();
        std::os::unix::fs::symlink("../secret", package.join("body.wasm")).unwrap();
    });
    assert!(away.contains("body.wasm: it is a link out of its package"), "{away}");
    let large = refused(&|package| {
        let file = fs::File::create(package.join("body.wasm")).unwrap();
        file.set_len(depot::LARGEST_BODY.0 + 1).unwrap();
    });
    assert!(large.contains("more than 64 MiB"), "{large}");
    let mistaken = refused(&|package| fs::write(package.join("odf.xml"), "<odf version='1'>\n</odf>").unwrap());
    assert!(mistaken.contains("one/odf.xml:1:2") && mistaken.contains("2 mistakes more"), "{mistaken}");
    let renamed = refused(&|package| {
        let text = fs::read_to_string(package.join("odf.xml")).unwrap();
        fs::write(package.join("odf.xml"), text.replace("name=\"one\"", "name=\"two\"")).unwrap();
    });
    assert!(renamed.contains("its ODF calls it two"), "{renamed}");
}

#[test]
fn a_package_is_installed_whole_or_not_at_all() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let listed = || {
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    for name in ["b", "a"] {
        put(source.path(), &manifest(name, &[]));
    }
    // Left by a process that was killed: no process has this number.
    fs::create_dir(folder.path().join(".c.999999999.installing")).unwrap();
    let mut depot = Depot::open(folder.path()).unwrap();
    fs::write(source.path().join("a/notes"), "not named by the ODF").unwrap();
    for name in ["b", "a"] {
        let stored = depot.install(&source.path().join(name)).unwrap();
        assert_eq!(*stored.manifest, manifest(name, &[]));
    }
    assert_eq!(listed(), ["a", "b"]);
    assert!(!folder.path().join("a/notes").exists());
    assert_eq!(Depot::open(folder.path()).unwrap().packages().len(), 2);
    assert!(depot.install(&source.path().join("a")).unwrap_err().to_string().contains("installed already"));

    let mut clash = manifest("c", &[]);
    clash.package.guid = manifest("a", &[]).package.guid;
    put(source.path(), &clash);
    assert!(depot.install(&source.path().join("c")).unwrap_err().to_string().contains("a/odf.xml"));
    put(source.path(), &manifest("d", &[]));
    fs::remove_file(source.path().join("d/body.wasm")).unwrap();
    depot.install(&source.path().join("d")).unwrap_err();
    // Somebody put a folder there meanwhile: it is not overwritten.
    put(source.path(), &manifest("e", &[]));
    put(folder.path(), &manifest("e", &[]));
    depot.install(&source.path().join("e")).unwrap_err();
    assert_eq!(listed(), ["a", "b", "e"]);
    assert_eq!(depot.packages().len(), 2);
}

#[test]
fn a_package_gives_way_to_its_next_version_and_to_no_other_offcode() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut depot = Depot::open(folder.path()).unwrap();
    let mut next = manifest("a", &[("Filter", &["admit"])]);
    for version in ["1.0.0", "2.0.0"] {
        next.package.version = version.into();
        // Another method is no clash with the version that goes.
        next.package.interfaces[0].methods.push(format!("since_{}", &version[..1]));
        put(source.path(), &next);
        depot.update(&source.path().join("a")).unwrap();
        assert_eq!(depot.by_name("a").unwrap().manifest.package.version, version);
        assert_eq!(Depot::open(folder.path()).unwrap().packages().len(), 1);
    }
    next.package.guid = Guid::named("another");
    put(source.path(), &next);
    assert!(depot.update(&source.path().join("a")).unwrap_err().to_string().contains("installed already"));
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a"], "nothing is left aside");
}

#[test]
fn versions_of_an_offcode_lie_side_by_side() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut depot = Depot::open(folder.path()).unwrap();
    let mut next = manifest("a", &[("Filter", &["admit"])]);
    for version in ["1.0.0", "2.0.0-rc.1", "1.10.0", "1.9.0"] {
        next.package.version = version.into();
        // More methods may follow.
        next.package.interfaces[0].methods.push(format!("since_{}", version.replace(['.', '-'], "_")));
        put(source.path(), &next);
        assert_eq!(depot.install(&source.path().join("a")).unwrap().manifest.package.version, version);
        assert!(depot.install(&source.path().join("a")).unwrap_err().to_string().contains("installed already"));
    }
    let folders = || {
        let depot = Depot::open(folder.path()).unwrap();
        let folders = depot.packages().iter().map(|stored| stored.folder.file_name().unwrap().to_owned());
        folders.collect::<Vec<_>>()
    };
    assert_eq!(folders(), ["a", "a-1.10.0", "a-1.9.0", "a-2.0.0-rc.1"]);
    let depot = Depot::open(folder.path()).unwrap();
    assert_eq!(depot.by_name("a").unwrap().manifest.package.version, "1.10.0", "the newest release");
    assert_eq!(depot.by_guid(next.package.guid).unwrap().manifest.package.version, "1.10.0");
    assert_eq!(*depot.exactly(&next.package).unwrap().manifest, next);
    // An update gives way where its version is, else where the name alone is.
    let mut depot = depot;
    put(source.path(), &next);
    assert!(depot.update(&source.path().join("a")).unwrap().folder.ends_with("a-1.9.0"));
    next.package.version = "3.0.0".into();
    put(source.path(), &next);
    assert!(depot.update(&source.path().join("a")).unwrap().folder.ends_with("a"));
    assert_eq!(folders(), ["a", "a-1.10.0", "a-1.9.0", "a-2.0.0-rc.1"]);
    assert_eq!(depot.by_name("a").unwrap().manifest.package.version, "3.0.0");

    // Of these it cannot be told which is newer, or they do not have one list of methods.
    let clash = |change: &dyn Fn(&mut Package)| {
        let mut other = next.clone();
        change(&mut other.package);
        let place = tempfile::tempdir().unwrap();
        put(place.path(), &other);
        fs::rename(place.path().join("a"), folder.path().join(format!("a-{}", other.package.version))).unwrap();
        let fault = Depot::open(folder.path()).unwrap_err().to_string();
        fs::remove_dir_all(folder.path().join(format!("a-{}", other.package.version))).unwrap();
        fault
    };
    let said = clash(&|package| package.version = "4.0".into());
    assert!(said.contains("versions 4.0 and 3.0.0") || said.contains("versions 3.0.0 and 4.0"), "{said}");
    assert!(said.contains("semantic version"), "{said}");
    let said = clash(&|package| package.version = "3.0.0".into());
    assert!(said.contains("version 3.0.0 of it twice"), "{said}");
    let said = clash(&|package| {
        package.version = "4.0.0".into();
        package.interfaces[0].methods.swap(0, 1);
    });
    assert!(said.contains("the methods of interface Filter are"), "{said}");
}

#[test]
fn one_file_is_read_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("any.xml");
    fs::write(&path, odf::write(&manifest("one", &[])).unwrap()).unwrap();
    assert_eq!(depot::read_odf(&path).unwrap(), manifest("one", &[]));
    fs::write(&path, "<odf/>").unwrap();
    assert!(matches!(depot::read_odf(&path), Err(Refused::Odf { .. })));
    assert!(matches!(depot::read_odf(folder.path()), Err(Refused::Other(_))));
}
