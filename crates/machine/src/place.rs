//! Sites and ports of a machine: where code can run and what can move its bytes.

use crate::availability::{Availability, Feature};
use crate::choice::Choice;
use crate::control::Ground;
use crate::cpuset::CpuSet;
use crate::interface::{Interface, Role, Xdp};
use crate::privileges::{AF_XDP_RIGHTS, Capability, Limit, Privileges, XDP_RIGHTS};
use crate::processor::Processor;
use crate::quantity::Bytes;
use crate::site::Site;
use crate::source::Source;
use crate::topology::Cpu;

/// Locked memory that an AF_XDP socket needs at least: a UMEM of 4096 frames of 4 KiB.
const UMEM: Bytes = Bytes(16 << 20);

pub(crate) fn sites(ground: &Ground, processor: &Processor, usable: &CpuSet) -> Vec<Feature> {
    let app = match usable.is_empty() {
        false => Availability::present(format!("the caller's own thread, on cores {usable}")),
        true => Availability::not_permitted("this process may run on no core that is online", "widen its cpuset"),
    };
    let mut sites = vec![Feature::new(Site::App.to_string(), app)];
    let whole = Choice::among(ground.topology, usable.iter()).whole();
    for cpu in &ground.topology.cpus {
        sites.push(Feature::new(Site::Core(cpu.id).to_string(), core(ground, cpu, usable, &whole)));
    }
    for interface in ground.interfaces.iter().filter(|interface| interface.counts()) {
        sites.push(Feature::new(Site::Xdp(interface.name.clone()).to_string(), xdp(ground, interface)));
    }
    sites.push(Feature::new("agent", agent(ground, processor)));
    sites
}

pub(crate) fn ports(ground: &Ground) -> Vec<Feature> {
    let mut ports = vec![Feature::new("shm", shm(ground)), Feature::new("udp", udp(ground))];
    for interface in ground.interfaces.iter().filter(|interface| interface.counts()) {
        ports.push(Feature::new(format!("afxdp:{}", interface.name), afxdp(ground, interface)));
    }
    ports
}

/// `whole`: one thread of each free core.
fn core(ground: &Ground, cpu: &Cpu, usable: &CpuSet, whole: &CpuSet) -> Availability {
    if !usable.contains(cpu.id) {
        return Availability::not_permitted(
            format!("outside this process's cores {usable}"),
            "widen its affinity (taskset) or its cpuset",
        );
    }
    let mut parts = vec![format!("package {}", cpu.package)];
    parts.extend(cpu.node.map(|node| format!("node {node}")));
    parts.extend(cpu.kind.map(|kind| kind.name().to_owned()));
    if !whole.contains(cpu.id) {
        parts.push("second thread of its core".into());
    }
    let others = cpu.threads.difference(usable);
    if !others.is_empty() {
        parts.push(format!("the other thread of its core, {others}, is not this process's"));
    }
    if ground.topology.isolated.contains(cpu.id) {
        parts.push("isolated: nothing else is scheduled here".into());
    }
    match whole.len() {
        1 => parts.push("the only core: an engine here takes the application's time".into()),
        2 => parts.push("one of only two: the other remains for the application".into()),
        _ => {}
    }
    Availability::present(parts.join(", "))
}

fn xdp(ground: &Ground, interface: &Interface) -> Availability {
    let where_ = match &interface.xdp {
        Xdp::Native { .. } => format!("native in driver {} (by the list of Linux 6.12, not tried)", interface.kind()),
        Xdp::Generic { reason } => format!("generic only: {reason}"),
        Xdp::Unknown { reason, next } => format!("generic; native unknown: {reason}; {next}"),
    };
    bpf_place(ground, interface, where_, XDP_RIGHTS)
}

/// The common needs of XDP sites and AF_XDP ports: the kernel, the right, the interface.
fn bpf_place(ground: &Ground, interface: &Interface, detail: String, rights: &str) -> Availability {
    if ground.source.word("/proc/sys/kernel/unprivileged_bpf_disabled").is_none() {
        return Availability::absent("the kernel has no bpf system call", "use a kernel with CONFIG_BPF_SYSCALL");
    }
    if !interface.up {
        return Availability::absent("the interface is down", format!("`ip link set dev {} up`", interface.name));
    }
    if !ground.privileges.may_attach_bpf() {
        return Availability::not_permitted(detail, format!("run as root, or grant {rights}"));
    }
    Availability::present(detail)
}

fn agent(ground: &Ground, processor: &Processor) -> Availability {
    let arm = processor.architecture.as_deref() == Some("aarch64");
    let host_function = ground.interfaces.iter().find(|interface| interface.role == Role::HostFunction);
    let dpu = ground.interfaces.iter().find_map(|interface| Some((interface, interface.dpu.as_deref()?)));
    let named = processor.product.as_deref().is_some_and(|product| product.contains("BlueField"));
    if arm && (named || host_function.is_some()) {
        let what = dpu.map_or("DPU", |(_, product)| product);
        let seen = host_function.map_or(String::new(), |i| format!("; its host is behind {}", i.name));
        return Availability::absent(
            format!("these are the cores of a {what} itself{seen}"),
            "run `plimsoll agent` here and name this machine as agent:HOST on its host",
        );
    }
    match dpu {
        Some((interface, product)) => {
            let address = interface.device.as_deref().unwrap_or("its device");
            Availability::present(format!(
                "{product} at {address} ({}) has cores of its own: run `plimsoll agent` there and write agent:HOST",
                interface.name
            ))
        }
        None => Availability::absent("no DPU is seen", "run `plimsoll agent` on another host and write agent:HOST"),
    }
}

