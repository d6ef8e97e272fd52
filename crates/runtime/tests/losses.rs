//! What unreliable channels lose is told with its place.

use std::sync::Arc;
use std::time::Instant;

use linux::lab::{Host, Lab, Options};
use machine::channel::Loss;
use machine::{Bytes, CoreId, Site, XdpMode};
use offcode::channel::{Buffers, Content, Policy};
use offcode::depot::Depot;
use offcode::{
    Cast, Channel, ChannelId, Context, Delivery, Described, Lifecycle, Registry, Specification, Written, interface,
    offcode,
};
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::residents::Residents;
use runtime::site::xdp::XdpSite;
use runtime::{Catalogue, OffcodeId, Runtime, Wanted};

#[interface(guid = "3f0d2c11-77aa-4be0-9c01-5a0c55000001", encoding = "fixed")]
trait Send {
    /// Writes so many messages to the channel 'out'.
    fn send(&mut self, context: &mut dyn Context, count: u32) -> u32;
}

#[offcode(guid = "3f0d2c11-77aa-4be0-9c01-5a0c55000011", name = "test.sender", version = "1.0.0", implements(Send), sites(app, core),
          state = none)]
#[derive(Default)]
struct Sender {
    read: u64,
}

impl Send for Sender {
    fn send(&mut self, context: &mut dyn Context, count: u32) -> u32 {
        let out = context.channel("out").expect("a channel");
        (0..count).filter(|_| context.write(out, b"message") == Written::Taken).count() as u32
    }
}

impl Lifecycle for Sender {
    fn message(&mut self, _: ChannelId, _: &[u8], _: &mut dyn Context) {
        self.read += 1;
    }
}

#[interface(guid = "3f0d2c11-77aa-4be0-9c01-5a0c55000002", encoding = "fixed")]
trait Nothing {
    fn nothing(&self);
}

/// `echo.c`, which sends back what nobody reads.
#[offcode(
    guid = "3f0d2c11-77aa-4be0-9c01-5a0c55000012",
    name = "test.hooked",
    version = "1.0.0",
    implements(Nothing),
    sites(xdp),
    bodies(bpf("echo.o", hook = "count_frames", xdp))
)]
#[derive(Default)]
struct Hooked;

impl Nothing for Hooked {
    fn nothing(&self) {}
}

impl Lifecycle for Hooked {}

fn unreliable(cast: Cast) -> Specification {
    let buffers = Buffers { count: 16, size: Bytes(64), policy: Policy::Any };
    Specification {
        cast,
        delivery: Delivery::Unreliable,
        content: Content::Messages,
        buffers,
        ..Specification::default()
    }
}

fn app() -> Box<dyn SiteDriver> {
    Box::new(AppSite::new(Residents::new(Site::App, Instant::now(), Arc::new(|_| {}))))
}

fn lost(runtime: &mut Runtime, instance: &str, channel: &str) -> Vec<(Loss, u64)> {
    let running = runtime.status().into_iter().find(|running| running.instance == instance).unwrap();
    running.channels.unwrap().into_iter().find(|row| row.channel == channel).unwrap().lost
}

fn create(runtime: &mut Runtime, instance: &str) -> OffcodeId {
    runtime.create_offcode(&Wanted::new("test.sender").named(instance).at(Site::App)).unwrap()
}

