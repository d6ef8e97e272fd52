//! Application files: what they say, and what is said about mistakes in them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use machine::{Bytes, CoreId, Site, SiteInMode, XdpMode};
use offcode::channel::{Cast, Content, Delivery};
use runtime::app_file::{AppFile, Capacity, Party, Sites};
use runtime::objective::Objective;

const EXAMPLE: &str = r#"name = "packets"
depots = ["depot", "/srv/depot"]
sites = ["app", "core:1", "xdp:veth0:native", "agent:dpu-1"]
duration = "10 s"
count = 1000000

[[offcode]]
create = "example.filter"
at = "core:1"
rate = 50000
attributes = { OFFLOAD_PRIORITY = 300, rule = "port < 1024", strict = true }

[[offcode]]
create = "0b9d6c4e-3f52-4bb1-8a53-7d9c1e0f2a11"

[[channel]]
name = "frames"
from = "application"
to = ["example.filter", "0b9d6c4e-3f52-4bb1-8a53-7d9c1e0f2a11"]
rate = 100000
cast = "multicast"
delivery = "unreliable"
content = "messages"
buffers = 128
buffer-size = "2 KiB"

[agents.dpu-1]
address = "192.0.2.7:7117"
keys = "keys"

[capacities."core:1"]
load = 0.8
memory = "64 MiB"
"#;

fn parse(text: &str) -> machine::Result<AppFile> {
    AppFile::parse(text, Path::new("apps/APP.toml"))
}

#[test]
fn a_file_says_what_to_create_and_where() {
    let app = parse(EXAMPLE).unwrap();
    assert_eq!(app.name, "packets");
    assert_eq!(app.depots, [PathBuf::from("apps/depot"), PathBuf::from("/srv/depot")]);
    let chosen = |site, mode| SiteInMode { site, mode };
    let sites = vec![
        chosen(Site::App, None),
        chosen(Site::Core(CoreId(1)), None),
        chosen(Site::Xdp("veth0".into()), Some(XdpMode::Native)),
        chosen(Site::Agent("dpu-1".into()), None),
    ];
    assert_eq!(app.sites, Sites::Named(sites));
    let attributes: Vec<_> = app.offcodes[0].attributes.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(attributes, [("OFFLOAD_PRIORITY", "300"), ("rule", "port < 1024"), ("strict", "true")]);
    assert_eq!((app.offcodes[0].pin.clone(), app.offcodes[0].rate), (Some(Site::Core(CoreId(1))), 50_000));
    assert_eq!((app.offcodes[1].pin.clone(), app.offcodes[1].rate), (None, 0));
    let channel = &app.channels[0];
    assert_eq!((&channel.from, channel.to.len(), channel.rate), (&Party::Application, 2, 100_000));
    let specification = channel.specification;
    assert_eq!((specification.cast, specification.delivery), (Cast::Multicast, Delivery::Unreliable));
    assert_eq!((specification.content, specification.buffers.count), (Content::Messages, 128));
    assert_eq!(specification.buffers.size, Bytes(2048));
    assert_eq!(app.agents["dpu-1"].keys, Some(PathBuf::from("apps/keys")));
    let capacity = Capacity { load: Some(0.8), memory: Some(Bytes(64 << 20)), offcodes: None };
    assert_eq!(app.capacities[&Site::Core(CoreId(1))], capacity);
    assert_eq!((app.duration, app.count), (Some(Duration::from_secs(10)), Some(1_000_000)));
}

#[test]
fn little_is_needed() {
    let app = parse("name = \"one\"\nsites = \"all\"\n[[offcode]]\ncreate = \"a\"\n").unwrap();
    assert_eq!((app.sites, app.depots.len(), app.channels.len(), app.duration), (Sites::All, 0, 0, None));
    assert_eq!(app.objective, Objective::HostCpu);
    let spared = "name = \"one\"\nobjective = \"spare=core:3\"\nsites = \"all\"\n[[offcode]]\ncreate = \"a\"\n";
    assert_eq!(parse(spared).unwrap().objective, Objective::Spare(Site::Core(CoreId(3))));
}

