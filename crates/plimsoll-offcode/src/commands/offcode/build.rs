//! `plimsoll offcode build`: the bodies that the source names, and the manifest beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use linux::output;
use machine::{BodyKind, Fault, Result};
use offcode::depot::{self, ODF, Stored};
use offcode::manifest::{Body, Digest, Library};
use offcode::{Manifest, odf};
use runtime::code::digest;
use serde::{Deserialize, Serialize};

use super::body_kind;

/// Build the bodies, and write odf.xml from the source
///
/// In the project's folder. What lacks a tool is said and left out, the others are built; the exit status is then 1.
#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Bodies to build [default: those that the source names]
    #[arg(long, value_name = "BODY", value_delimiter = ',', value_parser = body_kind)]
    bodies: Vec<BodyKind>,
}

/// Says what a library tells of itself: in a process of its own, since its code runs for it.
#[derive(clap::Args)]
pub struct Tell {
    library: PathBuf,
    into: PathBuf,
}

/// A library's account of itself.
#[derive(Serialize, Deserialize)]
pub struct Description {
    pub manifest: Manifest,
    /// Messages of calls.
    pub script: Vec<Vec<u8>>,
}

/// The result of a build.
pub struct Built {
    pub package: Stored,
    pub script: Vec<Vec<u8>>,
    /// Reasons why bodies that were wanted are missing.
    pub missing: Vec<Fault>,
}

