//! Call sites of programs that are compiled here, so that the lines are known.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::synthetic::{RATE, Rank, SECOND, job, write};
use object::{Object, ObjectSymbol};
use profile::profile::Profile;
use profile::summary::{SiteSummary, Summary};
use record::layout::{Module, Site, kind, text};
use zerocopy::FromZeros;

/// `after_*` are the addresses that calls return to. The call of `inner` is inlined; that of `last` is the last of its line.
const PROGRAM: &str = r#"void callee(void) { __asm__ volatile(""); }
static inline __attribute__((always_inline)) void inner(void) {
    callee();
    __asm__ volatile(".globl after_inner\nafter_inner:");
}
__attribute__((noinline)) void outer(void) {
    inner();
}
__attribute__((noinline)) void last(void) {
    callee();
    __asm__ volatile(".globl after_last\nafter_last:");
}
int main(void) { outer(); last(); return 0; }
"#;

struct Compiled {
    folder: tempfile::TempDir,
    addresses: BTreeMap<String, u64>,
    build_id: Vec<u8>,
}

impl Compiled {
    fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

/// `None`, said, where there is no compiler.
fn compiled(options: &[&str]) -> Option<Compiled> {
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), PROGRAM, &[options, &["-Wl,--build-id"]].concat())?;
    let bytes = fs::read(folder.path().join("program")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let addresses = file.symbols().filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())));
    let (addresses, build_id) = (addresses.collect(), file.build_id().unwrap().unwrap().to_vec());
    Some(Compiled { addresses, build_id, folder })
}

fn compile(folder: &Path, source: &str, options: &[&str]) -> Option<()> {
    fs::write(folder.join("program.c"), source).unwrap();
    let mut compiler = Command::new(skip::tool("cc")?);
    // callee is not inlined, since that is decided by -O; nor are calls made into jumps.
    compiler.args(["-O2", "-fno-inline-functions-called-once", "-fno-ipa-pure-const", "-fno-inline-small-functions"]);
    let status = compiler
        .args(["-fno-optimize-sibling-calls", "-o", "program", "program.c"])
        .args(options)
        .current_dir(folder)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    Some(())
}

/// Two ranks that came by the sites, each with the program elsewhere.
fn sites(program: &Path, build_id: &[u8], offsets: &[u64]) -> Vec<SiteSummary> {
    let mut ranks: Vec<Rank> = (0..2).map(|rank| Rank::new(rank, 2, SECOND)).collect();
    for (number, rank) in ranks.iter_mut().enumerate() {
        let mut module = Module { path: text(program.to_str().unwrap()), ..Module::new_zeroed() };
        module.base = 0x5500_0000_0000 + number as u64 * 0x7000_0000;
        module.build_id_bytes = build_id.len() as u32;
        module.build_id[..build_id.len()].copy_from_slice(build_id);
        let site = |(place, offset): (usize, &u64)| Site {
            address: module.base + offset,
            offset: *offset,
            // The program is this rank's first or second module.
            module: number as u32 + 1,
            function: 0,
            calls: 10,
            ticks: (offsets.len() - place) as u64 * RATE * 1000,
            ..Site::default()
        };
        // Its two threads noted the same sites.
        for thread in 0..2 {
            rank.image.region(kind::SITES, thread, (0, 0), &offsets.iter().enumerate().map(site).collect::<Vec<_>>());
        }
        let other = Module { path: text("/no/such/library"), ..Module::new_zeroed() };
        let modules = if number == 0 { vec![module] } else { vec![other, module] };
        rank.image.of_rank(kind::MODULES, &modules);
    }
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &job(), &mut ranks);
    Summary::of(&Profile::open(folder.path()).unwrap()).sites
}

fn frames(site: &SiteSummary) -> Vec<(Option<&str>, Option<u32>)> {
    site.frames.iter().map(|frame| (frame.name.as_deref(), frame.line)).collect()
}

#[test]
fn a_call_is_at_its_line_in_what_it_was_inlined_into_and_one_place_for_all_ranks() {
    let Some(made) = compiled(&["-g"]) else { return };
    let sites = sites(&made.program(), &made.build_id, &[made.addresses["after_inner"], made.addresses["after_last"]]);
    let [inlined, last] = &sites[..] else { panic!("{sites:#?}") };
    assert_eq!(frames(inlined), [(Some("inner"), Some(3)), (Some("outer"), Some(7))]);
    assert_eq!(frames(last), [(Some("last"), Some(10))]);
    assert!(inlined.frames[0].file.as_ref().unwrap().ends_with("program.c"));
    // Two threads of two ranks.
    assert_eq!((inlined.ranks, inlined.calls, inlined.note.as_deref()), (2, 40, None));
    assert!((inlined.seconds - 8e-6).abs() < 1e-15);
}

#[test]
fn without_debug_information_there_is_the_symbol_and_what_to_do() {
    let Some(made) = compiled(&[]) else { return };
    let after = made.addresses["after_last"];
    // The label itself would be the nearest symbol in no other program.
    let sites = sites(&made.program(), &made.build_id, &[after]);
    let offset = after - made.addresses["last"];
    assert_eq!(sites[0].frames[0].name.as_deref(), Some(format!("last+{offset:#x}").as_str()));
    assert!(sites[0].note.as_ref().unwrap().contains("-g"), "{:?}", sites[0].note);
}

#[test]
fn a_program_that_was_built_anew_is_not_asked_and_says_so() {
    let Some(made) = compiled(&["-g"]) else { return };
    compile(made.folder.path(), &format!("int more;\n{PROGRAM}"), &["-g", "-Wl,--build-id"]).unwrap();
    let sites = sites(&made.program(), &made.build_id, &[made.addresses["after_last"]]);
    assert!(sites[0].frames.is_empty());
    assert!(sites[0].note.as_ref().unwrap().contains("another build"), "{:?}", sites[0].note);
}

#[test]
fn a_module_that_is_gone_or_no_file_leaves_its_offsets() {
    let gone = sites(Path::new("/no/such/program"), &[1; 20], &[0x1234]);
    assert_eq!((gone[0].offset, gone[0].module.as_str(), gone[0].ranks), (0x1234, "/no/such/program", 2));
    assert!(gone[0].note.as_ref().unwrap().contains("cannot be read here"), "{:?}", gone[0].note);
    let none = sites(Path::new("[vdso]"), &[], &[0x10]);
    assert!(none[0].frames.is_empty() && none[0].note.is_some());
}

/// Of this test's own file, which has as many lines of code.
#[test]
#[ignore = "make check"]
fn two_hundred_thousand_sites_are_resolved() {
    const SITES: u64 = 200_000;
    let program = std::env::current_exe().unwrap();
    let bytes = fs::read(&program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let build_id = file.build_id().unwrap().map_or_else(Vec::new, <[u8]>::to_vec);
    let text = object::ObjectSection::address(&file.section_by_name(".text").unwrap());
    let length = object::ObjectSection::size(&file.section_by_name(".text").unwrap());
    let offsets: Vec<u64> = (1..=SITES).map(|site| text + site * (length / (SITES + 1))).collect();
    let started = std::time::Instant::now();
    let sites = sites(&program, &build_id, &offsets);
    eprintln!("{} sites of two ranks in {:?}", sites.len(), started.elapsed());
    assert_eq!(sites.len(), SITES as usize);
    assert!(sites.iter().all(|site| site.ranks == 2 && site.calls == 40));
    let named = sites.iter().filter(|site| !site.frames.is_empty()).count();
    assert!(named * 10 > sites.len() * 9, "{named} have a name");
}
