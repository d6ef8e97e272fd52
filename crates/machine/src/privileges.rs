//! Privileges of the reading process: capabilities, allowed cores, limits.

use serde::{Deserialize, Serialize};

use crate::cpuset::CpuSet;
use crate::quantity::Bytes;
use crate::source::Source;

/// The capabilities (`capabilities(7)`) that decide something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// `CAP_NET_ADMIN`: configure interfaces, attach programs to them.
    NetAdmin,
    /// `CAP_NET_RAW`: open raw and packet sockets.
    NetRaw,
    /// `CAP_IPC_LOCK`: lock memory beyond the limit.
    IpcLock,
    /// `CAP_SYS_PTRACE`: read and write other processes' memory.
    SysPtrace,
    /// `CAP_SYS_ADMIN`: mount, enter namespaces and much else.
    SysAdmin,
    /// `CAP_SYS_NICE`: real-time scheduling, other processes' affinity.
    SysNice,
    /// `CAP_PERFMON`: performance counters of the whole system.
    Perfmon,
    /// `CAP_BPF`: load BPF programs.
    Bpf,
}

/// Rights that an AF_XDP port needs without root: to load and attach its program, and to open its socket.
pub const AF_XDP_RIGHTS: &str = "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF";
/// Rights that a program at a driver's hook needs without root.
pub const XDP_RIGHTS: &str = "CAP_BPF and CAP_NET_ADMIN";

impl Capability {
    fn bit(self) -> u32 {
        match self {
            Capability::NetAdmin => 12,
            Capability::NetRaw => 13,
            Capability::IpcLock => 14,
            Capability::SysPtrace => 19,
            Capability::SysAdmin => 21,
            Capability::SysNice => 23,
            Capability::Perfmon => 38,
            Capability::Bpf => 39,
        }
    }
}

/// A soft limit of `getrlimit(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// There is no limit.
    Unlimited,
    /// The limit, in the unit of its resource.
    At(u64),
}

/// The rights of the process that read the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Privileges {
    /// The effective user; `None` where /proc/self/status could not be read.
    pub effective_user: Option<u32>,
    /// `CapEff`, one bit for each capability.
    pub capabilities: u64,
    /// Whether it is in a user namespace, where capabilities reach no further than the namespace's own resources.
    pub user_namespace: bool,
    /// Cores this process may run on.
    pub allowed: Option<CpuSet>,
    /// `RLIMIT_MEMLOCK` in bytes.
    pub locked_memory: Option<Limit>,
    /// `RLIMIT_NOFILE`.
    pub open_files: Option<Limit>,
    /// `RLIMIT_RTPRIO`.
    pub realtime_priority: Option<Limit>,
}

impl Privileges {
    /// Reads what the process that looks at `source` may do.
    pub fn read(source: &Source) -> Privileges {
        let status = source.text("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let limits = source.text("/proc/self/limits").unwrap_or_default();
        let limit = |name: &str| {
            let soft = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
            if soft == "unlimited" { Some(Limit::Unlimited) } else { soft.parse().ok().map(Limit::At) }
        };
        let identity = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
        Privileges {
            effective_user: field("Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok()),
            capabilities: field("CapEff").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0),
            user_namespace: source.text("/proc/self/uid_map").is_ok_and(|map| !identity(map)),
            allowed: field("Cpus_allowed_list").and_then(CpuSet::from_list),
            locked_memory: limit("Max locked memory"),
            open_files: limit("Max open files"),
            realtime_priority: limit("Max realtime priority"),
        }
    }

    /// Whether the process has this capability in force.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities & (1 << capability.bit()) != 0
    }

    /// Whether the process has this capability towards the host itself, not only inside a user namespace.
    pub fn has_on_host(&self, capability: Capability) -> bool {
        self.has(capability) && !self.user_namespace
    }

    /// Whether the process may load BPF programs and attach them to an interface.
    pub fn may_attach_bpf(&self) -> bool {
        let load = self.has_on_host(Capability::Bpf) || self.has_on_host(Capability::SysAdmin);
        load && self.has(Capability::NetAdmin)
    }

    /// Whether the process may lock this much memory.
    pub fn may_lock(&self, amount: Bytes) -> bool {
        match self.locked_memory {
            _ if self.has_on_host(Capability::IpcLock) => true,
            Some(Limit::At(limit)) => amount.0 <= limit,
            Some(Limit::Unlimited) => true,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_the_same_rights() {
        let ports = include_str!("../../../docs/ports.md");
        let needs = ports.lines().find(|line| line.starts_with("| needs |")).unwrap();
        for rights in [AF_XDP_RIGHTS, XDP_RIGHTS] {
            assert!(needs.contains(&format!("root, or {rights}")), "{rights}: {needs}");
        }
    }
}
