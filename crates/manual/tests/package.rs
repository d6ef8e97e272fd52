//! The package: built, installed by dpkg where only its dependencies are, run, removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn artefacts() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_plimsoll-manual")).parent().unwrap()
}

fn run(command: &mut Command) -> String {
    let output: Output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn script(name: &str) -> Command {
    for program in ["plimsoll", "plimsoll-offcode"] {
        let built = artefacts().join(program).is_file();
        assert!(built, "{program} is not built. Next: cargo test --workspace, or cargo build -p {program} before this");
    }
    Command::new(Path::new(ROOT).join("scripts").join(name))
}

/// Whether the licences of what was built lie beside it, as installing wants them.
fn licences() -> bool {
    static WRITTEN: Once = Once::new();
    let is_there = skip::tool("python3").is_some();
    WRITTEN.call_once(|| {
        if is_there {
            run(script("licences").arg(artefacts()));
        }
    });
    is_there
}

/// All files below a folder, as relative paths.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path.strip_prefix(folder).unwrap().to_owned()) }
        }
    }
    found.sort();
    found
}

fn plimsoll(prefix: &Path) -> Command {
    let mut command = Command::new(prefix.join("bin/plimsoll"));
    command.env("PATH", "/usr/bin:/bin");
    command
}

#[test]
fn what_is_installed_finds_its_parts_and_is_removed_whole() {
    if !licences() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let prefix = place.path().join("opt/plimsoll");
    let theirs = prefix.join("share/man/man1/theirs.1");
    fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    fs::write(&theirs, "").unwrap();
    for _ in 0..2 {
        run(script("install-tree").arg(artefacts()).arg(&prefix));
    }
    assert!(run(plimsoll(&prefix).arg("--version")).starts_with("plimsoll "));
    assert!(run(plimsoll(&prefix).args(["plan", "--help"])).contains("Usage: plimsoll"));
    let plan = run(plimsoll(&prefix).args(["help", "offcode", "plan"]));
    assert!(plan.contains("Usage: plimsoll offcode plan"), "{plan}");
    let page = run(plimsoll(&prefix).arg("doctor"));
    for part in ["bin/plimsoll", "lib/plimsoll/libplimsoll-fi.so", "lib/plimsoll/libplimsoll_profile.so"] {
        assert!(prefix.join(part).is_file(), "{part}");
    }
    for part in ["LICENCES", "plimsoll.cdx.json"] {
        assert!(prefix.join("share/doc/plimsoll").join(part).is_file(), "{part}");
    }
    let section = page.split("parts of plimsoll").nth(1).unwrap().split("\n\n").next().unwrap();
    for part in ["libplimsoll-fi.so", "libplimsoll_profile.so", "plimsoll-offcode"] {
        assert!(section.contains(part), "{part}: {section}");
    }
    // The source is not above this prefix, so the simulated file is the installed one.
    let simulated = run(plimsoll(&prefix).args(["whatif", "simulate", "lammps-a"]).current_dir(place.path()));
    assert!(simulated.starts_with("lammps"), "{simulated}");
    assert!(prefix.join("share/plimsoll/testbeds/eddy-psm.toml").is_file());
    let planned = run(plimsoll(&prefix).args(["campaign", "plan", "paper-000-simulated"]).current_dir(place.path()));
    assert!(planned.contains("nothing is left to run") || planned.contains("runs to come"), "{planned}");
    // A fault names the installed page.
    let guide = prefix.join("share/doc/plimsoll/docs/whatif.md");
    let refused = plimsoll(&prefix).args(["whatif", "simulate", "nowhere"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(guide.is_file() && said.contains(guide.to_str().unwrap()), "{said}");
    for watch in ["plimsoll.json", "plimsoll.rules.yml"] {
        assert!(prefix.join("share/plimsoll").join(watch).is_file(), "{watch}");
    }
    // So are the sources that a new offcode is built with, which cargo takes as they are.
    let author = |command: &str| {
        let mut shell = Command::new("sh");
        let path = format!("{}:{}", prefix.join("bin").display(), std::env::var("PATH").unwrap());
        run(shell
            .args(["-eu", "-c", command])
            .current_dir(place.path())
            .env("PATH", path)
            .env("CARGO_NET_OFFLINE", "true"))
    };
    author("plimsoll offcode new counter && cd counter && cargo metadata --format-version 1 --no-deps && cargo tree");
    let project = fs::read_to_string(place.path().join("counter/Cargo.toml")).unwrap();
    assert!(project.contains("share/plimsoll/sdk/crates/offcode"), "{project}");
    let help = run(plimsoll(&prefix).arg("--help"));
    for (name, text) in [
        ("bash-completion/completions/plimsoll", "study"),
        ("zsh/site-functions/_plimsoll", "#compdef plimsoll"),
        ("fish/vendor_completions.d/plimsoll.fish", "plimsoll"),
    ] {
        let completions = fs::read_to_string(prefix.join("share").join(name)).unwrap();
        assert!(completions.contains(text) && !completions.contains("host-agent"), "{name}");
    }
    run(Command::new("bash").arg("-n").arg(prefix.join("share/bash-completion/completions/plimsoll")));
    let mut commands = 0;
    for line in help.lines().skip_while(|line| *line != "Measure:").take_while(|line| *line != "Options:") {
        let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) else { continue };
        let name = name.split_whitespace().next().unwrap();
        let page =
            run(Command::new("gzip").arg("-dc").arg(prefix.join(format!("share/man/man1/plimsoll-{name}.1.gz"))));
        assert!(page.contains("\n.TH ") || page.starts_with(".TH "), "{name}");
        commands += 1;
    }
    assert!(commands >= 15, "{help}");
    run(script("install-tree").arg("--remove").arg(&prefix));
    assert_eq!(files(&prefix), [Path::new("share/man/man1/theirs.1")]);
    assert!(!prefix.join("bin").exists() && !prefix.join("lib").exists());
}

#[test]
fn what_cannot_be_installed_is_told_with_the_next_step_and_leaves_nothing() {
    if !licences() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let refused = |build: &Path, prefix: &str| {
        let output = script("install-tree").arg(build).arg(prefix).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("Next: "), "{said}");
        said
    };
    let prefix = place.path().join("p");
    assert!(refused(place.path(), prefix.to_str().unwrap()).contains("plimsoll is not in"));
    assert!(refused(artefacts(), "here").contains("no absolute path"));
    assert!(refused(Path::new("--remove"), prefix.to_str().unwrap()).contains("nothing of plimsoll"));
    assert!(!prefix.exists());
}

