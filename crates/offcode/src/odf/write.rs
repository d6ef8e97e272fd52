//! From the manifest to XML: every attribute spelled out, always in the same order.

use std::fmt::Write;

use super::vocabulary::*;
use crate::channel::Specification;
use crate::manifest::{Body, BodyKind, Library, Manifest, Package, Requirement, Software, StateKind, Target};

pub(super) fn document(manifest: &Manifest) -> String {
    let mut page = Page { text: String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"), depth: 0 };
    page.open("odf", &[("version", "1".into())]);
    page.package(&manifest.package);
    page.hardware(&manifest.hardware);
    page.software(&manifest.software);
    page.close("odf");
    page.text
}

type Attributes = [(&'static str, String)];

struct Page {
    text: String,
    depth: usize,
}

impl Page {
    fn package(&mut self, package: &Package) {
        let Package { guid, name, version, description, interfaces, bodies, attributes, state } = package;
        let mut identity = vec![("guid", guid.to_string()), ("name", name.clone()), ("version", version.clone())];
        if *state != StateKind::default() {
            identity.push(("state", word(STATES, *state).into()));
        }
        self.open("package", &identity);
        self.begin("description", &[]);
        self.text.push('>');
        escape(&mut self.text, description, false);
        self.text += "</description>\n";
        for interface in interfaces {
            let identity = [("guid", interface.guid.to_string()), ("name", interface.name.clone())];
            if interface.methods.is_empty() {
                self.empty("interface", &identity);
                continue;
            }
            self.open("interface", &identity);
            for method in &interface.methods {
                self.empty("method", &[("name", method.clone())]);
            }
            self.close("interface");
        }
        for body in bodies {
            self.body(body);
        }
        for (name, value) in attributes {
            self.empty("attribute", &[("name", name.clone()), ("value", value.clone())]);
        }
        self.close("package");
    }

    fn body(&mut self, body: &Body) {
        let mut attributes = Vec::new();
        attributes.extend(body.file.clone().map(|file| ("file", file)));
        if let Some(program) = &body.program {
            attributes.push(("program", program.name.clone()));
            attributes.push(("role", word(ROLES, program.role).into()));
        }
        attributes.extend(body.tc.clone().map(|tc| ("tc", tc)));
        if body.kind != BodyKind::Bpf {
            let sites: Vec<&str> = body.sites.iter().map(|site| word(SITES, *site)).collect();
            attributes.push(("sites", sites.join(" ")));
        }
        let name = word(BODIES, body.kind);
        if body.libraries.is_empty() {
            return self.empty(name, &attributes);
        }
        self.open(name, &attributes);
        for Library { target, file, digest } in &body.libraries {
            let library = [("target", target.clone()), ("name", file.clone()), ("sha256", digest.to_string())];
            self.empty("file", &library);
        }
        self.close(name);
    }

    fn hardware(&mut self, targets: &[Target]) {
        self.open("hardware", &[]);
        for target in targets {
            let mut attributes = Vec::new();
            if !target.modes.is_empty() {
                let modes: Vec<&str> = target.modes.iter().map(|mode| word(MODES, *mode)).collect();
                attributes.push(("modes", modes.join(" ")));
            }
            attributes.push(("memory", target.memory.to_string()));
            attributes.extend(target.work.map(|work| ("work-ns", work.0.to_string())));
            self.empty(word(SITES, target.site), &attributes);
        }
        self.close("hardware");
    }

    fn software(&mut self, software: &Software) {
        if software.environment.is_empty() && software.peers.is_empty() {
            return self.empty("software", &[]);
        }
        self.open("software", &[]);
        for service in &software.environment {
            let mut attributes = vec![("interface", service.interface.to_string())];
            attributes.extend((service.version > 1).then(|| ("version", service.version.to_string())));
            self.empty("environment", &attributes);
        }
        for peer in &software.peers {
            self.peer(peer);
        }
        self.close("software");
    }

    fn peer(&mut self, peer: &Requirement) {
        let mut attributes = vec![("name", peer.name.clone()), ("interface", peer.interface.to_string())];
        attributes.extend(peer.offcode.map(|guid| ("offcode", guid.to_string())));
        attributes.extend(peer.version.as_ref().map(|version| ("version", version.to_string())));
        attributes.push(("constraint", word(CONSTRAINTS, peer.constraint).into()));
        if peer.rate > 0 {
            attributes.push(("rate", peer.rate.to_string()));
        }
        let Some(Specification { cast, delivery, synchronization, content, buffers }) = peer.channel else {
            return self.empty("peer", &attributes);
        };
        self.open("peer", &attributes);
        let channel = [
            ("cast", word(CASTS, cast).into()),
            ("delivery", word(DELIVERIES, delivery).into()),
            ("synchronization", word(SYNCHRONIZATIONS, synchronization).into()),
            ("content", word(CONTENTS, content).into()),
            ("buffers", buffers.count.to_string()),
            ("buffer-size", buffers.size.to_string()),
            ("policy", word(POLICIES, buffers.policy).into()),
        ];
        self.empty("channel", &channel);
        self.close("peer");
    }

    fn begin(&mut self, name: &str, attributes: &Attributes) {
        let indent = 2 * self.depth;
        let _ = write!(self.text, "{:indent$}<{name}", "");
        for (name, value) in attributes {
            let _ = write!(self.text, " {name}=\"");
            escape(&mut self.text, value, true);
            self.text.push('"');
        }
    }

    fn open(&mut self, name: &str, attributes: &Attributes) {
        self.begin(name, attributes);
        self.text += ">\n";
        self.depth += 1;
    }

    fn empty(&mut self, name: &str, attributes: &Attributes) {
        self.begin(name, attributes);
        self.text += "/>\n";
    }

    fn close(&mut self, name: &str) {
        self.depth -= 1;
        let indent = 2 * self.depth;
        let _ = writeln!(self.text, "{:indent$}</{name}>", "");
    }
}

/// A reader turns line ends and, in values, all white space into others unless they are written as numbers.
fn escape(into: &mut String, text: &str, value: bool) {
    for character in text.chars() {
        match character {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' if value => into.push_str("&quot;"),
            '\r' => into.push_str("&#13;"),
            '\n' if value => into.push_str("&#10;"),
            '\t' if value => into.push_str("&#9;"),
            other => into.push(other),
        }
    }
}
