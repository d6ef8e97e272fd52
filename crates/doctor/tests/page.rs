//! The page of `plimsoll doctor`, on archived machines, on fabricated installations, and on this host.

use std::fs;
use std::path::Path;

use doctor::{Checkup, Programs, State, examine};
use machine::Source;

fn machines() -> impl Iterator<Item = std::path::PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
}

#[test]
fn archived_machines_are_judged_as_they_were() {
    let mut count = 0;
    for machine in machines() {
        let checkup = examine(&Source::open(&machine).unwrap(), None).unwrap();
        insta::assert_snapshot!(machine.file_name().unwrap().to_str().unwrap(), checkup.page(100));
        count += 1;
    }
    assert!(count >= 5);
}

/// A folder with programs that print what they are told to.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn with(self, name: &str, text: &str) -> Folder {
        let path = self.0.path().join(name);
        skip::program(&path, &format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n"));
        self
    }

    fn programs(&self) -> Programs {
        Programs { folders: vec![self.0.path().to_owned()], command: self.0.path().join("plimsoll") }
    }

    /// The findings for the programs of the folder, on an archived machine.
    fn page(&self) -> String {
        let archive = Source::open(&machines().next().unwrap()).unwrap();
        let mut checkup = examine(&archive, Some(&self.programs())).unwrap();
        checkup.sections.retain(|section| !["rights", "cores and network"].contains(&section.title));
        checkup.machine = "a machine".into();
        for check in checkup.sections.iter_mut().flat_map(|section| &mut section.checks) {
            let folder = self.0.path().canonicalize().unwrap();
            check.found = check.found.replace(folder.to_str().unwrap(), "BIN");
        }
        checkup.page(100)
    }
}

const MPICH: &str = "HYDRA build details:\n    Version:     4.0.2\n    Configure options: '--with-device=ch4:ucx' 'x'";
const COMPONENTS: &str = r#"mca:btl:vader:version:"component:4.1.4"
mca:btl:tcp:version:"component:4.1.4"
mca:btl:base:param:btl:value:^uct,openib,ofi
mca:btl:openib:version:"component:4.1.4"
mca:mtl:ofi:version:"component:4.1.4"
mca:mtl:base:param:mtl:value:^ofi
mca:pml:ucx:version:"component:4.1.4"
mca:pml:base:param:pml:value:^ucx"#;

#[test]
fn what_each_mpi_can_carry_messages_by_is_told() {
    // As Debian builds and configures them.
    let folder = Folder::new()
        .with("mpirun.openmpi", "mpirun.openmpi (OpenRTE) 4.1.4")
        .with("ompi_info", COMPONENTS)
        .with("mpicc.openmpi", "")
        .with("mpiexec.mpich", MPICH)
        .with("srun", "slurm-wlm 22.05.8")
        .with("sinfo", "debug* 2\nlong 4")
        .with("NPopenmpi", "")
        .with("libplimsoll-fi.so", "");
    insta::assert_snapshot!(folder.page());
}

#[test]
fn a_bare_machine_is_told_what_to_install() {
    insta::assert_snapshot!(Folder::new().page());
}

#[test]
fn this_host_fits_on_a_page_and_each_lack_has_a_cost_and_a_next_step() {
    let checkup: Checkup = examine(&Source::live(), Some(&Programs::of_this_process().unwrap())).unwrap();
    let checks = || checkup.sections.iter().flat_map(|section| &section.checks);
    assert!(checks().count() >= 15);
    for check in checks() {
        assert_eq!(check.next.is_none(), check.state == State::Yes, "{check:?}");
        assert!(!check.found.is_empty() && !check.gives.is_empty() && !check.cost.is_empty(), "{check:?}");
    }
    for width in [40, 80, 200] {
        for line in checkup.page(width).lines() {
            assert!(line.chars().count() <= width || !line.trim().contains(' '), "{width}: {line}");
        }
    }
    let json: serde_json::Value = serde_json::to_value(&checkup).unwrap();
    assert_eq!(json["sections"][0]["checks"][0]["name"], "root");
}
