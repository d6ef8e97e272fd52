//! The author's path, from an empty folder: the lines of docs/first-offcode.md, and what is refused on the way.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Dependencies stay built from one test, and from one run, to the next.
const TARGET: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/guests");

/// An empty folder, and `plimsoll` in PATH.
struct Place(tempfile::TempDir);

impl Place {
    /// `None`, said on standard error, where a tool is missing.
    fn new() -> Option<Place> {
        for tool in ["clang", "cc", "sh", "ip"] {
            skip::tool(tool)?;
        }
        let place = Place(tempfile::tempdir().unwrap());
        fs::create_dir(place.0.path().join("bin")).unwrap();
        fs::create_dir(place.0.path().join("empty")).unwrap();
        symlink(env!("CARGO_BIN_EXE_plimsoll-offcode"), place.0.path().join("bin/plimsoll")).unwrap();
        Some(place)
    }

    fn empty(&self) -> PathBuf {
        self.0.path().join("empty")
    }

    /// A command line in a folder of the empty one. Nothing is fetched.
    fn shell(&self, folder: &str, line: &str) -> Command {
        let mut command = Command::new("sh");
        let path = format!("{}:{}", self.0.path().join("bin").display(), std::env::var("PATH").unwrap());
        command.args(["-eu", "-c", line]).current_dir(self.empty().join(folder)).stdin(Stdio::null());
        command
            .env("PATH", path)
            .env("CARGO_TARGET_DIR", TARGET)
            .env("CARGO_NET_OFFLINE", "true")
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTC_BOOTSTRAP")
            .env_remove("RUST_BACKTRACE");
        command
    }

