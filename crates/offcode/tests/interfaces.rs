//! What the attributes write: proxies and dispatch agree on every type, hostile bytes are refused, manifests say what was written.

use crate::queue;
use std::collections::BTreeMap;

use machine::{Nanoseconds, SiteKind};
use offcode::call::{Header, Kind};
use offcode::channel::{Buffers, Cast, Content, Delivery, Policy, Specification, Synchronization};
use offcode::manifest::{BodyKind, Constraint, ProgramRole};
use offcode::{
    Activity, Call, Channel, ChannelId, Context, Described, Guid, Incoming, Interface, Lifecycle, Offcode, Refusal,
    Registry, Service, Written, interface, offcode, service,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Rule {
    All,
    Longer { than: u32 },
    From(Vec<String>),
}

#[interface(guid = "0b5a6f8e-1111-4c39-8d3e-0c1a2b3c4d01")]
trait Everything {
    fn numbers(&mut self, a: u8, b: i16, c: u32, d: i64, e: u128, f: f64) -> (u8, i16, u32, i64, u128, f64);
    fn texts(&self, a: &str, b: String, c: char, d: Option<&str>) -> (String, String, char, Option<String>);
    fn octets(&mut self, a: &[u8], b: [u8; 5], c: Vec<u8>) -> (Vec<u8>, [u8; 5], Vec<u8>);
    fn structures(&mut self, rule: Rule, more: &[Rule], one: &Rule) -> (Rule, Vec<Rule>, Rule);
    fn maps(&mut self, map: &BTreeMap<String, u64>) -> BTreeMap<String, u64>;
    fn nothing(&mut self);
    #[acknowledged]
    fn acknowledged(&mut self, _unused: bool);
    fn refuses(&mut self, context: &mut dyn Context, sink: bool, context_name: &str) -> Result<u64, Refusal>;
    fn r#type(&self) -> u8 {
        7
    }
}

#[interface(guid = "0b5a6f8e-2222-4c39-8d3e-0c1a2b3c4d02", encoding = "fixed")]
pub trait Layout {
    fn frame(
        &mut self,
        port: u16,
        seen: u64,
        native: bool,
        address: [u8; 6],
        payload: &[u8],
    ) -> (u16, u64, bool, [u8; 6], u32);
    fn signed(&mut self, a: i8, b: i128, c: [[u16; 2]; 3], d: f32) -> [[u16; 2]; 3];
    fn note(&mut self, bytes: &[u8]);
}

/// Serves two interfaces.
///
/// And says so.
#[offcode(
    guid = "0b5a6f8e-3333-4c39-8d3e-0c1a2b3c4d03",
    name = "test.both",
    version = "1.2.3",
    implements(Everything, Layout),
    requires(
        pull(twin: Layout),
        gang(sink: Everything, rate = 5_000, offcode = "0b5a6f8e-4444-4c39-8d3e-0c1a2b3c4d04",
             channel(multicast, unreliable, blocking, messages, copy, count = 16, size = 2048)),
        link(other: Everything, channel()),
    ),
    environment(timers, memory = 2, Layout, "0b5a6f8e-5555-4c39-8d3e-0c1a2b3c4d05"),
    sites(app, core(work = 120), agent(memory = 1_000_000), xdp(modes(native, hardware))),
    bodies(native(app, core), wasm("both.wasm", agent, app), bpf("both.bpf.o", producer = "send", xdp)),
    attributes(OFFLOAD_PRIORITY = 250, greeting = "hello", eager = true),
)]
#[derive(Default)]
struct Both {
    steps: Vec<&'static str>,
    noted: Vec<u8>,
}

