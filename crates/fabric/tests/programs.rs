//! libfabric's own programs over the provider as built.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A folder with the provider under the name that libfabric looks for. Cargo leaves it beside the test's own executable.
fn providers() -> tempfile::TempDir {
    let beside = std::env::current_exe().unwrap().with_file_name("libplimsoll_fi.so");
    assert!(beside.exists(), "{} was not built", beside.display());
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(beside, folder.path().join("libplimsoll-fi.so")).unwrap();
    folder
}

fn program(name: &str, folder: &Path) -> Option<Command> {
    let mut command = Command::new(skip::tool(name)?);
    command.env("FI_PROVIDER_PATH", folder).env("FI_PROVIDER", "plimsoll");
    for (key, _) in std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("FI_PLIMSOLL_")) {
        command.env_remove(key);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// A process that is killed and reaped on drop.
struct Running(Option<Child>);

impl Running {
    fn start(mut command: Command) -> Running {
        Running(Some(command.spawn().unwrap()))
    }

    fn finish(mut self) -> Output {
        let mut child = self.0.take().unwrap();
        let deadline = Instant::now() + skip::LIMIT;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                let output = child.wait_with_output().unwrap();
                panic!("still running after {:?}: {}", skip::LIMIT, String::from_utf8_lossy(&output.stderr));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn info(arguments: &[&str], set: &[(&str, &str)]) -> Option<Output> {
    let folder = providers();
    let mut command = program("fi_info", folder.path())?;
    command.args(arguments).envs(set.iter().copied());
    Some(Running::start(command).finish())
}

#[test]
fn fi_info_lists_the_provider() {
    let Some(output) = info(&["-p", "plimsoll", "-v"], &[]) else { return };
    let listed = text(&output.stdout);
    assert!(output.status.success(), "{listed}{}", text(&output.stderr));
    for wanted in ["prov_name: plimsoll", "FI_EP_RDM", "FI_DIRECTED_RECV", "FI_PROGRESS_MANUAL", "name: udp"] {
        assert!(listed.contains(wanted), "no {wanted} in {listed}");
    }
}

#[test]
fn fi_info_lists_the_parameters() {
    let Some(output) = info(&["-e"], &[]) else { return };
    let listed = text(&output.stdout);
    for name in ["PLACEMENT", "NETWORK", "ADDRESS", "SHM", "WIRE", "REPORT"] {
        assert!(listed.contains(&format!("FI_PLIMSOLL_{name}")), "no {name}");
    }
}

#[test]
fn other_kinds_of_endpoints_are_not_offered() {
    let Some(output) = info(&["-p", "plimsoll", "-t", "FI_EP_SOCK_DGRAM"], &[]) else { return };
    assert!(!output.status.success(), "{}", text(&output.stdout));
}

#[test]
fn connected_endpoints_are_offered_where_asked_for_and_to_no_layer() {
    let Some(output) = info(&["-p", "plimsoll", "-t", "FI_EP_MSG"], &[]) else { return };
    let listed = text(&output.stdout);
    assert!(output.status.success() && listed.contains("type: FI_EP_MSG") && !listed.contains("FI_EP_RDM"), "{listed}");
    // Only the provider, only its RDM endpoint.
    let Some(output) = info(&[], &[]) else { return };
    let listed = text(&output.stdout);
    assert_eq!(listed.matches("plimsoll").count(), 2, "its name and its fabric's, once: {listed}");
    for layers in ["ofi_rxm;plimsoll", "plimsoll;ofi_rxm"] {
        let Some(output) = info(&["-p", layers], &[]) else { return };
        assert!(!output.status.success(), "{layers}: {}", text(&output.stdout));
    }
}

#[test]
fn datagrams_are_offered_to_who_asks_and_no_layer_stacks_on_them() {
    let Some(output) = info(&["-p", "plimsoll", "-t", "FI_EP_DGRAM"], &[]) else { return };
    let listed = text(&output.stdout);
    assert!(output.status.success() && listed.contains("FI_EP_DGRAM"), "{listed}{}", text(&output.stderr));
    let Some(output) = info(&[], &[]) else { return };
    let listed = text(&output.stdout);
    assert!(listed.contains("FI_EP_RDM") && !listed.contains("FI_EP_DGRAM") && !listed.contains("ofi_"), "{listed}");
    let Some(output) = info(&["-p", "plimsoll;ofi_rxd"], &[("FI_PROVIDER", "")]) else { return };
    assert!(!output.status.success(), "{}", text(&output.stdout));
}

#[test]
fn capabilities_asked_for_are_granted_and_others_are_not() {
    for (caps, granted) in [
        ("FI_TAGGED|FI_DIRECTED_RECV|FI_SOURCE", true),
        ("FI_MSG|FI_MULTI_RECV|FI_LOCAL_COMM|FI_REMOTE_COMM", true),
        ("FI_MSG|FI_RMA|FI_ATOMIC|FI_TRIGGER", true),
        ("FI_MSG|FI_MULTICAST", false),
    ] {
        let Some(output) = info(&["-p", "plimsoll", "-c", caps], &[]) else { return };
        assert_eq!(output.status.success(), granted, "{caps}: {}", text(&output.stdout));
    }
}

#[test]
fn why_hints_are_refused_is_told_to_who_asks() {
    let asked = ["-p", "plimsoll", "-c", "FI_MSG|FI_HMEM"];
    for (set, told_of) in [(&[("FI_LOG_LEVEL", "warn")][..], 1), (&[], 0)] {
        let Some(output) = info(&asked, set) else { return };
        let told = text(&output.stderr);
        assert!(!output.status.success(), "{}", text(&output.stdout));
        let lines =
            told.lines().filter(|line| line.contains("plimsoll") && line.contains("FI_HMEM")).collect::<Vec<_>>();
        assert_eq!(lines.len(), told_of, "{told}");
        assert!(lines.iter().all(|line| line.contains("fi_getinfo") && line.contains(" Next: ")), "{told}");
    }
}

#[test]
fn a_mistake_in_the_configuration_is_told_once_with_its_next_step() {
    let Some(output) = info(&["-p", "plimsoll"], &[("FI_PLIMSOLL_PLACEMENT", "gpu:0")]) else { return };
    let told = text(&output.stderr);
    assert!(!output.status.success());
    assert_eq!(told.matches("FI_PLIMSOLL").count(), 1, "{told}");
    assert!(told.contains("gpu:0") && told.contains("Next:"), "{told}");
}

/// `longest` is the beginning of the longest message's line.
fn pingpong(set: &[(&str, &str)], arguments: &[&str], longest: &str) {
    let folder = providers();
    // A port for the two programs' control connection, chosen by the kernel and freed, so that tests do not collide.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let start = |extra: &[&str]| {
        let mut command = program("fi_pingpong", folder.path())?;
        command.args(["-p", "plimsoll", "-c", "-I", "10"]);
        command.args(arguments).args(extra).envs(set.iter().copied()).env("FI_PLIMSOLL_REPORT", "yes");
        Some(command)
    };
    let deadline = Instant::now() + skip::LIMIT;
    let Some(server) = start(&["-B", &port]) else { return };
    let server = Running::start(server);
    // The client gives up at once if the server does not listen yet.
    let client = loop {
        std::thread::sleep(Duration::from_millis(100));
        let output = Running::start(start(&["-P", &port, "127.0.0.1"]).unwrap()).finish();
        if output.status.success() || Instant::now() > deadline {
            break output;
        }
    };
    let server = server.finish();
    assert!(client.status.success(), "client: {}{}", text(&client.stdout), text(&client.stderr));
    assert!(server.status.success(), "server: {}{}", text(&server.stdout), text(&server.stderr));
    for output in [&client, &server] {
        let told = text(&output.stderr);
        let report = told.lines().find(|line| line.starts_with("plimsoll-report ")).expect("a report");
        assert!(report.contains("\"ran\":\"app\""), "{report}");
    }
    let lines = text(&client.stdout);
    assert!(lines.lines().any(|line| line.starts_with(longest)), "{lines}");
}

const NETWORK: [(&str, &str); 2] = [("FI_PLIMSOLL_SHM", "no"), ("FI_PLIMSOLL_ADDRESS", "127.0.0.1")];

#[test]
fn messages_go_back_and_forth_in_shared_memory() {
    pingpong(&[], &["-e", "rdm", "-m", "msg"], "1m");
}

#[test]
fn tagged_messages_go_back_and_forth_in_shared_memory() {
    pingpong(&[], &["-e", "rdm", "-m", "tagged"], "1m");
}

#[test]
fn messages_go_back_and_forth_over_the_network() {
    pingpong(&NETWORK, &["-e", "rdm", "-m", "tagged"], "1m");
}

#[test]
fn messages_go_back_and_forth_over_connections() {
    pingpong(&[], &["-e", "msg"], "1m");
    pingpong(&NETWORK, &["-e", "msg"], "1m");
}

#[test]
fn datagrams_go_back_and_forth() {
    pingpong(&[], &["-e", "dgram", "-m", "msg"], "1k");
}
