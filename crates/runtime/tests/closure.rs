//! Which instances and which versions a closure has: held against trying all there are, and what is said where there is none.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use machine::{Bytes, SiteKind};
use offcode::manifest::{Constraint, Interface, Package, Requirement, Software, Target};
use offcode::{Guid, Manifest};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use runtime::closure::{Asked, Closure, Standing, resolve};

/// One package: an offcode of this name in this version, which requires others.
fn package(name: &str, version: &str, peers: &[(&str, &str, Option<&str>)]) -> Arc<Manifest> {
    let requirement = |(peer, offcode, versions): &(&str, &str, Option<&str>)| Requirement {
        name: (*peer).into(),
        interface: Guid::named(&format!("interface {offcode}")),
        offcode: None,
        version: versions.map(|versions| versions.parse().unwrap()),
        constraint: Constraint::Link,
        channel: None,
        rate: 0,
    };
    let interface = Interface { guid: Guid::named(&format!("interface {name}")), name: "I".into(), methods: vec![] };
    Arc::new(Manifest {
        package: Package {
            guid: Guid::named(name),
            name: name.into(),
            version: version.into(),
            description: String::new(),
            interfaces: vec![interface],
            bodies: Vec::new(),
            attributes: Vec::new(),
            state: Default::default(),
        },
        hardware: vec![Target { site: SiteKind::App, modes: Vec::new(), memory: Bytes(0), work: None }],
        software: Software { environment: Vec::new(), peers: peers.iter().map(requirement).collect() },
    })
}

fn asked(offcode: &str) -> Asked {
    Asked { offcode: Guid::named(offcode), instance: None, versions: None, peers: Vec::new(), priority: None }
}

fn named(offcode: &str, instance: &str, peers: &[(&str, &str)]) -> Asked {
    let peers = peers.iter().map(|(peer, instance)| ((*peer).into(), (*instance).into())).collect();
    Asked { instance: Some(instance.into()), peers, ..asked(offcode) }
}

fn of_version(asked: Asked, versions: &str) -> Asked {
    Asked { versions: Some(versions.parse().unwrap()), ..asked }
}

/// `left:filter-1.0.0(report)`: each member with its package and the members that meet its peers.
fn words(closure: &Closure) -> Vec<String> {
    let name = |peer: &Option<usize>| peer.map_or("none", |peer| &closure.members[peer].name);
    let word = |member: &runtime::closure::Member| {
        let package = &member.manifest.package;
        let peers: Vec<&str> = member.peers.iter().map(name).collect();
        format!("{}:{}-{}({})", member.name, package.name, package.version, peers.join(" "))
    };
    closure.members.iter().map(word).collect()
}

#[test]
fn each_instance_has_the_peers_that_the_application_names_and_shares_the_rest() {
    let known = [
        package("filter", "1.0.0", &[("reporter", "report", None), ("clock", "clock", None)]),
        package("report", "1.0.0", &[]),
        package("clock", "1.0.0", &[]),
    ];
    let all = [
        named("filter", "left", &[("reporter", "left-report")]),
        named("filter", "right", &[("reporter", "right-report")]),
        asked("filter"),
        named("report", "left-report", &[]),
        named("report", "right-report", &[]),
        asked("report"),
    ];
    let expected = [
        "left:filter-1.0.0(left-report clock)",
        "right:filter-1.0.0(right-report clock)",
        "filter:filter-1.0.0(report clock)",
        "left-report:report-1.0.0()",
        "right-report:report-1.0.0()",
        "report:report-1.0.0()",
        "clock:clock-1.0.0()",
    ];
    assert_eq!(words(&resolve(&all, &[], &known).unwrap()), expected);
    // The only one there is, though it has another name.
    let two = [asked("filter"), named("report", "left-report", &[])];
    assert_eq!(words(&resolve(&two, &[], &known).unwrap())[0], "filter:filter-1.0.0(left-report clock)");
    // A package's name means its instance without a name, also where nobody else asks for it.
    let one = [named("filter", "left", &[("reporter", "report")]), named("report", "other", &[])];
    assert_eq!(words(&resolve(&one, &[], &known).unwrap())[0], "left:filter-1.0.0(report clock)");
}

