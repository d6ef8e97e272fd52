//! Several instances of one offcode, and its versions.

use super::*;

#[test]
fn two_instances_run_at_two_sites_in_two_versions_and_are_addressed_by_name() {
    let Some(lab) = lab() else { return };
    let core = linux::affinity::allowed().unwrap().last().unwrap().0;
    let file = format!(
        "name = \"pair\"\ndepots = [\"depot\"]\nsites = [\"app\", \"core:{core}\"]\n\n\
         [[offcode]]\ncreate = \"example.checksum\"\nas = \"left\"\nat = \"app\"\n\n\
         [[offcode]]\ncreate = \"example.checksum\"\nas = \"right\"\nversion = \"^1\"\n\n\
         [[channel]]\nname = \"in\"\nfrom = \"application\"\nto = [\"right\"]\ncontent = \"messages\"\n"
    );
    let Some(place) = Place::new(&file) else { return };
    let odf = CHECKSUM.replace("version=\"1.0.0\">", "version=\"1.0.0\" state=\"saved\">");
    let depot = place.path().join("depot");
    fs::write(depot.join("example.checksum/odf.xml"), &odf).unwrap();
    let another = |folder: &Path, version: &str| {
        fs::create_dir_all(folder).unwrap();
        fs::copy(depot.join("example.checksum/checksum.wasm"), folder.join("checksum.wasm")).unwrap();
        fs::write(folder.join("odf.xml"), odf.replace("version=\"1.0.0\"", &format!("version=\"{version}\""))).unwrap();
    };
    another(&depot.join("example.checksum-2.0.0"), "2.0.0");
    another(&place.path().join("newer/example.checksum"), "1.1.0");

    let path = place.file();
    let words = ["run", path.to_str().unwrap(), "--at", &format!("right=core:{core}"), "--set", "left.colour=red"];
    let up = Up::of(plimsoll(&lab, &words));
    let process = up.process();
    let said = |arguments: &[&str]| {
        let ran = output(&lab, &[arguments, &["--process", &process]].concat());
        (ran.status.success(), text(&ran.stdout) + &text(&ran.stderr))
    };
    let offcodes = || {
        let page = text(&output(&lab, &["ps", "--json", "--process", &process]).stdout);
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        let one = |of: &serde_json::Value| {
            let word = |name: &str| of[name].as_str().unwrap().to_owned();
            format!("{} {} {}", word("instance"), word("version"), word("site"))
        };
        page[0]["offcodes"].as_array().unwrap().iter().map(one).collect::<Vec<_>>()
    };
    // Of the versions there are the newest that each allows.
    assert_eq!(offcodes(), ["left 2.0.0 app".to_owned(), format!("right 1.0.0 core:{core}")]);
    let (_, listed) = said(&["ps"]);
    assert!(listed.contains("left (example.checksum)") && listed.contains("right (example.checksum)"), "{listed}");

    // Each is reached by its name, and no other way.
    let interface = "6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1a2b".parse().unwrap();
    let specification = |content| Specification { content, ..Specification::default() };
    let channel = |offcode: &str, name: &str, content| {
        let attached = || attach::application("pair")?.channel(offcode, name, specification(content));
        lab.inside(Host::A, attached).unwrap()
    };
    let mut messages = channel("left", "more", Content::Messages).unwrap();
    let mut calls = ["left", "right"].map(|name| offcode::Caller::new(channel(name, "calls", Content::Calls).unwrap()));
    for _ in 0..100 {
        while messages.write(b"message").unwrap() == Written::Full {
            std::thread::yield_now();
        }
    }
    let mut totals = |at: usize| {
        let decode = |bytes: &[u8]| offcode::encoding::fixed::whole::<(u64, u64, u64)>(bytes);
        let call = offcode::Call::manual(&interface, 0, "Totals.totals", decode);
        let limit = machine::Nanoseconds(skip::LIMIT.as_nanos() as u64);
        calls[at].call(&call, limit, std::thread::yield_now).unwrap().0
    };
    while totals(0) < 100 {
        std::thread::yield_now();
    }
    assert_eq!(totals(1), 0, "what is for the one does not come to the other");
    let several = channel("example.checksum", "x", Content::Messages).err().unwrap().to_string();
    assert!(several.contains("fits several instances: left and right"), "{several}");
    for command in [
        &["stop", "example.checksum"][..],
        &["migrate", "example.checksum", "app"],
        &["set", "example.checksum", "a=b"],
    ] {
        let (well, why) = said(command);
        assert!(!well && why.contains("fits several instances: left and right"), "{why}");
    }

    // Attributes, as they were given and as they are set now.
    let (well, page) = said(&["set", "left", "colour=blue"]);
    assert!(well && page.contains("left: colour is blue; it was red"), "{page}");
    let (well, page) = said(&["set", "right", "colour=green"]);
    assert!(well && page.contains("it was not set before"), "{page}");
    let (well, page) = said(&["set", "right", "OFFLOAD_PRIORITY=high"]);
    assert!(!well && page.contains("offcode right") && page.contains("not a number from 0 to 1000"), "{page}");

    // One that the offcode refuses: it says why, and keeps the value that it had.
    let (well, page) = said(&["set", "left", "every=32"]);
    assert!(well && page.contains("left: every is 32; it was not set before"), "{page}");
    let (well, page) = said(&["set", "left", "every=often"]);
    assert!(!well && page.contains("offcode left") && page.contains("it is no number of messages below"), "{page}");
    let (well, page) = said(&["set", "left", "every=8"]);
    assert!(well && page.contains("it was 32"), "{page}");

    // One moves and is upgraded; the other stays as it is.
    let (well, page) = said(&["migrate", "left", &format!("core:{core}")]);
    assert!(well && page.contains(&format!("left 2.0.0: from app to core:{core}")), "{page}");
    let newer = place.path().join("newer");
    let (well, page) = said(&["upgrade", "right", "--depot", newer.to_str().unwrap()]);
    assert!(well && page.contains("right 1.1.0: at core:"), "{page}");
    let (well, page) = said(&["migrate", "right", "app"]);
    assert!(well, "{page}");
    assert_eq!(offcodes(), [format!("left 2.0.0 core:{core}"), "right 1.1.0 app".to_owned()]);
    assert_eq!((totals(0), totals(1)), (100, 0));
    let (well, page) = said(&["stop", "left"]);
    assert!(well, "{page}");
    assert_eq!(offcodes(), ["right 1.1.0 app"]);
    assert_eq!(totals(1), 0);

    // A plan says which versions it takes, and which not.
    let explained = text(&output(&lab, &["plan", path.to_str().unwrap(), "--explain"]).stdout);
    for words in
        ["left is example.checksum 2.0.0; there is also 1.0.0", "right is example.checksum 1.0.0; there is also 2.0.0"]
    {
        assert!(explained.contains(words), "{explained}");
    }
    // Nothing in the depot will do.
    fs::write(&path, file.replace("\"^1\"", "\">=3, <4\"")).unwrap();
    let ran = output(&lab, &["plan", path.to_str().unwrap()]);
    let why = text(&ran.stderr);
    assert!(!ran.status.success() && why.contains("the application for >=3, <4; there is 2.0.0 and 1.0.0"), "{why}");
}

