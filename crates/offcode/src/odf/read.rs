//! From the tree to the manifest: every mistake that can be found is noted with its place, then reading goes on.

use std::collections::BTreeMap;
use std::ops::Range;

use machine::{Bytes, Nanoseconds, SiteKind};

use super::problem::Mistake;
use super::tree::{Attribute, Element};
use super::vocabulary::*;
use crate::attribute::Attributes;
use crate::channel::{Buffers, Specification};
use crate::guid::Guid;
use crate::manifest::*;
use crate::service::Service;

/// Fills in what is missing so that reading can go on; nothing of it is returned where there are mistakes.
const NO_GUID: Guid = Guid::from_bytes([0; 16]);
/// Longest requirement of a version.
const VERSIONS: usize = 256;
/// More digits are a slip.
const DIGITS: usize = 10;

pub(super) fn manifest(root: &Element, mistakes: &mut Vec<Mistake>) -> Manifest {
    let mut reader = Reader { mistakes };
    if root.name != "odf" {
        let cause = format!("the root element is <{}>", root.name);
        reader.mistake(root.at.clone(), cause, "an ODF's root element is <odf version=\"1\">");
    }
    // These two let an editor find the schema.
    reader.attributes(root, &["version", "xmlns:xsi", "xsi:noNamespaceSchemaLocation"]);
    if let Some(version) = reader.required(root, "version", "1")
        && version.value != "1"
    {
        let cause = format!("version {} of the format is not known", version.value);
        reader.mistake(version.value_at.clone(), cause, "write version=\"1\"");
    }
    reader.children(root, &["package", "hardware", "software"]);
    let package = reader.part(root, "package").map(|element| reader.package(element));
    let hardware = reader.part(root, "hardware").map(|element| reader.hardware(element));
    let software = reader.part(root, "software").map(|element| reader.software(element));
    let manifest = Manifest {
        package: package.unwrap_or_else(|| Package {
            guid: NO_GUID,
            name: String::new(),
            version: String::new(),
            description: String::new(),
            interfaces: Vec::new(),
            bodies: Vec::new(),
            attributes: Vec::new(),
            state: StateKind::default(),
        }),
        hardware: hardware.unwrap_or_default(),
        software: software.unwrap_or_default(),
    };
    reader.parts_agree(root, &manifest);
    manifest
}

struct Reader<'m> {
    mistakes: &'m mut Vec<Mistake>,
}