#[test]
fn what_runs_is_shared_and_keeps_its_peers() {
    let known = [
        package("filter", "1.0.0", &[("reporter", "report", None)]),
        package("report", "1.0.0", &[]),
        package("report", "2.0.0", &[]),
    ];
    let standing = |name: &str, manifest: &Arc<Manifest>, peers: &[Option<usize>]| Standing {
        name: name.into(),
        manifest: manifest.clone(),
        peers: peers.to_vec(),
    };
    let there = [
        standing("left", &known[0], &[Some(1)]),
        standing("old", &known[1], &[]),
        standing("alone", &known[0], &[None]),
    ];
    let all = [named("filter", "left", &[]), asked("filter"), named("filter", "alone", &[])];
    let closure = resolve(&all, &there, &known).unwrap();
    let expected =
        ["left:filter-1.0.0(old)", "filter:filter-1.0.0(old)", "alone:filter-1.0.0(none)", "old:report-1.0.0()"];
    assert_eq!(words(&closure), expected);
    let standing: Vec<_> = closure.members.iter().map(|member| member.standing).collect();
    assert_eq!(standing, [Some(0), None, Some(2), Some(1)]);
    let other = resolve(&[named("report", "left", &[])], &there, &known).unwrap_err().to_string();
    assert!(other.contains("left runs already, and is a filter"), "{other}");
    let newer = resolve(&[of_version(named("report", "old", &[]), "^2")], &there, &known).unwrap_err().to_string();
    assert!(newer.contains("the application for ^2; there is 1.0.0"), "{newer}");
}

#[test]
fn what_cannot_be_says_who_asks_for_what_and_what_to_do() {
    let known = [
        package("filter", "1.0.0", &[("reporter", "report", Some(">=1.2, <2"))]),
        package("user", "0.1.0", &[("reporter", "report", Some("^2"))]),
        package("any", "1.0.0", &[("reporter", "report", None)]),
        package("report", "1.0.0", &[]),
        package("report", "1.2.0", &[]),
        package("report", "2.0.0", &[]),
        package("plain", "1.0", &[]),
        package("strict", "1.0.0", &[("plain", "plain", Some("^1"))]),
        package("lax", "1.0.0", &[("plain", "plain", None)]),
    ];
    let cases: Vec<(Vec<Asked>, &[&str])> = vec![
        (
            vec![asked("filter"), asked("user")],
            &["offcode report", "filter 1.0.0 for >=1.2, <2", "user 0.1.0 for ^2", "2.0.0, 1.2.0 and 1.0.0"],
        ),
        (vec![of_version(asked("report"), "^3")], &["the application for ^3", "2.0.0, 1.2.0 and 1.0.0"]),
        (
            vec![asked("filter"), of_version(asked("report"), "^2")],
            &["the application for ^2", "filter 1.0.0 for >=1.2, <2"],
        ),
        (vec![asked("strict")], &["asks for ^1", "1.0 is no semantic version"]),
        (
            vec![asked("any"), named("report", "one", &[]), named("report", "two", &[])],
            &["one and two would do, and nothing says which", "peers = { reporter = \"one\" }"],
        ),
        (
            vec![named("any", "it", &[("reporter", "three")]), named("report", "one", &[])],
            &["no instance is called three; there are it and one", "as = \"three\""],
        ),
        (vec![named("any", "it", &[("reporter", "it")])], &["offcode any as it does not have interface"]),
        (vec![named("any", "it", &[("reportr", "report")])], &["peer 'reportr'", "it requires reporter"]),
        (vec![asked("report"), asked("report")], &["asked for twice"]),
        (vec![named("report", "one", &[]), named("any", "one", &[])], &["asked for twice"]),
        (vec![named("report", "any", &[])], &["any is the name of another offcode"]),
    ];
    for (asked, expected) in cases {
        let fault = resolve(&asked, &[], &known).unwrap_err().to_string();
        for words in expected {
            assert!(fault.contains(words), "{words}: {fault}");
        }
    }
    assert_eq!(words(&resolve(&[asked("lax")], &[], &known).unwrap())[1], "plain:plain-1.0()");
    // Each of the two has an instance that will do for it.
    let apart = [
        named("filter", "filter", &[("reporter", "old")]),
        asked("user"),
        of_version(named("report", "old", &[]), "^1"),
    ];
    let closure = words(&resolve(&apart, &[], &known).unwrap());
    assert_eq!(&closure[2..], ["old:report-1.2.0()", "report:report-2.0.0()"]);
}

#[test]
fn a_release_is_preferred_to_what_precedes_one() {
    let known = ["1.0.0", "1.9.0", "2.0.0-rc.1", "1.10.0"].map(|version| package("report", version, &[]));
    let version = |asked: Asked| resolve(&[asked], &[], &known).unwrap().members[0].manifest.package.version.clone();
    assert_eq!(version(asked("report")), "1.10.0");
    assert_eq!(version(of_version(asked("report"), ">=2.0.0-rc")), "2.0.0-rc.1");
    assert_eq!(version(of_version(asked("report"), "<1.10")), "1.9.0");
}

const OFFCODES: [&str; 4] = ["a", "b", "c", "d"];
const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "2.0.0"];
const ASKED: [&str; 5] = ["^1", "^2", ">=1.1", "=1.0.0", "*"];
const INSTANCES: [&str; 3] = ["left", "right", "third"];

