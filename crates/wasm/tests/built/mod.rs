//! Guests built from their sources in `guest/`, as an author builds them.
#![allow(dead_code, reason = "each test uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The module's bytes, or why it cannot be built here.
pub type Built = Result<Vec<u8>, String>;

/// Also where a test of another crate uses this.
fn here() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../wasm"))
}

/// `None`, said on standard error, where a tool is missing.
pub fn or_skip(built: &Built) -> Option<&[u8]> {
    built.as_ref().inspect_err(|why| skip::test(why)).ok().map(Vec::as_slice)
}

/// The same where a part of a test needs it.
pub fn or_skip_part(built: &Built) -> Option<&[u8]> {
    built.as_ref().inspect_err(|why| skip::part(why)).ok().map(Vec::as_slice)
}

fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program} does not start: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let next = match said.contains("--offline") {
                true => "Next: make tools, which fetches what guests depend on",
                false => "",
            };
            panic!("{program} failed:\n{said}{next}")
        }
    }
}

/// The root of the compiler's installation, with its targets and its linker.
fn sysroot() -> Result<PathBuf, String> {
    output(Command::new("rustc").args(["--print", "sysroot"])).map(PathBuf::from)
}

/// Writes a file whose text differs, so that cargo takes what it has built of it for fresh.
fn write(file: &Path, text: &str) -> Result<(), String> {
    match fs::read_to_string(file) {
        Ok(there) if there == text => Ok(()),
        _ => fs::write(file, text).map_err(|error| format!("{}: {error}", file.display())),
    }
}

/// A crate of `guest` in a copy whose lock file is the workspace's, so that nothing is fetched or written here: what cargo
/// builds of it by these arguments, where it was not built before.
fn built(name: &str, arguments: &[&str], file: &str) -> Built {
    let crates = here().parent().ok_or("the crate has no folder above")?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    let place = target.join("sources").join(name);
    fs::create_dir_all(place.join("src")).map_err(|error| error.to_string())?;
    let lock = fs::File::create(target.join("sources/lock")).and_then(|file| file.lock().map(|()| file));
    let lock = lock.map_err(|error| error.to_string())?;
    let source = here().join("guest").join(name);
    let read = |file: PathBuf| fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()));
    write(&place.join("Cargo.toml"), &read(source.join("Cargo.toml"))?.replace("../../..", &crates.to_string_lossy()))?;
    write(&place.join("src/lib.rs"), &read(source.join("src/lib.rs"))?)?;
    // Cargo takes from it what the guest does not need.
    let workspace = read(crates.join("../Cargo.lock"))?;
    if fs::read_to_string(place.join("Cargo.lock.from")).ok().as_ref() != Some(&workspace) {
        write(&place.join("Cargo.lock"), &workspace)?;
        write(&place.join("Cargo.lock.from"), &workspace)?;
    }
    let _core = skip::one_core();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--release", "--offline", "--quiet", "--target-dir"]).arg(&target).args(arguments);
    // As the guests that are modules alone have it, so that dependencies are built once.
    if arguments.contains(&WASM) {
        cargo.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    }
    output(cargo.current_dir(&place).env_remove("RUSTFLAGS").env_remove("RUSTC_BOOTSTRAP"))?;
    let built = fs::read(target.join(file)).map_err(|error| error.to_string());
    drop(lock);
    built
}

const WASM: &str = "wasm32-unknown-unknown";

fn module(name: &str) -> Built {
    if !sysroot()?.join("lib/rustlib").join(WASM).is_dir() {
        return Err("the target wasm32-unknown-unknown is not installed (rustup target add)".into());
    }
    built(name, &["--target", WASM], &format!("{WASM}/release/{name}.wasm"))
}

/// `guest/filter`
pub fn filter() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| module("filter"))
}

/// `guest/probe`
pub fn probe() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| module("probe"))
}

/// The same as a library of this machine.
pub fn probe_library() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| built("probe", &["--", "--cfg", "offcode_native"], "release/libprobe.so"))
}

pub fn checksum() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| compiled("checksum"))
}

pub fn pulse() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| compiled("pulse"))
}

/// A source in C of `guest`, by clang and the linker that comes with the compiler of Rust.
fn compiled(name: &str) -> Built {
    let clang = Command::new("clang").arg("--print-targets").output();
    match clang {
        Ok(targets) if String::from_utf8_lossy(&targets.stdout).contains("wasm32") => {}
        Ok(_) => return Err("this clang has no target wasm32".into()),
        Err(error) => return Err(format!("clang does not start: {error}")),
    }
    let host = output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let linker = sysroot()?.join("lib/rustlib").join(host).join("bin/gcc-ld/wasm-ld");
    if !linker.exists() {
        return Err(format!("{} is not there", linker.display()));
    }
    let module = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.wasm", std::process::id()));
    let _removed = Removed(&module);
    output(
        Command::new("clang")
            .args(["--target=wasm32", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-nostdlib"])
            .args(["-Wl,--no-entry", &format!("-fuse-ld={}", linker.display()), "-o"])
            .arg(&module)
            .arg(format!("{name}.c"))
            .current_dir(here().join("guest")),
    )?;
    fs::read(&module).map_err(|error| error.to_string())
}

struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
        let _ = fs::remove_dir_all(self.0);
    }
}
