//! Manifests of every shape that an ODF can state.

use machine::{Bytes, Nanoseconds, SiteKind, XdpMode};
use offcode::channel::{Buffers, Cast, Content, Delivery, Policy, Specification, Synchronization};
use offcode::manifest::*;
use offcode::{Guid, Manifest, Service};
use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

const IDENTIFIER: &str = "[A-Za-z_][A-Za-z0-9_]{0,12}";
const DOTTED: &str = r"[A-Za-z_][A-Za-z0-9_-]{0,6}(\.[A-Za-z_][A-Za-z0-9_-]{0,6}){0,2}";
const FILE: &str = "[A-Za-z0-9_][A-Za-z0-9._-]{0,12}\\.o";
/// Everything that XML can hold, with a leaning to what needs care.
const TEXT: &str = "([\\t\\n\\r <>&\"'\\]]|[ -~]|[\u{80}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]){0,30}";

fn guid() -> impl Strategy<Value = Guid> {
    any::<[u8; 16]>().prop_map(Guid::from_bytes)
}

fn size(least: u64) -> impl Strategy<Value = Bytes> {
    (least..9_999_999_999, select(vec![1, 1 << 10, 1 << 20, 1 << 30]))
        .prop_map(|(n, unit)| Bytes(n * unit))
        .prop_filter("more than ten digits of the largest unit that divides it", |size| {
            size.to_string().bytes().filter(u8::is_ascii_digit).count() <= 10
        })
}

fn specification() -> impl Strategy<Value = Specification> {
    let buffers = (2..=16u32, size(1), select(vec![Policy::Any, Policy::ZeroCopy, Policy::Copy]))
        .prop_map(|(power, size, policy)| Buffers { count: 1 << power, size, policy });
    (
        select(vec![Cast::Unicast, Cast::Multicast]),
        select(vec![Delivery::Reliable, Delivery::Unreliable]),
        select(vec![Synchronization::Poll, Synchronization::Blocking]),
        select(vec![Content::Calls, Content::Messages]),
        buffers,
    )
        .prop_map(|(cast, delivery, synchronization, content, buffers)| Specification {
            cast,
            delivery,
            synchronization,
            content,
            buffers,
        })
}

/// Three kinds of user site in any order, so that every target that is no hook has a body.
fn user_sites() -> impl Strategy<Value = Vec<SiteKind>> {
    Just(vec![SiteKind::App, SiteKind::Core, SiteKind::Agent]).prop_shuffle()
}

fn bodies_and_hardware() -> impl Strategy<Value = (Vec<Body>, Vec<Target>)> {
    let bodies = (
        subsequence(vec![BodyKind::Native, BodyKind::Wasm, BodyKind::Bpf], 1..=3),
        user_sites(),
        subsequence(vec![SiteKind::Xdp, SiteKind::Tc], 1..=2),
        [FILE, FILE],
        IDENTIFIER,
        any::<bool>(),
        btree_map("[a-z0-9_]{1,6}-[a-z]{1,9}(-[a-z]{1,5}){0,3}", (FILE, any::<[u8; 32]>()), 0..3),
    );
    let bodies = bodies.prop_map(|(kinds, sites, hooks, files, name, producer, libraries)| {
        let library = |(target, (file, digest))| Library { target, file, digest: Digest(digest) };
        let libraries: Vec<Library> = libraries.into_iter().map(library).collect();
        let body = |kind| Body {
            kind,
            file: match kind {
                BodyKind::Native => None,
                BodyKind::Wasm => Some(files[0].clone()),
                BodyKind::Bpf => Some(files[1].clone()),
            },
            libraries: if kind == BodyKind::Native { libraries.clone() } else { Vec::new() },
            sites: match kind {
                BodyKind::Bpf => hooks.clone(),
                _ => sites.clone(),
            },
            tc: (kind == BodyKind::Bpf && hooks.contains(&SiteKind::Tc)).then(|| name.clone()),
            program: (kind == BodyKind::Bpf && hooks.contains(&SiteKind::Xdp)).then(|| Program {
                name: name.clone(),
                role: if producer { ProgramRole::Producer } else { ProgramRole::Hook },
            }),
        };
        kinds.into_iter().map(body).collect::<Vec<_>>()
    });
    bodies.prop_flat_map(|bodies| {
        let all = [SiteKind::App, SiteKind::Core, SiteKind::Xdp, SiteKind::Tc, SiteKind::Agent];
        let possible: Vec<SiteKind> =
            all.into_iter().filter(|site| bodies.iter().any(|body| body.sites.contains(site))).collect();
        let most = possible.len();
        let hardware =
            subsequence(possible, 1..=most).prop_flat_map(|sites| sites.into_iter().map(target).collect::<Vec<_>>());
        (Just(bodies), hardware)
    })
}