impl Everything for Both {
    fn numbers(&mut self, a: u8, b: i16, c: u32, d: i64, e: u128, f: f64) -> (u8, i16, u32, i64, u128, f64) {
        (a, b, c, d, e, f)
    }
    fn texts(&self, a: &str, b: String, c: char, d: Option<&str>) -> (String, String, char, Option<String>) {
        (a.into(), b, c, d.map(String::from))
    }
    fn octets(&mut self, a: &[u8], b: [u8; 5], c: Vec<u8>) -> (Vec<u8>, [u8; 5], Vec<u8>) {
        (a.into(), b, c)
    }
    fn structures(&mut self, rule: Rule, more: &[Rule], one: &Rule) -> (Rule, Vec<Rule>, Rule) {
        (rule, more.into(), one.clone())
    }
    fn maps(&mut self, map: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        map.clone()
    }
    fn nothing(&mut self) {
        self.steps.push("nothing");
    }
    fn acknowledged(&mut self, _unused: bool) {
        self.steps.push("acknowledged");
    }
    fn refuses(&mut self, context: &mut dyn Context, sink: bool, context_name: &str) -> Result<u64, Refusal> {
        if sink { Err(Refusal(format!("not {context_name}"))) } else { Ok(context.now().0) }
    }
}

impl Layout for Both {
    fn frame(
        &mut self,
        port: u16,
        seen: u64,
        native: bool,
        address: [u8; 6],
        payload: &[u8],
    ) -> (u16, u64, bool, [u8; 6], u32) {
        (port, seen, native, address, payload.iter().map(|&b| u32::from(b)).sum())
    }
    fn signed(&mut self, a: i8, b: i128, c: [[u16; 2]; 3], d: f32) -> [[u16; 2]; 3] {
        assert!((a, b, d) == (-1, -2, -3.5));
        c
    }
    fn note(&mut self, bytes: &[u8]) {
        self.noted = bytes.into();
    }
}

impl Lifecycle for Both {
    fn initialize(&mut self, _: &mut dyn Context) -> machine::Result<()> {
        self.steps.push("initialize");
        Ok(())
    }
    fn turn(&mut self, _: &mut dyn Context) -> Activity {
        Activity::Worked
    }
}

struct Site(Vec<(ChannelId, Vec<u8>)>);

impl Context for Site {
    fn now(&self) -> Nanoseconds {
        Nanoseconds(77)
    }
    fn channel(&self, _: &str) -> Option<ChannelId> {
        None
    }
    fn write(&mut self, channel: ChannelId, message: &[u8]) -> Written {
        self.0.push((channel, message.into()));
        Written::Taken
    }
    fn attribute(&self, _: &str) -> Option<&str> {
        None
    }
    fn log(&mut self, _: &str) {}
}

/// Carries a call out as a site does, over its bytes, and reads the answer.
fn carry_out<R>(call: &Call<R>, offcode: &mut dyn Offcode) -> machine::Result<R> {
    let (mut near, mut far) = queue::pair(Specification::default());
    assert_eq!(call.write_to(&mut near, 9)?, Written::Taken);
    let mut result = None;
    far.read_with(&mut |message| {
        let (header, arguments) = Header::read(message).unwrap();
        assert_eq!((header.id, header.kind == Kind::OneWay), (9, call.is_one_way()));
        let incoming = Incoming { interface: header.interface, method: header.method, arguments };
        let mut reply = Vec::new();
        let answer = offcode.call(incoming, &mut reply, &mut Site(Vec::new()));
        if header.kind == Kind::OneWay {
            assert!(reply.is_empty() && answer.is_ok());
        }
        result = Some(call.result().read(match &answer {
            Ok(()) => Ok(&reply),
            Err(refusal) => Err(refusal),
        }));
    })?;
    result.unwrap()
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::All),
        any::<u32>().prop_map(|than| Rule::Longer { than }),
        proptest::collection::vec(".*", 0..4).prop_map(Rule::From),
    ]
}

const EVERYTHING: EverythingProxy = EverythingProxy;
const LAYOUT: LayoutProxy = LayoutProxy;

