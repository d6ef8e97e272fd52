//! The provider's configuration: environment variables FI_PLIMSOLL_*, by libfabric's convention for providers.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Once;

use endpoint::Settings;
use machine::{Fault, Result};

/// Names and help texts, for `fi_info -e`.
pub const KNOWN: [(&CStr, &CStr); 11] = [
    (c"placement", c"Where the message engine runs: app (the caller's own thread) or core:N (default: app)"),
    (c"network", c"What carries messages to other hosts: udp, afxdp:IFACE or xdp:IFACE (default: udp)"),
    (c"address", c"IP address of this host that others reach it at (default: that of the first interface that is up)"),
    (c"shm", c"Whether ranks of one host meet in shared memory: yes or no (default: yes)"),
    (
        c"semantics",
        c"What stands between messages and packets: matched (the engine), queue-pair or queue-pair-shared (default: matched)",
    ),
    (c"dilate", c"How many times as long the engine's work takes, 1 to 100, by spinning: no clock (default: 1)"),
    (c"wire", c"Faults made on the way to the network, for tests: loss=1%,duplicate=1%,reorder=1%,seed=7"),
    (
        c"report",
        c"Whether an endpoint tells on stderr, as it closes, what carried its messages: yes or no (default: no)",
    ),
    (c"record", c"A folder in which an endpoint keeps its report until it closes, for launchers whose ranks are killed"),
    (c"account", c"Whether the time inside the provider's calls is measured for the report: yes or no (default: no)"),
    (c"program", c"The plimsoll program, which ranks start as the engine's process of core:N where none runs"),
];

fn value(name: &str) -> Option<String> {
    std::env::var(format!("FI_PLIMSOLL_{name}")).ok().filter(|text| !text.is_empty())
}

/// The settings of endpoints opened from now on.
pub fn settings() -> Result<Settings> {
    Settings::read(value).map_err(|fault| fault.within("FI_PLIMSOLL"))
}

/// Whether endpoints report as they close.
pub fn reports() -> bool {
    is_on("REPORT")
}

/// The folder in which endpoints keep their reports.
pub fn records() -> Option<PathBuf> {
    value("RECORD").map(PathBuf::from)
}

/// Whether the time inside calls is measured.
pub fn accounts() -> bool {
    is_on("ACCOUNT")
}

fn is_on(name: &str) -> bool {
    matches!(value(name).as_deref(), Some("yes" | "1" | "true" | "on"))
}

/// Reports a mistake in the configuration, once.
pub fn complain(fault: &Fault) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| eprintln!("plimsoll: {fault}"));
}
