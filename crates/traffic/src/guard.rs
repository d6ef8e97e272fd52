//! Limits that keep a stream between interfaces that others use from doing harm, all checked before a frame leaves.

use machine::{BitsPerSecond, Fault, Nanoseconds, Result};

use crate::frame::MacAddress;
use crate::profile::{Profile, WIRE_OVERHEAD};
use crate::schedule::Schedule;

/// Most of the link's speed that a stream may take unless its user states a rate.
const SHARE: f64 = 0.1;
/// Longest time that such a stream may last.
const LONGEST: Nanoseconds = Nanoseconds(60_000_000_000);

/// An interface that the stream leaves by or arrives at.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// The user's name for it: `eth1`, `agent:HOST/xdp:eth1`.
    pub name: String,
    pub up: bool,
    pub loopback: bool,
    /// `None` where it has no Ethernet address.
    pub address: Option<MacAddress>,
    pub mtu: Option<u16>,
    /// `None` where the driver does not tell it.
    pub speed: Option<BitsPerSecond>,
    /// Bonds, bridges, VLANs and the like that send over it.
    pub carries: Vec<String>,
    /// Whether it carries the default route.
    pub default_route: bool,
    /// The peer of an established TCP connection whose packets leave by it.
    pub connection: Option<String>,
    /// The programs at its driver hook.
    pub programs: Vec<String>,
}

/// The user's statements about the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Stated {
    pub destination: MacAddress,
    /// Interfaces that the user names a second time, since other work depends on them.
    pub really: Vec<String>,
    /// Most bits a second, in place of a share of the link's speed.
    pub most: Option<BitsPerSecond>,
}

/// Bounds `profile` to what `near` and `far` may be given.
///
/// # Errors
/// Whatever is not to be sent there.
pub fn admit(near: &End, far: &End, stated: &Stated, profile: &mut Profile) -> Result<()> {
    // The interfaces' names may differ: an agent may be one of this host.
    if near.name == far.name || near.address.is_some() && near.address == far.address {
        return Err(refuse(near, "frames leave by it and do not come back", "name another interface as --far"));
    }
    for end in [near, far] {
        end.check(&stated.really)?;
    }
    let to = stated.destination;
    // The lowest bit of the first octet marks a group (IEEE 802.3); broadcast is one.
    if to.0[0] & 1 == 1 {
        let cause = "it is a broadcast or multicast address: every host of the link would get the stream";
        return Err(Fault::new(format!("destination {to}"), cause, "give the address of one interface"));
    }
    match far.address {
        Some(address) if address == to => {}
        Some(address) => {
            let cause = format!("{}, which is to count the frames, has {address}", far.name);
            return Err(Fault::new(format!("destination {to}"), cause, "give that address, or another --far"));
        }
        None => return Err(refuse(far, "it has no Ethernet address", "name an Ethernet interface")),
    }
    let speeds = [near.speed, far.speed].into_iter().flatten();
    profile.link = speeds.min_by(|a, b| a.0.total_cmp(&b.0));
    for mtu in [near.mtu, far.mtu].into_iter().flatten() {
        profile.mtu = profile.mtu.min(mtu);
    }
    check_time(profile)?;
    check_rate(near, stated.most, profile)
}

impl End {
    fn check(&self, really: &[String]) -> Result<()> {
        if self.loopback {
            return Err(refuse(self, "it is the loopback, and has no link", "name an Ethernet interface"));
        }
        if !self.up {
            return Err(refuse(self, "it is down or has no carrier", "bring it up (`ip link set DEV up`)"));
        }
        if !self.carries.is_empty() {
            let cause = format!("{} send over it: bonds, bridges or VLANs", self.carries.join(", "));
            return Err(refuse(self, &cause, "name an interface that nothing else is built on"));
        }
        if !self.programs.is_empty() {
            let cause = format!("programs are at its driver hook already: {}", self.programs.join(", "));
            return Err(refuse(self, &cause, "detach them (`ip link set DEV xdp off`), or name another interface"));
        }
        if really.contains(&self.name) {
            return Ok(());
        }
        let next = format!("name another, or name it twice to mean it: --really {}", self.name);
        if self.default_route {
            return Err(refuse(self, "it has the default route", &next));
        }
        match &self.connection {
            Some(peer) => Err(refuse(self, &format!("the TCP connection with {peer} goes over it"), &next)),
            None => Ok(()),
        }
    }
}

fn check_time(profile: &mut Profile) -> Result<()> {
    let duration = profile.duration.unwrap_or(LONGEST);
    if duration > LONGEST {
        let cause = format!("{duration} is longer than the {LONGEST} that a stream on an interface may take");
        return Err(Fault::new("traffic: duration", cause, "ask for less, or send in a lab (no --interface)"));
    }
    profile.duration = Some(duration);
    Ok(())
}

/// Checks the rate on the wire, with all that a frame takes there.
fn check_rate(near: &End, most: Option<BitsPerSecond>, profile: &Profile) -> Result<()> {
    let fault = |cause: String, next: &str| Err(Fault::new("traffic: rate", cause, next));
    if !profile.is_paced() {
        return fault("a flood has none, and a stream on an interface is bounded".into(), "give --rate or --gap");
    }
    let Some(most) = most.or(profile.link.map(|speed| BitsPerSecond(speed.0 * SHARE))) else {
        let cause = format!("the driver of {} does not tell the link's speed, so no share of it is known", near.name);
        return fault(cause, "state the most that the stream may take: --max-rate 100Mbit");
    };
    let schedule = Schedule::of(profile)?;
    let asked = (schedule.mean_size + WIRE_OVERHEAD as f64) * 8e9 / schedule.mean_gap;
    // Tolerance, since gaps are whole nanoseconds.
    if asked > most.0 * 1.001 {
        let cause = format!("it takes {} on the wire; at most {most} may be taken", BitsPerSecond(asked));
        return fault(cause, "ask for less, or state more: --max-rate");
    }
    Ok(())
}