#[test]
fn a_start_with_a_value_that_is_refused_names_where_it_is_written() {
    let Some(lab) = lab() else { return };
    let file = "name = \"pair\"\ndepots = [\"depot\"]\nsites = [\"app\"]\n\n[[offcode]]\ncreate = \"example.checksum\"\nas = \"left\"\n";
    let set = format!("{file}attributes = {{ colour = \"red\", every = \"often\" }}\n");
    let Some(place) = Place::new(&set) else { return };
    let path = place.file();
    let refused = |more: &[&str], at: &str| {
        let ran = output(&lab, &[&["run", path.to_str().unwrap()], more].concat());
        let why = text(&ran.stderr);
        let place = format!("offcode left at app: setting every ({at})");
        assert!(!ran.status.success() && why.contains(&place), "{why}");
        assert!(why.contains("it is no number of messages below a million") && why.contains("Next: "), "{why}");
    };
    refused(&[], "app.toml:8:40");
    refused(&["--set", "left.every=0"], "--set left.every");
    // Of the manifest; what the application sets takes its place.
    fs::write(&path, file).unwrap();
    let odf = CHECKSUM.replace("app core\"/>", "app core\"/><attribute name=\"every\" value=\"seldom\"/>");
    fs::write(place.path().join("depot/example.checksum/odf.xml"), odf).unwrap();
    refused(&[], "of its manifest");
    fs::write(&path, format!("{file}attributes = {{ every = 5 }}\n")).unwrap();
    let mut up = Up::start(&lab, &path);
    let process = up.process();
    let ran = output(&lab, &["set", "left", "every=6", "--process", &process]);
    assert!(text(&ran.stdout).contains("it was 5"), "{}", text(&ran.stderr));
    assert!(output(&lab, &["stop", "--process", &process]).status.success() && up.ended());
}

#[test]
fn a_version_that_a_peer_does_not_accept_takes_no_running_ones_place() {
    let Some(lab) = lab() else { return };
    let Some(place) = Place::new(&hook_and_core(&lab)) else { return };
    let depot = place.path().join("depot");
    let requires = FRAMES.replace("constraint=\"gang\"", "version=\"&gt;=1, &lt;1.2\" constraint=\"gang\"");
    fs::write(depot.join("example.frames/odf.xml"), requires).unwrap();
    let odf = CHECKSUM.replace("version=\"1.0.0\">", "version=\"1.0.0\" state=\"saved\">");
    fs::write(depot.join("example.checksum/odf.xml"), &odf).unwrap();
    let newer = |version: &str| {
        let folder = place.path().join(version);
        let package = folder.join("example.checksum");
        fs::create_dir_all(&package).unwrap();
        fs::copy(depot.join("example.checksum/checksum.wasm"), package.join("checksum.wasm")).unwrap();
        fs::write(package.join("odf.xml"), odf.replace("version=\"1.0.0\"", &format!("version=\"{version}\"")))
            .unwrap();
        folder.to_str().unwrap().to_owned()
    };
    let up = Up::start(&lab, &place.file());
    let upgrade = |depot: &str| {
        let process = up.process();
        let ran = output(&lab, &["upgrade", "example.checksum", "--depot", depot, "--process", &process]);
        (ran.status.success(), text(&ran.stdout) + &text(&ran.stderr))
    };
    let (well, said) = upgrade(&newer("1.2.0"));
    assert!(!well && said.contains("example.frames requires >=1, <1.2 of it"), "{said}");
    let (well, said) = upgrade(&newer("1.1.0"));
    assert!(well && said.contains("example.checksum 1.1.0: at core:"), "{said}");
}
