//! Hosts of a lab joined by a switch whose links are slow and lossy: a token bucket with a queue at each of its
//! outputs, a lossy program at each input.
//!
//! The queue is the switch's, not a host's: a sender notices it by its acknowledgements alone.

use std::process::{Command, Stdio};

use machine::{BytesPerSecond, Fault, FaultKind, Nanoseconds, Result, XdpMode};

use super::namespace::Namespace;
use super::{AS_ROOT, Host, INTERFACE, Lab, Options, link};
use crate::ethtool;
use crate::xdp::{Attachment, Interface, Loader, Object, built};

/// Properties of the links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wire {
    pub rate: BytesPerSecond,
    /// Longest wait of a packet in the bucket's queue; packets that would wait longer are dropped.
    pub queue: Nanoseconds,
}

impl Wire {
    /// Why this build cannot make such links.
    pub fn cannot() -> Option<&'static str> {
        bpf::LOSSY.is_none().then_some(bpf::MISSING.unwrap_or("built without BPF programs"))
    }
}

/// Bytes that may be sent at once.
const BURST: u32 = 16 << 10;
/// The switch's ports, named by the host that they lead to.
const PORTS: [&str; 2] = ["to-a", "to-b"];

/// A lab over a switch.
#[derive(Debug)]
pub struct Switched {
    lab: Lab,
    /// The lossy programs where packets arrive: at the hosts, and at the switch.
    arrivals: [Vec<(Object, Attachment)>; 2],
    /// Held open, since the switch lives in it.
    _switch: Namespace,
}

impl Switched {
    /// Makes a lab over a switch that lasts as long as this value, and no longer than this process.
    ///
    /// # Errors
    /// As [`Lab::owned`]; the kernel has no bridge or no token bucket (`tbf`), or `tc` is missing.
    pub fn owned(options: &Options, wire: Wire) -> Result<Switched> {
        let switch = Namespace::unnamed("switch", "plimsoll-switch")?;
        let lab = Lab::joined(options, |hosts| join(hosts, &switch, options))?;
        // With such a program at the other end, a driver refuses packets longer than the wire's.
        let hosts = Host::BOTH.into_iter().map(|host| lab.inside(host, || lossy(INTERFACE))?);
        let ports = PORTS.into_iter().map(|port| switch.inside(|| lossy(port))?);
        let arrivals = [hosts.collect::<Result<_>>()?, ports.collect::<Result<_>>()?];
        for port in PORTS {
            let bits = format!("{:.0}bit", wire.rate.0 * 8.0);
            let (burst, queue) = (format!("{BURST}"), format!("{}us", wire.queue.0 / 1000));
            let bucket = ["qdisc", "replace", "dev", port, "root", "tbf", "rate", &bits, "burst", &burst];
            tc(&switch, &[&bucket[..], &["latency", &queue]].concat())?;
        }
        Ok(Switched { lab, arrivals, _switch: switch })
    }

    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Sets the share of packets lost from now on, each way, 0 to 1.
    pub fn lose(&self, share: f64) -> Result<()> {
        let threshold = (share.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u64;
        self.arrivals[0].iter().try_for_each(|(object, _)| object.set_variable("THRESHOLD", threshold))
    }

    /// Packets lost so far, both ways, without those that the queues dropped.
    pub fn lost(&self) -> Result<u64> {
        self.arrivals[0].iter().map(|(object, _)| object.value("lost")).sum()
    }
}

/// Joins both hosts to a bridge in `switch`.
fn join(hosts: &[Namespace; 2], switch: &Namespace, options: &Options) -> Result<()> {
    let mtu = options.mtu;
    let mut batch = String::from("link add bridge type bridge stp_state 0 mcast_snooping 0\n");
    for (port, host) in PORTS.into_iter().zip(hosts) {
        let queues = "numtxqueues 1 numrxqueues 1";
        let host = host.path();
        batch += &format!("link add {port} {queues} type veth peer name {INTERFACE} {queues} netns {host}\n");
        batch += &format!("link set {port} mtu {mtu} master bridge up\n");
    }
    batch += "link set bridge up\n";
    link::ip(switch, &batch)?;
    // Packets merged by the switch would count as one in the queue.
    switch.inside(|| PORTS.into_iter().try_for_each(|port| ethtool::set_gro(port, false)))?
}

fn lossy(port: &str) -> Result<(Object, Attachment)> {
    let object = Loader::new("lossy", built("a link that loses packets", bpf::LOSSY)?).load()?;
    let attachment = Attachment::new(object.program("lossy")?, &Interface::named(port)?, XdpMode::Native)?;
    Ok((object, attachment))
}

fn tc(switch: &Namespace, words: &[&str]) -> Result<()> {
    let mut command = Command::new("tc");
    switch.enter(command.args(words))?;
    let subject = format!("lab: switch: tc {}", words.join(" "));
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let next = match said.contains("not permitted") {
                true => AS_ROOT,
                false => "use a kernel with CONFIG_NET_SCH_TBF",
            };
            Err(Fault::new(subject, said, next).of_kind(FaultKind::Other))
        }
        Err(error) => Err(Fault::because(subject, error, "install it: `apt-get install iproute2`")),
    }
}
