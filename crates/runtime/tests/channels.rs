//! Specialized channels of an application, made in two steps (HYDRA section 1.3.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use machine::{Bytes, CoreId, Site};
use offcode::channel::{Buffers, Content, Policy};
use offcode::{
    Activity, Call, Cast, Channel, ChannelId, Context, Delivery, Lifecycle, Registry, Specification, Written,
    interface, offcode,
};
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::residents::{Log, Residents};
use runtime::{Catalogue, Runtime, Wanted};

#[interface(guid = "b3d8a0c4-5a1e-4d09-8f55-2a6f0c7e0001")]
trait Heard {
    /// Messages and their sum.
    fn heard(&self) -> (u64, u64);
}

macro_rules! listener {
    ($type:ident, $guid:literal, $name:literal) => {
        /// Adds up what it hears, and sends it back where it can.
        #[offcode(guid = $guid, name = $name, version = "1.0.0", implements(Heard), sites(app, core))]
        #[derive(Default)]
        struct $type {
            count: u64,
            sum: u64,
            last_name: String,
        }
        impl Heard for $type {
            fn heard(&self) -> (u64, u64) {
                (self.count, self.sum)
            }
        }
        impl Lifecycle for $type {
            fn attached(&mut self, _: ChannelId, name: &str, _: &mut dyn Context) {
                self.last_name = name.into();
            }
            fn message(&mut self, channel: ChannelId, message: &[u8], context: &mut dyn Context) {
                self.count += 1;
                self.sum += message.iter().map(|&byte| u64::from(byte)).sum::<u64>();
                if self.last_name == "both ways" {
                    let _ = context.write(channel, message);
                }
            }
        }
    };
}
listener!(One, "b3d8a0c4-5a1e-4d09-8f55-2a6f0c7e0011", "test.one");
listener!(Two, "b3d8a0c4-5a1e-4d09-8f55-2a6f0c7e0012", "test.two");

fn quiet() -> Log {
    Arc::new(|_| {})
}

fn runtime() -> Runtime {
    let catalogue = Catalogue::new(Registry::new().with::<One>().with::<Two>(), Vec::new()).unwrap();
    let sites = [Site::App, Site::Core(CoreId(0))]
        .map(|site| Box::new(AppSite::new(Residents::new(site, Instant::now(), quiet()))) as Box<dyn SiteDriver>);
    Runtime::new(catalogue, sites.into(), quiet()).unwrap()
}

fn messages(cast: Cast, delivery: Delivery) -> Specification {
    let buffers = Buffers { count: 8, size: Bytes(256), policy: Policy::ZeroCopy };
    Specification { cast, delivery, content: Content::Messages, buffers, ..Specification::default() }
}

fn idle(runtime: &mut Runtime) {
    while runtime.turn().unwrap() == Activity::Worked {}
}

fn put(runtime: &mut Runtime, channel: &mut impl Channel, byte: u8) {
    let deadline = Instant::now() + skip::LIMIT;
    while channel.write(&[byte]).unwrap() == Written::Full {
        assert!(Instant::now() < deadline, "there is no room for the next message");
        runtime.turn().unwrap();
    }
}

fn heard() -> Call<(u64, u64)> {
    HeardProxy.heard()
}

#[test]
fn a_channel_has_no_other_end_until_an_offcode_is_attached() {
    let mut runtime = runtime();
    let one = runtime.create_offcode(&Wanted::new("test.one")).unwrap();
    let mut channel = runtime.create_channel(messages(Cast::Unicast, Delivery::Reliable)).unwrap();
    let said = channel.write(b"early").unwrap_err().to_string();
    assert!(said.contains("no offcode is attached"), "{said}");
    runtime.attach(&mut channel, one, "both ways").unwrap();
    assert_eq!(channel.write(&[1, 2, 3]).unwrap(), Written::Taken);
    idle(&mut runtime);
    assert_eq!(runtime.invoke(one, &heard()).unwrap(), (1, 6));
    let mut back = Vec::new();
    assert!(channel.read_with(&mut |message| back = message.to_vec()).unwrap());
    assert_eq!(back, [1, 2, 3]);
    let said = runtime.attach(&mut channel, one, "again").unwrap_err().to_string();
    assert!(said.contains("unicast"), "{said}");
    runtime.stop(one).unwrap();
    assert!(channel.is_abandoned());
}

