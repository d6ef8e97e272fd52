//! `plimsoll run`, `ps` and `stop` on real bodies: a sandboxed module and a program in a driver hook, in a lab.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use experiment::ledger::{Kind, Ledger};
use linux::lab::{Host, Lab, Options};
use offcode::channel::{Content, Written};
use offcode::{Channel, Specification};
use rustix::process::{Pid, Signal, kill_process};

#[path = "run/instances.rs"]
mod instances;
#[path = "run/watching.rs"]
mod watching;

const CHECKSUM: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<odf version="1">
  <package guid="6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1a2c" name="example.checksum" version="1.0.0">
    <description>Adds up what passes.</description>
    <interface guid="6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1a2b" name="Totals">
      <method name="totals"/>
      <method name="clear"/>
    </interface>
    <wasm file="checksum.wasm" sites="app core"/>
  </package>
  <hardware>
    <app memory="64 KiB"/>
    <core memory="64 KiB"/>
  </hardware>
  <software/>
</odf>
"#;

const FRAMES: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<odf version="1">
  <package guid="6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1b01" name="example.frames" version="1.0.0">
    <description>Counts the frames of an interface.</description>
    <bpf file="frames.o" program="count_frames" role="hook"/>
  </package>
  <hardware>
    <xdp modes="native" memory="1 MiB"/>
  </hardware>
  <software>
    <peer name="sum" interface="6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1a2b" constraint="gang"/>
  </software>
</odf>
"#;

/// A folder with a depot and an application file, removed with this.
struct Place(tempfile::TempDir);