impl Reader<'_> {
    fn mistake(&mut self, at: Range<usize>, cause: impl Into<String>, next: impl Into<String>) {
        self.mistakes.push(Mistake { at, cause: cause.into(), next: next.into() });
    }

    fn package(&mut self, element: &Element) -> Package {
        self.attributes(element, &["guid", "name", "version", "state"]);
        let guid = self.guid(element, "guid");
        let name = self.matching(element, "name", "example.filter", is_dotted, NAME_RULE);
        let version = self.matching(
            element,
            "version",
            "1.0.0",
            is_version,
            "a version is up to three numbers with dots, then at most one - or + with letters and digits, as 1.0.0-rc1",
        );
        self.children(element, &["description", "interface", "native", "wasm", "bpf", "attribute"]);
        self.at_most_one(element, &["description", "native", "wasm", "bpf"]);
        let description = match of(element, "description").next() {
            Some(description) => {
                self.attributes(description, &[]);
                self.children(description, &[]);
                description.text.clone()
            }
            None => {
                let next = "write <description>what the offcode does</description> first";
                self.mistake(element.at.clone(), "the package has no <description>", next);
                String::new()
            }
        };
        let interfaces: Vec<Interface> = of(element, "interface").map(|interface| self.interface(interface)).collect();
        self.once(of(element, "interface"), "guid", "interface");
        let bodies: Vec<Body> = BODIES
            .iter()
            .flat_map(|(word, kind)| of(element, word).map(|body| (*kind, body)))
            .map(|(kind, body)| self.body(kind, body))
            .collect();
        if bodies.is_empty() {
            let next =
                "add <native sites=\"app core\"/>, <wasm file=\"...\" sites=\"...\"/> or <bpf file=\"...\" .../>";
            self.mistake(element.at.clone(), "the package has no body", next);
        }
        let attributes = of(element, "attribute").map(|attribute| self.attribute(attribute)).collect();
        self.once(of(element, "attribute"), "name", "attribute");
        let state = self.one_of(element, "state", STATES, Some(StateKind::default())).unwrap_or_default();
        Package { guid, name, version, description, interfaces, bodies, attributes, state }
    }

    fn interface(&mut self, element: &Element) -> Interface {
        self.attributes(element, &["guid", "name"]);
        let guid = self.guid(element, "guid");
        let name = self.matching(element, "name", "Filter", is_dotted, NAME_RULE);
        self.children(element, &["method"]);
        let methods = of(element, "method").map(|method| {
            self.attributes(method, &["name"]);
            self.children(method, &[]);
            self.matching(
                method,
                "name",
                "admit",
                is_identifier,
                "a method's name is letters, digits and _, as in Rust",
            )
        });
        let methods: Vec<String> = methods.collect();
        if methods.len() > 1 << 16 {
            self.mistake(element.at.clone(), "the interface has more than 65536 methods", "split it");
        }
        self.once(of(element, "method"), "name", "method");
        Interface { guid, name, methods }
    }

    fn body(&mut self, kind: BodyKind, element: &Element) -> Body {
        self.children(element, if kind == BodyKind::Native { &["file"] } else { &[] });
        let (known, sites): (&[&str], _) = match kind {
            BodyKind::Native => (&["sites"], USER_SITES),
            BodyKind::Wasm => (&["file", "sites"], USER_SITES),
            BodyKind::Bpf => (&["file", "program", "role", "tc"], SITES),
        };
        if kind == BodyKind::Native
            && let Some(file) = element.attributes.iter().find(|attribute| attribute.name == "file")
        {
            let next = "write <native sites=\"...\"><file target=\"...\" name=\"...\" sha256=\"...\"/></native>, or leave \
                        file out where it is linked into the program that hosts it";
            self.mistake(file.at.clone(), "a native body has a file for each kind of machine", next);
            self.attributes(element, &["file", "sites"]);
        } else {
            self.attributes(element, known);
        }
        let file = (kind != BodyKind::Native).then(|| {
            let example = if kind == BodyKind::Wasm { "filter.wasm" } else { "filter.o" };
            self.file(element, "file", example)
        });
        let function = |reader: &mut Self, attribute| {
            reader.matching(element, attribute, "filter", is_identifier, "name the C function in the object")
        };
        let tc = optional(element, "tc").filter(|_| kind == BodyKind::Bpf).map(|_| function(self, "tc"));
        let at_xdp = optional(element, "program").is_some() || optional(element, "role").is_some() || tc.is_none();
        let program = (kind == BodyKind::Bpf && at_xdp).then(|| Program {
            name: function(self, "program"),
            role: self.one_of(element, "role", ROLES, None).unwrap_or(ProgramRole::Hook),
        });
        let sites = match kind {
            BodyKind::Bpf => {
                let at = |is: bool, site| is.then_some(site);
                at(at_xdp, SiteKind::Xdp).into_iter().chain(at(tc.is_some(), SiteKind::Tc)).collect()
            }
            _ => self.some_of(element, "sites", sites),
        };
        let libraries = of(element, "file").map(|library| self.library(library)).collect();
        self.once(of(element, "file"), "target", "file");
        Body { kind, file, libraries, sites, program, tc }
    }

    fn library(&mut self, element: &Element) -> Library {
        self.attributes(element, &["target", "name", "sha256"]);
        self.children(element, &[]);
        let rule = "name the machine as the compiler does: x86_64-unknown-linux-gnu";
        let target = self.matching(element, "target", "x86_64-unknown-linux-gnu", is_triple, rule);
        let file = self.file(element, "name", "libfilter.so");
        let rule = "write the 64 digits that `sha256sum FILE` prints";
        let digest = self.matching(element, "sha256", "...", |text| text.parse::<Digest>().is_ok(), rule);
        Library { target, file, digest: digest.parse().unwrap_or(Digest([0; 32])) }
    }

    /// The name of a file beside the ODF.
    fn file(&mut self, element: &Element, attribute: &'static str, example: &str) -> String {
        let rule = "name a file beside odf.xml: letters, digits, _ . and -, no folder";
        self.matching(element, attribute, example, |name| is_file_name(name) && name != "odf.xml", rule)
    }

    fn attribute(&mut self, element: &Element) -> (String, String) {
        self.attributes(element, &["name", "value"]);
        self.children(element, &[]);
        let rule = "an attribute's name is letters, digits, _ - and dots";
        let name = self.matching(element, "name", "OFFLOAD_PRIORITY", is_dotted, rule);
        let value = self.required(element, "value", "...").map(|value| (value.value.clone(), value.value_at.clone()));
        let (value, value_at) = value.unwrap_or_else(|| (String::new(), element.at.clone()));
        if !name.is_empty()
            && let Err(fault) = Attributes::default().set(&name, &value)
        {
            self.mistake(value_at, format!("{}: {}", fault.subject(), fault.cause()), fault.next());
        }
        (name, value)
    }

    fn hardware(&mut self, element: &Element) -> Vec<Target> {
        self.attributes(element, &[]);
        let names: Vec<&str> = SITES.iter().map(|(word, _)| *word).collect();
        self.children(element, &names);
        self.at_most_one(element, &names);
        let targets: Vec<Target> = SITES
            .iter()
            .flat_map(|(word, site)| of(element, word).map(|target| (*site, target)))
            .map(|(site, target)| {
                self.children(target, &[]);
                let known: &[&str] =
                    if site == SiteKind::Xdp { &["modes", "memory", "work-ns"] } else { &["memory", "work-ns"] };
                self.attributes(target, known);
                let modes = match optional(target, "modes") {
                    Some(_) if site == SiteKind::Xdp => self.some_of(target, "modes", MODES),
                    _ => Vec::new(),
                };
                let memory = self
                    .required(target, "memory", "64 KiB")
                    .map(|memory| (memory.value.clone(), memory.value_at.clone()));
                let memory = memory.map_or(Bytes(0), |(text, at)| self.size(&text, at, 0));
                let work = optional(target, "work-ns").map(|work| Nanoseconds(self.number(work)));
                Target { site, modes, memory, work }
            })
            .collect();
        if targets.is_empty() {
            let next =
                "write one at least of <app>, <core>, <xdp>, <tc> and <agent>, such as <core memory=\"64 KiB\"/>";
            self.mistake(element.at.clone(), "the hardware part is empty: no kind of site would do", next);
        }
        targets
    }

    fn software(&mut self, element: &Element) -> Software {
        self.attributes(element, &[]);
        self.children(element, &["environment", "peer"]);
        let environment = of(element, "environment").map(|required| {
            self.attributes(required, &["interface", "version"]);
            self.children(required, &[]);
            let version = optional(required, "version").map_or(1, |version| self.service_version(version));
            Service { interface: self.guid(required, "interface"), version }
        });
        let environment = environment.collect();
        self.once(of(element, "environment"), "interface", "environment");
        let peers = of(element, "peer").map(|peer| self.peer(peer)).collect();
        self.once(of(element, "peer"), "name", "peer");
        Software { environment, peers }
    }

    fn peer(&mut self, element: &Element) -> Requirement {
        self.attributes(element, &["name", "interface", "offcode", "version", "constraint", "rate"]);
        self.children(element, &["channel"]);
        self.at_most_one(element, &["channel"]);
        Requirement {
            name: self.matching(element, "name", "counter", is_dotted, NAME_RULE),
            interface: self.guid(element, "interface"),
            offcode: optional(element, "offcode").map(|_| self.guid(element, "offcode")),
            version: optional(element, "version").and_then(|version| self.versions(version)),
            constraint: self.one_of(element, "constraint", CONSTRAINTS, None).unwrap_or(Constraint::Link),
            channel: of(element, "channel").next().map(|channel| self.channel(channel)),
            rate: optional(element, "rate").map_or(0, |rate| self.number(rate)),
        }
    }

    /// `>=1.2, <2`
    fn versions(&mut self, attribute: &Attribute) -> Option<VersionReq> {
        let read = match attribute.value.len() {
            0..=VERSIONS => attribute.value.parse().map_err(|error: semver::Error| error.to_string()),
            length => Err(format!("it has {length} characters, of which {VERSIONS} are taken")),
        };
        let mistaken = |why: String| {
            let cause = format!("'{}' says no versions: {why}", shortened(&attribute.value));
            self.mistake(attribute.value_at.clone(), cause, "write them like \">=1.2, <2\" or \"^1.4\"");
        };
        read.map_err(mistaken).ok()
    }

    fn channel(&mut self, element: &Element) -> Specification {
        self.attributes(
            element,
            &["cast", "delivery", "synchronization", "content", "buffers", "buffer-size", "policy"],
        );
        self.children(element, &[]);
        let usual = Specification::default();
        let count = optional(element, "buffers").map(|count| {
            let number = self.number(count);
            if !(number.is_power_of_two() && (4..=65_536).contains(&number)) && number_is_plain(&count.value) {
                let cause = format!("{number} is no number of buffers");
                self.mistake(count.value_at.clone(), cause, "write a power of two from 4 to 65536");
            }
            u32::try_from(number).unwrap_or(u32::MAX)
        });
        let size = optional(element, "buffer-size").map(|size| self.size(&size.value, size.value_at.clone(), 1));
        Specification {
            cast: self.one_of(element, "cast", CASTS, Some(usual.cast)).unwrap_or(usual.cast),
            delivery: self.one_of(element, "delivery", DELIVERIES, Some(usual.delivery)).unwrap_or(usual.delivery),
            synchronization: self
                .one_of(element, "synchronization", SYNCHRONIZATIONS, Some(usual.synchronization))
                .unwrap_or(usual.synchronization),
            content: self.one_of(element, "content", CONTENTS, Some(usual.content)).unwrap_or(usual.content),
            buffers: Buffers {
                count: count.unwrap_or(usual.buffers.count),
                size: size.unwrap_or(usual.buffers.size),
                policy: self
                    .one_of(element, "policy", POLICIES, Some(usual.buffers.policy))
                    .unwrap_or(usual.buffers.policy),
            },
        }
    }

    /// What one part says about another. The schema cannot.
    fn parts_agree(&mut self, root: &Element, manifest: &Manifest) {
        let hardware = of(root, "hardware").next();
        let bodies = &manifest.package.bodies;
        // Once for each kind of site: a file may have as many targets, and as many bodies, as it has room for.
        let without = |(_, site): &&(&str, SiteKind)| !bodies.iter().any(|body| body.sites.contains(site));
        for (word, site) in SITES.iter().filter(without).filter(|_| !bodies.is_empty()) {
            for target in hardware.into_iter().flat_map(|hardware| of(hardware, word)) {
                let cause = format!("no body of the package is for <{word}>");
                let next = match site {
                    SiteKind::Xdp => "add a <bpf> body with a program, or leave this target out".to_owned(),
                    SiteKind::Tc => "add a <bpf> body with tc=\"FUNCTION\", or leave this target out".to_owned(),
                    _ => format!("add {word} to a body's sites, or leave this target out"),
                };
                self.mistake(target.at.clone(), cause, next);
            }
        }
        let software = of(root, "software").next();
        for peer in software.into_iter().flat_map(|software| of(software, "peer")) {
            let own = optional(peer, "offcode")
                .filter(|guid| guid.value.parse().is_ok_and(|guid: Guid| guid == manifest.package.guid));
            if let Some(own) = own {
                self.mistake(
                    own.value_at.clone(),
                    "the offcode names itself as its peer",
                    "name another offcode, or leave it out",
                );
            }
        }
    }

    // What every element needs.

    /// The one child of a name; a mistake where there is none, or more.
    fn part<'e>(&mut self, element: &'e Element, name: &'e str) -> Option<&'e Element> {
        self.at_most_one(element, &[name]);
        let part = of(element, name).next();
        if part.is_none() && !element.children.iter().any(|child| is_slip(&child.name, name)) {
            let next = format!("write <{name}> ... </{name}>; it may be empty only if it is <software>");
            self.mistake(element.at.clone(), format!("<{}> has no <{name}>", element.name), next);
        }
        part
    }

    fn at_most_one(&mut self, element: &Element, names: &[&str]) {
        for name in names {
            for again in of(element, name).skip(1) {
                self.mistake(
                    again.at.clone(),
                    format!("<{}> has <{name}> twice", element.name),
                    "leave one of them out",
                );
            }
        }
    }

    /// Unknown children, those out of order, and text where none may be.
    fn children(&mut self, element: &Element, order: &[&str]) {
        let mut latest = 0;
        for child in &element.children {
            match order.iter().position(|name| *name == child.name) {
                None => {
                    let cause = format!("<{}> has no element <{}>", element.name, child.name);
                    self.mistake(child.at.clone(), cause, choice("elements", &child.name, order));
                }
                // Targets and bodies too: one spelling for one manifest.
                Some(place) if place < latest => {
                    let cause = format!("<{}> comes after <{}>", child.name, order[latest]);
                    self.mistake(child.at.clone(), cause, format!("put them in the order {}", order.join(", ")));
                }
                Some(place) => latest = place,
            }
        }
        if let Some(text) = &element.text_at
            && element.name != "description"
        {
            let cause = format!("text stands in <{}>", element.name);
            self.mistake(text.clone(), cause, "leave it out, or make it a <!-- comment -->");
        }
    }

    fn attributes(&mut self, element: &Element, known: &[&str]) {
        for attribute in &element.attributes {
            if !known.contains(&attribute.name.as_str()) {
                let cause = format!("<{}> has no attribute '{}'", element.name, attribute.name);
                self.mistake(attribute.at.clone(), cause, choice("attributes", &attribute.name, known));
            }
        }
    }

    fn required<'e>(&mut self, element: &'e Element, name: &str, example: &str) -> Option<&'e Attribute> {
        let found = optional(element, name);
        // A slip is noted where it stands.
        if found.is_none() && !element.attributes.iter().any(|attribute| is_slip(&attribute.name, name)) {
            let cause = format!("<{}> has no attribute '{name}'", element.name);
            self.mistake(element.at.clone(), cause, format!("add {name}=\"{example}\""));
        }
        found
    }

    fn matching(
        &mut self,
        element: &Element,
        name: &str,
        example: &str,
        rule: impl Fn(&str) -> bool,
        next: &str,
    ) -> String {
        let Some(attribute) = self.required(element, name, example) else { return String::new() };
        if !rule(&attribute.value) {
            let cause = format!("'{}' will not do as {name} of <{}>", shortened(&attribute.value), element.name);
            self.mistake(attribute.value_at.clone(), cause, next);
        }
        attribute.value.clone()
    }

    fn guid(&mut self, element: &Element, name: &str) -> Guid {
        let Some(attribute) = self.required(element, name, "8-4-4-4-12 hexadecimal digits") else { return NO_GUID };
        attribute.value.parse().unwrap_or_else(|_| {
            let cause = format!("'{}' is no GUID", shortened(&attribute.value));
            let next = "write 8-4-4-4-12 hexadecimal digits, such as `uuidgen` prints";
            self.mistake(attribute.value_at.clone(), cause, next);
            NO_GUID
        })
    }

    /// One word; the usual one where the attribute is missing and there is one.
    fn one_of<T: Copy>(&mut self, element: &Element, name: &str, words: &Words<T>, usual: Option<T>) -> Option<T> {
        let attribute = match usual {
            Some(_) => optional(element, name),
            None => self.required(element, name, words[0].0),
        };
        let Some(attribute) = attribute else { return usual };
        let found = words.iter().find(|(word, _)| *word == attribute.value).map(|(_, value)| *value);
        if found.is_none() {
            let cause = format!("'{}' is no {name}", shortened(&attribute.value));
            let next = format!("write {}", listed(words.iter().map(|(word, _)| word)));
            self.mistake(attribute.value_at.clone(), cause, next);
        }
        found
    }

    /// One word at least, with blanks between them, none twice.
    fn some_of<T: Copy + PartialEq>(&mut self, element: &Element, name: &str, words: &Words<T>) -> Vec<T> {
        let Some(attribute) = self.required(element, name, words[0].0) else { return Vec::new() };
        let mut found = Vec::new();
        let allowed =
            || format!("write one or more of {}, with blanks between", listed(words.iter().map(|(word, _)| word)));
        for text in attribute.value.split(' ').filter(|text| !text.is_empty()) {
            match words.iter().find(|(word, _)| *word == text) {
                None => {
                    let cause = format!("'{}' will not do in {name} of <{}>", shortened(text), element.name);
                    self.mistake(attribute.value_at.clone(), cause, allowed());
                }
                Some((_, value)) if found.contains(value) => {
                    let cause = format!("'{text}' stands twice in {name}");
                    self.mistake(attribute.value_at.clone(), cause, "leave one of them out");
                }
                Some((_, value)) => found.push(*value),
            }
        }
        if attribute.value.split(' ').all(str::is_empty) {
            self.mistake(attribute.value_at.clone(), format!("{name} of <{}> is empty", element.name), allowed());
        }
        found
    }

    fn number(&mut self, attribute: &Attribute) -> u64 {
        if !number_is_plain(&attribute.value) {
            let cause = format!("'{}' is no {}", shortened(&attribute.value), attribute.name);
            self.mistake(attribute.value_at.clone(), cause, format!("write a whole number of at most {DIGITS} digits"));
        }
        attribute.value.parse().unwrap_or(0)
    }

    fn service_version(&mut self, attribute: &Attribute) -> u32 {
        let text = &attribute.value;
        let plain = number_is_plain(text) && text.len() <= 4 && !text.starts_with('0');
        text.parse().ok().filter(|_| plain).unwrap_or_else(|| {
            let cause = format!("'{}' is no version of a service", shortened(text));
            self.mistake(attribute.value_at.clone(), cause, "write a whole number from 1 to 9999");
            1
        })
    }

    /// `4096`, `4096 B`, `64 KiB`, `1 MiB`, `2GiB`.
    fn size(&mut self, text: &str, at: Range<usize>, least: u64) -> Bytes {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let unit = &text[digits..];
        let unit = unit.strip_prefix(' ').filter(|unit| !unit.is_empty()).unwrap_or(unit);
        let well = number_is_plain(&text[..digits]) && matches!(unit, "" | "B" | "KiB" | "MiB" | "GiB");
        match text.parse() {
            Ok(Bytes(size)) if well && size >= least => Bytes(size),
            _ => {
                let cause = format!("'{}' is no size", shortened(text));
                let next = format!("write bytes, from {least}, like 4096, 64 KiB, 1 MiB or 2 GiB");
                self.mistake(at, cause, next);
                Bytes(least)
            }
        }
    }

    /// Elements of one kind that share what must tell them apart.
    fn once<'e>(&mut self, elements: impl Iterator<Item = &'e Element>, key: &str, what: &str) {
        let mut seen: BTreeMap<String, ()> = BTreeMap::new();
        for element in elements {
            let Some(attribute) = optional(element, key) else { continue };
            // GUIDs compare without regard to case.
            let value =
                attribute.value.parse::<Guid>().map_or_else(|_| attribute.value.clone(), |guid| guid.to_string());
            if seen.insert(value, ()).is_some() {
                let cause = format!("{what} {key} '{}' stands here a second time", shortened(&attribute.value));
                self.mistake(attribute.value_at.clone(), cause, format!("give each {what} a {key} of its own"));
            }
        }
    }
}

