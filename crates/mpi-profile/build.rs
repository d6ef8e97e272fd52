//! Generates the shim: for every recorded function a wrapper in C, and the exported name that leads to it.
//!
//! One file for each language that programs call MPI from: `build/c.rs`, `build/fortran.rs`.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;

#[path = "build/c.rs"]
mod c;
#[path = "build/fortran.rs"]
mod fortran;
#[path = "build/shim.rs"]
mod shim;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let mut shim = shim::Shim::default();
    c::add(&mut shim);
    fortran::add(&mut shim);
    let source = out.join("shim.c");
    fs::write(&source, shim.finish()).expect("OUT_DIR can be written");
    fs::write(out.join("exports.rs"), exports(&shim.exports)).expect("OUT_DIR can be written");
    cc::Build::new()
        .file(&source)
        .file("src/thread.c")
        .include("src")
        .opt_level(2)
        .flag("-fvisibility=hidden")
        // The library is loaded before the program starts, so that its thread-local variables have fixed places.
        .flag("-ftls-model=initial-exec")
        // An exception may pass through a wrapper.
        .flag("-fexceptions")
        .flag("-fomit-frame-pointer")
        .warnings(true)
        .compile("plimsoll_profile_shim");
    println!("cargo::rerun-if-changed=src/shim.h");
    println!("cargo::rerun-if-changed=src/thread.c");
}

/// rustc hides the exports of a library's C objects; a jump keeps the arguments and the return address.
fn exports(exports: &[(String, String)]) -> String {
    let targets: BTreeSet<_> = exports.iter().map(|(_, target)| target).collect();
    let mut text = String::from("unsafe extern \"C\" {\n");
    for target in targets {
        text += &format!("    fn plimsoll_shim_{target}();\n");
    }
    text += "}\n";
    for (name, target) in exports {
        text += &format!(
            "#[unsafe(naked)]\n#[unsafe(no_mangle)]\n\
             pub unsafe extern \"C\" fn {name}() {{ core::arch::naked_asm!(jump!(), sym plimsoll_shim_{target}) }}\n"
        );
    }
    text
}
