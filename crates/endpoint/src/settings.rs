//! Settings of an endpoint that finds its peers by name.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use machine::{Dilation, Fault, NetworkKind, Result, Site};

use crate::faults::WireFaults;
use crate::semantics::Semantics;

/// The network that carries messages to other hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// The kernel's UDP.
    #[default]
    Udp,
    /// Frames through an interface, past the kernel's stack.
    Afxdp(String),
    /// The kernel's UDP outward; inward a program in the driver's hook checks sequences, acknowledges and places packets.
    Xdp(String),
}

impl Network {
    /// Each kind of network, over `interface` where it is bound to one.
    pub fn all(interface: &str) -> Vec<Network> {
        NetworkKind::ALL.map(|kind| Network::of(kind, interface)).to_vec()
    }

    /// The network of a kind; `interface` is ignored where the kind is bound to none.
    pub fn of(kind: NetworkKind, interface: &str) -> Network {
        match kind {
            NetworkKind::Udp => Network::Udp,
            NetworkKind::Afxdp => Network::Afxdp(interface.into()),
            NetworkKind::Xdp => Network::Xdp(interface.into()),
        }
    }

    pub fn kind(&self) -> NetworkKind {
        match self {
            Network::Udp => NetworkKind::Udp,
            Network::Afxdp(_) => NetworkKind::Afxdp,
            Network::Xdp(_) => NetworkKind::Xdp,
        }
    }

    /// The interface that the network is bound to.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Network::Udp => None,
            Network::Afxdp(interface) | Network::Xdp(interface) => Some(interface),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.interface() {
            None => f.pad(self.kind().name()),
            Some(interface) => f.pad(&format!("{}:{interface}", self.kind())),
        }
    }
}

impl FromStr for Network {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self> {
        let (_, interface) = text.split_once(':').unwrap_or_default();
        let known =
            Network::all(interface).into_iter().find(|one| one.interface() != Some("") && one.to_string() == text);
        known.ok_or_else(|| {
            let forms: Vec<_> = Network::all("IFACE").iter().map(Network::to_string).collect();
            machine::named::unknown("network", text, &forms.iter().map(String::as_str).collect::<Vec<_>>())
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `app` or `core:N`.
    pub placement: Site,
    pub network: Network,
    /// The IP address of the network port. By default that of the interface named by `network`, else of the first
    /// interface that is up and no loopback, else the loopback's.
    pub address: Option<IpAddr>,
    /// Whether peers on this host are reached by shared memory; else by the network port.
    pub shm: bool,
    /// The `plimsoll` program, which becomes the node's engine where placement `core:N` finds none.
    pub program: Option<PathBuf>,
    /// The semantics of messages.
    pub semantics: Semantics,
    /// Factor by which protocol work is stretched.
    pub dilation: Dilation,
    /// Faults made on the way to the network, for tests.
    pub faults: Option<WireFaults>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            placement: Site::App,
            network: Network::Udp,
            address: None,
            shm: true,
            program: None,
            semantics: Semantics::Matched,
            dilation: Dilation::NONE,
            faults: None,
        }
    }
}

impl Settings {
    /// Reads PLACEMENT, NETWORK, ADDRESS, SHM, PROGRAM, SEMANTICS, DILATE and WIRE from `value`; each has a default.
    pub fn read(value: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let mut settings = Settings::default();
        if let Some(text) = value("PLACEMENT") {
            settings.placement = text.parse()?;
        }
        if let Some(text) = value("NETWORK") {
            settings.network = text.parse()?;
        }
        if let Some(text) = value("ADDRESS") {
            let parsed = text.parse().map_err(|e| {
                Fault::because(format!("address '{text}'"), e, "write the IP address of an interface of this host")
            })?;
            settings.address = Some(parsed);
        }
        if let Some(text) = value("SHM") {
            settings.shm = match text.as_str() {
                "yes" | "1" | "true" | "on" => true,
                "no" | "0" | "false" | "off" => false,
                _ => return Err(Fault::new(format!("SHM '{text}'"), "it is neither yes nor no", "write yes or no")),
            };
        }
        settings.program = value("PROGRAM").map(PathBuf::from);
        if let Some(text) = value("SEMANTICS") {
            settings.semantics = text.parse()?;
        }
        if let Some(text) = value("DILATE") {
            settings.dilation = text.parse()?;
        }
        if let Some(text) = value("WIRE") {
            settings.faults = Some(text.parse()?);
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings> {
        Settings::read(|key| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn settings_are_read_from_text() {
        assert_eq!(read(&[]).unwrap(), Settings::default());
        let all = [
            ("PLACEMENT", "core:1"),
            ("NETWORK", "afxdp:eth0"),
            ("ADDRESS", "10.0.0.1"),
            ("SHM", "no"),
            ("SEMANTICS", "queue-pair-shared"),
            ("DILATE", "1.5"),
        ];
        let got = read(&all).unwrap();
        assert_eq!(got.network.to_string(), "afxdp:eth0");
        assert_eq!((got.placement.to_string().as_str(), got.shm, got.dilation.factor()), ("core:1", false, 1.5));
        assert_eq!(got.semantics, Semantics::QueuePairShared);
        for bad in [
            ("PLACEMENT", "gpu:0"),
            ("NETWORK", "afxdp:"),
            ("ADDRESS", "x"),
            ("SHM", "maybe"),
            ("WIRE", "loss"),
            ("SEMANTICS", "verbs"),
            ("DILATE", "0.5"),
        ] {
            assert!(read(&[bad]).is_err(), "{bad:?}");
        }
    }
}