proptest! {
    #[test]
    fn numbers_arrive(a: u8, b: i16, c: u32, d: i64, e: u128, f in proptest::num::f64::NORMAL) {
        let it = carry_out(&EVERYTHING.numbers(a, b, c, d, e, f), &mut Both::default()).unwrap();
        prop_assert_eq!(it, (a, b, c, d, e, f));
    }

    #[test]
    fn texts_arrive(a in ".*", b in ".*", c: char, d: Option<String>) {
        let it = carry_out(&EVERYTHING.texts(&a, b.clone(), c, d.as_deref()), &mut Both::default()).unwrap();
        prop_assert_eq!(it, (a, b, c, d));
    }

    /// Of any length: beside the header in the call itself, or on the heap.
    #[test]
    fn octets_arrive(a in proptest::collection::vec(any::<u8>(), 0..200), b: [u8; 5], c in proptest::collection::vec(any::<u8>(), 0..60)) {
        let it = carry_out(&EVERYTHING.octets(&a, b, c.clone()), &mut Both::default()).unwrap();
        prop_assert_eq!(it, (a, b, c));
    }

    #[test]
    fn structures_arrive(one in rule(), more in proptest::collection::vec(rule(), 0..5), map: BTreeMap<String, u64>) {
        let it = carry_out(&EVERYTHING.structures(one.clone(), &more, &one), &mut Both::default()).unwrap();
        prop_assert_eq!(it, (one.clone(), more, one));
        prop_assert_eq!(carry_out(&EVERYTHING.maps(&map), &mut Both::default()).unwrap(), map);
    }

    #[test]
    fn fixed_layouts_arrive(port: u16, seen: u64, native: bool, address: [u8; 6], payload in proptest::collection::vec(any::<u8>(), 0..100), c: [[u16; 2]; 3]) {
        let it = carry_out(&LAYOUT.frame(port, seen, native, address, &payload), &mut Both::default()).unwrap();
        prop_assert_eq!(it, (port, seen, native, address, payload.iter().map(|&b| u32::from(b)).sum()));
        prop_assert_eq!(carry_out(&LAYOUT.signed(-1, -2, c, -3.5), &mut Both::default()).unwrap(), c);
        let mut both = Both::default();
        carry_out(&LAYOUT.note(&payload), &mut both).unwrap();
        prop_assert_eq!(both.noted, payload);
    }

    /// Whatever arrives, the offcode lives and the reply is empty or the method's.
    #[test]
    fn hostile_arguments_are_refused_or_meaningful(first: bool, method in 0u16..12, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let interface = if first { <dyn Everything>::GUID } else { <dyn Layout>::GUID };
        let call = Incoming { interface: interface.short(), method, arguments: &bytes };
        let (mut reply, mut both) = (Vec::new(), Both::default());
        if !first && method == 1 {
            return Ok(()); // asserts on its arguments
        }
        if let Err(Refusal(why)) = both.call(call, &mut reply, &mut Site(Vec::new())) {
            prop_assert!(reply.is_empty());
            prop_assert!(why.contains("Everything") || why.contains("Layout") || why.starts_with("not "), "{}", why);
        }
    }

    /// A real call with some bytes changed, cut or added.
    #[test]
    fn damaged_arguments_are_refused_or_meaningful(at: prop::sample::Index, to: u8, cut: Option<prop::sample::Index>, extra in 0usize..3) {
        let call = EVERYTHING.structures(Rule::From(vec!["a".into(), "bc".into()]), &[Rule::All], &Rule::Longer { than: 900 });
        let (mut near, mut far) = queue::pair(Specification::default());
        let _ = call.write_to(&mut near, 1).unwrap();
        let mut bytes = Vec::new();
        far.read_with(&mut |message| bytes = message[Header::LENGTH..].to_vec()).unwrap();
        let intact = bytes.clone();
        let place = at.index(bytes.len());
        bytes[place] = to;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(std::iter::repeat_n(0, extra));
        let incoming = Incoming { interface: <dyn Everything>::GUID.short(), method: 3, arguments: &bytes };
        let answer = Both::default().call(incoming, &mut Vec::new(), &mut Site(Vec::new()));
        prop_assert!(bytes != intact || answer.is_ok());
        let (shorter, longer) = (cut.is_some() && extra == 0, cut.is_none() && extra > 0);
        prop_assert!(to != intact[place] || !(shorter || longer) || answer.is_err());
    }
}