impl Place {
    /// `None`, said on standard error, where a tool or a right is missing.
    fn new(application: &str) -> Option<Place> {
        let place = Place(tempfile::tempdir().unwrap());
        let module = guest(&place.path().join("checksum.wasm"))?;
        let Some(object) = bpf::ECHO else {
            skip::test(bpf::MISSING.unwrap_or("no BPF programs"));
            return None;
        };
        for (name, odf, file, bytes) in [
            ("example.checksum", CHECKSUM, "checksum.wasm", module.as_slice()),
            ("example.frames", FRAMES, "frames.o", object),
        ] {
            let package = place.path().join("depot").join(name);
            fs::create_dir_all(&package).unwrap();
            fs::write(package.join("odf.xml"), odf).unwrap();
            fs::write(package.join(file), bytes).unwrap();
        }
        fs::write(place.file(), application).unwrap();
        Some(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self) -> PathBuf {
        self.path().join("app.toml")
    }
}

/// A guest in C, as its author builds it.
fn guest(module: &Path) -> Option<Vec<u8>> {
    let said = |command: &mut Command| {
        let output = command.output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let sysroot = said(Command::new("rustc").args(["--print", "sysroot"]));
    let host = said(Command::new("rustc").args(["--print", "host-tuple"]));
    let linker = sysroot.zip(host).map(|(root, host)| format!("{root}/lib/rustlib/{host}/bin/gcc-ld/wasm-ld"));
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wasm/guest");
    let built = linker.and_then(|linker| {
        let mut clang = Command::new("clang");
        clang.args(["--target=wasm32", "-O2", "-ffreestanding", "-nostdlib", "-Wl,--no-entry"]);
        clang.arg(format!("-fuse-ld={linker}")).arg("-o").arg(module).current_dir(guest);
        clang.args(module.with_extension("c").file_name());
        said(&mut clang)
    });
    if built.is_none() {
        skip::test("no clang with the target wasm32, or no wasm-ld");
        return None;
    }
    let bytes = fs::read(module).unwrap();
    fs::remove_file(module).unwrap();
    Some(bytes)
}

fn lab() -> Option<Lab> {
    if !rustix::process::geteuid().is_root() {
        skip::test("a lab needs root");
        return None;
    }
    Some(Lab::owned(&Options::default()).unwrap())
}

fn plimsoll(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
    command.args(arguments).stdin(Stdio::null()).env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    lab.enter(Host::A, &mut command).unwrap();
    command
}

fn output(lab: &Lab, arguments: &[&str]) -> Output {
    plimsoll(lab, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A runtime that is up; killed with this.
struct Up {
    child: Child,
    first: String,
}

impl Up {
    fn start(lab: &Lab, file: &Path) -> Up {
        Up::of(plimsoll(lab, &["run", file.to_str().unwrap()]))
    }

    fn of(mut command: Command) -> Up {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap());
        let mut first = String::new();
        if lines.read_line(&mut first).unwrap() == 0 {
            let mut why = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut why).unwrap();
            panic!("it did not come up: {why}");
        }
        Up { child, first }
    }

    fn process(&self) -> String {
        self.child.id().to_string()
    }

    fn ended(&mut self) -> bool {
        let deadline = Instant::now() + skip::LIMIT;
        while Instant::now() < deadline {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn application(sites: &str) -> String {
    format!("name = \"monitor\"\ndepots = [\"depot\"]\nsites = [{sites}]\n\n[[offcode]]\ncreate = \"example.frames\"\n")
}

fn hook_and_core(lab: &Lab) -> String {
    let core = linux::affinity::allowed().unwrap().last().unwrap().0;
    application(&format!("\"app\", \"core:{core}\", \"xdp:{}:native\"", lab.interface(Host::A)))
}

fn has_program(lab: &Lab) -> bool {
    let shown = lab
        .inside(Host::A, || Command::new("ip").args(["-d", "link", "show", lab.interface(Host::A)]).output().unwrap());
    text(&shown.unwrap().stdout).contains("xdp")
}

#[test]
fn an_application_runs_is_listed_and_is_stopped() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&hook_and_core(&lab)) else { return };
    let mut up = Up::start(&lab, &place.file());
    assert!(up.first.contains("monitor"), "{}", up.first);
    assert!(has_program(&lab));
    let listed = text(&output(&lab, &["ps", "--process", &up.process()]).stdout);
    for word in ["example.frames", "example.checksum", "xdp:", "core:", "native", "thread"] {
        assert!(listed.contains(word), "{word} is missing:\n{listed}");
    }
    let json = text(&output(&lab, &["ps", "--process", &up.process(), "--json"]).stdout);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["offcodes"].as_array().unwrap().len(), 2, "{json}");

    let map =
        |name: &str| output(&lab, &["ps", "--process", &up.process(), "--entries", &format!("example.frames/{name}")]);
    assert!(text(&map("frames").stdout).starts_with("frames: "), "{:?}", map("frames"));
    assert_eq!(text(&map("LIMIT").stdout), "LIMIT: 0\n");
    assert!(text(&map("NONE").stderr).contains("LIMIT, frames"), "{:?}", map("NONE"));

    let refused = output(&lab, &["stop", "--process", &up.process(), "example.nothing"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("example.nothing: it does not run here"), "{}", text(&refused.stderr));

    let one = output(&lab, &["stop", "--process", &up.process(), "example.frames"]);
    assert!(one.status.success(), "{}", text(&one.stderr));
    assert!(!has_program(&lab), "the program stayed in the hook");
    let all = output(&lab, &["stop", "--process", &up.process()]);
    assert!(all.status.success(), "{}", text(&all.stderr));
    assert!(up.ended());
    let gone = output(&lab, &["ps", "--process", &up.process()]);
    assert!(!gone.status.success());
    assert!(text(&gone.stderr).contains("no process"), "{}", text(&gone.stderr));
}

#[test]
fn ctrl_c_ends_it_by_130_and_sigterm_in_order() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&hook_and_core(&lab)) else { return };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 0)] {
        let mut up = Up::start(&lab, &place.file());
        kill_process(Pid::from_child(&up.child), signal).unwrap();
        assert!(up.ended());
        assert_eq!(up.child.wait().unwrap().code(), Some(code));
        assert!(!has_program(&lab), "the program outlived its runtime");
    }
}

#[test]
fn a_killed_runtime_leaves_nothing_and_the_next_comes_up() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&hook_and_core(&lab)) else { return };
    for _ in 0..2 {
        let mut up = Up::start(&lab, &place.file());
        assert!(has_program(&lab));
        up.child.kill().unwrap();
        assert!(up.ended());
        let deadline = Instant::now() + skip::LIMIT;
        // The kernel takes a link back when its last descriptor is closed, a moment after the process is gone.
        while has_program(&lab) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!has_program(&lab), "the program outlived its runtime");
        assert!(!text(&output(&lab, &["ps"]).stdout).contains(&up.process()));
    }
}