const NAME_RULE: &str =
    "a name is letters, digits, _ and -, in parts joined by dots that begin with a letter, as example.filter";

fn of<'e>(element: &'e Element, name: &'e str) -> impl Iterator<Item = &'e Element> {
    element.children.iter().filter(move |child| child.name == name)
}

fn optional<'e>(element: &'e Element, name: &str) -> Option<&'e Attribute> {
    element.attributes.iter().find(|attribute| attribute.name == name)
}

fn number_is_plain(text: &str) -> bool {
    (1..=DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 60 { text.to_owned() } else { text.chars().take(57).chain("...".chars()).collect() }
}

/// What to write for a word that is not known: the nearest, else all.
fn choice(what: &str, word: &str, known: &[&str]) -> String {
    let near = known.iter().map(|known| (distance(word, known), known)).min();
    match near {
        None => "leave it out".to_owned(),
        Some((_, known)) if is_slip(word, known) => format!("write '{known}'"),
        Some(_) => format!("leave it out; the {what} here are {}", known.join(", ")),
    }
}

/// Whether one word was probably meant to be the other.
fn is_slip(word: &str, known: &str) -> bool {
    word != known && distance(word, known) <= (known.len() / 3).min(2)
}

/// Edits from one word to the other; long words are far from everything.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().take(40).collect(), to.chars().collect());
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let changed = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}