#[test]
fn the_fixed_layout_is_the_packed_one() {
    let (mut near, mut far) = queue::pair(Specification::default());
    let _ = LAYOUT.frame(0x1234, 7, true, [9; 6], b"xy").write_to(&mut near, 1).unwrap();
    let expected = [&[0x34, 0x12][..], &7u64.to_le_bytes(), &[1], &[9; 6], b"xy"].concat();
    far.read_with(&mut |message| assert_eq!(&message[Header::LENGTH..], expected)).unwrap();
    let arguments = &[&[0x34, 0x12][..], &7u64.to_le_bytes(), &[2], &[9; 6]].concat();
    let incoming = Incoming { interface: <dyn Layout>::GUID.short(), method: 0, arguments };
    let Refusal(why) = Both::default().call(incoming, &mut Vec::new(), &mut Site(Vec::new())).unwrap_err();
    assert_eq!(why, "Layout.frame: the arguments do not decode: a bool is 0 or 1, not 2");
}

#[test]
fn one_way_acknowledged_refused_and_default_methods() {
    let mut both = Both::default();
    let call = EVERYTHING.nothing();
    assert!(call.is_one_way());
    carry_out(&call, &mut both).unwrap();
    let call = EVERYTHING.acknowledged(true);
    assert!(!call.is_one_way());
    carry_out(&call, &mut both).unwrap();
    carry_out(&EVERYTHING.acknowledged(true).without_answer(), &mut both).unwrap();
    assert_eq!(both.steps, ["nothing", "acknowledged", "acknowledged"]);
    assert_eq!(carry_out(&EVERYTHING.refuses(false, "x"), &mut both).unwrap(), 77);
    let fault = carry_out(&EVERYTHING.refuses(true, "today"), &mut both).unwrap_err();
    assert_eq!((fault.subject(), fault.cause()), ("call Everything.refuses", "refused: not today"));
    assert_eq!(carry_out(&EVERYTHING.r#type(), &mut both).unwrap(), 7);
    assert_eq!(EVERYTHING.r#type().name(), "Everything.type");
}

#[test]
fn calls_for_others_are_refused() {
    let mut both = Both::default();
    assert_eq!(both.interfaces(), [<dyn Everything>::GUID, <dyn Layout>::GUID]);
    let other = Call::manual(&Guid::named("other"), 0, "Other.call", |_| Ok(()));
    let fault = carry_out(&other, &mut both).unwrap_err();
    assert!(fault.cause().starts_with("refused: the offcode has no interface "), "{fault}");
    let beyond = Call::manual(&<dyn Layout>::GUID, 3, "Layout.beyond", |_| Ok(()));
    assert_eq!(carry_out(&beyond, &mut both).unwrap_err().cause(), "refused: interface Layout has no method 3");
}

#[test]
fn a_value_without_bytes_is_said_when_sent() {
    struct Unknown;
    impl Serialize for Unknown {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            serializer.serialize_seq(None)?.end()
        }
    }
    let call = EVERYTHING.nothing().with(|sink| offcode::encoding::postcard::put(&Unknown, sink));
    let (mut near, _far) = queue::pair(Specification::default());
    let fault = call.write_to(&mut near, 1).unwrap_err();
    assert!(fault.cause().starts_with("an argument cannot be encoded: "), "{fault}");
}

#[test]
fn an_offcode_calls_through_its_context() {
    let mut site = Site(Vec::new());
    let mut call = LAYOUT.note(b"abc");
    assert_eq!(call.through(&mut site, ChannelId(3), 41).unwrap(), Written::Taken);
    let (channel, message) = &site.0[0];
    let (header, arguments) = Header::read(message).unwrap();
    assert_eq!((*channel, header.id, arguments), (ChannelId(3), 41, &b"abc"[..]));
    let result = EVERYTHING.refuses(false, "").result();
    assert_eq!(result.read(Ok(&[5])).unwrap(), 5);
    assert!(result.read(Ok(&[0x80])).unwrap_err().subject().contains("Everything.refuses"));
    assert!(result.read(Ok(&[5, 5])).unwrap_err().cause().contains("1 bytes too many"));
}

#[test]
fn the_manifest_says_what_was_written() {
    let manifest = Both::manifest();
    let package = &manifest.package;
    assert_eq!((package.name.as_str(), package.version.as_str()), ("test.both", "1.2.3"));
    assert_eq!(package.guid.to_string(), "0b5a6f8e-3333-4c39-8d3e-0c1a2b3c4d03");
    assert_eq!(package.description, "Serves two interfaces.  And says so.");
    assert_eq!(package.interfaces[0].methods[6..], ["acknowledged", "refuses", "type"]);
    assert_eq!(package.interfaces[1].name, "Layout");
    let bodies: Vec<_> =
        package.bodies.iter().map(|body| (body.kind, body.file.as_deref(), body.sites.len())).collect();
    assert_eq!(
        bodies,
        [(BodyKind::Native, None, 2), (BodyKind::Wasm, Some("both.wasm"), 2), (BodyKind::Bpf, Some("both.bpf.o"), 1)]
    );
    let program = package.bodies[2].program.as_ref().unwrap();
    assert_eq!((program.name.as_str(), program.role), ("send", ProgramRole::Producer));
    let attribute = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        package.attributes,
        [attribute("OFFLOAD_PRIORITY", "250"), attribute("greeting", "hello"), attribute("eager", "true")]
    );
    let targets: Vec<_> = manifest.hardware.iter().map(|it| (it.site, it.memory.0, it.work, it.modes.len())).collect();
    assert_eq!(
        targets,
        [
            (SiteKind::App, 65_536, None, 0),
            (SiteKind::Core, 65_536, Some(Nanoseconds(120)), 0),
            (SiteKind::Agent, 1_000_000, None, 0),
            (SiteKind::Xdp, 65_536, None, 2),
        ]
    );
    let offered = |interface| Service { interface, version: 1 };
    let environment = [
        service::TIMERS,
        Service { version: 2, ..service::MEMORY },
        offered(<dyn Layout>::GUID),
        offered("0b5a6f8e-5555-4c39-8d3e-0c1a2b3c4d05".parse().unwrap()),
    ];
    assert_eq!(manifest.software.environment, environment);
    let [twin, sink, other] = manifest.software.peers.as_slice() else { panic!("three peers") };
    assert_eq!((twin.name.as_str(), twin.constraint, twin.channel, twin.rate), ("twin", Constraint::Pull, None, 0));
    assert_eq!((sink.constraint, sink.rate, sink.interface), (Constraint::Gang, 5000, <dyn Everything>::GUID));
    assert!(sink.offcode.is_some() && twin.offcode.is_none());
    let channel = sink.channel.unwrap();
    assert_eq!((channel.cast, channel.delivery), (Cast::Multicast, Delivery::Unreliable));
    assert_eq!((channel.synchronization, channel.content), (Synchronization::Blocking, Content::Messages));
    assert_eq!(channel.buffers, Buffers { count: 16, size: machine::Bytes(2048), policy: Policy::Copy });
    assert_eq!((other.constraint, other.channel), (Constraint::Link, Some(Specification::default())));
}

/// The same offcode for dedicated cores.
#[offcode(body_of = Both, implements(Everything, Layout))]
#[derive(Default)]
struct Polling(Both);

#[offcode(body_of = Both, implements(Layout))]
#[derive(Default)]
struct Half(Both);

impl Everything for Polling {
    fn numbers(&mut self, a: u8, b: i16, c: u32, d: i64, e: u128, f: f64) -> (u8, i16, u32, i64, u128, f64) {
        self.0.numbers(a, b, c, d, e, f)
    }
    fn texts(&self, a: &str, b: String, c: char, d: Option<&str>) -> (String, String, char, Option<String>) {
        self.0.texts(a, b, c, d)
    }
    fn octets(&mut self, a: &[u8], b: [u8; 5], c: Vec<u8>) -> (Vec<u8>, [u8; 5], Vec<u8>) {
        self.0.octets(a, b, c)
    }
    fn structures(&mut self, rule: Rule, more: &[Rule], one: &Rule) -> (Rule, Vec<Rule>, Rule) {
        self.0.structures(rule, more, one)
    }
    fn maps(&mut self, map: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        self.0.maps(map)
    }
    fn nothing(&mut self) {}
    fn acknowledged(&mut self, unused: bool) {
        self.0.acknowledged(unused);
    }
    fn refuses(&mut self, context: &mut dyn Context, sink: bool, context_name: &str) -> Result<u64, Refusal> {
        self.0.refuses(context, sink, context_name)
    }
    fn r#type(&self) -> u8 {
        8
    }
}