fn refuse(end: &End, cause: &str, next: &str) -> Fault {
    Fault::new(format!("interface {}", end.name), cause, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Flow;
    use crate::profile::{Rate, Sizes, Timing};

    fn end(name: &str, last: u8) -> End {
        End {
            name: name.into(),
            up: true,
            loopback: false,
            address: Some(MacAddress([2, 0, 0, 0, 0, last])),
            mtu: Some(1500),
            speed: Some(BitsPerSecond(1e9)),
            carries: Vec::new(),
            default_route: false,
            connection: None,
            programs: Vec::new(),
        }
    }

    fn stated() -> Stated {
        Stated { destination: MacAddress([2, 0, 0, 0, 0, 2]), really: Vec::new(), most: None }
    }

    fn profile(timing: Timing) -> Profile {
        let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
        let flow = Flow {
            source_mac: mac(1),
            destination_mac: mac(2),
            source: [198, 18, 0, 1].into(),
            destination: [198, 18, 0, 2].into(),
            source_port: 4000,
            destination_port: 9,
        };
        Profile { frames: Some(10), ..Profile::new(flow, timing, Sizes::Fixed(976)) }
    }

    fn packets(rate: f64) -> Profile {
        profile(Timing::Constant(Rate::Packets(rate)))
    }

    type Change = fn(&mut End);

    /// One change of what is admitted, and a word of the refusal.
    fn refused(word: &str, change: impl FnOnce(&mut End, &mut End, &mut Stated, &mut Profile)) {
        let (mut near, mut far, mut stated, mut profile) = (end("a", 1), end("b", 2), stated(), packets(1000.0));
        change(&mut near, &mut far, &mut stated, &mut profile);
        let fault = admit(&near, &far, &stated, &mut profile).unwrap_err().to_string();
        assert!(fault.contains(word), "{word}: {fault}");
    }

    #[test]
    fn what_is_admitted_has_an_end_a_link_and_an_mtu() {
        let mut profile = packets(12_500.0);
        let far = End { speed: Some(BitsPerSecond(2e9)), mtu: Some(1400), ..end("b", 2) };
        admit(&end("a", 1), &far, &stated(), &mut profile).unwrap();
        assert_eq!((profile.duration, profile.link, profile.mtu), (Some(LONGEST), Some(BitsPerSecond(1e9)), 1400));
    }

    #[test]
    fn rate_and_time_are_bounded() {
        // 1000 bytes on the wire.
        refused("at most 100.0 Mbit/s", |_, _, _, profile| *profile = packets(12_600.0));
        refused("at most 5.0 Mbit/s", |near, _, _, _| near.speed = Some(BitsPerSecond(5e7)));
        let more = Stated { most: Some(BitsPerSecond(2e8)), ..stated() };
        admit(&end("a", 1), &end("b", 2), &more, &mut packets(24_000.0)).unwrap();
        refused("at most 200.0 Mbit/s", |_, _, stated, profile| {
            (*stated, *profile) = (more.clone(), packets(26_000.0))
        });
        refused("flood", |_, _, _, profile| *profile = self::profile(Timing::Flood));
        let unknown = |end: End| End { speed: None, ..end };
        refused("--max-rate", |near, far, _, _| (near.speed, far.speed) = (None, None));
        admit(&unknown(end("a", 1)), &unknown(end("b", 2)), &more, &mut packets(1000.0)).unwrap();
        refused("longer", |_, _, _, profile| profile.duration = Some(Nanoseconds(LONGEST.0 + 1)));
    }

    #[test]
    fn what_others_depend_on_is_refused_unless_named_twice() {
        let depended: [(&str, Change); 2] = [
            ("default route", |end| end.default_route = true),
            ("192.0.2.7", |end| end.connection = Some("192.0.2.7".into())),
        ];
        for (word, change) in depended {
            refused(word, |near, _, _, _| change(near));
            refused(word, |_, far, _, _| change(far));
            let mut near = end("a", 1);
            change(&mut near);
            let meant = Stated { really: vec!["a".into()], ..stated() };
            admit(&near, &end("b", 2), &meant, &mut packets(1000.0)).unwrap();
            let another = Stated { really: vec!["b".into()], ..stated() };
            admit(&near, &end("b", 2), &another, &mut packets(1000.0)).unwrap_err();
        }
    }

    #[test]
    fn some_interfaces_and_destinations_are_refused_however_often_they_are_named() {
        let never: [(&str, Change); 4] = [
            ("loopback", |end| end.loopback = true),
            ("down", |end| end.up = false),
            ("bond0", |end| end.carries.push("bond0".into())),
            ("foreign", |end| end.programs.push("foreign".into())),
        ];
        for (word, change) in never {
            let named = || vec!["a".to_owned(), "b".to_owned()];
            refused(word, |near, _, stated, _| (change(near), stated.really = named()).0);
            refused(word, |_, far, stated, _| (change(far), stated.really = named()).0);
        }
        refused("broadcast", |_, _, stated, _| stated.destination = MacAddress([255; 6]));
        refused("multicast", |_, _, stated, _| stated.destination = MacAddress([1, 0, 0x5e, 0, 0, 1]));
        refused("02:00:00:00:00:02", |_, _, stated, _| stated.destination.0[5] = 3);
        refused("no Ethernet address", |_, far, _, _| far.address = None);
        refused("do not come back", |near, far, _, _| *far = near.clone());
        refused("do not come back", |near, far, _, _| *far = End { name: "agent:h/xdp:b".into(), ..near.clone() });
    }
}
