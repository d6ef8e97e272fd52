//! The veth pair between the hosts, made and configured with `ip`.

use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::str::FromStr;

use machine::{Fault, FaultKind, Result};

use super::namespace::Namespace;
use super::{AS_ROOT, Host, HostStatus, INTERFACE, Options, steering};
use crate::ethtool;

pub(super) fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Joins two hosts that are not joined yet.
pub(super) fn make(hosts: &[Namespace; 2]) -> Result<()> {
    pair(hosts, INTERFACE)
}

/// Joins two hosts that are joined already by one more pair of interfaces.
pub(super) fn add(hosts: &[Namespace; 2], link: u8, options: &Options) -> Result<()> {
    let interface = format!("lab{link}");
    pair(hosts, &interface)?;
    for (host, namespace) in Host::BOTH.into_iter().zip(hosts) {
        ip(namespace, &up(host, link, &interface, options.mtu))?;
        namespace.inside(|| ethtool::set_gro(&interface, options.gro))?.map_err(|fault| fault.within(host))?;
    }
    Ok(())
}

/// Joins two hosts by a veth pair with one queue each way, so that received packets have a single mask to be steered by.
fn pair(hosts: &[Namespace; 2], interface: &str) -> Result<()> {
    let [a, b] = hosts;
    let queues = "numtxqueues 1 numrxqueues 1";
    let peer = b.path();
    ip(a, &format!("link add {interface} {queues} type veth peer name {interface} {queues} netns {peer}\n"))
}

/// Brings up the host's interface of a link, as a batch for `ip`.
fn up(host: Host, link: u8, interface: &str, mtu: u16) -> String {
    let mut batch = format!("link set {interface} mtu {mtu} up\n");
    batch += &format!("address replace {}/30 dev {interface}\n", host.ipv4(link));
    if has_ipv6() {
        batch += &format!("address replace {}/64 dev {interface} nodad\n", host.ipv6(link));
    }
    batch
}

/// Whether the two hosts are joined with each other.
pub(super) fn joined(hosts: &[Namespace; 2]) -> Result<bool> {
    let indices = |host: &Namespace| {
        host.inside(|| {
            let number = |file| fs::read_to_string(attribute(file)).ok()?.trim().parse::<u32>().ok();
            Some((number("ifindex")?, number("iflink")?))
        })
    };
    Ok(match (indices(&hosts[0])?, indices(&hosts[1])?) {
        (Some((a, a_peer)), Some((b, b_peer))) => a == b_peer && b == a_peer,
        _ => false,
    })
}

/// Gives both hosts their addresses and brings their interfaces up with `options`, whatever their state.
pub(super) fn configure(hosts: &[Namespace; 2], options: &Options) -> Result<()> {
    for (host, namespace) in Host::BOTH.into_iter().zip(hosts) {
        let mut batch = String::from("link set lo up\n");
        batch += &up(host, 0, INTERFACE, options.mtu);
        ip(namespace, &batch)?;
        namespace
            .inside(|| {
                // A veth has NAPI threads only while it merges, but keeps the setting.
                set_threaded_napi(false)?;
                ethtool::set_gro(INTERFACE, options.gro)?;
                if options.threaded_napi {
                    set_threaded_napi(true)?;
                }
                steering::write(options.protocol_core)
            })?
            .map_err(|fault| fault.within(host))?;
    }
    Ok(())
}

/// Whether both hosts are up and have their addresses.
pub(super) fn configured(hosts: &[Namespace; 2]) -> Result<bool> {
    for (host, namespace) in Host::BOTH.into_iter().zip(hosts) {
        // The file cannot be read while the interface is down.
        let carrier = || fs::read_to_string(attribute("carrier")).is_ok_and(|carrier| carrier.trim() == "1");
        if !namespace.inside(|| carrier() && addresses(host).len() == wanted(host).len())? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn wanted(host: Host) -> Vec<IpAddr> {
    let v6 = has_ipv6().then(|| host.ipv6(0).into());
    [host.ipv4(0).into()].into_iter().chain(v6).collect()
}

/// Addresses of the host that the calling thread's namespace has: only these can be bound to.
fn addresses(host: Host) -> Vec<IpAddr> {
    wanted(host).into_iter().filter(|address| UdpSocket::bind((*address, 0)).is_ok()).collect()
}

/// The settings in force on the interface of the calling thread's namespace, without processes.
pub(super) fn status(host: Host) -> Result<HostStatus> {
    Ok(HostStatus {
        host,
        addresses: addresses(host),
        interface: INTERFACE.into(),
        mtu: read("mtu")?,
        gro: ethtool::gro(INTERFACE)?,
        threaded_napi: read::<u8>("threaded").ok().map(|threaded| threaded != 0),
        protocol_cores: steering::read()?,
        processes: Vec::new(),
    })
}

fn attribute(file: &str) -> String {
    format!("/sys/class/net/{INTERFACE}/{file}")
}

fn read<T: FromStr>(file: &str) -> Result<T> {
    let path = attribute(file);
    let fault = |cause: String| Fault::new(&path, cause, "make the lab anew with `plimsoll lab up`");
    let text = fs::read_to_string(&path).map_err(|error| fault(error.to_string()))?;
    text.trim().parse().map_err(|_| fault(format!("'{}' is not a number", text.trim())))
}

fn set_threaded_napi(on: bool) -> Result<()> {
    let path = attribute("threaded");
    match fs::write(&path, if on { "1" } else { "0" }) {
        Err(error) if !on && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) => Ok(()),
        outcome => outcome.map_err(|error| {
            Fault::because(&path, error, "leave --threaded-napi out, or use a kernel that has it (5.12 or newer)")
        }),
    }
}

/// Runs a batch of `ip` commands in a namespace.
pub(super) fn ip(namespace: &Namespace, batch: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]);
    namespace.enter(&mut command)?;
    run_ip(namespace.name(), &mut command, batch)
}

/// Runs `ip netns VERB NAME` on this machine.
pub(super) fn ip_netns(verb: &str, name: &str) -> Result<()> {
    run_ip(name, Command::new("ip").args(["netns", verb, name]), "")
}

fn run_ip(about: &str, command: &mut Command, input: &str) -> Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut exchange = || -> io::Result<Output> {
        let mut child = command.spawn()?;
        let written = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
        let output = child.wait_with_output()?;
        // An `ip` that gave up early leaves a broken pipe; its own message says more.
        if output.status.success() { written.map(|()| output) } else { Ok(output) }
    };
    let subject = format!("lab: {about}: ip");
    match exchange() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let mut said =
                said.lines().filter(|line| !line.starts_with("Command failed")).collect::<Vec<_>>().join("; ");
            if said.is_empty() {
                said = format!("it gave no reason ({})", output.status);
            }
            let forbidden = said.contains("not permitted") || said.contains("Permission denied");
            let (kind, next) = match said.contains("Unknown device type") {
                _ if forbidden => (FaultKind::NotPermitted, AS_ROOT),
                true => (FaultKind::Missing, "load the veth driver: `modprobe veth`"),
                false => (FaultKind::Other, "take the lab down with `plimsoll lab down` and try again"),
            };
            Err(Fault::new(subject, said, next).of_kind(kind))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let next = "install it: `apt-get install iproute2`";
            Err(Fault::new(subject, "not installed", next).of_kind(FaultKind::Missing))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Fault::because(subject, error, AS_ROOT)),
        Err(error) => Err(Fault::because(subject, error, "check the limits on processes and files (ulimit -a)")),
    }
}