macro_rules! layout_by_the_inner {
    ($($outer:ty)*) => {$(
        impl Layout for $outer {
            fn frame(&mut self, port: u16, seen: u64, native: bool, address: [u8; 6], payload: &[u8]) -> (u16, u64, bool, [u8; 6], u32) {
                self.0.frame(port, seen, native, address, payload)
            }
            fn signed(&mut self, a: i8, b: i128, c: [[u16; 2]; 3], d: f32) -> [[u16; 2]; 3] {
                self.0.signed(a, b, c, d)
            }
            fn note(&mut self, bytes: &[u8]) {
                self.0.note(bytes);
            }
        }
        impl Lifecycle for $outer {}
    )*};
}

layout_by_the_inner! { Polling Half }

#[test]
fn the_registry_finds_the_type_for_a_site() {
    let registry = Registry::new().with::<Both>().with_at::<Polling>(&[SiteKind::Core]);
    assert_eq!(registry.manifests().unwrap().len(), 1);
    let which = |site| {
        let constructor = registry.constructor(&Both::GUID, site).unwrap().unwrap();
        carry_out(&EVERYTHING.r#type(), &mut *constructor()).unwrap()
    };
    assert_eq!((which(SiteKind::App), which(SiteKind::Core), which(SiteKind::Agent)), (7, 8, 7));
    assert!(registry.constructor(&Guid::named("none"), SiteKind::App).unwrap().is_none());
    let only = Registry::new().with_at::<Polling>(&[SiteKind::Core]);
    assert!(only.constructor(&Both::GUID, SiteKind::App).unwrap().is_none());
}

#[offcode(
    guid = "0b5a6f8e-3333-4c39-8d3e-0c1a2b3c4d03",
    name = "test.thief",
    version = "1.0.0",
    implements(Layout),
    sites(app)
)]
#[derive(Default)]
struct Thief(Both);

#[offcode(
    guid = "0b5a6f8e-5555-4c39-8d3e-0c1a2b3c4d03",
    name = "test.both",
    version = "1.0.0",
    implements(Layout),
    sites(app)
)]
#[derive(Default)]
struct Namesake(Both);

layout_by_the_inner! { Thief Namesake }

#[test]
fn the_registry_refuses_clashes() {
    let cause = |registry: Registry| registry.manifests().unwrap_err().cause().to_owned();
    assert!(cause(Registry::new().with::<Both>().with::<Thief>()).contains("has the same GUID"));
    assert!(cause(Registry::new().with::<Both>().with::<Namesake>()).contains("is also called test.both"));
    assert!(cause(Registry::new().with::<Both>().with::<Both>()).contains("at every kind of site"));
    let twice = Registry::new().with_at::<Both>(&[SiteKind::Core]).with_at::<Polling>(&[SiteKind::App, SiteKind::Core]);
    assert!(cause(twice).contains("at sites of kind core"));
    assert!(cause(Registry::new().with::<Both>().with_at::<Half>(&[SiteKind::Core])).contains("does not implement"));
}
