//! The generator's two offcodes, as their manifests describe them.

use machine::{Bytes, SiteKind, XdpMode};
use offcode::manifest::{Body, BodyKind, Package, Program, ProgramRole, Software, Target};
use offcode::{Guid, Manifest};

fn package(guid: Guid, name: &str, description: &str, bodies: Vec<Body>) -> Package {
    Package {
        guid,
        name: name.into(),
        version: "1.0.0".into(),
        description: description.into(),
        interfaces: Vec::new(),
        bodies,
        attributes: Vec::new(),
    }
}

fn target(site: SiteKind) -> Target {
    let modes = if site == SiteKind::Xdp { vec![XdpMode::Native] } else { Vec::new() };
    // The control block: words of profile, template and schedule.
    Target { site, modes, memory: Bytes(8 * crate::control::word::WORDS as u64), work: None }
}

fn program(name: &str, role: ProgramRole) -> Option<Program> {
    Some(Program { name: name.into(), role })
}

/// Sends one profile: sockets at `app`, AF_XDP at `core:N`, live frames at `xdp:IFACE`.
pub fn sender() -> Manifest {
    let bodies = vec![
        Body { kind: BodyKind::Native, file: None, sites: vec![SiteKind::App, SiteKind::Core], program: None },
        Body {
            kind: BodyKind::Bpf,
            file: Some("traffic_send.o".into()),
            sites: vec![SiteKind::Xdp],
            program: program("send", ProgramRole::Producer),
        },
    ];
    let guid = Guid::named("plimsoll.traffic.sender");
    Manifest {
        package: package(guid, "plimsoll.traffic.sender", "Sends frames as a profile says", bodies),
        hardware: [SiteKind::App, SiteKind::Core, SiteKind::Xdp].map(target).into(),
        software: Software::default(),
    }
}