/// Files that dpkg needs of a system, and packages that this one depends on, in an otherwise empty root.
const CLEAN_ROOT: &str = r#"
set -eu
package=$1 root=$2
names() { tr ',' '\n' | sed 's/|.*//; s/(.*//; s/:any//; s/ //g' | grep . || :; }
wanted=$(dpkg-deb -f "$package" Depends | names)
all=
while [ -n "$wanted" ]; do
    next=
    for name in $wanted; do
        case " $all " in *" $name "*) continue ;; esac
        all="$all $name"
        next="$next $(dpkg-query -W -f '${Depends},${Pre-Depends}\n' "$name" | names)"
    done
    wanted=$(echo $next)
done
mkdir -p "$root/usr" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
for folder in bin sbin lib lib32 lib64 libx32; do
    if [ -L /$folder ]; then mkdir -p "$root/usr/$folder"; ln -s usr/$folder "$root/$folder"; fi
done
dpkg-query -L $all | sort -u | while IFS= read -r file; do if [ -f "$file" ] || [ -L "$file" ]; then echo "$file"; fi; done |
    tar --create --no-recursion --files-from=- 2>/dev/null | tar --extract --keep-directory-symlink --directory="$root"
dpkg-query -s $all >"$root/var/lib/dpkg/status"
for name in $all; do cp /var/lib/dpkg/info/"$name".list /var/lib/dpkg/info/"$name":*.list "$root/var/lib/dpkg/info" 2>/dev/null || :; done
dpkg --root="$root" --install "$package"
"#;