impl Built {
    /// Says what is missing.
    pub fn exit(&self) -> ExitCode {
        for fault in &self.missing {
            eprintln!("plimsoll: {fault}");
        }
        if self.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Time limit for a library to tell its manifest.
const TIMEOUT: Duration = Duration::from_secs(10);
const WASM: &str = "wasm32-unknown-unknown";

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let built = build(arguments)?;
    for body in &built.package.manifest.package.bodies {
        for file in body.files() {
            let size = machine::Bytes(built.package.load(file)?.len() as u64);
            output::print(&format!("{}: {} body, {size}\n", built.package.folder.join(file).display(), body.kind))?;
        }
    }
    output::print(&format!("{}: written from the source\n", built.package.odf().display()))?;
    Ok(built.exit())
}

/// Builds what has changed.
///
/// # Errors
/// The source does not compile; no body at all can be built.
pub fn build(arguments: &Arguments) -> Result<Built> {
    if !Path::new("Cargo.toml").is_file() {
        let next = "go to the folder of the offcode, or make one: plimsoll offcode new NAME";
        return Err(Fault::new("Cargo.toml", "it is not in this folder", next));
    }
    let library = cargo("native body", &["--", "--cfg", "offcode_native"])?;
    let Description { mut manifest, script } = told(&library)?;
    let folder = Path::new("target/offcode").join(&manifest.package.name);
    // Remains of an earlier build must not get into this package.
    let _ = fs::remove_dir_all(&folder);
    let failed = |path: &Path, e| Fault::because(path.display().to_string(), e, "free space there, or mend its rights");
    fs::create_dir_all(&folder).map_err(|e| failed(&folder, e))?;
    let mut missing = Vec::new();
    let mut bodies = Vec::new();
    for mut body in std::mem::take(&mut manifest.package.bodies) {
        if !arguments.bodies.is_empty() && !arguments.bodies.contains(&body.kind) {
            continue;
        }
        let made = match body.kind {
            BodyKind::Native => Ok(library.clone()),
            BodyKind::Wasm => wasm(),
            BodyKind::Bpf => bpf(&body, &folder),
        };
        let made = match made {
            Ok(made) => made,
            Err(Lacking::Tool(fault)) => {
                missing.push(fault);
                continue;
            }
            Err(Lacking::Mistake(fault)) => return Err(fault),
        };
        let file = match (&body.file, made.file_name().and_then(|name| name.to_str())) {
            (Some(file), _) => file.clone(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => return Err(Fault::new(made.display().to_string(), "it has no name", "report this")),
        };
        let bytes = fs::read(&made).map_err(|e| failed(&made, e))?;
        if body.kind == BodyKind::Native {
            body.libraries =
                vec![Library { target: native::TARGET.into(), file: file.clone(), digest: digest(&bytes) }];
        }
        let to = folder.join(&file);
        if made != to {
            fs::write(&to, &bytes).map_err(|e| failed(&to, e))?;
        }
        bodies.push(body);
    }
    if bodies.is_empty() {
        let none =
            || Fault::new("bodies", "the source names none of those that are wanted", "name others with --bodies");
        return Err(missing.into_iter().next().unwrap_or_else(none));
    }
    // A kind of site without a body is no target.
    manifest.hardware.retain(|target| bodies.iter().any(|body| body.sites.contains(&target.site)));
    manifest.package.bodies = bodies;
    let to = folder.join(ODF);
    fs::write(&to, odf::write(&manifest)?).map_err(|e| failed(&to, e))?;
    let package = depot::package(&folder).map_err(depot::Refused::fault)?;
    Ok(Built { package, script, missing })
}

/// The reason why a body is missing.
enum Lacking {
    Tool(Fault),
    Mistake(Fault),
}

impl From<Fault> for Lacking {
    fn from(fault: Fault) -> Self {
        Lacking::Mistake(fault)
    }
}

/// The shared library, or the module, that cargo makes of the project. What the compiler says goes to the terminal.
fn cargo(what: &str, more: &[&str]) -> Result<PathBuf> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(["rustc", "--lib", "--release", "--crate-type", "cdylib"]);
    command.args(["--message-format", "json-render-diagnostics"]).args(more);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let next = "install Rust (https://rustup.rs), and have cargo in PATH";
    let output = output.map_err(|e| Fault::because(format!("{what}: cargo"), e, next))?;
    if !output.status.success() {
        return Err(Fault::new(what, format!("cargo ended with {}", output.status), "mend what it says above"));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let artefacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut made = artefacts.filter(|message| {
        message["reason"] == "compiler-artifact"
            && message["target"]["crate_types"].as_array().is_some_and(|types| types.iter().any(|of| of == "cdylib"))
    });
    let file = made.next_back().and_then(|message| message["filenames"][0].as_str().map(PathBuf::from));
    file.ok_or_else(|| Fault::new(what, "cargo does not say what it made", "use a cargo of version 1.85 or later"))
}

fn wasm() -> Result<PathBuf, Lacking> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if sysroot.is_ok_and(|sysroot| !Path::new(&sysroot).join("lib/rustlib").join(WASM).is_dir()) {
        let cause = format!("the compiler has no target {WASM}");
        return Err(Lacking::Tool(Fault::new("wasm body", cause, format!("rustup target add {WASM}"))));
    }
    Ok(cargo("wasm body", &["--target", WASM])?)
}

/// The object of `bpf/NAME.c`, where the body's file is `NAME.o`.
fn bpf(body: &Body, folder: &Path) -> Result<PathBuf, Lacking> {
    let file = body.file.clone().unwrap_or_default();
    let source = Path::new("bpf").join(&file).with_extension("c");
    let object = folder.join(&file);
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let run = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Iinclude/offcode", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .stdin(Stdio::null())
        .output();
    let output = match run {
        Ok(output) => output,
        Err(e) => {
            let next = "install it, or name one by the variable CLANG: sudo apt-get install clang";
            return Err(Lacking::Tool(Fault::because(format!("bpf body: {clang}"), e, next)));
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    match output.status.success() {
        true => Ok(object),
        false if said.contains("unable to create target") || said.contains("unknown target") => {
            let cause = format!("this {clang} has no target bpf");
            Err(Lacking::Tool(Fault::new(
                "bpf body",
                cause,
                "install a clang that has it, or name one by the variable CLANG",
            )))
        }
        false => Err(Lacking::Mistake(Fault::new(
            "bpf body",
            format!("clang ended with {}", output.status),
            "mend what it says above",
        ))),
    }
}

/// The library's account of itself, asked for in a process of its own with a time limit.
fn told(library: &Path) -> Result<Description> {
    let fault = |cause: String| Fault::new(format!("native body {}", library.display()), cause, "mend the offcode");
    let failed = |e: std::io::Error| Fault::because("asking the native body for its manifest", e, "try again");
    let own = std::env::current_exe().map_err(failed)?;
    let into = library.with_extension("told");
    let mut child = Command::new(own)
        .args(["offcode", "tell"])
        .args([library, &into])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err(fault(format!("it did not tell its manifest within {} s", TIMEOUT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if !status.success() {
        return Err(fault(format!("it did not tell its manifest: {status}; what it says is above")));
    }
    let text = fs::read(&into).map_err(failed)?;
    let _ = fs::remove_file(&into);
    serde_json::from_slice(&text).map_err(|error| fault(error.to_string()))
}

pub fn tell(arguments: &Tell) -> Result<ExitCode> {
    let Tell { library, into } = arguments;
    let failed = |e| Fault::because(library.display().to_string(), e, "build it again");
    let bytes = fs::read(library).map_err(failed)?;
    let native::Description { manifest, script } = native::Library::open(&bytes, Digest([0; 32]))?.told()?;
    let text = serde_json::to_vec(&Description { manifest, script });
    let text = text.map_err(|error| Fault::because("manifest", error, "report this"))?;
    fs::write(into, text).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
