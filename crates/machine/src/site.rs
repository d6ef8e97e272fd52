//! Sites: what runs code.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// A logical CPU as Linux numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CoreId(pub u32);

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core {}", self.0)
    }
}

/// Where code runs. Written `app`, `core:N`, `xdp:IFACE`, `tc:IFACE`, `tc:IFACE/egress`, `agent:HOST`, `agent:HOST/core:N`,
/// `agent:HOST/xdp:IFACE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Site {
    /// The caller's own thread.
    App,
    /// A dedicated core.
    Core(CoreId),
    /// The driver hook of an interface, or its NIC where that takes programs.
    Xdp(String),
    /// The kernel's hook for packets that an interface has received, or is to send.
    Tc(String, Direction),
    /// Another host, or the cores of a DPU; after a stroke which of the cores and driver hooks that its agent offers.
    Agent(String),
}

/// Which packets of an interface a tc hook sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Those that were received, before the kernel's protocols see them.
    Ingress,
    /// Those that are to be sent.
    Egress,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        })
    }
}

/// A site without its particulars: what a manifest can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SiteKind {
    /// The caller's own thread.
    App,
    /// A dedicated core.
    Core,
    /// The driver hook of an interface.
    Xdp,
    /// The tc hook of an interface.
    Tc,
    /// Another host, through its agent.
    Agent,
}

impl SiteKind {
    /// Whether what runs there can map memory of this process.
    pub fn maps_memory(self) -> bool {
        matches!(self, SiteKind::App | SiteKind::Core)
    }

    /// Whether it is a hook of the kernel, which runs bpf bodies and nothing else.
    pub fn is_hook(self) -> bool {
        matches!(self, SiteKind::Xdp | SiteKind::Tc)
    }
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SiteKind::App => "app",
            SiteKind::Core => "core",
            SiteKind::Xdp => "xdp",
            SiteKind::Tc => "tc",
            SiteKind::Agent => "agent",
        })
    }
}

impl Site {
    /// The kind of this site. A driver hook of another host is a driver hook: what runs there is the same.
    pub fn kind(&self) -> SiteKind {
        match self {
            Site::App => SiteKind::App,
            Site::Core(_) => SiteKind::Core,
            Site::Xdp(_) => SiteKind::Xdp,
            Site::Tc(..) => SiteKind::Tc,
            Site::Agent(_) if self.agent().is_some_and(|(_, part)| part.is_some_and(is_hook)) => SiteKind::Xdp,
            Site::Agent(_) => SiteKind::Agent,
        }
    }

    /// The interface of a hook, of whichever host.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Site::Xdp(interface) | Site::Tc(interface, _) => Some(interface),
            _ => self.agent()?.1?.strip_prefix("xdp:"),
        }
    }

    /// Whether it is a driver hook of another host.
    pub fn is_hook_of_agent(&self) -> bool {
        self.agent().is_some() && self.kind() == SiteKind::Xdp
    }

    /// Of a site at an agent its host, and which of the agent's sites it is, such as `core:3`, where that is named.
    pub fn agent(&self) -> Option<(&str, Option<&str>)> {
        let Site::Agent(name) = self else { return None };
        Some(name.split_once('/').map_or((name, None), |(host, part)| (host, Some(part))))
    }
}

fn is_hook(part: &str) -> bool {
    part.starts_with("xdp:")
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::App => f.pad("app"),
            Site::Core(core) => f.pad(&format!("core:{}", core.0)),
            Site::Xdp(interface) => f.pad(&format!("xdp:{interface}")),
            Site::Tc(interface, Direction::Ingress) => f.pad(&format!("tc:{interface}")),
            Site::Tc(interface, Direction::Egress) => f.pad(&format!("tc:{interface}/egress")),
            Site::Agent(host) => f.pad(&format!("agent:{host}")),
        }
    }
}

impl FromStr for Site {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let bad = |cause: &str| {
            let next = "write app, core:N, xdp:IFACE, tc:IFACE, tc:IFACE/egress, agent:HOST, agent:HOST/core:N or \
                        agent:HOST/xdp:IFACE";
            Fault::new(format!("site '{text}'"), cause, next)
        };
        match text.split_once(':') {
            None if text == "app" => Ok(Site::App),
            Some(("core", n)) => n.parse().map(|n| Site::Core(CoreId(n))).map_err(|_| bad("the core is not a number")),
            Some(("xdp", name)) if !name.is_empty() => Ok(Site::Xdp(name.into())),
            Some(("tc", name)) => match name.split_once('/') {
                None if !name.is_empty() => Ok(Site::Tc(name.into(), Direction::Ingress)),
                Some((name, "egress")) if !name.is_empty() => Ok(Site::Tc(name.into(), Direction::Egress)),
                Some((name, "ingress")) if !name.is_empty() => Ok(Site::Tc(name.into(), Direction::Ingress)),
                _ => Err(bad("it is no tc:IFACE or tc:IFACE/egress")),
            },
            Some(("agent", name)) if !name.is_empty() && !name.starts_with('/') => {
                let site = Site::Agent(name.into());
                match site.agent().and_then(|(_, part)| part).map(str::parse) {
                    None | Some(Ok(Site::Core(_) | Site::Xdp(_))) => Ok(site),
                    Some(_) => Err(bad("what comes after the host is no core and no driver hook of it")),
                }
            }
            _ => Err(bad("no such kind of site")),
        }
    }
}

impl TryFrom<String> for Site {
    type Error = Fault;
    fn try_from(text: String) -> Result<Self, Fault> {
        text.parse()
    }
}

impl From<Site> for String {
    fn from(site: Site) -> String {
        site.to_string()
    }
}

/// How a driver hook runs a program. Always asked for explicitly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the driver, before the kernel's own buffers exist.
    Native,
    /// In the kernel's receive path, after them.
    Generic,
    /// On the NIC.
    Hardware,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_read_back_what_they_print() {
        for text in [
            "app",
            "core:3",
            "xdp:eth0",
            "tc:eth0",
            "tc:eth0/egress",
            "agent:dpu-1",
            "agent:dpu-1/core:2",
            "agent:dpu-1:99/xdp:eth0",
        ] {
            assert_eq!(text.parse::<Site>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "apps",
            "core",
            "core:x",
            "xdp:",
            "tc:",
            "tc:/egress",
            "tc:a/out",
            "gpu:0",
            "agent:a/",
            "agent:a/app",
            "agent:a/xdp:",
            "agent:a/tc:eth0",
        ] {
            assert!(text.parse::<Site>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_driver_hook_is_one_on_whichever_host() {
        let of = |text: &str| {
            let site = text.parse::<Site>().unwrap();
            (site.kind(), site.interface().map(str::to_owned))
        };
        assert_eq!(of("agent:dpu/xdp:eth0"), (SiteKind::Xdp, Some("eth0".to_owned())));
        assert_eq!(of("xdp:eth0"), (SiteKind::Xdp, Some("eth0".to_owned())));
        assert_eq!(of("agent:dpu/core:1"), (SiteKind::Agent, None));
        assert_eq!(of("agent:dpu"), (SiteKind::Agent, None));
    }
}