#[test]
fn a_reader_that_is_lapped_and_a_writer_that_finds_no_room() {
    let catalogue = Catalogue::new(Registry::new().with::<Sender>(), Vec::new()).unwrap();
    let mut runtime = Runtime::new(catalogue, vec![app()], Arc::new(|_| {})).unwrap();
    let [sender, reader] = ["sender", "reader"].map(|name| create(&mut runtime, name));
    runtime.join((sender, "out"), (reader, "in"), unreliable(Cast::Unicast)).unwrap();
    assert_eq!(runtime.invoke(sender, &SendProxy.send(40)).unwrap(), 16);
    assert_eq!(lost(&mut runtime, "sender", "out"), [(Loss::Writer, 24)]);
    assert_eq!(lost(&mut runtime, "reader", "in"), []);

    let mut group = runtime.create_channel(unreliable(Cast::Multicast)).unwrap();
    for name in ["left", "right"] {
        let offcode = create(&mut runtime, name);
        runtime.attach(&mut group, offcode, "group").unwrap();
    }
    for _ in 0..100 {
        assert_eq!(group.write(b"message").unwrap(), Written::Taken, "its writer waits for nobody");
    }
    let limit = Instant::now() + skip::LIMIT;
    for name in ["left", "right"] {
        loop {
            runtime.turn().unwrap();
            let running = runtime.status().into_iter().find(|running| running.instance == name).unwrap();
            let row = running.channels.unwrap().into_iter().find(|row| row.channel == "group").unwrap();
            let lapped: u64 = row.lost.iter().filter(|(at, _)| *at == Loss::Reader).map(|(_, lost)| lost).sum();
            if row.read.unwrap() + lapped == 100 {
                assert!(lapped >= 84 && row.lost.len() == 1, "{row:?}");
                break;
            }
            assert!(Instant::now() < limit, "{row:?}");
        }
    }
}

/// Where memory carries it, an unreliable channel loses nothing of what it took.
#[test]
fn messages_in_memory_move_along() {
    let catalogue = Catalogue::new(Registry::new().with::<Sender>(), Vec::new()).unwrap();
    let other = Site::Core(CoreId(0));
    let there = AppSite::new(Residents::new(other.clone(), Instant::now(), Arc::new(|_| {})));
    let mut runtime = Runtime::new(catalogue, vec![app(), Box::new(there)], Arc::new(|_| {})).unwrap();
    let [sender, reader] = ["sender", "reader"].map(|name| create(&mut runtime, name));
    runtime.join((sender, "out"), (reader, "in"), unreliable(Cast::Unicast)).unwrap();
    assert_eq!(runtime.invoke(sender, &SendProxy.send(10)).unwrap(), 10);
    for moving in [reader, sender] {
        assert_eq!(runtime.migrate(moving, &other).unwrap().lost, 0);
    }
    let limit = Instant::now() + skip::LIMIT;
    loop {
        runtime.turn().unwrap();
        let running = runtime.status().into_iter().find(|running| running.instance == "reader").unwrap();
        if running.evidence.unwrap().uses >= 10 {
            break;
        }
        assert!(Instant::now() < limit, "a message was lost");
    }
    assert_eq!(lost(&mut runtime, "reader", "in"), []);
}

#[test]
fn what_a_hook_has_no_room_for() {
    let Some(object) = bpf::ECHO else { return skip::test(bpf::MISSING.unwrap_or("no BPF programs")) };
    let lab = match Lab::owned(&Options::default()) {
        Ok(lab) => lab,
        Err(why) => return skip::test(why),
    };
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("test.hooked");
    std::fs::create_dir(&package).unwrap();
    std::fs::write(package.join("odf.xml"), offcode::odf::write(&Hooked::manifest()).unwrap()).unwrap();
    std::fs::write(package.join("echo.o"), object).unwrap();
    let hook = lab.inside(Host::B, || XdpSite::open(lab.interface(Host::B), XdpMode::Native)).unwrap().unwrap();
    let depots = vec![Depot::open(folder.path()).unwrap()];
    let catalogue = Catalogue::new(Registry::new().with::<Sender>(), depots).unwrap();
    let mut runtime = Runtime::new(catalogue, vec![app(), Box::new(hook)], Arc::new(|_| {})).unwrap();
    let sender = create(&mut runtime, "sender");
    let hooked = runtime.create_offcode(&Wanted::new("test.hooked")).unwrap();
    runtime.join((sender, "out"), (hooked, "in"), unreliable(Cast::Unicast)).unwrap();
    // Its OUT holds 512 KiB, and nobody reads while the sender writes.
    let taken = runtime.invoke(sender, &SendProxy.send(100_000)).unwrap();
    assert!(taken < 100_000);
    assert_eq!(lost(&mut runtime, "sender", "out"), [(Loss::Hook, u64::from(100_000 - taken))]);
}