/// `plimsoll agent` in the lab's other host; killed with this.
struct Agent(Child);

impl Agent {
    fn start(lab: &Lab, keys: &Path) -> Agent {
        Agent::with(lab, keys, &[])
    }

    fn with(lab: &Lab, keys: &Path, more: &[&str]) -> Agent {
        let host = lab.address(Host::B).to_string();
        let made = output(lab, &["agent", "keys", "--directory", keys.to_str().unwrap(), "--host", &host]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
        command.args(["agent", "--listen", &host, "--keys"]).arg(keys.join(&host)).args(more).stdin(Stdio::null());
        lab.enter(Host::B, &mut command).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("listening"), "{line}");
        Agent(child)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_gang_spans_a_driver_hook_and_another_host() {
    let Some(lab) = lab() else { return };
    let host = lab.address(Host::B).to_string();
    let sites = format!("\"app\", \"xdp:{}:native\", \"agent:{host}\"", lab.interface(Host::A));
    let file = application(&sites) + &format!("\n[agents.\"{host}\"]\naddress = \"{host}:5311\"\nkeys = \"keys\"\n");
    let Some(place) = Place::new(&file) else { return };
    let package = place.path().join("depot/example.checksum/odf.xml");
    let odf = CHECKSUM.replace("sites=\"app core\"", "sites=\"agent\"");
    let odf =
        odf.replace("    <app memory=\"64 KiB\"/>\n    <core memory=\"64 KiB\"/>", "    <agent memory=\"64 KiB\"/>");
    fs::write(package, odf).unwrap();

    // Without an agent nothing starts, and nothing stays.
    fs::create_dir(place.path().join("keys")).unwrap();
    let alone = output(&lab, &["run", place.file().to_str().unwrap()]);
    assert!(!alone.status.success() && text(&alone.stderr).contains("agent:"), "{}", text(&alone.stderr));
    assert!(!has_program(&lab));

    let agent = Agent::start(&lab, &place.path().join("keys"));
    let mut up = Up::start(&lab, &place.file());
    let listed = text(&output(&lab, &["ps", "--process", &up.process()]).stdout);
    let line = |word: &str| listed.lines().find(|line| line.contains(word)).unwrap_or_default().to_owned();
    assert!(line("example.checksum").contains("agent:"), "{listed}");
    assert!(line("example.frames").contains("xdp:") && has_program(&lab), "{listed}");
    let stopped = output(&lab, &["stop", "--process", &up.process()]);
    assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    assert!(up.ended() && !has_program(&lab));
    drop(agent);
}

#[test]
fn what_an_agent_has_is_asked_before_planning() {
    let Some(lab) = lab() else { return };
    let host = lab.address(Host::B).to_string();
    let core = linux::affinity::allowed().unwrap().last().unwrap().0;
    let sites = format!("\"app\", \"agent:{host}\", \"agent:{host}/core:9999\"");
    let file = application(&sites).replace("example.frames", "example.checksum")
        + &format!("\n[agents.\"{host}\"]\naddress = \"{host}:5311\"\nkeys = \"keys\"\n");
    let Some(place) = Place::new(&file) else { return };
    let odf = CHECKSUM
        .replace("sites=\"app core\"", "sites=\"app agent\"")
        .replace("<core memory=\"64", "<agent memory=\"90");
    fs::write(place.path().join("depot/example.checksum/odf.xml"), odf).unwrap();
    let plan = || {
        let output = output(&lab, &["plan", place.file().to_str().unwrap(), "--explain"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let core_list = core.to_string();
    let more = ["--cores", &core_list, "--limit", "sandboxes-per-client=65536"];
    let agent = Agent::with(&lab, &place.path().join("keys"), &more);
    let page = plan();
    assert!(page.contains("it takes 90 KiB of memory, and the site has 64 KiB"), "{page}");
    assert!(page.contains(&format!("impossible: the agent offers core:{core}")), "{page}");
    drop(agent);
    let page = plan();
    assert!(
        page.contains(&format!("impossible: agent:{host}: address ")) && page.contains("example.checksum -> app"),
        "{page}"
    );
}

#[test]
fn limits_of_the_file_end_it() {
    let Some(lab) = lab() else { return };
    let limited = hook_and_core(&lab).replace("\n\n[[offcode]]", "\nduration = \"200 ms\"\n\n[[offcode]]");
    let Some(place) = Place::new(&limited) else { return };
    let ran = output(&lab, &["run", place.file().to_str().unwrap()]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(text(&ran.stdout).contains("as the file says; at the end"), "{}", text(&ran.stdout));
}

/// Frames for the hook of host A, from the other host, and messages for the offcode behind it, from a process beside it.
fn traffic(lab: &Lab, process: u32) {
    let to = (lab.address(Host::A), 9);
    let frames = || {
        let socket = UdpSocket::bind((lab.address(Host::B), 0)).unwrap();
        for _ in 0..200 {
            // The kernel says that nobody listens.
            let _ = socket.send_to(b"frame", to);
        }
    };
    lab.inside(Host::B, frames).unwrap();
    let messages = || {
        let specification = Specification { content: Content::Messages, ..Specification::default() };
        let mut channel = attach::application(&process.to_string())
            .unwrap()
            .channel("example.checksum", "in", specification)
            .unwrap();
        let deadline = Instant::now() + skip::LIMIT;
        let mut sent = 0;
        while sent < 2000 && Instant::now() < deadline {
            match channel.write(b"message").unwrap() {
                Written::Taken => sent += 1,
                _ => std::thread::yield_now(),
            }
        }
        assert_eq!(sent, 2000);
    };
    lab.inside(Host::A, messages).unwrap();
}

#[test]
fn what_offcodes_take_is_held_against_what_was_expected() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&hook_and_core(&lab)) else { return };
    let state = place.path().join("state");
    let ledger = || {
        let mut files = fs::read_dir(state.join("plimsoll")).unwrap().map(|entry| entry.unwrap().path());
        Ledger::at(&files.find(|path| path.extension().is_some_and(|of| of == "jsonl")).unwrap()).unwrap()
    };
    let mut command = plimsoll(&lab, &["run", place.file().to_str().unwrap()]);
    command.env("XDG_STATE_HOME", &state);
    let mut up = Up::of(command);
    let before = ledger();
    let times = |of: &&experiment::ledger::Prediction| of.quantity.starts_with("time for a message at ");
    assert_eq!(before.predictions.iter().filter(times).count(), 2, "{before:?}");
    assert!(before.outcomes.is_empty());
    assert!(
        before.predictions.iter().any(|of| of.subject.words == "example.checksum 1.0.0 of monitor, wasm"),
        "{before:?}"
    );

    traffic(&lab, up.child.id());
    assert!(output(&lab, &["stop", "--process", &up.process()]).status.success());
    assert!(up.ended());
    let mut said = String::new();
    up.child.stdout.as_mut().unwrap().read_to_string(&mut said).unwrap();
    let after = ledger();
    for outcome in &after.outcomes {
        let of = after.predictions.iter().find(|of| of.id == outcome.id).unwrap();
        assert!(outcome.value > 0.0 && of.made < outcome.came, "{of:?} {outcome:?}");
        assert!(!times(&of) || said.contains(&of.against(outcome.value)), "{said}");
    }
    let settled = |kind| {
        let of_kind = |id| after.predictions.iter().any(|of| of.id == id && of.kind == kind);
        after.outcomes.iter().filter(|outcome| of_kind(outcome.id)).count()
    };
    // Of each its time and its work, and what it was given: the channel is of another process, and no plan knew of it.
    assert_eq!((settled(Kind::Offcode), settled(Kind::Rate)), (4, 2), "{after:?}");
    let page = experiment::ledger::terminal(&after);
    assert!(page.starts_with("time of an offcode for a message: ") && page.contains("of 4 held"), "{page}");

    // What was measured is what the next plan rests on, and it says so.
    let mut plan = plimsoll(&lab, &["plan", place.file().to_str().unwrap(), "--explain"]);
    let explained = text(&plan.env("XDG_STATE_HOME", &state).output().unwrap().stdout);
    let line = |start: &str| explained.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
    for start in ["example.checksum at core:", "example.frames at xdp:"] {
        assert!(line(start).ends_with("measured: 1 earlier run"), "{start}: {explained}");
    }
}

#[test]
fn a_load_that_an_agent_takes_off_this_host_goes_there_without_a_pin() {
    let Some(lab) = lab() else { return };
    let host = lab.address(Host::B).to_string();
    let channel = "[[channel]]\nname = \"in\"\nfrom = \"application\"\nto = [\"example.checksum\"]\nrate = 12000\ncontent = \"messages\"\n";
    let file = format!(
        "name = \"load\"\ndepots = [\"depot\"]\nsites = [\"app\", \"agent:{host}\"]\n\n[[offcode]]\ncreate = \"example.checksum\"\n\n\
         {channel}\n[agents.\"{host}\"]\naddress = \"{host}:5311\"\nkeys = \"keys\"\n"
    );
    let Some(place) = Place::new(&file) else { return };
    let odf = CHECKSUM.replace("sites=\"app core\"", "sites=\"app agent\"").replace("<core", "<agent");
    let odf = odf.replace("memory=\"64 KiB\"", "memory=\"64 KiB\" work-ns=\"50000\"");
    fs::write(place.path().join("depot/example.checksum/odf.xml"), odf).unwrap();
    let agent = Agent::start(&lab, &place.path().join("keys"));
    let where_it_is = |objective: &str| {
        let mut up = Up::of(plimsoll(&lab, &["run", place.file().to_str().unwrap(), "--objective", objective]));
        let listed = text(&output(&lab, &["ps", "--process", &up.process()]).stdout);
        assert!(output(&lab, &["stop", "--process", &up.process()]).status.success() && up.ended());
        listed.lines().find(|line| line.contains("example.checksum")).unwrap_or_default().to_owned()
    };
    let offloaded = where_it_is("host-cpu");
    assert!(offloaded.contains(&format!("agent:{host}")), "{offloaded}");
    let here = where_it_is("latency");
    assert!(here.contains(" app "), "{here}");
    drop(agent);
}

#[test]
fn without_a_folder_for_the_ledger_an_application_runs_all_the_same() {
    let Some(lab) = lab() else { return };
    let limited = hook_and_core(&lab).replace("\n\n[[offcode]]", "\nduration = \"50 ms\"\n\n[[offcode]]");
    let Some(place) = Place::new(&limited) else { return };
    let mut command = plimsoll(&lab, &["run", place.file().to_str().unwrap()]);
    let ran = command.env("XDG_STATE_HOME", "/proc/none").output().unwrap();
    let said = text(&ran.stderr);
    assert!(ran.status.success() && said.contains("what is expected is not kept"), "{said}");
}

/// A checksum with state, at `app`, and one message for it.
fn movable(lab: &Lab) -> Option<(Place, Up)> {
    let core = linux::affinity::allowed().unwrap().last().unwrap().0;
    let file = format!(
        "name = \"sums\"\ndepots = [\"depot\"]\nsites = [\"app\", \"core:{core}\"]\n\n[[offcode]]\ncreate = \
         \"example.checksum\"\nat = \"app\"\n"
    );
    let place = Place::new(&file)?;
    let odf = CHECKSUM.replace("version=\"1.0.0\">", "version=\"1.0.0\" state=\"saved\">");
    fs::write(place.path().join("depot/example.checksum/odf.xml"), &odf).unwrap();
    let newer = place.path().join("newer/example.checksum");
    fs::create_dir_all(&newer).unwrap();
    fs::copy(place.path().join("depot/example.checksum/checksum.wasm"), newer.join("checksum.wasm")).unwrap();
    fs::write(newer.join("odf.xml"), odf.replace("version=\"1.0.0\" state", "version=\"1.1.0\" state")).unwrap();
    let up = Up::start(lab, &place.file());
    Some((place, up))
}

#[test]
fn an_offcode_moves_to_a_core_and_back_is_upgraded_and_forgets_nothing() {
    let Some(lab) = lab() else { return };
    let Some((place, up)) = movable(&lab) else { return };
    let core = linux::affinity::allowed().unwrap().last().unwrap().0;
    let process = up.child.id();
    let channel = |name: &str, content| {
        let specification = Specification { content, ..Specification::default() };
        let attached = || attach::application(&process.to_string())?.channel("example.checksum", name, specification);
        lab.inside(Host::A, attached).unwrap().unwrap()
    };
    let mut messages = channel("in", Content::Messages);
    let mut calls = offcode::Caller::new(channel("calls", Content::Calls));
    let mut totals = || {
        let interface = "6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1a2b".parse().unwrap();
        let decode = |bytes: &[u8]| offcode::encoding::fixed::whole::<(u64, u64, u64)>(bytes);
        let call = offcode::Call::manual(&interface, 0, "Totals.totals", decode);
        calls.call(&call, machine::Nanoseconds(skip::LIMIT.as_nanos() as u64), std::thread::yield_now).unwrap()
    };
    let mut sent = 0;
    let mut send = |count: u64| {
        for _ in 0..count {
            while messages.write(b"message").unwrap() == Written::Full {
                std::thread::yield_now();
            }
            sent += 1;
        }
        sent
    };
    let plimsoll = |arguments: &[&str]| {
        let process = up.process();
        let words = [arguments, &["--process", &process]].concat();
        let ran = output(&lab, &words);
        (ran.status.success(), text(&ran.stdout) + &text(&ran.stderr))
    };
    for site in [format!("core:{core}"), "app".to_owned(), format!("core:{core}")] {
        send(500);
        let (well, said) = plimsoll(&["migrate", "example.checksum", &site]);
        assert!(well && said.contains(&format!("to {site}")) && said.contains("paused for"), "{said}");
        for step in ["prepare", "quiesce", "snapshot", "rebind", "restore", "commit", "release"] {
            assert!(said.contains(step), "{said}");
        }
        send(100);
    }
    let newer = place.path().join("newer");
    let (well, said) = plimsoll(&["upgrade", "example.checksum", "--depot", newer.to_str().unwrap()]);
    assert!(well && said.contains("example.checksum 1.1.0: at core:"), "{said}");
    let sent = send(10);
    while totals().0 < sent {
        std::thread::yield_now();
    }
    let (count, bytes, _) = totals();
    assert_eq!((count, bytes), (sent, 7 * sent));
    let listed = text(&output(&lab, &["ps", "--process", &up.process()]).stdout);
    assert!(listed.contains(&format!("core:{core}")), "{listed}");

    let (well, said) = plimsoll(&["migrate", "example.checksum", "xdp:none"]);
    assert!(!well && said.contains("offers no such site"), "{said}");
    let odf = fs::read_to_string(newer.join("example.checksum/odf.xml")).unwrap();
    fs::write(newer.join("example.checksum/odf.xml"), odf.replace("<method name=\"clear\"/>", "")).unwrap();
    let (well, said) = plimsoll(&["upgrade", "example.checksum", "--depot", newer.to_str().unwrap()]);
    assert!(!well && said.contains("its interface Totals has other methods"), "{said}");
    assert_eq!(totals().0, sent);
}

/// Two instances of the checksum, each in a version of its own, at two sites.
#[test]
fn what_cannot_run_says_why() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&application("\"app\"")) else { return };
    let cases = [
        (application("\"app\""), "no target of kind app"),
        (hook_and_core(&lab).replace(":native", ":hardware"), "hardware"),
        (hook_and_core(&lab).replace("example.frames", "example.absent"), "example.absent"),
        (hook_and_core(&lab).replace("xdp:", "xdp:none"), "none"),
        (hook_and_core(&lab).replace("\"depot\"", "\"no-depot\""), "no-depot"),
        (hook_and_core(&lab).replace("name =", "nome ="), "nome"),
    ];
    for (file, word) in cases {
        fs::write(place.file(), &file).unwrap();
        let ran = output(&lab, &["run", place.file().to_str().unwrap()]);
        let said = text(&ran.stderr);
        assert!(!ran.status.success(), "{file}");
        assert!(said.contains(word) && said.contains("Next:"), "{word}: {said}");
        assert!(!has_program(&lab));
    }
}
