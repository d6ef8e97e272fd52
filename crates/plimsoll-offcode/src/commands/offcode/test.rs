//! `plimsoll offcode test`: the calls of the source, made of each body, and what each answers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use linux::output;
use machine::{BodyKind, Fault, Result, Site, XdpMode};
use offcode::call::{Header, Kind};
use offcode::depot::Stored;
use offcode::manifest::Body;
use offcode::{Attributes, Channel, Manifest, Written};
use runtime::code::{Code, Libraries};
use runtime::site::app::AppSite;
use runtime::site::residents::{Log, Residents};
use runtime::site::xdp::XdpSite;
use runtime::site::{self, Deployment, Names, OUT_OF_BAND, SiteDriver};

use super::build;

/// Build, then make the calls that the source lists of each body, and compare what they answer
///
/// Each body lives twice from its deployment to its removal: what it answers may not hang on what was before. A body for a
/// driver hook runs in two hosts of its own, joined by a link of their own (root).
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    build: build::Arguments,
}

/// Time limit of a body for one step.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An answer; `None`: refused, in whatever words.
type Answer = Option<Vec<u8>>;

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let built = build::build(&arguments.build)?;
    let manifest = &built.package.manifest;
    let script = built.script.iter().map(|message| Step::of(manifest, message)).collect::<Result<Vec<Step>>>()?;
    let (mut page, mut failed) = (String::new(), false);
    let mut answers: BTreeMap<BodyKind, Vec<Answer>> = BTreeMap::new();
    for body in &manifest.package.bodies {
        let kind = body.kind;
        match twice(&built.package, body, &script) {
            Ok(given) => {
                let _ = writeln!(page, "{kind}: lives twice, {}", machine::count::of(script.len() as u64, "call"));
                answers.insert(kind, given);
            }
            Err(Untested::Here(fault)) => {
                let _ = writeln!(page, "{kind}: not tested here: {fault}");
            }
            Err(Untested::Failed(fault)) => {
                failed = true;
                let _ = writeln!(page, "{kind}: {fault}");
            }
        }
    }
    for (place, step) in script.iter().enumerate() {
        let given: Vec<(BodyKind, &Answer)> = answers.iter().map(|(kind, given)| (*kind, &given[place])).collect();
        let Some((_, first)) = given.first() else { break };
        let same = given.iter().all(|(_, answer)| answer == first);
        failed |= !same;
        let said = match same {
            true => words(first),
            false => {
                given.iter().map(|(kind, answer)| format!("{kind} {}", words(answer))).collect::<Vec<_>>().join(", ")
            }
        };
        let _ = writeln!(page, "{}: {said}", step.name);
    }
    let verdict = match (failed, answers.len()) {
        (true, _) => "the bodies are not one offcode",
        (false, 0 | 1) => "nothing to compare with",
        (false, _) => "all bodies answer alike",
    };
    let _ = writeln!(page, "{verdict}");
    output::print(&page)?;
    let missing = built.exit();
    Ok(if failed { ExitCode::FAILURE } else { missing })
}

