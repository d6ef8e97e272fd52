//! A native offcode moves into a driver hook, on into a tc hook, as a program of the kernel, and back, on the hosts of a lab.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::lab::{Host, Lab, Options};
use machine::site::Direction;
use machine::{Bytes, Result, Site, XdpMode};
use offcode::channel::{Buffers, Content, Policy};
use offcode::depot::Depot;
use offcode::{
    Channel, ChannelId, Context, Described, Lifecycle, Map, Put, Registry, Specification, State, Written, interface,
    offcode,
};
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::residents::Residents;
use runtime::site::xdp::XdpSite;
use runtime::{Catalogue, Runtime, Wanted};

#[interface(guid = "b8a1dd1a-3f0e-49f6-8f2c-0a11ec000001", encoding = "fixed")]
trait Tally {
    fn sum(&mut self, context: &mut dyn Context, one: u32, other: u32) -> u64;
    fn frames(&mut self, context: &mut dyn Context) -> u64;
}

/// What `echo.c` does in the kernel.
#[offcode(guid = "b8a1dd1a-3f0e-49f6-8f2c-0a11ec000011", name = "test.tally", version = "1.0.0", implements(Tally),
          environment(maps), sites(app, xdp(memory = 1_048_576), tc(memory = 1_048_576)), bodies(native(app), bpf("echo.o", hook = "count_frames", tc = "count_packets", xdp, tc)), state = saved,
          attributes(LIMIT = 3, refuse_start = 0))]
#[derive(Default)]
struct Native {
    frames: u64,
    calls: Map<u32, u64>,
    unsent: Vec<Vec<u8>>,
}

impl Tally for Native {
    fn sum(&mut self, context: &mut dyn Context, one: u32, other: u32) -> u64 {
        self.called(0, context);
        u64::from(one) + u64::from(other)
    }
    fn frames(&mut self, context: &mut dyn Context) -> u64 {
        self.called(1, context);
        self.frames
    }
}

impl Native {
    fn called(&mut self, method: u32, context: &mut dyn Context) {
        let so_far = self.calls.get(context, &method).unwrap().unwrap_or(0);
        assert_ne!(self.calls.put(context, &method, &(so_far + 1)).unwrap(), Put::Full);
    }
}

impl Lifecycle for Native {
    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        self.calls = Map::open(context, "calls", 8)?;
        Ok(())
    }

    fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
        if context.write(channel, message) == Written::Full {
            panic!("the test reads what it sends");
        }
    }

    fn save(&mut self, state: &mut State, _: &mut dyn Context) -> Result<()> {
        assert!(self.unsent.is_empty());
        state.keep("frames", &self.frames);
        Ok(())
    }

    fn restore(&mut self, state: &State, _: &mut dyn Context) -> Result<()> {
        self.frames = state.kept("frames")?;
        Ok(())
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + skip::LIMIT;
    while !done() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn into_hooks_and_back_with_what_was_counted_and_every_message() {
    let Some(object) = bpf::ECHO else { return skip::test(bpf::MISSING.unwrap_or("no BPF programs")) };
    let lab = match Lab::owned(&Options::default()) {
        Ok(lab) => lab,
        Err(why) => return skip::test(why),
    };
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("test.tally");
    std::fs::create_dir(&package).unwrap();
    std::fs::write(package.join("odf.xml"), offcode::odf::write(&Native::manifest()).unwrap()).unwrap();
    std::fs::write(package.join("echo.o"), object).unwrap();
    let depot = Depot::open(folder.path()).unwrap();

    let hook = lab.inside(Host::B, || XdpSite::open(lab.interface(Host::B), XdpMode::Native)).unwrap().unwrap();
    let tc = lab.inside(Host::B, || XdpSite::open(lab.interface(Host::B), Direction::Ingress)).unwrap().unwrap();
    let app = AppSite::new(Residents::new(Site::App, Instant::now(), Arc::new(|_| {})));
    let sites: Vec<Box<dyn SiteDriver>> = vec![Box::new(app), Box::new(hook), Box::new(tc)];
    let catalogue = Catalogue::new(Registry::new().with::<Native>(), vec![depot]).unwrap();
    let mut runtime = Runtime::new(catalogue, sites, Arc::new(|_| {})).unwrap();
    let tally = runtime.create_offcode(&Wanted::new("test.tally").at(Site::App)).unwrap();
    let buffers = Buffers { count: 32, size: Bytes(64), policy: Policy::Any };
    let specification = Specification { content: Content::Messages, buffers, ..Specification::default() };
    let mut flow = runtime.create_channel(specification).unwrap();
    runtime.attach(&mut flow, tally, "flow").unwrap();
    let xdp = Site::Xdp(lab.interface(Host::B).into());
    let tc = Site::Tc(lab.interface(Host::B).into(), Direction::Ingress);
    let datagrams = |count: usize| {
        let send = || {
            let socket = UdpSocket::bind((lab.address(Host::A), 0)).unwrap();
            (0..count).for_each(|_| assert_eq!(socket.send_to(b"x", (lab.address(Host::B), 9)).unwrap(), 1));
        };
        lab.inside(Host::A, send).unwrap();
    };
    let (mut sent, mut came, mut counted, mut sums) = (0u64, 0u64, 0, 0);
    for round in 0..3 {
        for to in [&xdp, &tc, &Site::App] {
            // Some are under way while it moves.
            for _ in 0..20 {
                if flow.write(&sent.to_le_bytes()).unwrap() == Written::Taken {
                    sent += 1;
                }
            }
            let moved = runtime.migrate(tally, to).unwrap();
            assert_eq!((&moved.to, moved.lost), (to, 0));
            assert_eq!(runtime.invoke(tally, &TallyProxy.sum(40, 2)).unwrap(), 42);
            sums += 1;
            let mut calls = runtime.map(tally, "calls").unwrap().entries;
            calls.sort();
            assert_eq!(calls[0], ("0".to_owned(), sums.to_string()), "{to}: {calls:?}");
            let frames = runtime.invoke(tally, &TallyProxy.frames()).unwrap();
            assert!(frames >= counted, "round {round} {to}: {frames} after {counted}");
            counted = frames;
            if to != &Site::App {
                datagrams(50);
                until("frames are not counted", || {
                    counted = runtime.invoke(tally, &TallyProxy.frames()).unwrap();
                    counted >= frames + 50
                });
            }
            until("messages do not come back", || {
                runtime.turn().unwrap();
                let mut read = |message: &[u8]| {
                    assert_eq!(u64::from_le_bytes(message.try_into().unwrap()), came, "each once and in order");
                    came += 1;
                };
                while flow.read_with(&mut read).unwrap() {}
                came == sent
            });
        }
    }
    assert!(counted >= 300 && sent == 180, "{counted} frames, {sent} messages");
}