#[test]
fn instances_of_one_offcode_are_told_apart() {
    let text = EXAMPLE.replace(
        "[[offcode]]\ncreate = \"0b9d",
        "[[offcode]]\ncreate = \"example.filter\"\nas = \"left\"\nversion = \">=1.2, <2\"\npeers = { reporter = \"left-report\" }\n\n\
         [[offcode]]\ncreate = \"example.filter\"\nas = \"left.two\"\n\n[[offcode]]\ncreate = \"0b9d",
    );
    let mut app = parse(&text).unwrap();
    let names: Vec<&str> = app.offcodes.iter().map(|creation| creation.name()).collect();
    assert_eq!(names, ["example.filter", "left", "left.two", "0b9d6c4e-3f52-4bb1-8a53-7d9c1e0f2a11"]);
    let wanted = &app.offcodes;
    assert_eq!((&*wanted[1].offcode, wanted[1].instance.as_deref()), ("example.filter", Some("left")));
    assert_eq!(wanted[1].version, Some(">=1.2, <2".parse().unwrap()));
    assert_eq!(wanted[1].peers, [("reporter".to_owned(), "left-report".to_owned())]);

    for set in ["left.LIMIT=8", "left.two.LIMIT=a=b", "example.filter.OFFLOAD_PRIORITY=5", "left.LIMIT=9"] {
        app.set(set).unwrap();
    }
    let attributes = |app: &AppFile, n: usize| app.offcodes[n].attributes.clone();
    assert_eq!(attributes(&app, 1), [("LIMIT".to_owned(), "9".to_owned())]);
    assert_eq!(attributes(&app, 2), [("LIMIT".to_owned(), "a=b".to_owned())]);
    assert!(attributes(&app, 0).contains(&("OFFLOAD_PRIORITY".to_owned(), "5".to_owned())));
    app.place("left=core:1").unwrap();
    assert_eq!(app.offcodes[1].pin, Some(Site::Core(CoreId(1))));
    for (text, words) in [
        ("left.LIMIT", "INSTANCE.NAME=VALUE"),
        ("right.LIMIT=3", "no instance whose name"),
        ("left.=3", "no instance whose name"),
        ("left.OBSOLETE_TIME=soon", "not a number"),
    ] {
        let said = app.set(text).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    let said = app.place("right=app").unwrap_err().to_string();
    assert!(said.contains("it creates example.filter, left, left.two and 0b9d"), "{said}");
    // Without one that has the package's name.
    app.offcodes.remove(0);
    let said = app.place("example.filter=app").unwrap_err().to_string();
    assert!(said.contains("it fits several instances: left and left.two"), "{said}");
}

#[test]
fn each_mistake_is_explained_with_its_place() {
    let mistakes = [
        ("no TOML", "count = 1000000", "count = "),
        ("a key that is not known", "depots", "depot"),
        ("a key that is not known in an offcode", "rate = 50000", "speed = 50000"),
        ("no name", "name = \"packets\"\n", ""),
        ("a bad name", "\"packets\"", "\"my packets\""),
        ("a number as text", "rate = 50000", "rate = \"50000\""),
        ("a negative rate", "rate = 50000", "rate = -1"),
        ("no sites", "[\"app\", \"core:1\", \"xdp:veth0:native\", \"agent:dpu-1\"]", "[]"),
        ("a word for sites", "[\"app\", \"core:1\", \"xdp:veth0:native\", \"agent:dpu-1\"]", "\"every\""),
        ("a site that is none", "\"core:1\"", "\"gpu:1\""),
        ("a driver hook in no mode", "xdp:veth0:native", "xdp:veth0:fast"),
        ("a site twice", "\"app\", \"core:1\"", "\"core:1\", \"core:1\""),
        ("an agent without its address", "agent:dpu-1", "agent:dpu-2"),
        ("a bad address", "192.0.2.7:7117", "192.0.2.7"),
        ("a pin that may not be used", "at = \"core:1\"", "at = \"core:7\""),
        ("a priority beyond its range", "OFFLOAD_PRIORITY = 300", "OFFLOAD_PRIORITY = 3000"),
        ("an offcode twice", "create = \"0b9d6c4e-3f52-4bb1-8a53-7d9c1e0f2a11\"", "create = \"example.filter\""),
        ("an instance twice", "rate = 50000", "as = \"left\"\n[[offcode]]\ncreate = \"b\"\nas = \"left\""),
        ("an instance without a name", "rate = 50000", "as = \"\""),
        ("an instance that is the application", "rate = 50000", "as = \"application\""),
        ("versions that are none", "rate = 50000", "version = \"new\""),
        ("a peer that is none", "rate = 50000", "peers = { reporter = 3 }"),
        ("two ends of a unicast channel", "\"multicast\"", "\"unicast\""),
        ("a cast that is none", "\"multicast\"", "\"broadcast\""),
        ("a channel to itself", "from = \"application\"", "from = \"example.filter\""),
        ("buffers that are no power of two", "buffers = 128", "buffers = 100"),
        ("a size that is none", "2 KiB", "2 pages"),
        ("a duration that is none", "10 s", "10 ticks"),
        ("a count of nothing", "count = 1000000", "count = 0"),
        ("an objective that is none", "count = 1000000", "objective = \"speed\""),
        ("an objective about another host", "count = 1000000", "objective = \"spare=agent:dpu-1\""),
        ("an agent's site that is no core and no driver hook", "agent:dpu-1", "agent:dpu-1/gpu:0"),
        ("an agent's driver hook in no mode", "agent:dpu-1", "agent:dpu-1/xdp:eth0:fast"),
        ("a load below nothing", "load = 0.8", "load = -0.8"),
        ("the capacity of another site", "capacities.\"core:1\"", "capacities.\"core:2\""),
    ];
    let mut page = String::new();
    for (what, from, to) in mistakes {
        assert!(EXAMPLE.contains(from), "{what}");
        let fault = parse(&EXAMPLE.replacen(from, to, 1)).expect_err(what);
        page += &format!("{what}\n  {fault}\n");
    }
    insta::assert_snapshot!(page);
    assert!(parse("name = \"n\"\nsites = \"all\"\n").unwrap_err().to_string().contains("creates no offcode"));
    assert!(AppFile::open(Path::new("/nowhere/APP.toml")).unwrap_err().to_string().contains("/nowhere/APP.toml"));
}

#[test]
fn long_lists_are_read_in_bounded_steps() {
    let sites: Vec<String> = (0..5000).map(|core| format!("\"core:{core}\"")).collect();
    let text = format!("name = \"n\"\nsites = [{}]\n[[offcode]]\ncreate = \"a\"\n", sites.join(", "));
    let said = parse(&text).unwrap_err().to_string();
    assert!(said.contains("there are 5000 sites, at most 4096"), "{said}");
    let offcodes: String = (0..5000).map(|n| format!("[[offcode]]\ncreate = \"a{n}\"\n")).collect();
    assert_eq!(parse(&format!("name = \"n\"\nsites = \"all\"\n{offcodes}")).unwrap().offcodes.len(), 5000);
}

#[test]
fn damaged_files_do_not_panic() {
    // As deep as TOML may be.
    let key = ["a"; 70].join(".");
    let deep = format!("{key} = {{").repeat(70) + "b = 1" + &"}".repeat(70);
    for text in [format!("{EXAMPLE}\n{deep}"), EXAMPLE.replacen("strict = true", &deep, 1)] {
        assert!(parse(&text).is_err());
    }
    // Every cut, and every character replaced by one that means something.
    for at in 0..EXAMPLE.len() {
        let _ = parse(&EXAMPLE[..at]);
        replaced(at, PIECES[at % PIECES.len()]);
    }
}

#[test]
#[ignore = "make check"]
fn no_piece_in_place_of_any_character_panics() {
    for at in 0..EXAMPLE.len() {
        PIECES.iter().for_each(|piece| replaced(at, piece));
    }
}

const PIECES: [&str; 9] = ["\"", "[", "]", "=", "\n", "é", "{", "'''", "."];

fn replaced(at: usize, piece: &str) {
    let _ = parse(&format!("{}{piece}{}", &EXAMPLE[..at], &EXAMPLE[at + 1..]));
}
