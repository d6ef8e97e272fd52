//! `plimsoll offcode new`: a project to start from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use linux::output;
use machine::{BodyKind, Fault, Result};
use offcode::Guid;

use super::{body_kind, sdk};

/// Write a small project: one interface, one offcode, its tests, an application file
#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the offcode and of the folder: lower-case letters, digits, - and _
    #[arg(value_parser = name)]
    name: String,
    /// Its bodies: native and wasm come from one source in Rust, bpf from one in C
    #[arg(long, value_name = "BODY", value_delimiter = ',', default_value = "native,wasm", value_parser = body_kind)]
    bodies: Vec<BodyKind>,
    /// Folder with the sources of crate offcode [default: those that came with this program]
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

fn name(text: &str) -> Result<String, String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    match text.len() <= 64 && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err("write lower-case letters, digits, - and _, as packet-counter".to_owned()),
    }
}

const HEADERS: [(&str, &str); 2] = [
    ("include/offcode/offcode.h", include_str!("../../../../bpf/src/programs/offcode.h")),
    ("include/offcode/kernel.h", include_str!("../../../../bpf/src/programs/kernel.h")),
];

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { name, bodies, sdk } = arguments;
    let sdk = sdk::find(sdk.as_deref())?;
    let folder = Path::new(name);
    let failed = |path: &Path, e| {
        Fault::because(path.display().to_string(), e, "choose another name, or a folder that can be written")
    };
    fs::create_dir(folder).map_err(|e| failed(folder, e))?;
    let has = |kind| bodies.contains(&kind);
    let sites = if has(BodyKind::Bpf) { "app, core, xdp, agent" } else { "app, core, agent" };
    // An offcode that only has a bpf body has no other site.
    let sites = if bodies.iter().all(|body| *body == BodyKind::Bpf) { "xdp" } else { sites };
    // Agents take modules from every client, libraries only where they were told to.
    let native = if has(BodyKind::Wasm) { "native(app, core)" } else { "native(app, core, agent)" };
    let forms = [
        (BodyKind::Native, native.to_owned()),
        (BodyKind::Wasm, format!("wasm(\"{name}.wasm\", app, core, agent)")),
        (BodyKind::Bpf, format!("bpf(\"{name}.o\", hook = \"count\", xdp)")),
    ];
    let forms: Vec<String> = forms.into_iter().filter(|(kind, _)| has(*kind)).map(|(_, form)| form).collect();
    let words = [
        ("@NAME@", name.clone()),
        ("@SDK@", sdk.display().to_string()),
        ("@INTERFACE@", random_guid()?.to_string()),
        ("@OFFCODE@", random_guid()?.to_string()),
        ("@SITES@", sites.to_owned()),
        ("@BODIES@", forms.join(", ")),
    ];
    let write = |path: &str, text: &str| {
        let text = words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value));
        let path = folder.join(path);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        made.map_err(|e| failed(&path, e))
    };
    write("Cargo.toml", include_str!("template/Cargo.toml.in"))?;
    write("src/lib.rs", include_str!("template/lib.rs.in"))?;
    write("APP.toml", include_str!("template/APP.toml.in"))?;
    write("README.md", include_str!("template/README.md.in"))?;
    write(".gitignore", "/target\n/depot\n")?;
    if has(BodyKind::Bpf) {
        write(&format!("bpf/{name}.c"), include_str!("template/body.c.in"))?;
        HEADERS.iter().try_for_each(|(path, text)| write(path, text))?;
    }
    // The versions that the sources were tested with.
    if let Ok(lock) = fs::read_to_string(sdk.join("../Cargo.lock")) {
        write("Cargo.lock", &lock)?;
    }
    output::print(&format!("{name}: begin in {name}/src/lib.rs, then plimsoll offcode test in that folder\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// A UUID of version 4: 122 random bits.
fn random_guid() -> Result<Guid> {
    let mut bytes = [0; 16];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    filled
        .map_err(|e| Fault::because("random numbers", std::io::Error::from(e), "check seccomp filters on getrandom"))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Guid::from_bytes(bytes))
}
