//! Reasons why a command cannot be profiled, and causes of a profile without ranks.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use machine::Fault;

use crate::command_line::{CommandLine, IMAGES, Launcher};
use crate::elf;
use crate::preload::PRELOAD;
use crate::program::{self, Linkage};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Reason why no library can be loaded into the program at `path`; `None` where none is known.
pub fn of_program(path: &Path) -> Option<Fault> {
    let subject = format!("program {}", path.display());
    let mut start = Vec::new();
    File::open(path).ok()?.take(64).read_to_end(&mut start).ok()?;
    if elf::is_32_bit(&start) {
        let cause = "it is for a 32-bit machine, and the library that records is for a 64-bit one";
        return Some(Fault::new(subject, cause, "build the program for this machine's 64 bits"));
    }
    let all = if elf::is_elf(&start) { fs::read(path).ok()? } else { return None };
    let is_static = elf::read(&all).is_some_and(|elf| elf.interpreter.is_none());
    if is_static {
        let cause = "it is linked statically: no library can be loaded into it, so its MPI calls cannot be seen";
        return Some(Fault::new(subject, cause, "link it with the shared MPI library, without -static"));
    }
    let cause = privileged(path)?;
    Some(Fault::new(
        subject,
        format!("{cause}: the system loads no library into it that a user names"),
        "profile a copy without that privilege (`cp` makes one), or run as its owner",
    ))
}

/// Property that gives the program more rights than its user has.
fn privileged(path: &Path) -> Option<&'static str> {
    let file = fs::metadata(path).ok()?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if file.mode() & SETUID != 0 && file.uid() != user.as_raw() {
        return Some("it is set-user-id");
    }
    if file.mode() & SETGID != 0 && file.gid() != group.as_raw() {
        return Some("it is set-group-id");
    }
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]).is_ok();
    (has_capabilities && !user.is_root()).then_some("it has capabilities")
}

/// Variables of launchers with a rank and the number of ranks. A batch script of Slurm has the rank, but not this number.
const PLACES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// Fault where this process cannot profile a whole job: by the environment, a launcher has started this process as one of
/// several, and `line` has no launcher of its own.
pub fn of_place(line: &CommandLine, words: &[OsString], environment: impl Fn(&str) -> Option<String>) -> Option<Fault> {
    let place = |(rank, size): &(&'static str, &str)| {
        let ranks: u32 = environment(size)?.parse().ok()?;
        (ranks > 1).then_some((*rank, environment(rank)?, ranks))
    };
    let (name, rank, ranks) = PLACES.iter().find_map(place).filter(|_| line.launcher.is_none())?;
    let command: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    Some(Fault::new(
        format!("{name}={rank}"),
        format!("a launcher has started this as one of {ranks}, each of which would make a profile of its own"),
        format!("write it before the launcher: plimsoll profile -- mpirun -n {ranks} {}", command.join(" ")),
    ))
}

/// Causes of a profile without ranks, by the command and by what is preloaded `already`: sentences, the most likely first.
/// `files`: the library and the folder that the ranks needed.
pub fn of_silence(
    words: &[OsString],
    line: &CommandLine,
    files: [&Path; 2],
    already: Option<OsString>,
    code: u8,
) -> Vec<String> {
    let mut causes = Vec::new();
    for program in &line.programs {
        let name = program.path.file_name().unwrap_or_default();
        if IMAGES.iter().any(|image| name == *image) {
            let [library, folder] = files.map(Path::display);
            causes.push(format!(
                "{} may have started the ranks where {library} or {folder} is not visible, or without {PRELOAD} and \
                 PLIMSOLL_PROFILE. Next: bind both there at the same paths (apptainer exec --bind PATH,PATH ..), and pass \
                 these variables on",
                name.display()
            ));
        } else if let Some(fault) = of_program(&program.path) {
            causes.push(fault.to_string());
        } else if matches!(program::linkage(&program.path, None), Ok(Linkage::NoMpi)) && !interprets(&program.path) {
            causes.push(format!(
                "{} is not linked with MPI. Next: name an MPI program, or one that loads or starts one",
                program.path.display()
            ));
        }
    }
    causes.extend(dropped_environment(words, line));
    if let Some(theirs) = already.filter(|theirs| !theirs.is_empty()) {
        causes.push(format!(
            "{PRELOAD} has {} already: another tool there may take the MPI calls first. Next: leave it out",
            theirs.display()
        ));
    }
    if code != 0 {
        causes.push(format!("the command ended with {code}, maybe before MPI was up. Next: see what it said above"));
    }
    if causes.is_empty() {
        causes.push(
            "the program called no MPI function, or whatever started it passed LD_PRELOAD and PLIMSOLL_PROFILE not on. \
             Next: put `plimsoll profile --` directly before the launcher, as in: plimsoll profile -- mpirun -n 8 ./a"
                .to_owned(),
        );
    }
    causes
}

/// Whether a program without MPI is an interpreter of others.
fn interprets(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ["python", "julia", "R", "Rscript", "perl", "ruby", "bash", "sh", "dash", "zsh", "make"]
        .iter()
        .any(|known| name.strip_prefix(known).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic())))
}

