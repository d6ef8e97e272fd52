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

impl FromStr for CoreId {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let refused = || Fault::new(format!("core '{text}'"), "it is no number of a core", "write it like 3");
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).map(CoreId).ok_or_else(refused)
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
    /// Another host or a DPU; behind a slash one of the cores and driver hooks that its agent offers.
    Agent(String),
}

crate::named! {
    /// Which packets of an interface a tc hook sees.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Direction {
        /// Received packets, before the kernel's protocols see them.
        Ingress = "ingress",
        /// Packets to be sent.
        Egress = "egress",
    }
}

crate::named! {
    /// The kind of a site: what a manifest can ask for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum SiteKind {
        /// The caller's own thread.
        App = "app",
        /// A dedicated core.
        Core = "core",
        /// The driver hook of an interface.
        Xdp = "xdp",
        /// The tc hook of an interface.
        Tc = "tc",
        /// Another host, through its agent.
        Agent = "agent",
    }
}

impl SiteKind {
    /// Whether code there can map memory of this process.
    pub fn maps_memory(self) -> bool {
        matches!(self, SiteKind::App | SiteKind::Core)
    }

    /// Whether it is a kernel hook, which runs bpf bodies only.
    pub fn is_hook(self) -> bool {
        matches!(self, SiteKind::Xdp | SiteKind::Tc)
    }
}

impl Site {
    /// The kind of this site. A driver hook of another host counts as a driver hook, since it runs the same code.
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

    /// The interface of a hook, on any host.
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

    /// For a site at an agent: its host, and the agent's site, such as `core:3`, where one is named.
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
            Some(("xdp" | "tc", name)) if name.contains(':') => {
                Err(bad("a mode of the driver hook has no meaning here"))
            }
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

crate::named! {
    /// How a driver hook runs a program: native by default, without fallback to another mode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum XdpMode ("mode") {
        /// In the driver, before the kernel's own buffers exist.
        Native = "native",
        /// In the kernel's receive path, after them.
        Generic = "generic",
        /// On the NIC.
        Hardware = "hardware",
    }
}

/// A site in use, with the mode of a driver hook. Written as a [`Site`], a driver hook also as `xdp:IFACE:MODE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SiteInMode {
    /// The site.
    pub site: Site,
    /// The mode that was asked for, only at a driver hook; the default is native.
    pub mode: Option<XdpMode>,
}

impl SiteInMode {
    /// The mode in which its program runs; `None` for other sites.
    pub fn runs_in(&self) -> Option<XdpMode> {
        (self.site.kind() == SiteKind::Xdp).then(|| self.mode.unwrap_or(XdpMode::Native))
    }
}

impl FromStr for SiteInMode {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let parts = text.rsplit_once(':');
        let hook = parts.and_then(|(site, mode)| Some((site.parse::<Site>().ok()?, mode)));
        match hook.filter(|(site, _)| site.kind() == SiteKind::Xdp) {
            Some((site, mode)) => {
                let mode = mode.parse().map_err(|fault: Fault| fault.within(format!("site '{text}'")))?;
                Ok(SiteInMode { site, mode: Some(mode) })
            }
            None => Ok(SiteInMode { site: text.parse()?, mode: None }),
        }
    }
}

impl TryFrom<String> for SiteInMode {
    type Error = Fault;
    fn try_from(text: String) -> Result<Self, Fault> {
        text.parse()
    }
}

impl From<SiteInMode> for String {
    fn from(site: SiteInMode) -> String {
        site.to_string()
    }
}

impl From<Site> for SiteInMode {
    fn from(site: Site) -> SiteInMode {
        SiteInMode { site, mode: None }
    }
}

impl fmt::Display for SiteInMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            Some(mode) => f.pad(&format!("{}:{mode}", self.site)),
            None => self.site.fmt(f),
        }
    }
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
            "xdp:eth0:native",
        ] {
            assert!(text.parse::<Site>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_mode_is_one_of_a_driver_hook() {
        let mode = |text: &str| text.parse::<SiteInMode>().map(|of| (of.site.to_string(), of.mode));
        for (text, site, is) in [
            ("app", "app", None),
            ("core:3", "core:3", None),
            ("xdp:eth0", "xdp:eth0", None),
            ("xdp:eth0:generic", "xdp:eth0", Some(XdpMode::Generic)),
            ("xdp:native", "xdp:native", None),
            ("agent:dpu:99/xdp:eth0:native", "agent:dpu:99/xdp:eth0", Some(XdpMode::Native)),
            ("agent:dpu:99", "agent:dpu:99", None),
        ] {
            assert_eq!(mode(text).unwrap(), (site.to_owned(), is), "{text}");
            assert_eq!(text.parse::<SiteInMode>().unwrap().to_string(), text);
        }
        let refused = mode("xdp:eth0:fast").unwrap_err().to_string();
        assert!(refused.contains("'xdp:eth0:fast'") && refused.contains("native, generic or hardware"), "{refused}");
        for text in ["core:3:native", "tc:eth0:native:", "app:native", "xdp:", "xdp:a:b:native"] {
            assert!(mode(text).is_err(), "{text}");
        }
        let runs_in = |text: &str| text.parse::<SiteInMode>().unwrap().runs_in();
        assert_eq!(
            [runs_in("xdp:a"), runs_in("xdp:a:generic"), runs_in("app")],
            [Some(XdpMode::Native), Some(XdpMode::Generic), None]
        );
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
