//! A link between the hosts of a lab that is slower than memory and loses packets: a token bucket at each host's way out, a
//! program at each host's driver hook.

use std::process::{Command, Stdio};

use machine::{BytesPerSecond, Fault, FaultKind, Nanoseconds, Result, XdpMode};

use super::{AS_ROOT, Host, INTERFACE, Lab};
use crate::xdp::{Attachment, Interface, Loader, Object, built};

/// The link that is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wire {
    pub rate: BytesPerSecond,
    /// How long a packet may wait in the bucket's queue; what would wait longer is dropped.
    pub queue: Nanoseconds,
}

impl Wire {
    /// Why this build can make no such link.
    pub fn cannot() -> Option<&'static str> {
        bpf::LOSSY.is_none().then_some(bpf::MISSING.unwrap_or("built without BPF programs"))
    }
}

/// Bytes that may leave at once. With the programs there is no offload, so that each packet is one of the wire.
const BURST: u32 = 16 << 10;

/// A link in force while this lives.
#[derive(Debug)]
pub struct Degraded<'a> {
    lab: &'a Lab,
    ends: Vec<(Object, Attachment)>,
}

impl Lab {
    /// # Errors
    /// The kernel has no token bucket (`tbf`), `tc` is missing, or the interfaces have a program already.
    pub fn degrade(&self, wire: Wire) -> Result<Degraded<'_>> {
        let mut degraded = Degraded { lab: self, ends: Vec::new() };
        for host in Host::BOTH {
            // The program first: the driver then takes no packets that are longer than the wire's.
            degraded.ends.push(self.inside(host, lossy)?.map_err(|fault| fault.within(host))?);
            let bits = format!("{:.0}bit", wire.rate.0 * 8.0);
            let (burst, queue) = (format!("{BURST}"), format!("{}us", wire.queue.0 / 1000));
            let bucket = ["qdisc", "replace", "dev", INTERFACE, "root", "tbf", "rate", &bits, "burst", &burst];
            self.tc(host, &[&bucket[..], &["latency", &queue]].concat())?;
        }
        Ok(degraded)
    }

    fn tc(&self, host: Host, words: &[&str]) -> Result<()> {
        let mut command = Command::new("tc");
        self.enter(host, command.args(words))?;
        let subject = format!("{host}: tc {}", words.join(" "));
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
}

fn lossy() -> Result<(Object, Attachment)> {
    let object = Loader::new("lossy", built("a link that loses packets", bpf::LOSSY)?).load()?;
    let attachment = Attachment::new(object.program("lossy")?, &Interface::named(INTERFACE)?, XdpMode::Native)?;
    Ok((object, attachment))
}

impl Degraded<'_> {
    /// The share of packets that is lost from now on, each way, 0 to 1.
    pub fn lose(&self, share: f64) -> Result<()> {
        let threshold = (share.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u64;
        self.ends.iter().try_for_each(|(object, _)| object.set_variable("THRESHOLD", threshold))
    }

    /// Packets lost so far, both ways.
    pub fn lost(&self) -> Result<u64> {
        self.ends.iter().map(|(object, _)| object.value("lost")).sum()
    }
}

impl Drop for Degraded<'_> {
    fn drop(&mut self) {
        for host in Host::BOTH {
            let _ = self.lab.tc(host, &["qdisc", "del", "dev", INTERFACE, "root"]);
        }
    }
}