/// Script that runs in the clean root, in a mount namespace that ends with it.
const INSIDE: &str = r#"
set -eu
root=$1
shift
for folder in proc sys dev; do mount --rbind /$folder "$root/$folder"; done
exec chroot "$root" /usr/bin/plimsoll "$@"
"#;

/// Whether the tools for a package and a clean root are there.
fn can_pack() -> bool {
    if !rustix::process::geteuid().is_root() {
        skip::test("a clean root needs root");
        return false;
    }
    ["dpkg", "dpkg-deb", "dpkg-shlibdeps", "unshare", "chroot", "tar"].iter().all(|tool| skip::tool(tool).is_some())
}

#[test]
#[ignore = "make check"]
fn an_rpm_is_installed_and_removed_whole_and_the_same_each_time() {
    if skip::tool("rpmbuild").is_none() || skip::tool("rpm").is_none() || !licences() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let folder = place.path().join(name);
        fs::create_dir(&folder).unwrap();
        let quick = "--define '_binary_payload w0.gzdio'";
        let said = run(script("rpm").arg(artefacts()).arg(&folder).env("RPM_OPTIONS", quick));
        PathBuf::from(said.trim())
    };
    let (package, again) = (made("one"), made("two"));
    assert!(fs::read(&package).unwrap() == fs::read(again).unwrap(), "two packages of one build differ");
    let root = place.path().join("root");
    let rpm = |arguments: &[&str]| run(Command::new("rpm").arg("--root").arg(&root).args(arguments));
    let path = package.to_str().unwrap();
    let (wanted, offered) = (rpm(&["-qp", "--requires", path]), rpm(&["-qp", "--provides", path]));
    assert!(wanted.contains("libc.so.6") && !offered.contains(".so"), "{wanted}\n{offered}");
    rpm(&["--install", "--nodeps", path]);
    assert!(run(plimsoll(&root.join("usr")).arg("--version")).starts_with("plimsoll "));
    for part in ["lib/plimsoll/libplimsoll-fi.so", "share/doc/plimsoll/LICENCES", "share/man/man1/plimsoll.1.gz"] {
        assert!(root.join("usr").join(part).is_file(), "{part}");
    }
    rpm(&["--erase", "--nodeps", "plimsoll"]);
    let left: Vec<_> = fs::read_dir(root.join("usr/share")).into_iter().flatten().flatten().collect();
    assert!(left.iter().all(|entry| entry.file_name() != "plimsoll"), "{left:?}");
    assert!(!root.join("usr/bin/plimsoll").exists());
}

#[test]
#[ignore = "make check"]
fn the_package_runs_where_only_its_dependencies_are() {
    if !can_pack() || !licences() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let said = run(script("deb").arg(artefacts()).arg(place.path()).env("DEB_OPTIONS", "-Znone"));
    let package = Path::new(said.trim());
    let root = place.path().join("root");
    run(Command::new("sh").args(["-c", CLEAN_ROOT, "sh"]).arg(package).arg(&root));
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", INSIDE, "sh"]).arg(&root).args(arguments);
        run(command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))
    };
    let version = run(Command::new("dpkg-deb").arg("-f").arg(package).arg("Version"));
    assert!(inside(&["--version"]).starts_with(&format!("plimsoll {}", version.trim())));
    assert!(inside(&["plan", "--help"]).contains("Usage: plimsoll"));
    let page = inside(&["doctor"]);
    for part in ["/usr/lib/plimsoll/libplimsoll-fi.so", "/usr/lib/plimsoll/libplimsoll_profile.so"] {
        assert!(page.contains(part), "{page}");
    }
    assert!(inside(&["whatif", "simulate", "eddy-psm"]).contains("psm"));
    assert!(root.join("usr/share/man/man1/plimsoll.1.gz").is_file());
    let dpkg = || {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display()));
        command
    };
    let left = |output: String| output.lines().filter(|line| line.contains("plimsoll")).count();
    assert!(left(run(dpkg().args(["--listfiles", "plimsoll"]))) > 20);
    run(dpkg().args(["--purge", "plimsoll"]));
    assert!(files(&root.join("usr")).iter().all(|file| !file.to_string_lossy().contains("plimsoll")));
}
