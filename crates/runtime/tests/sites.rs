//! Every site that runs offcodes of this process passes the suite.

use crate::built;
use std::sync::Arc;
use std::time::Instant;

use machine::{CoreId, Site};
use offcode::manifest::Digest;
use offcode::{Attributes, ChannelId, Context, Described, Interface, Lifecycle, Written, interface, offcode};
use runtime::code::Code;
use runtime::site::app::AppSite;
use runtime::site::conformance::{Probe, Subject, check, check_services};
use runtime::site::core::CoreSite;
use runtime::site::residents::Residents;
use runtime::site::{Deployment, SiteDriver};

#[interface(guid = "5e1b6a52-1d11-4f0c-8f4e-7b8b0c9d1001", encoding = "fixed")]
pub trait Sum {
    fn sum(&mut self, one: u32, other: u32) -> u64;
}

/// Adds, and sends messages back.
#[offcode(
    guid = "5e1b6a52-1d11-4f0c-8f4e-7b8b0c9d1002",
    name = "test.echo",
    version = "1.0.0",
    implements(Sum),
    sites(app, core, agent)
)]
#[derive(Default)]
pub struct Echo {
    unsent: Vec<(ChannelId, Vec<u8>)>,
}

impl Sum for Echo {
    fn sum(&mut self, one: u32, other: u32) -> u64 {
        u64::from(one) + u64::from(other)
    }
}

impl Lifecycle for Echo {
    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        if context.write(channel, message) == Written::Full {
            self.unsent.push((channel, message.to_vec()));
        }
    }

    fn turn(&mut self, context: &mut dyn Context) -> offcode::Activity {
        self.unsent.retain(|(channel, message)| context.write(*channel, message) == Written::Full);
        offcode::Activity::Idle
    }
}

pub fn subject() -> Subject {
    Subject {
        deployment: Deployment {
            name: "test.echo".into(),
            manifest: Arc::new(Echo::manifest()),
            code: Code::Native(Arc::new(|| Box::new(Echo::default()))),
            attributes: Attributes::default(),
            memory: Default::default(),
        },
        interface: <dyn Sum as Interface>::GUID.short(),
        messages: true,
        unfit: Code::Bpf(Arc::from(&b"no object"[..])),
    }
}

/// The probe of the suite as a sandboxed body and as a library, as far as they can be built here.
fn probes() -> Vec<Code> {
    let module = built::or_skip_part(built::probe()).map(|bytes| Code::Wasm(bytes.into()));
    let library = built::or_skip_part(built::probe_library()).map(|bytes| {
        let manifest = Probe::manifest();
        let library = native::Library::open(bytes, Digest([7; 32])).expect("a library that is fit");
        Code::Native(library.constructor(&manifest))
    });
    module.into_iter().chain(library).collect()
}

pub fn quiet() -> runtime::site::residents::Log {
    Arc::new(|_| {})
}

#[test]
fn app() {
    let open = || -> Box<dyn SiteDriver> { Box::new(AppSite::new(Residents::new(Site::App, Instant::now(), quiet()))) };
    check(open, &subject());
    check_services(open, &probes());
}

#[test]
#[ignore = "make check"]
fn a_dedicated_core() {
    let core = *linux::affinity::allowed().unwrap().last().expect("this process has a core");
    // The thread is moved off the site's core for as long as it holds what comes beside the site.
    let mut beside = Vec::new();
    let mut open = || -> Box<dyn SiteDriver> {
        let (site, excluded) = CoreSite::open(core, Instant::now(), quiet()).unwrap();
        beside.push(excluded);
        Box::new(site)
    };
    check(&mut open, &subject());
    check_services(open, &probes());
}

#[test]
fn a_core_that_is_not_there_is_refused() {
    let said = CoreSite::open(CoreId(4000), Instant::now(), quiet()).map(drop).unwrap_err().to_string();
    assert!(said.contains("core 4000") && said.contains("Next:"), "{said}");
}

#[test]
fn an_offcode_that_panics_fails_alone() {
    #[interface(guid = "5e1b6a52-1d11-4f0c-8f4e-7b8b0c9d1003")]
    trait Break {
        fn break_down(&mut self, really: bool) -> u8;
    }
    #[offcode(
        guid = "5e1b6a52-1d11-4f0c-8f4e-7b8b0c9d1004",
        name = "test.broken",
        version = "1.0.0",
        implements(Break),
        sites(app)
    )]
    #[derive(Default)]
    struct Broken;
    impl Break for Broken {
        fn break_down(&mut self, really: bool) -> u8 {
            assert!(!really, "told to");
            7
        }
    }
    impl Lifecycle for Broken {}

    let registry = offcode::Registry::new().with::<Broken>().with::<Echo>();
    let site = AppSite::new(Residents::new(Site::App, Instant::now(), quiet()));
    let catalogue = runtime::Catalogue::new(registry, Vec::new()).unwrap();
    let mut runtime = runtime::Runtime::new(catalogue, vec![Box::new(site)], quiet()).unwrap();
    let broken = runtime.create_offcode(&runtime::Wanted::new("test.broken")).unwrap();
    let echo = runtime.create_offcode(&runtime::Wanted::new("test.echo")).unwrap();
    assert_eq!(runtime.invoke(broken, &BreakProxy.break_down(false)).unwrap(), 7);
    let said = runtime.invoke(broken, &BreakProxy.break_down(true)).unwrap_err().to_string();
    assert!(said.contains("test.broken"), "{said}");
    assert_eq!(runtime.invoke(echo, &SumProxy.sum(2, 3)).unwrap(), 5, "its neighbour goes on");
    let status = runtime.status();
    let evidence = status[0].evidence.as_ref().unwrap();
    assert!(evidence.whereabouts.contains("told to"), "{evidence:?}");
}
