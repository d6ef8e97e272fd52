//! `plimsoll plan` as its users run it. Goldens use sites that every machine has, and modelled prices.

use crate::golden;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan").join(file)
}

fn plan(file: &Path, arguments: &[&str]) -> Output {
    let mut plimsoll = Command::new(env!("CARGO_BIN_EXE_plimsoll-offcode"));
    plimsoll.current_dir(here("")).env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    // The agents here are addresses at which nobody is.
    plimsoll.arg("plan").arg("--unasked").arg(file).args(arguments).output().unwrap()
}

fn printed(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).unwrap()
}

fn fault(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    std::str::from_utf8(&output.stderr).unwrap()
}

/// An application of the depot here, over sites of the caller's choice.
fn application(folder: &Path, sites: &str, more: &str) -> PathBuf {
    let file = folder.join("APP.toml");
    let depot = here("depot");
    let text = format!("name = \"test\"\ndepots = [{depot:?}]\nsites = {sites}\n{more}");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_plan_is_explained_and_proven() {
    let output = plan(&here("agents.toml"), &["--modelled", "--explain", "--prove"]);
    golden::check(&here("agents.txt"), printed(&output));
    let brief = plan(&here("agents.toml"), &["--modelled"]);
    let at = |offcode: &str| {
        let line = printed(&brief).lines().find_map(|line| line.strip_prefix(&format!("{offcode} -> ")));
        line.unwrap_or_else(|| panic!("{}", printed(&brief))).to_owned()
    };
    assert_eq!(at("example.filter"), at("example.counter"));
    assert!(at("example.filter").starts_with("agent:") && at("example.report").starts_with("agent:"));
    assert_eq!(at("application"), "app");
}

/// Under one load each objective has another answer, without a pin.
#[test]
fn a_load_goes_where_the_objective_says() {
    let explained = |objective: &str| {
        let output = plan(&here("load.toml"), &["--modelled", "--explain", "--prove", "--objective", objective]);
        let page = printed(&output).to_owned();
        // What the prices rest on is the same for all.
        page.split("prices of a message").next().unwrap().to_owned()
    };
    let pages = ["host-cpu", "latency", "spare=app"].map(explained);
    golden::check(&here("load.txt"), &pages.join("\n"));
    for (page, site) in pages.iter().zip(["agent:dpu-1", "app", "core:0"]) {
        assert!(page.contains(&format!("example.digest -> {site}")), "{page}");
    }
    let output = plan(&here("load.toml"), &["--objective", "speed"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("host-cpu, latency or spare=SITE"), "{said}");
}

#[test]
fn constraints_that_clash_are_named() {
    let output = plan(&here("clash.toml"), &["--modelled"]);
    golden::check(&here("clash.txt"), fault(&output));
    assert!(output.stdout.is_empty());
    let json = plan(&here("clash.toml"), &["--modelled", "--json"]);
    let page: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(!json.status.success() && page["plan"].is_null());
    assert!(!page["clash"]["parts"].as_array().unwrap().is_empty());
}

#[test]
fn places_that_are_impossible_say_why() {
    let scratch = tempfile::tempdir().unwrap();
    let sites = r#"["app", "core:9999", "xdp:plimsoll-none:native", "agent:dpu"]"#;
    let more = "[[offcode]]\ncreate = \"example.report\"\n[agents.dpu]\naddress = \"192.0.2.7:7117\"\n";
    let output = plan(&application(scratch.path(), sites, more), &["--explain"]);
    let page = printed(&output);
    for reason in ["this process may not use core 9999", "this host has no interface plimsoll-none"] {
        assert!(page.contains(reason), "{reason}\n{page}");
    }
    // What a site's particulars do not settle, the manifest does.
    let sites = r#"["app", "xdp:lo:generic"]"#;
    let output =
        plan(&application(scratch.path(), sites, "[[offcode]]\ncreate = \"example.filter\"\n"), &["--explain"]);
    let clash = fault(&output);
    assert!(clash.contains("example.filter"), "{clash}");
}

#[test]
fn a_channel_that_no_place_can_have_is_refused_with_its_line() {
    let scratch = tempfile::tempdir().unwrap();
    let sites = r#"["app", "agent:dpu"]"#;
    let more = |policy: &str| {
        format!(
            "[[offcode]]\ncreate = \"example.report\"\nat = \"agent:dpu\"\n[[channel]]\nname = \"frames\"\nfrom = \"application\"\n\
             to = [\"example.report\"]\n{policy}[agents.dpu]\naddress = \"192.0.2.7:7117\"\n"
        )
    };
    let refused = plan(&application(scratch.path(), sites, &more("policy = \"zero-copy\"\n")), &["--modelled"]);
    let said = fault(&refused);
    assert!(
        said.contains("channel 'frames': policy zero-copy needs memory") && said.contains("(APP.toml:8:8)"),
        "{said}"
    );
    for policy in ["", "policy = \"any\"\n", "policy = \"copy\"\n"] {
        let taken = plan(&application(scratch.path(), sites, &more(policy)), &["--modelled"]);
        assert!(printed(&taken).contains("example.report -> agent:dpu"), "{policy}");
    }
}

#[test]
fn crossings_on_this_host_are_measured() {
    let scratch = tempfile::tempdir().unwrap();
    let more = "[[offcode]]\ncreate = \"example.counter\"\n";
    let output = plan(&application(scratch.path(), "\"all\"", more), &["--json"]);
    let page: serde_json::Value = serde_json::from_str(printed(&output)).unwrap();
    let prices = page["prices"].as_array().unwrap();
    let within_app = prices.iter().find(|price| price["between"][0] == "app" && price["between"][1] == "app").unwrap();
    assert!(within_app["ns"]["measured"]["middle"].as_f64().unwrap() > 0.0, "{within_app}");
    assert_eq!(page["plan"]["assignment"].as_array().unwrap().len(), 2);
}

#[test]
fn the_drawing_is_one_that_graphviz_takes() {
    let output = plan(&here("agents.toml"), &["--modelled", "--dot"]);
    let drawing = printed(&output);
    assert!(drawing.contains("example.filter") && drawing.contains("agent:dpu-1"), "{drawing}");
    let Some(dot) = skip::tool("dot") else { return };
    let mut dot = Command::new(dot).arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    dot.stdin.take().unwrap().write_all(drawing.as_bytes()).unwrap();
    let drawn = dot.wait_with_output().unwrap();
    assert!(drawn.status.success() && String::from_utf8_lossy(&drawn.stdout).contains("example.filter"));
}

#[test]
fn what_cannot_be_planned_is_a_fault() {
    let scratch = tempfile::tempdir().unwrap();
    let unknown = application(scratch.path(), "\"all\"", "[[offcode]]\ncreate = \"example.none\"\n");
    assert!(fault(&plan(&unknown, &[])).contains("no such offcode"));
    let mistaken = application(scratch.path(), "\"all\"", "[[offcode]]\nmake = \"example.none\"\n");
    assert!(fault(&plan(&mistaken, &[])).contains("APP.toml:5:1"));
    let channel = "[[offcode]]\ncreate = \"example.counter\"\n[[channel]]\nname = \"c\"\nfrom = \"application\"\nto = [\"example.report\"]\n";
    let channel = application(scratch.path(), "\"all\"", channel);
    assert!(fault(&plan(&channel, &[])).contains("neither created nor required"));
    assert!(fault(&plan(Path::new("nowhere.toml"), &[])).contains("nowhere.toml"));
}
