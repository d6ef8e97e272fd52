//! `plimsoll lab` as a user types it.

use std::process::{Command, Output};

fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A lab of this test alone, removed even if the test fails.
struct Lab(String);

impl Lab {
    fn run(&self, action: &str, arguments: &[&str]) -> Output {
        plimsoll(&[&["lab", action, "--name", &self.0], arguments].concat())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.run("down", &[]);
    }
}

#[test]
fn a_command_in_a_host_passes_its_output_and_status_through() {
    let lab = Lab(format!("command-{}", std::process::id()));
    let up = lab.run("up", &["--protocol-core", "0"]);
    if ["run as root", "install it", "modprobe veth"].iter().any(|next| said(&up).contains(next)) {
        skip::test(said(&up));
        return;
    }
    assert!(up.status.success() && said(&up).contains("core 0"), "{}", said(&up));

    let output = lab.run("exec", &["b", "--", "sh", "-c", "uname -n; exit 42"]);
    assert_eq!((said(&output), output.status.code()), (format!("{}-b\n", lab.0), Some(42)));
    assert_eq!(lab.run("exec", &["a", "--", "no-such-command"]).status.code(), Some(127));
    let status = lab.run("status", &["--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["hosts"][0]["protocol_cores"], serde_json::json!([0]));

    assert!(lab.run("down", &[]).status.success());
    assert!(lab.run("down", &[]).status.success(), "down is no error where nothing is up");
    let status = lab.run("status", &[]);
    assert!(!status.status.success() && said(&status).contains("lab up"), "{}", said(&status));
    let exec = lab.run("exec", &["a", "--", "true"]);
    assert!(!exec.status.success() && said(&exec).contains("it is down"), "{}", said(&exec));
}

#[test]
fn a_core_that_does_not_exist_is_refused_before_anything_is_made() {
    let lab = Lab(format!("core-{}", std::process::id()));
    let up = lab.run("up", &["--protocol-core", "70000"]);
    assert!(
        !up.status.success() && said(&up).contains("core 70000: ") && said(&up).contains("Next: "),
        "{}",
        said(&up)
    );
    assert!(said(&lab.run("status", &[])).contains("down"));
}
