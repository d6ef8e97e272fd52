//! Delays that are injected into a program, as a user writes them: `send=1us,byte=0.1ns,peers=other-host`.
//!
//! The increase of a run's time by a delay is the most that the run could gain if that cost fell as much.

use std::fmt;
use std::str::FromStr;

use machine::{Fault, Result};

/// Longest delay, ns: peers wait 200 us before they request an acknowledgement.
pub const LONGEST: f64 = 100_000.0;

/// Greatest share of delays in the time since the rank began to record, for each thread.
pub const SHARE: f64 = 0.1;

/// The delays to inject. Kinds that are `None` or 0 are neither delayed nor counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Perturbation {
    /// Delay before a message begins, ns.
    pub send: Option<f64>,
    /// Delay after a receive is complete, ns.
    pub receive: Option<f64>,
    /// Delay for each byte of a message, ns, at the ends with a delay (`send`, `receive`); without any, at the sender.
    pub byte: f64,
    /// Share by which the time between two calls grows.
    pub compute: f64,
    pub peers: Peers,
    /// The only core on which to delay; `None`: all cores.
    pub core: Option<u32>,
    /// The only rank of MPI_COMM_WORLD in which to delay; `None`: all ranks.
    pub rank: Option<u32>,
}

/// The peers whose messages are delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Peers {
    #[default]
    All,
    SameHost,
    OtherHost,
}

impl Perturbation {
    /// The delay of a message of `bytes` before it begins, in nanoseconds; `None`: no delay.
    pub fn at_send(&self, bytes: u64) -> Option<f64> {
        let fixed = self.send.or_else(|| (self.byte > 0.0 && self.receive.is_none()).then_some(0.0))?;
        Some(fixed + self.byte * bytes as f64)
    }

    /// The delay of a message of `bytes` once it is received, in nanoseconds; `None`: no delay.
    pub fn at_receive(&self, bytes: u64) -> Option<f64> {
        Some(self.receive? + self.byte * bytes as f64)
    }
}

const NEXT: &str = "write it like send=1us,receive=500ns,byte=0.1ns,compute=2%,peers=other-host,core=3,rank=0";

impl FromStr for Perturbation {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Perturbation> {
        let mut all = Perturbation::default();
        let mut seen: Vec<&str> = Vec::new();
        for word in text.split(',') {
            let refused = |cause: String| Fault::new(format!("perturbation '{}'", word.escape_debug()), cause, NEXT);
            let (name, value) = word.split_once('=').ok_or_else(|| refused("it has no value".into()))?;
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                return Err(refused(format!("{name} is there twice")));
            }
            seen.push(name);
            match name {
                "send" => all.send = Some(time(value).map_err(refused)?),
                "receive" => all.receive = Some(time(value).map_err(refused)?),
                "byte" => all.byte = time(value).map_err(refused)?,
                "compute" => all.compute = share(value).map_err(refused)?,
                "peers" => {
                    all.peers = match value {
                        "all" => Peers::All,
                        "same-host" => Peers::SameHost,
                        "other-host" => Peers::OtherHost,
                        _ => return Err(refused("peers are all, same-host or other-host".into())),
                    }
                }
                "core" => {
                    let number = value.parse().map_err(|_| refused("it is no number of a core".into()))?;
                    all.core = Some(number);
                }
                "rank" => {
                    let number = value.parse().map_err(|_| refused("it is no number of a rank".into()))?;
                    all.rank = Some(number);
                }
                _ => return Err(refused("there are send, receive, byte, compute, peers, core and rank".into())),
            }
        }
        if !["send", "receive", "byte", "compute"].iter().any(|name| seen.contains(name)) {
            let subject = format!("perturbation '{}'", text.escape_debug());
            return Err(Fault::new(subject, "it says where, and not what is delayed", NEXT));
        }
        Ok(all)
    }
}

/// A time in nanoseconds, from 0 to [`LONGEST`].
fn time(text: &str) -> std::result::Result<f64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.trim().parse().map_err(|_| "it is no time".to_owned())?;
    let factor = match text[digits.len()..].trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "" if number == 0.0 => 1.0,
        _ => return Err("a time is in ns or us".into()),
    };
    let nanoseconds = number * factor;
    let is_right = (0.0..=LONGEST).contains(&nanoseconds) && number.is_sign_positive();
    is_right.then_some(nanoseconds).ok_or_else(|| format!("a delay is from 0 to {} us", LONGEST / 1e3))
}

