//! The generator's two offcodes: their packages, with the bodies that this program carries.

use std::sync::Arc;

use machine::{Bytes, Result, SiteKind, XdpMode};
use offcode::manifest::{self, Body, BodyKind, Package, Program, ProgramRole, Software, Target};
use offcode::registry::Constructor;
use offcode::{Guid, Interface, Manifest, Refusal, interface};
use runtime::catalogue::Linked;
use runtime::code::Code;

use crate::receiver::word;

/// The sender's, whichever body it has. What is to be sent is in its control block.
#[interface(guid = "3b2f7c16-5d0a-4f0e-8a41-7a3d5be70013", encoding = "fixed")]
pub trait Sender {
    /// Begins what the block asks for. Frames sent until now.
    fn begin(&mut self) -> Result<u64, Refusal>;
    /// Ends it. Frames sent until now.
    fn end(&mut self) -> u64;
}

/// Words that one call of the receiver returns.
pub const PART: usize = 64;

/// The receiver's.
#[interface(guid = "3b2f7c16-5d0a-4f0e-8a41-7a3d5be70014", encoding = "fixed")]
pub trait Counting {
    /// Part number `part` of what one of its queues has counted: see [`word`].
    fn counted(&mut self, queue: u32, part: u32) -> [u64; PART];
}

pub static INTERFACES: [Guid; 1] = [<dyn Sender as Interface>::GUID];

pub const SENDER: &str = "plimsoll.traffic.sender";
pub const RECEIVER: &str = "plimsoll.traffic.receiver";

fn package(name: &str, description: &str, interfaces: Vec<manifest::Interface>, bodies: Vec<Body>) -> Package {
    Package {
        guid: Guid::named(name),
        name: name.into(),
        version: "1.0.0".into(),
        description: description.into(),
        interfaces,
        bodies,
        attributes: Vec::new(),
        state: Default::default(),
    }
}

fn target(site: SiteKind, words: usize) -> Target {
    let modes = match site {
        SiteKind::Xdp => vec![XdpMode::Native, XdpMode::Generic, XdpMode::Hardware],
        _ => Vec::new(),
    };
    Target { site, modes, memory: Bytes(8 * words as u64), work: None }
}

fn program(file: &str, name: &str, role: ProgramRole) -> Body {
    let program = Some(Program { name: name.into(), role });
    Body {
        kind: BodyKind::Bpf,
        file: Some(file.into()),
        libraries: Vec::new(),
        sites: vec![SiteKind::Xdp],
        program,
        tc: None,
    }
}

fn code(what: &str, object: Option<&'static [u8]>) -> Result<Code> {
    linux::xdp::built(what, object).map(|bytes| Code::Bpf(bytes.into()))
}

/// The sender; `native` makes its body for `app` or a core.
pub fn sender(native: Option<(SiteKind, Constructor)>) -> Result<Linked> {
    let sites = vec![SiteKind::App, SiteKind::Core];
    let bodies = vec![
        Body { kind: BodyKind::Native, file: None, libraries: Vec::new(), sites, program: None, tc: None },
        program("traffic_send.o", "send", ProgramRole::Producer),
    ];
    let entry = <dyn Sender as Interface>::entry();
    let words = crate::control::word::WORDS;
    let manifest = Manifest {
        package: package(SENDER, "Sends frames as a profile says", vec![entry], bodies),
        hardware: [SiteKind::App, SiteKind::Core, SiteKind::Xdp].map(|site| target(site, words)).into(),
        software: Software::default(),
    };
    let bodies = match native {
        Some((site, constructor)) => vec![(site, Code::Native(constructor))],
        None => vec![(SiteKind::Xdp, code("traffic at the driver hook", bpf::TRAFFIC_SEND)?)],
    };
    Ok(Linked { manifest: Arc::new(manifest), bodies })
}

/// The receiver, which has a body for driver hooks only.
pub fn receiver() -> Result<Linked> {
    let bodies = vec![program("traffic_receive.o", "receive", ProgramRole::Hook)];
    let entry = <dyn Counting as Interface>::entry();
    let words = word::QUEUES * word::WORDS;
    let manifest = Manifest {
        package: package(RECEIVER, "Counts and times the frames of a stream", vec![entry], bodies),
        hardware: vec![target(SiteKind::Xdp, words)],
        software: Software::default(),
    };
    let code = code("traffic receiver at the driver hook", bpf::TRAFFIC_RECEIVE)?;
    Ok(Linked { manifest: Arc::new(manifest), bodies: vec![(SiteKind::Xdp, code)] })
}