/// A result's bytes, or that there is none.
fn words(answer: &Answer) -> String {
    match answer {
        None => "refused".into(),
        Some(bytes) if bytes.is_empty() => "done".into(),
        Some(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// One call of the script.
struct Step {
    /// The method's name, such as `Filter.limit`.
    name: String,
    header: Header,
    message: Vec<u8>,
}

impl Step {
    fn of(manifest: &Manifest, message: &[u8]) -> Result<Step> {
        let unknown = || {
            let next = "list calls of its own interfaces in offcode::export!";
            Fault::new(
                "calls of the source",
                "one is for an interface or a method that the offcode does not have",
                next,
            )
        };
        let (header, _) = Header::read(message).ok_or_else(unknown)?;
        let mut interfaces = manifest.package.interfaces.iter();
        let interface = interfaces.find(|interface| interface.guid.short() == header.interface).ok_or_else(unknown)?;
        let method = interface.methods.get(usize::from(header.method)).ok_or_else(unknown)?;
        Ok(Step { name: format!("{}.{method}", interface.name), header, message: message.to_vec() })
    }
}

enum Untested {
    /// Something that the test needs is missing.
    Here(Fault),
    Failed(Fault),
}

impl From<Fault> for Untested {
    fn from(fault: Fault) -> Self {
        Untested::Failed(fault)
    }
}

fn twice(package: &Stored, body: &Body, script: &[Step]) -> Result<Vec<Answer>, Untested> {
    let manifest = &package.manifest;
    let code = |kind: fn(Arc<[u8]>) -> Code| -> Result<Code> {
        package.load(body.file.as_deref().unwrap_or_default()).map(kind)
    };
    let mut lab = None;
    let (code, mut site): (Code, Box<dyn SiteDriver>) = match body.kind {
        BodyKind::Native => {
            let libraries = Libraries::of(package, machine::SiteKind::App)?;
            let none = || Fault::new("native body", "it has no library", "build it again");
            (Code::Library(libraries.ok_or_else(none)?), app())
        }
        BodyKind::Wasm => (code(Code::Wasm)?, app()),
        BodyKind::Bpf => {
            let lab = lab.insert(Lab::owned(&Options::default()).map_err(Untested::Here)?);
            set_link_down(lab).map_err(Untested::Here)?;
            let open = || XdpSite::open(lab.interface(Host::A), XdpMode::Native);
            (code(Code::Bpf)?, Box::new(lab.inside(Host::A, open)?.map_err(Untested::Here)?))
        }
    };
    let mut attributes = Attributes::default();
    for (name, value) in &manifest.package.attributes {
        attributes.set(name, value)?;
    }
    let memory = Names::default().granted(manifest, body.sites.first().copied().unwrap_or(machine::SiteKind::App));
    let name = manifest.package.name.clone();
    let deployment = Deployment { name, manifest: manifest.clone(), code, attributes, memory };
    let first = life(site.as_mut(), &deployment, script)?;
    let second = life(site.as_mut(), &deployment, script)?;
    if let Some(place) = (0..script.len()).find(|place| first[*place] != second[*place]) {
        let cause = format!(
            "a second instance answers {} with {}, the first with {}",
            script[place].name,
            words(&second[place]),
            words(&first[place])
        );
        return Err(Fault::new("state", cause, "keep it in the offcode, not beside it").into());
    }
    Ok(first)
}

/// Takes the link down, so that the kernel's own frames do not come between the calls.
fn set_link_down(lab: &Lab) -> Result<()> {
    for host in Host::BOTH {
        let mut ip = Command::new("ip");
        lab.enter(host, ip.args(["link", "set", lab.interface(host), "down"]))?;
        let failed = |e| Fault::because("ip", e, "install iproute2");
        let output = ip.output().map_err(failed)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Fault::new("ip link set down", said, "run as root"));
        }
    }
    Ok(())
}

fn app() -> Box<dyn SiteDriver> {
    let log: Log = Arc::new(|line: &str| eprintln!("plimsoll offcode test: {line}"));
    Box::new(AppSite::new(Residents::new(Site::App, Instant::now(), log)))
}

/// Runs a body from deployment to removal.
fn life(site: &mut dyn SiteDriver, deployment: &Deployment, script: &[Step]) -> Result<Vec<Answer>> {
    let slot = site.deploy(deployment.clone())?;
    let mut end = site.connect(slot, "", OUT_OF_BAND)?;
    site::begin(site, slot, &deployment.attributes)?;
    site.start(slot)?;
    let answers =
        script.iter().zip(1..).map(|(step, id)| answer(site, end.as_mut(), step, id)).collect::<Result<_>>()?;
    site.evidence(slot)?;
    drop(end);
    site.remove(slot)?;
    Ok(answers)
}

fn answer(site: &mut dyn SiteDriver, end: &mut dyn Channel, step: &Step, id: u32) -> Result<Answer> {
    let deadline = Instant::now() + TIMEOUT;
    let wait = |site: &mut dyn SiteDriver| {
        site.turn()?;
        std::thread::yield_now();
        let late =
            || Fault::new(step.name.clone(), format!("no answer within {} s", TIMEOUT.as_secs()), "mend the body");
        if Instant::now() > deadline { Err(late()) } else { Ok(()) }
    };
    let mut message = step.message.clone();
    if let Some(head) = message.first_chunk_mut() {
        Header { id, ..step.header }.write(head);
    }
    while end.write(&message)? != Written::Taken {
        wait(site)?;
    }
    if step.header.kind == Kind::OneWay {
        wait(site)?;
        return Ok(Some(Vec::new()));
    }
    let mut given = None;
    loop {
        end.read_with(&mut |message| {
            given = Header::read(message).filter(|(header, _)| header.id == id).map(|(header, rest)| {
                if header.kind == Kind::Refused {
                    eprintln!("plimsoll offcode test: {}: {}", step.name, String::from_utf8_lossy(rest));
                }
                (header.kind == Kind::Reply).then(|| rest.to_vec())
            });
        })?;
        match given.take() {
            Some(answer) => return Ok(answer),
            None => wait(site)?,
        }
    }
}