fn target(site: SiteKind) -> impl Strategy<Value = Target> {
    let modes = subsequence(vec![XdpMode::Native, XdpMode::Generic, XdpMode::Hardware], 0..=3).prop_shuffle();
    (modes, size(0), option::of(0..9_999_999_999u64)).prop_map(move |(modes, memory, work)| Target {
        site,
        modes: if site == SiteKind::Xdp { modes } else { Vec::new() },
        memory,
        work: work.map(Nanoseconds),
    })
}

fn software() -> impl Strategy<Value = Software> {
    let constraint = select(vec![Constraint::Link, Constraint::Pull, Constraint::Gang]);
    let comparator = r"(=|>|>=|<|<=|~|\^)?(0|[1-9][0-9]{0,3})(\.(0|[1-9][0-9]{0,3}(\.(0|[1-9][0-9]?(-rc\.[1-9])?))?))?";
    let comparators = proptest::collection::vec(comparator, 1..4);
    let versions = comparators.prop_map(|all| all.join(", ").parse::<VersionReq>().unwrap());
    let peer = (
        guid(),
        option::of(guid()),
        option::of(versions),
        constraint,
        option::of(specification()),
        0..9_999_999_999u64,
    );
    (btree_map(guid(), 1..4u32, 0..3), btree_map(DOTTED, peer, 0..4)).prop_map(|(environment, peers)| Software {
        environment: environment.into_iter().map(|(interface, version)| Service { interface, version }).collect(),
        peers: peers
            .into_iter()
            .map(|(name, (interface, offcode, version, constraint, channel, rate))| Requirement {
                name,
                interface,
                offcode,
                version,
                constraint,
                channel,
                rate,
            })
            .collect(),
    })
}

pub fn manifest() -> impl Strategy<Value = Manifest> {
    let interfaces = btree_map(guid(), (DOTTED, btree_map(IDENTIFIER, Just(()), 0..5)), 0..3);
    let version = r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}([+-][0-9A-Za-z.+-]{1,6})?";
    let attributes = btree_map(DOTTED, TEXT, 0..4);
    let priority = option::of(0..=1000u32);
    let state = select(vec![StateKind::FixedPlace, StateKind::None, StateKind::Saved]);
    let identity = (guid(), DOTTED, version, TEXT, attributes, priority, state);
    (identity, interfaces, bodies_and_hardware(), software()).prop_map(
        |(
            (guid, name, version, description, attributes, priority, state),
            interfaces,
            (bodies, hardware),
            software,
        )| {
            let priority = priority.map(|priority| (offcode::OFFLOAD_PRIORITY.to_owned(), priority.to_string()));
            let interface = |(guid, (name, methods)): (Guid, (String, std::collections::BTreeMap<String, ()>))| {
                Interface { guid, name, methods: methods.into_keys().collect() }
            };
            Manifest {
                package: Package {
                    guid,
                    name,
                    version,
                    description,
                    interfaces: interfaces.into_iter().map(interface).collect(),
                    bodies,
                    attributes: attributes.into_iter().chain(priority).collect(),
                    state,
                },
                hardware,
                software,
            }
        },
    )
}
