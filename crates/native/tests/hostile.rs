//! Libraries that are not what their package says. Each is refused with its fault, before anything of it runs.

use std::path::Path;
use std::process::Command;

use machine::{Bytes, SiteKind};
use native::{Library, TARGET, inspect};
use offcode::manifest::{Body, BodyKind, Digest, Package, Software, Target};
use offcode::{Guid, Manifest};

/// A table as a hostile author writes it: all zero but what is defined.
const SOURCE: &str = r#"
#include <stdint.h>
struct table { uint32_t size, version; uint8_t guid[16]; uint64_t signature; void *functions[FUNCTIONS]; };
#ifndef NAME
#define NAME offcode_native
#endif
static void nothing(void) {}
const struct table NAME = {
    .size = SIZE, .version = VERSION, .guid = GUID, .signature = SIGNATURE,
#ifndef HOLES
    .functions = {nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing},
#endif
};
"#;

fn manifest() -> Manifest {
    let body = Body {
        kind: BodyKind::Native,
        file: None,
        libraries: Vec::new(),
        sites: vec![SiteKind::App],
        program: None,
        tc: None,
    };
    let package = Package {
        guid: Guid::from_bytes(*b"plimsoll-hostile"),
        name: "test.hostile".into(),
        version: "1.0.0".into(),
        description: String::new(),
        interfaces: Vec::new(),
        bodies: vec![body],
        attributes: Vec::new(),
        state: Default::default(),
    };
    let hardware = vec![Target { site: SiteKind::App, modes: Vec::new(), memory: Bytes(0), work: None }];
    Manifest { package, hardware, software: Software::default() }
}

fn built(folder: &Path, changes: &[&str]) -> Vec<u8> {
    let (source, library) = (folder.join("table.c"), folder.join("table.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let guid: Vec<String> = manifest().package.guid.bytes().iter().map(u8::to_string).collect();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    compiler.args(["-DSIZE=136", "-DFUNCTIONS=13", "-DVERSION=1", &format!("-DSIGNATURE={}u", manifest().signature())]);
    compiler.arg(format!("-DGUID={{{}}}", guid.join(",")));
    // The last definition of a name counts, as for any compiler.
    compiler.args(changes).arg("-Wno-macro-redefined").arg("-w");
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(library).unwrap()
}

fn says(outcome: machine::Result<impl Sized>, what: &str) {
    let fault = outcome.map(|_| ()).unwrap_err().to_string();
    assert!(fault.contains(what) && fault.contains(". Next: "), "{fault}");
}

#[test]
fn each_is_refused_for_what_it_is() {
    if skip::tool("cc").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let built = |changes: &[&str]| built(folder.path(), changes);
    let fit = built(&[]);
    inspect(&fit, TARGET, &manifest()).unwrap();

    let mut elsewhere = fit.clone();
    // e_machine: AArch64, or x86-64 where this is AArch64.
    elsewhere[18] = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    says(inspect(&elsewhere, TARGET, &manifest()), "its code is for");
    says(
        inspect(&fit, "riscv64gc-unknown-linux-gnu", &manifest()),
        "libraries for riscv64gc-unknown-linux-gnu are not known",
    );
    says(inspect(b"\x7fELF", TARGET, &manifest()), "it is no");
    says(inspect(b"#!/bin/sh", TARGET, &manifest()), "it is no ELF file");
    says(inspect(&built(&["-DNAME=other"]), TARGET, &manifest()), "it exports no offcode_native");
    says(
        inspect(&built(&["-DVERSION=9"]), TARGET, &manifest()),
        "it is of version 9 of the border, and this plimsoll has 1 to 2",
    );
    says(inspect(&built(&["-DSIZE=40"]), TARGET, &manifest()), "its table has 40 bytes, of which at least 136");
    says(inspect(&built(&["-DGUID={1}"]), TARGET, &manifest()), "it holds the offcode 01000000-0000");
    says(inspect(&built(&["-DSIGNATURE=1"]), TARGET, &manifest()), "its interfaces or their methods");

    // A later author's table has functions that this host does not know.
    let later = built(&["-DSIZE=144", "-DFUNCTIONS=14"]);
    assert!(Library::load(&later, Digest([3; 32]), &manifest()).is_ok());

    // Null functions show only once the library is loaded.
    says(Library::load(&built(&["-DHOLES"]), Digest([1; 32]), &manifest()), "its table lacks a function");
    let told = Library::load(&fit, Digest([2; 32]), &manifest()).unwrap().told();
    says(told, "it panicked where it tells its manifest");
}

#[test]
fn damage_is_refused_and_never_panics() {
    if skip::tool("cc").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fit = built(folder.path(), &[]);
    for at in 0..fit.len().min(4096) {
        let mut damaged = fit.clone();
        damaged[at] ^= 0xff;
        let _ = inspect(&damaged, TARGET, &manifest());
        let _ = inspect(&fit[..at], TARGET, &manifest());
    }
}