/// Offcode, name, versions, and for peers by their offcodes the instance that is named.
type Entry = (usize, Option<usize>, Option<usize>, BTreeMap<usize, usize>);

#[derive(Debug, Clone)]
struct World {
    /// Offcode, version, and peers: which offcode, in which versions.
    packages: BTreeMap<(usize, usize), BTreeMap<usize, Option<usize>>>,
    asked: Vec<Entry>,
}

fn world() -> impl Strategy<Value = World> {
    let versions = proptest::option::weighted(0.6, 0..ASKED.len());
    let peers = proptest::collection::btree_map(0..OFFCODES.len(), versions.clone(), 0..3);
    let packages = proptest::collection::btree_map((0..OFFCODES.len(), 0..VERSIONS.len()), peers, 3..12);
    let met = proptest::collection::btree_map(0..OFFCODES.len(), 0..INSTANCES.len(), 0..2);
    let named = proptest::option::of(0..INSTANCES.len());
    let asked = proptest::collection::vec((0..OFFCODES.len(), named, versions, met), 1..4);
    (packages, asked).prop_map(|(packages, asked)| World { packages, asked })
}

impl World {
    fn known(&self) -> Vec<Arc<Manifest>> {
        let one = |(&(offcode, version), peers): (&(usize, usize), &BTreeMap<usize, Option<usize>>)| {
            let peers: Vec<_> = peers
                .iter()
                .map(|(of, asked)| (OFFCODES[*of], OFFCODES[*of], asked.map(|asked| ASKED[asked])))
                .collect();
            package(OFFCODES[offcode], VERSIONS[version], &peers)
        };
        self.packages.iter().map(one).collect()
    }

    fn wanted(&self) -> Vec<Asked> {
        let one = |(offcode, name, versions, met): &Entry| Asked {
            offcode: Guid::named(OFFCODES[*offcode]),
            instance: name.map(|name| INSTANCES[name].to_owned()),
            versions: versions.map(|versions| ASKED[versions].parse().unwrap()),
            peers: met.iter().map(|(of, name)| (OFFCODES[*of].to_owned(), INSTANCES[*name].to_owned())).collect(),
            priority: None,
        };
        self.asked.iter().map(one).collect()
    }
}

/// Name and package of each, in the order in which they come up.
type Members = Vec<(String, Arc<Manifest>)>;

/// Only the application can say what is meant.
struct Undecided;

/// One way to choose versions, by instance, tried as it is: its members in the order in which they come up, each with what
/// it is; `None`: some requirement is not met.
fn attempt(
    known: &[Arc<Manifest>],
    asked: &[Asked],
    chosen: &BTreeMap<String, usize>,
) -> Result<Option<Members>, Undecided> {
    let versions = |offcode: Guid| -> Vec<&Arc<Manifest>> {
        let mut all: Vec<_> = known.iter().filter(|known| known.package.guid == offcode).collect();
        all.reverse();
        all
    };
    let name_of = |asked: &Asked| match &asked.instance {
        Some(name) => name.clone(),
        None => versions(asked.offcode)[0].package.name.clone(),
    };
    let pick = |name: &str, offcode: Guid| {
        let all = versions(offcode);
        all.get(chosen.get(name).copied().unwrap_or(0)).map(|manifest| (*manifest).clone())
    };
    let mut members: Vec<(String, Arc<Manifest>, Option<usize>)> = Vec::new();
    for (n, one) in asked.iter().enumerate() {
        let Some(manifest) = pick(&name_of(one), one.offcode) else { return Ok(None) };
        if !manifest.package.satisfies(one.versions.as_ref()) {
            return Ok(None);
        }
        members.push((name_of(one), manifest, Some(n)));
    }
    let mut next = 0;
    while next < members.len() {
        let (_, manifest, root) = members[next].clone();
        for required in &manifest.software.peers {
            let by_name = root.and_then(|root| asked[root].peers.iter().find(|(peer, _)| *peer == required.name));
            let (name, offcode) = if let Some((_, name)) = by_name {
                let Some(meant) = asked.iter().find(|one| name_of(one) == *name) else { return Err(Undecided) };
                if meant.offcode != Guid::named(&required.name) {
                    return Err(Undecided);
                }
                (name.clone(), meant.offcode)
            } else {
                let offcode = Guid::named(&required.name);
                let all = versions(offcode);
                let meets = |manifest: &Arc<Manifest>| manifest.package.satisfies(required.version.as_ref());
                if !all.iter().any(|manifest| meets(manifest)) {
                    return Ok(None);
                }
                let would = |one: &&Asked| {
                    let mut all = all.iter().filter(|manifest| manifest.package.satisfies(one.versions.as_ref()));
                    one.offcode == offcode && all.any(|manifest| meets(manifest))
                };
                let those: Vec<String> = asked.iter().filter(would).map(name_of).collect();
                let unnamed = all[0].package.name.clone();
                match those.as_slice() {
                    those if those.is_empty() || those.contains(&unnamed) => (unnamed, offcode),
                    [one] => (one.clone(), offcode),
                    _ => return Err(Undecided),
                }
            };
            let there = members.iter().find(|(other, ..)| *other == name).map(|(_, manifest, _)| manifest.clone());
            let peer = match there.clone().or_else(|| pick(&name, offcode)) {
                Some(peer) => peer,
                None => return Ok(None),
            };
            if !required.is_met_by(&peer.package) {
                return Ok(None);
            }
            if there.is_none() {
                members.push((name, peer, None));
            }
        }
        next += 1;
    }
    Ok(Some(members.into_iter().map(|(name, manifest, _)| (name, manifest)).collect()))
}

