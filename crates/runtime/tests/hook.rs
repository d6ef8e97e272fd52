//! Two offcodes that belong together at one driver hook, planned and started as applications are, in a lab.

use std::fs;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use offcode::Registry;
use runtime::app_file::AppFile;
use runtime::assembly;
use runtime::objective::Objective;
use runtime::site::core::Protection;

fn odf(name: &str, guid: &str, attributes: &str, peer: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<odf version="1">
  <package guid="6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f1c{guid}" name="{name}" version="1.0.0">
    <description>Sees frames.</description>
    <interface guid="6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f2c{guid}" name="Sees{guid}"/>
    <bpf file="body.o" program="verdict" role="hook"/>
    {attributes}
  </package>
  <hardware>
    <xdp modes="native" memory="1 MiB"/>
  </hardware>
  <software>{peer}</software>
</odf>
"#
    )
}

const PULLED: &str = r#"
    <peer name="first" interface="6d1c2a5e-4f0b-4c1e-9a57-0c7d8e9f2c02" constraint="pull">
      <channel cast="unicast" delivery="reliable" synchronization="poll" content="messages" buffers="4" buffer-size="256 B" policy="any"/>
    </peer>
  "#;

#[test]
fn pull_brings_two_offcodes_to_one_hook_where_they_share_a_channel_and_the_frames() {
    let Some(body) = bpf::VERDICT else { return skip::test(bpf::MISSING.unwrap_or_default()) };
    let lab = match Lab::owned(&Options::default()) {
        Ok(lab) => lab,
        Err(why) => return skip::test(why),
    };
    let place = tempfile::tempdir().unwrap();
    let reporting = r#"<attribute name="REPORT" value="1"/>"#;
    for (name, odf) in [
        ("example.front", odf("example.front", "01", reporting, PULLED)),
        ("example.behind", odf("example.behind", "02", r#"<attribute name="HOOK_PRIORITY" value="60"/>"#, "")),
    ] {
        let package = place.path().join("depot").join(name);
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("odf.xml"), odf).unwrap();
        fs::write(package.join("body.o"), body).unwrap();
    }
    let interface = lab.interface(Host::B);
    let application = format!(
        "name = \"two\"\ndepots = [\"depot\"]\nsites = [\"app\", \"xdp:{interface}:native\"]\n\n\
         [[offcode]]\ncreate = \"example.front\"\n"
    );
    fs::write(place.path().join("app.toml"), application).unwrap();
    let run = || {
        let file = AppFile::open(&place.path().join("app.toml")).unwrap();
        let planned = assembly::plan(&file, Registry::new(), &Objective::HostCpu, &runtime::measured::nothing).unwrap();
        let mut running = assembly::start(planned, Protection::Nothing, Arc::new(|_| {})).unwrap();
        let until = Instant::now() + skip::LIMIT;
        loop {
            let send = || {
                let socket = UdpSocket::bind((lab.address(Host::A), 0)).unwrap();
                drop(socket.send_to(b"x", (lab.address(Host::B), 9)));
            };
            lab.inside(Host::A, send).unwrap();
            let status = running.runtime.status();
            assert_eq!(status.len(), 2);
            let said = |name: &str| {
                let line = status.iter().find(|line| line.offcode == name).unwrap();
                assert_eq!(line.site.to_string(), format!("xdp:{interface}"));
                line.evidence.clone().unwrap()
            };
            let (front, behind) = (said("example.front"), said("example.behind"));
            assert!(front.whereabouts.contains("stage 1 of 2"), "{front:?}");
            assert!(behind.whereabouts.contains("stage 2 of 2"), "{behind:?}");
            let counted = |evidence: &runtime::site::Evidence, name: &str| {
                evidence.counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
            };
            if counted(&behind, "calls and messages") >= 3 && counted(&behind, "runs of the program") >= 3 {
                assert!(counted(&front, "calls and messages") > 0, "what it is answered comes back: {front:?}");
                break;
            }
            assert!(Instant::now() < until, "{front:?} {behind:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    lab.inside(Host::B, run).unwrap();
}