    fn says(&self, folder: &str, line: &str) -> (bool, String) {
        // These link; others may be asked for any core.
        let _core = line.contains("plimsoll offcode ").then(skip::one_core);
        let Output { status, stdout, stderr } = self.shell(folder, line).output().unwrap();
        (status.success(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
    }

    fn does(&self, folder: &str, line: &str) -> String {
        let (well, said) = self.says(folder, line);
        assert!(well, "{line}: {said}");
        said
    }

    fn refuses(&self, folder: &str, line: &str, why: &str) -> String {
        let (well, said) = self.says(folder, line);
        assert!(!well && said.contains(why) && said.contains("Next: "), "{line}: {said}");
        said
    }
}

fn page() -> String {
    let page = include_str!("../../../docs/first-offcode.md");
    let blocks: Vec<&str> = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    blocks.concat()
}

#[test]
fn an_author_goes_from_an_empty_folder_to_a_package_that_has_its_place() {
    let Some(place) = Place::new() else { return };
    place.does(".", "plimsoll offcode new counter --bodies native,bpf");
    let said = place.does("counter", "plimsoll offcode test");
    assert!(said.contains("native: lives twice, 3 calls\n"), "{said}");
    if !said.contains("bpf: lives twice, 3 calls\n") {
        assert!(said.contains("bpf: not tested here: "), "{said}");
        skip::part("a body for a driver hook is not run");
    }
    place.does("counter", "plimsoll offcode package");
    place.does("counter", "plimsoll odf check target/offcode/counter");
    let said = place.does("counter", "plimsoll plan APP.toml");
    assert!(said.contains("counter -> app"), "{said}");
    place.refuses(".", "plimsoll offcode new counter", "counter:");
}

#[test]
#[ignore = "make check"]
fn the_page_leads_from_an_empty_folder_to_a_running_offcode() {
    let Some(place) = Place::new() else { return };
    let said = place.does(".", &page());
    for part in [
        "native: lives twice, 3 calls\n",
        "wasm: lives twice, 3 calls\n",
        "Count.totals: 0300000000000000f40b000000000000\n",
        "all bodies answer alike\n",
        "bodies native, wasm, bpf; for app, core, xdp, agent",
        "packet-counter -> app",
        "ended after 2.0 s, as the file says",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    if !said.contains("bpf: lives twice, 3 calls\n") {
        assert!(said.contains("bpf: not tested here: "), "{said}");
        skip::part("a body for a driver hook is not run");
    }
    place.refuses(".", "plimsoll offcode new packet-counter", "packet-counter:");
    place.refuses(".", "plimsoll offcode build", "it is not in this folder");
    place.does("packet-counter", "cargo test --quiet");
    // What lacks a tool is said, and the others are there.
    let said = place.refuses("packet-counter", "CLANG=no-such-clang plimsoll offcode build", "bpf body: no-such-clang");
    assert!(said.contains("packet-counter.wasm: wasm body") && said.contains(".so: native body"), "{said}");
    place.does("packet-counter", "plimsoll odf check target/offcode/packet-counter");
    place.does("packet-counter", "plimsoll offcode build --bodies native");
    let odf = fs::read_to_string(place.empty().join("packet-counter/target/offcode/packet-counter/odf.xml")).unwrap();
    assert!(odf.contains("<native sites=\"app core\">") && !odf.contains("<wasm") && !odf.contains("<xdp"), "{odf}");
}

/// The recipe's lines, of which the application runs beside those behind it, in a network of its own: `plimsoll stop` is to
/// find one runtime.
fn recipe() -> String {
    let page = include_str!("../../../docs/recipes.md");
    let recipe = page.split("\n## ").find(|recipe| recipe.starts_with("I write offcodes")).expect("the recipe");
    let boxes = recipe.split("```").skip(1).step_by(2).flat_map(str::lines).filter(|line| !line.is_empty());
    let script = boxes.map(|line| match line {
        _ if line.starts_with("plimsoll offcode new") => {
            format!("{line}\ncd packet-counter\nsed -i /duration/d APP.toml\n")
        }
        _ if line.starts_with("plimsoll run") => {
            let waits = "for n in $(seq 600); do plimsoll ps | grep -q packet-counter && break; sleep 0.1; done";
            format!("{line} >run.txt &\n{waits}\n")
        }
        "plimsoll stop" => format!("{line}\nwait\ncat run.txt\n"),
        _ => format!("{line}\n"),
    });
    script.collect()
}

#[test]
#[ignore = "make check"]
fn the_recipe_for_authors_runs_as_it_stands() {
    if !rustix::process::geteuid().is_root() {
        return skip::test("a network of its own and the lab need root");
    }
    let Some(place) = Place::new() else { return };
    // Its shield moves everything else off a core.
    let _turn = skip::turn();
    fs::write(place.empty().join("recipe"), recipe()).unwrap();
    let output = place.shell(".", "unshare -n sh -eu recipe 2>&1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for part in [
        "all bodies answer alike\n",
        "depot/packet-counter/odf.xml: packet-counter",
        "packet-counter -> app",
        "packet-counter  app   thread",
        "at the end:\n",
        "rate received",
        "1 hog, busy all the time, was let loose on core 0",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
#[ignore = "make check"]
fn bodies_that_differ_are_told_and_a_panic_is_a_refusal() {
    let Some(place) = Place::new() else { return };
    place.does(".", "plimsoll offcode new two-minds");
    let source = place.empty().join("two-minds/src/lib.rs");
    let text = fs::read_to_string(&source).unwrap();
    let sum = "        self.bytes += bytes;\n";
    fs::write(
        &source,
        text.replace(sum, &format!("{sum}        if cfg!(target_family = \"wasm\") {{ self.bytes += 1 }}\n")),
    )
    .unwrap();
    let (well, said) = place.says("two-minds", "plimsoll offcode test");
    assert!(!well && said.contains("Count.add: native 3c00000000000000, wasm 3d00000000000000"), "{said}");
    assert!(said.contains("the bodies are not one offcode"), "{said}");
    fs::write(&source, text.replace(sum, "        assert!(bytes < 100, \"so many\");\n")).unwrap();
    let said = place.does("two-minds", "plimsoll offcode test --bodies native");
    assert!(said.contains("it panicked: so many") && said.contains("Count.totals: refused"), "{said}");
    fs::write(&source, text.replace(sum, "        self.bytes += no;\n")).unwrap();
    let said = place.refuses("two-minds", "plimsoll offcode test", "cargo ended with exit status: 101");
    assert!(said.contains("cannot find value `no`"), "{said}");
    // State beside the offcode would be lost where it moves.
    let beside = "static ALL: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);\n";
    let kept = "        self.bytes += bytes + ALL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);\n";
    fs::write(&source, text.replace(sum, kept) + beside).unwrap();
    let (well, said) = place.says("two-minds", "plimsoll offcode test --bodies native");
    assert!(!well && said.contains("a second instance answers Count.add with"), "{said}");
}

/// Changes the installed library, and its hash in the manifest where `signed`.
fn tamper(package: &Path, signed: bool, change: impl FnOnce(&mut Vec<u8>)) {
    let (odf, library) = (package.join("odf.xml"), package.join("libtrusted.so"));
    let mut bytes = fs::read(&library).unwrap();
    let digest = |bytes: &[u8]| runtime::code::digest(bytes).to_string();
    let before = digest(&bytes);
    change(&mut bytes);
    let text = fs::read_to_string(&odf).unwrap();
    assert!(text.contains(&before));
    if signed {
        fs::write(&odf, text.replace(&before, &digest(&bytes))).unwrap();
    }
    fs::write(&library, bytes).unwrap();
}

#[test]
#[ignore = "make check"]
fn a_package_that_is_not_what_it_says_is_refused_by_plan_and_run() {
    let Some(place) = Place::new() else { return };
    place.does(".", "plimsoll offcode new trusted --bodies native");
    let package = place.empty().join("trusted/depot/trusted");
    // The last byte of the file is in its table of sections' names, or behind it.
    let last = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    let machine = |bytes: &mut Vec<u8>| bytes[18] = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(4096);
    let guid = |bytes: &mut Vec<u8>| {
        let text = fs::read_to_string(place.empty().join("trusted/src/lib.rs")).unwrap();
        let guid = text.split("    guid = \"").nth(1).unwrap().split('"').next().unwrap();
        let guid: offcode::Guid = guid.parse().unwrap();
        let tables: Vec<usize> =
            (0..bytes.len() - 24).filter(|at| bytes[at + 8..at + 24] == guid.bytes()[..]).collect();
        tables.into_iter().for_each(|at| bytes[at + 8] ^= 1);
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let changes: [(bool, Change, &str); 4] = [
        (false, &last, "its hash is "),
        (true, &machine, "its code is for "),
        (true, &cut, "native body"),
        (true, &guid, "it holds the offcode "),
    ];
    for (signed, change, why) in changes {
        place.does("trusted", "plimsoll offcode package");
        tamper(&package, signed, change);
        let (planned, said) = place.says("trusted", "plimsoll plan APP.toml");
        assert!(!planned && said.contains(why) && said.contains("trusted/odf.xml:"), "{said}");
        place.refuses("trusted", "plimsoll run APP.toml", why);
    }
    place.does("trusted", "plimsoll offcode package");
    // What is as it says runs at a core too.
    let core = linux::affinity::allowed().unwrap().last().unwrap().0;
    let text = fs::read_to_string(place.empty().join("trusted/APP.toml")).unwrap();
    let text = text.replace("sites = [\"app\"]", &format!("sites = [\"core:{core}\"]"));
    fs::write(place.empty().join("trusted/CORE.toml"), text.replace("2 s", "200 ms")).unwrap();
    let said = place.does("trusted", "plimsoll run CORE.toml");
    assert!(said.contains(&format!("core:{core}")) && said.contains("as the file says"), "{said}");
}

/// An agent on loopback, ended with this.
struct Agent(Child, String);

impl Agent {
    fn start(place: &Place, arguments: &str) -> Agent {
        let line = format!("exec plimsoll agent --listen 127.0.0.1:0 --keys keys/127.0.0.1 {arguments}");
        let mut command = place.shell("far", &line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Agent(child, address)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "make check"]
fn an_agent_takes_a_library_whose_hash_it_was_given() {
    let Some(place) = Place::new() else { return };
    place.does(".", "plimsoll offcode new far --bodies native");
    let packaged =
        place.does("far", "plimsoll offcode package && plimsoll agent keys --directory keys --host 127.0.0.1");
    let hash = packaged.split("--native ").nth(1).unwrap().split_whitespace().next().unwrap();
    let file = |agent: &Agent| {
        let text = "name = \"far\"\ndepots = [\"depot\"]\nsites = [\"agent:127.0.0.1\"]\nduration = \"200 ms\"\n\n[[offcode]]\ncreate = \"far\"\n";
        let agents = format!("\n[agents.\"127.0.0.1\"]\naddress = \"{}\"\nkeys = \"keys\"\n", agent.1);
        fs::write(place.empty().join("far/FAR.toml"), format!("{text}{agents}")).unwrap();
    };
    let agent = Agent::start(&place, "");
    file(&agent);
    let said = place.refuses("far", "plimsoll run FAR.toml", "is not among those that may load at the agent");
    assert!(said.contains(hash), "{said}");
    drop(agent);
    let agent = Agent::start(&place, &format!("--native {hash}"));
    file(&agent);
    let said = place.does("far", "plimsoll run FAR.toml");
    assert!(said.contains("agent:127.0.0.1") && said.contains("as the file says"), "{said}");
}