#[test]
fn a_dispatch_handler_gets_each_message_in_order() {
    let mut runtime = runtime();
    let one = runtime.create_offcode(&Wanted::new("test.one")).unwrap();
    let mut channel = runtime.create_channel(messages(Cast::Unicast, Delivery::Reliable)).unwrap();
    runtime.attach(&mut channel, one, "both ways").unwrap();
    for n in 0..6_u8 {
        assert_eq!(channel.write(&[n]).unwrap(), Written::Taken);
    }
    let (seen, ours) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, order) = (seen.clone(), ours.clone());
    runtime.dispatch(channel, move |message, _| {
        assert_eq!(u64::from(message[0]), order.fetch_add(1, Ordering::Relaxed));
        count.fetch_add(1, Ordering::Relaxed);
    });
    let deadline = Instant::now() + skip::LIMIT;
    while seen.load(Ordering::Relaxed) < 6 && Instant::now() < deadline {
        runtime.turn().unwrap();
    }
    assert_eq!(seen.load(Ordering::Relaxed), 6);
}

#[test]
fn one_send_reaches_all_that_are_attached() {
    let mut runtime = runtime();
    let wanted = [Wanted::new("test.one").at(Site::App), Wanted::new("test.two").at(Site::Core(CoreId(0)))];
    let [one, two] = runtime.create_offcodes(&wanted).unwrap()[..] else { panic!("two were asked for") };
    let mut channel = runtime.create_channel(messages(Cast::Multicast, Delivery::Reliable)).unwrap();
    runtime.attach(&mut channel, one, "news").unwrap();
    runtime.attach(&mut channel, two, "news").unwrap();
    for n in 0..100_u8 {
        put(&mut runtime, &mut channel, n);
    }
    idle(&mut runtime);
    for offcode in [one, two] {
        assert_eq!(runtime.invoke(offcode, &heard()).unwrap(), (100, 99 * 100 / 2));
    }
    runtime.stop(one).unwrap();
    // Who has gone does not hold the others up.
    for _ in 0..100 {
        put(&mut runtime, &mut channel, 1);
    }
    idle(&mut runtime);
    assert_eq!(runtime.invoke(two, &heard()).unwrap().0, 200);
}

#[test]
fn offcodes_are_joined_one_to_one_and_one_to_many() {
    let mut runtime = runtime();
    let one = runtime.create_offcode(&Wanted::new("test.one")).unwrap();
    let two = runtime.create_offcode(&Wanted::new("test.two")).unwrap();
    runtime.join((one, "two"), (two, "one"), messages(Cast::Unicast, Delivery::Reliable)).unwrap();
    let said = runtime.join((one, "two"), (two, "other"), messages(Cast::Unicast, Delivery::Reliable));
    assert!(said.unwrap_err().to_string().contains("two"), "a name is given once");
    runtime.fan_out((one, "news"), &[two], messages(Cast::Multicast, Delivery::Unreliable)).unwrap();
}

#[test]
fn channels_that_cannot_be_are_refused() {
    let runtime = runtime();
    for (count, size) in [(3, 64), (2, 64), (1 << 17, 64), (8, 0), (8, 1 << 40)] {
        let buffers = Buffers { count, size: Bytes(size), policy: Policy::ZeroCopy };
        let specification = Specification { buffers, ..Specification::default() };
        let said = runtime.create_channel(specification).map(drop).unwrap_err().to_string();
        assert!(said.contains("Next:"), "{said}");
    }
}