/// What came of one world: all of the newest versions, some older ones, undecided, nothing that fits.
fn as_trying_all_finds(world: &World, count: &dyn Fn(usize)) -> Result<(), TestCaseError> {
    let (known, wanted) = (world.known(), world.wanted());
    let exists = |asked: &Asked| known.iter().any(|known| known.package.guid == asked.offcode);
    if !wanted.iter().all(exists) {
        return Ok(());
    }
    let names: Vec<String> = INSTANCES.iter().chain(&OFFCODES).map(|name| (*name).to_owned()).collect();
    let mut all: Vec<BTreeMap<String, usize>> = vec![BTreeMap::new()];
    for name in &names {
        let with = |chosen: &BTreeMap<String, usize>, version: usize| {
            let mut chosen = chosen.clone();
            chosen.insert(name.clone(), version);
            chosen
        };
        let used =
            wanted.iter().any(|asked| asked.instance.as_ref() == Some(name)) || OFFCODES.contains(&name.as_str());
        let versions = if used { VERSIONS.len() } else { 1 };
        all = all.iter().flat_map(|chosen| (0..versions).map(move |version| with(chosen, version))).collect();
    }
    let tried: Vec<_> = all.iter().map(|chosen| attempt(&known, &wanted, chosen)).collect();
    let place = |manifest: &Arc<Manifest>| {
        let version = manifest.package.semantic().unwrap();
        let newer = |other: &&Arc<Manifest>| {
            other.package.guid == manifest.package.guid && other.package.semantic().unwrap() > version
        };
        known.iter().filter(newer).count()
    };
    // Of all that fit the one whose first member is the newest, then its second.
    let fitting = tried.iter().filter_map(|tried| tried.as_ref().ok()?.as_ref());
    let best = fitting.min_by_key(|members| members.iter().map(|(_, manifest)| place(manifest)).collect::<Vec<_>>());
    match resolve(&wanted, &[], &known) {
        Ok(closure) => {
            let members: Vec<_> =
                closure.members.iter().map(|member| (member.name.clone(), member.manifest.clone())).collect();
            prop_assert_eq!(Some(&members), best);
            let newest = members.iter().all(|(_, manifest)| place(manifest) == 0);
            count(if newest { 0 } else { 1 });
            for member in &closure.members {
                for (required, peer) in member.requirements() {
                    prop_assert!(required.is_met_by(&closure.members[peer].manifest.package));
                }
            }
        }
        // Nothing fits, or the application has to say more, or it says what cannot be.
        Err(fault) => {
            let said = fault.to_string();
            let undecided = tried.iter().any(Result::is_err)
                || said.contains("twice")
                || said.contains("would do, and nothing says which")
                || said.contains("it requires no peer of that name");
            prop_assert!(best.is_none() || undecided, "{said}: {best:?}");
            prop_assert!(fault.next().len() > 3);
            count(if undecided { 2 } else { 3 });
        }
    }
    Ok(())
}

#[test]
fn the_versions_are_those_that_trying_all_of_them_finds() {
    let came = RefCell::new([0; 4]);
    let mut runner = TestRunner::new(ProptestConfig { cases: 400, ..ProptestConfig::default() });
    let count = |at: usize| came.borrow_mut()[at] += 1;
    runner.run(&world(), |world| as_trying_all_finds(&world, &count)).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(came.borrow().iter().all(|count| *count >= 5), "each kind comes up: {came:?}");
}

#[test]
fn what_has_too_many_ways_is_given_up() {
    // Each of the first requires nothing of the last, which cannot be: every combination of theirs is tried.
    let mut known = Vec::new();
    let names: Vec<String> = (0..20).map(|n| format!("o{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        for version in VERSIONS {
            let next = names.get(n + 1).map_or(("bad", "bad", Some("^9")), |next| (next, next, None));
            known.push(package(name, version, &[next]));
        }
    }
    known.push(package("bad", "1.0.0", &[]));
    let fault = resolve(&[asked("o0")], &[], &known).unwrap_err().to_string();
    assert!(fault.contains("combinations of versions"), "{fault}");
}