/// Whether one process may copy another's memory, so that large messages move by one copy. Yama's `ptrace_scope` decides
/// (the kernel's `Documentation/admin-guide/LSM/Yama.rst`).
pub fn single_copy(source: &Source, privileges: &Privileges) -> Availability {
    match source.number::<u8>("/proc/sys/kernel/yama/ptrace_scope") {
        Some(3) => Availability::not_permitted(
            "Yama forbids process_vm_readv until the next boot",
            "boot with a kernel.yama.ptrace_scope below 3",
        ),
        _ if privileges.has_on_host(Capability::SysPtrace) => Availability::present("by process_vm_readv"),
        None | Some(0) => Availability::present("by process_vm_readv between processes of one user"),
        Some(1) => Availability::present(
            "by process_vm_readv only where the peer allows it with PR_SET_PTRACER (ptrace_scope is 1)",
        ),
        Some(n) => Availability::not_permitted(
            format!("ptrace_scope is {n}"),
            "run as root or `sysctl kernel.yama.ptrace_scope=1`",
        ),
    }
}

fn shm(ground: &Ground) -> Availability {
    let copy = match single_copy(ground.source, ground.privileges) {
        Availability::Present { detail } => format!("single copy {detail}"),
        Availability::Absent { reason, next } | Availability::NotPermitted { reason, next } => {
            format!("no single copy: {reason}; {next}")
        }
    };
    let huge = ground.source.names("/sys/kernel/mm/hugepages", |name| name.starts_with("hugepages-"));
    let reserved: u64 = huge
        .unwrap_or_default()
        .iter()
        .filter_map(|size| ground.source.number::<u64>(&format!("/sys/kernel/mm/hugepages/{size}/nr_hugepages")))
        .fold(0, u64::saturating_add);
    let huge = if reserved > 0 { format!("; {reserved} huge pages reserved") } else { String::new() };
    Availability::present(format!("ordered, reliable; {copy}; locked memory {}{huge}", locked(ground)))
}

fn locked(ground: &Ground) -> String {
    match ground.privileges.locked_memory {
        _ if ground.privileges.has_on_host(Capability::IpcLock) => "unlimited".into(),
        Some(Limit::Unlimited) => "unlimited".into(),
        Some(Limit::At(bytes)) => format!("up to {}", Bytes(bytes)),
        None => "limit unknown".into(),
    }
}

fn udp(ground: &Ground) -> Availability {
    let release = ground.source.word("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let offload = match version {
        v if v >= (5, 0) => "GSO and GRO",
        v if v >= (4, 18) => "GSO, no GRO before Linux 5.0",
        _ => "no GSO before Linux 4.18",
    };
    let buffer = |which: &str| ground.source.number(&format!("/proc/sys/net/core/{which}")).map(Bytes);
    let buffers = match (buffer("rmem_max"), buffer("wmem_max")) {
        (Some(receive), Some(send)) => format!("; socket buffers up to {receive} in, {send} out"),
        _ => String::new(),
    };
    match ground.interfaces_hidden || ground.interfaces.iter().any(|interface| interface.up) {
        true => Availability::present(format!("neither ordered nor reliable; {offload}{buffers}")),
        false => Availability::absent("no interface is up", "`ip link set dev lo up`"),
    }
}

fn afxdp(ground: &Ground, interface: &Interface) -> Availability {
    let protocols = ground.source.text("/proc/net/protocols").unwrap_or_default();
    if !protocols.lines().any(|line| line.split_whitespace().next() == Some("XDP")) {
        return Availability::absent("the kernel has no AF_XDP sockets", "use a kernel with CONFIG_XDP_SOCKETS");
    }
    if !ground.privileges.has(Capability::NetRaw) && interface.up {
        let next = format!("run as root, or grant {AF_XDP_RIGHTS}");
        return Availability::not_permitted("AF_XDP needs CAP_NET_RAW", next);
    }
    let mut detail = match &interface.xdp {
        Xdp::Native { zero_copy: true } => "zero copy (by the list of Linux 6.12, not tried)".to_owned(),
        Xdp::Native { zero_copy: false } => "copy mode: the driver has no zero copy".to_owned(),
        Xdp::Generic { reason } => format!("copy mode through generic XDP: {reason}"),
        Xdp::Unknown { reason, .. } => format!("copy mode; zero copy unknown: {reason}"),
    };
    if !ground.privileges.may_lock(UMEM) {
        detail += &format!("; locked memory {} is less than {UMEM}: raise `ulimit -l`", locked(ground));
    }
    bpf_place(ground, interface, detail, AF_XDP_RIGHTS)
}