fn share(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').trim().parse().map_err(|_| "it is no share in percent".to_owned())?;
    let is_right = (0.0..=100.0 * SHARE).contains(&number) && number.is_sign_positive();
    is_right.then_some(number / 100.0).ok_or_else(|| format!("it is not from 0 to {} %", 100.0 * SHARE))
}

impl fmt::Display for Perturbation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |name: &str, nanoseconds: f64| match nanoseconds {
            whole if whole > 0.0 && whole % 1e3 == 0.0 => format!("{name}={}us", whole / 1e3),
            short => format!("{name}={short}ns"),
        };
        let words = [
            self.send.map(|delay| time("send", delay)),
            self.receive.map(|delay| time("receive", delay)),
            (self.byte > 0.0).then(|| time("byte", self.byte)),
            (self.compute > 0.0).then(|| format!("compute={}%", self.compute * 100.0)),
            match self.peers {
                Peers::All => None,
                Peers::SameHost => Some("peers=same-host".to_owned()),
                Peers::OtherHost => Some("peers=other-host".to_owned()),
            },
            self.core.map(|core| format!("core={core}")),
            self.rank.map(|rank| format!("rank={rank}")),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        // A perturbation without delays is written as byte=0.
        f.write_str(&if words.is_empty() { "byte=0ns".to_owned() } else { words.join(",") })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_manual_is_read() {
        let read: Perturbation =
            "send=1us,receive=500ns,byte=0.1ns,compute=2%,peers=other-host,core=3,rank=0".parse().unwrap();
        let expected = Perturbation {
            send: Some(1000.0),
            receive: Some(500.0),
            byte: 0.1,
            compute: 0.02,
            peers: Peers::OtherHost,
            core: Some(3),
            rank: Some(0),
        };
        assert_eq!(read, expected);
        assert_eq!((read.at_send(100), read.at_receive(100)), (Some(1010.0), Some(510.0)));
    }

    #[test]
    fn bytes_count_at_the_ends_that_are_named_and_else_at_the_sender() {
        let of = |text: &str| {
            let read: Perturbation = text.parse().unwrap();
            (read.at_send(10), read.at_receive(10))
        };
        assert_eq!(of("byte=1ns"), (Some(10.0), None));
        assert_eq!(of("byte=1ns,receive=0"), (None, Some(10.0)));
        assert_eq!(of("send=0"), (Some(0.0), None));
        assert_eq!(of("compute=1%"), (None, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("", "no value"),
            ("send", "no value"),
            ("send=", "no time"),
            ("send=1", "ns or us"),
            ("send=1ms", "ns or us"),
            ("send=-1us", "from 0 to 100 us"),
            ("send=-0", "from 0 to 100 us"),
            ("send=101us", "from 0 to 100 us"),
            ("send=nan", "no time"),
            ("send=infns", "no time"),
            ("send=1us,send=2us", "twice"),
            ("compute=11%", "from 0 to 10 %"),
            ("compute=x", "no share"),
            ("peers=near,send=0", "peers are"),
            ("core=-1,send=0", "no number of a core"),
            ("rank=all,send=0", "no number of a rank"),
            ("latency=1us", "there are send"),
            ("peers=same-host,core=1", "not what is delayed"),
        ] {
            let fault = text.parse::<Perturbation>().unwrap_err();
            assert!(fault.cause().contains(why) && fault.next().contains("send=1us"), "{text}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            send in prop::option::of(0u32..100_000),
            receive in prop::option::of(0u32..100_000),
            byte in 0u32..1000,
            compute in 0u32..10,
            peers in 0..3,
            core in prop::option::of(any::<u32>()),
            rank in prop::option::of(any::<u32>()),
        ) {
            let peers = [Peers::All, Peers::SameHost, Peers::OtherHost][peers as usize];
            let (send, receive) = (send.map(f64::from), receive.map(f64::from));
            let (byte, compute) = (f64::from(byte) / 8.0, f64::from(compute) / 100.0);
            let one = Perturbation { send, receive, byte, compute, peers, core, rank };
            let is_something = send.is_some() || receive.is_some() || byte > 0.0 || compute > 0.0;
            prop_assume!(is_something);
            let read: Perturbation = one.to_string().parse().unwrap();
            prop_assert!((read.compute - one.compute).abs() < 1e-12);
            prop_assert_eq!(Perturbation { compute: one.compute, ..read }, one);
        }

        #[test]
        fn nothing_makes_it_panic(text in ".{0,40}") {
            let _ = text.parse::<Perturbation>();
        }
    }
}
