//! Builds the BPF programs with clang. Without clang the crate still builds and says what is missing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const PROGRAMS: &[&str] = &[
    "softirq",
    "redirect",
    "traffic_send",
    "traffic_receive",
    "echo",
    "far_end",
    "network",
    "lanes",
    "idle",
    "dispatcher",
    "dispatcher_tc",
    "verdict",
    "lossy",
];
/// Those that need atomic operations with a result, of Linux 5.12.
const WITH_ATOMICS: &[&str] = &["lanes"];
const SOURCES: &str = "src/programs";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-env-changed=CLANG");

    let mut missing = None;
    let mut constants = String::new();
    for name in PROGRAMS {
        let object = out.join(format!("{name}.o"));
        let constant = name.to_uppercase();
        let value = match build(&clang, name, &object) {
            Ok(()) => format!("Some(&Aligned(*include_bytes!({object:?})).0)"),
            Err(reason) => {
                missing = Some(reason);
                "None".into()
            }
        };
        constants += &format!("/// `{SOURCES}/{name}.c`.\npub const {constant}: Option<&[u8]> = {value};\n");
    }
    if let Some(reason) = &missing {
        println!("cargo::warning=BPF programs are left out: {reason}");
        // A path that is never there makes cargo run this again, so that an installed clang is found.
        println!("cargo::rerun-if-changed={}", out.join("clang-was-missing").display());
    }
    constants +=
        &format!("/// Why programs are left out, if they are.\npub const MISSING: Option<&str> = {missing:?};\n");
    fs::write(out.join("programs.rs"), constants).expect("OUT_DIR can be written");
}

/// A missing tool is a reason; a program that does not compile is a build error.
fn build(clang: &str, name: &str, object: &Path) -> Result<(), String> {
    let source = format!("{SOURCES}/{name}.c");
    let set = if WITH_ATOMICS.contains(&name) { "-mcpu=v3" } else { "-mcpu=generic" };
    let run = Command::new(clang)
        .args(["-target", "bpf", set, "-O2", "-g", "-Wall", "-Werror", "-Wno-unused-parameter"])
        // The same object wherever it is compiled.
        .args(["-fdebug-compilation-dir=.", "-c", &source, "-o"])
        .arg(object)
        .output();
    let output = match run {
        Ok(output) => output,
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(format!("there is no {clang}")),
        Err(e) => return Err(format!("{clang} does not start: {e}")),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if said.contains("unable to create target") || said.contains("unknown target") => {
            Err(format!("{clang} was built without the bpf target"))
        }
        false => panic!("{clang} refuses {source}:\n{said}"),
    }
}