/// The word or variable by which a launcher drops variables from the ranks' environment.
fn dropped_environment(words: &[OsString], line: &CommandLine) -> Option<String> {
    let said = |what: &str| {
        Some(format!("{what} leaves {PRELOAD} and PLIMSOLL_PROFILE out of the ranks' environment. Next: leave it out"))
    };
    let has = |wanted: &[&str]| words.iter().find(|word| wanted.iter().any(|wanted| *word == OsStr::new(wanted)));
    match &line.launcher {
        Some((_, Launcher::Slurm)) => {
            let exports = |word: &&OsString| {
                word.to_str().is_some_and(|word| word.starts_with("--export=") && word != "--export=ALL")
            };
            if let Some(word) = words.iter().find(exports) {
                return said(&format!("'{}'", word.display()));
            }
            let variable = std::env::var_os("SLURM_EXPORT_ENV").filter(|value| value != "ALL")?;
            said(&format!("SLURM_EXPORT_ENV={}", variable.display()))
        }
        Some((_, Launcher::Mpi(_))) => {
            let word = has(&["-genvnone", "-envnone", "-genvlist", "-envlist"])?;
            said(&format!("'{}'", word.display()))
        }
        _ => {
            let word = has(&["-i", "--ignore-environment", "sudo"])?;
            said(&format!("'{}'", word.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn line(launcher: Option<Launcher>) -> CommandLine {
        CommandLine {
            launcher: launcher.map(|launcher| (0, launcher)),
            programs: Vec::new(),
            settings: Vec::new(),
            silent: None,
        }
    }

    #[test]
    fn what_no_library_can_be_loaded_into_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let cause = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            of_program(&path).map(|fault| fault.cause().to_owned())
        };
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(cause(&own), None);
        assert_eq!(cause(b"#!/bin/sh\n"), None);
        assert!(cause(b"\x7fELF\x01\x01").unwrap().contains("32-bit"));
        let mut file = own.clone();
        // Without segments, there is neither a loader nor a library.
        file[56..58].copy_from_slice(&[0, 0]);
        assert!(cause(&file).unwrap().contains("statically"));
        fs::write(&path, &own).unwrap();
        if !rustix::process::geteuid().is_root() {
            return skip::part("only root can give a file away");
        }
        std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(of_program(&path).unwrap().cause().contains("set-user-id"));
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(of_program(&path).is_none(), "whose owner runs it gets no more rights by it");
    }

    const FILES: [&str; 2] = ["/opt/lib/libplimsoll_profile.so", "/home/me/run"];

    #[test]
    fn an_image_without_the_library_is_named_and_not_its_command_blamed() {
        let mut line = line(None);
        let path = std::path::PathBuf::from("/usr/bin/apptainer");
        line.programs.push(crate::command_line::Program { path, at: 3, certain: true });
        let causes = of_silence(&words("mpirun -n 2 apptainer exec a.sif ./a"), &line, FILES.map(Path::new), None, 0);
        let [cause] = &causes[..] else { panic!("{causes:?}") };
        assert!(FILES.iter().all(|file| cause.contains(file)) && cause.contains("Next: bind both"), "{cause}");
    }

    #[test]
    fn one_of_several_ranks_is_told_to_profile_the_launcher() {
        let of = |own: Option<Launcher>, all: &[(&str, &str)]| {
            let get = |name: &str| all.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
            of_place(&line(own), &words("./a 3"), get).map(|fault| fault.to_string())
        };
        let said = of(None, &[("PMI_RANK", "2"), ("PMI_SIZE", "4")]).unwrap();
        assert!(said.contains("PMI_RANK=2") && said.contains("plimsoll profile -- mpirun -n 4 ./a 3"), "{said}");
        assert!(of(None, &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")]).is_some());
        // A single rank, a batch script, and a job within another job.
        assert_eq!(of(None, &[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), None);
        assert_eq!(of(None, &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None);
        assert_eq!(of(Some(Launcher::Slurm), &[("PMI_RANK", "2"), ("PMI_SIZE", "4")]), None);
    }

    #[test]
    fn silence_has_a_cause_and_a_next_step() {
        let hydra = Launcher::Mpi(crate::installation::Installation {
            family: crate::family::Family::Mpich,
            version: "4".into(),
            launcher: "mpiexec".into(),
            device: None,
            libraries: None,
        });
        for (text, launcher, code, wanted) in [
            ("mpiexec -genvnone ./a", Some(hydra), 0, "'-genvnone' leaves LD_PRELOAD"),
            ("srun --export=NONE ./a", Some(Launcher::Slurm), 0, "--export=NONE"),
            ("env -i ./a", None, 0, "'-i'"),
            ("./a", None, 3, "ended with 3"),
            ("./a", None, 0, "directly before the launcher"),
        ] {
            let causes = of_silence(&words(text), &line(launcher), FILES.map(Path::new), None, code);
            assert!(causes[0].contains(wanted) && causes[0].contains("Next: "), "{text}: {causes:?}");
        }
        let causes = of_silence(&words("./a"), &line(None), FILES.map(Path::new), Some("/opt/lib/other.so".into()), 0);
        assert!(causes[0].contains("has /opt/lib/other.so already"), "{causes:?}");
        let shell = program::find("sh".as_ref()).unwrap();
        assert!(interprets(&shell) && interprets(Path::new("/usr/bin/python3.11")) && !interprets(Path::new("ship")));
    }
}
