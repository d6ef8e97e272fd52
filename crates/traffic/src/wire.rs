//! The path of a stream: an interface that it leaves by, and one that it arrives at, on this host or another.

use std::sync::Arc;

use linux::interface_usage::InterfaceUsage;
use linux::lab::{Host, Lab};
use machine::{BitsPerSecond, Result, XdpMode};
use runtime::site::SiteDriver;
use runtime::site::agent::Connection;
use runtime::site::xdp::XdpSite;

use crate::guard::End;

/// Two ends, each in a network namespace of its own, in this process's, or on a host of its own.
#[derive(Clone)]
pub enum Wire {
    /// From one host of a lab to the other.
    Lab(Arc<Lab>),
    /// From one interface of this host to another.
    Here { near: String, far: String },
    /// From an interface of this host to one of another, whose agent offers its driver hook.
    Away { near: String, agent: Arc<Connection>, interface: String },
}

impl Wire {
    /// Runs `work` where the sender's interface is, with its name.
    pub fn near<T: Send>(&self, work: impl FnOnce(&str) -> T + Send) -> Result<T> {
        match self {
            Wire::Lab(lab) => lab.inside(Host::A, || work(lab.interface(Host::A))),
            Wire::Here { near, .. } | Wire::Away { near, .. } => Ok(work(near)),
        }
    }

    /// Opens the driver hook of the receiver's interface.
    pub fn far(&self, mode: XdpMode) -> Result<Box<dyn SiteDriver>> {
        Ok(match self {
            Wire::Lab(lab) => {
                let hook = lab.inside(Host::B, || XdpSite::open(lab.interface(Host::B), mode))??;
                // The name differs from that of the hook in the sender's namespace.
                Box::new(hook.named(&format!("{}@far", lab.interface(Host::B))))
            }
            Wire::Here { far, .. } => Box::new(XdpSite::open(far, mode)?),
            Wire::Away { agent, interface, .. } => Box::new(agent.hook(interface, mode)?),
        })
    }

    pub fn near_name(&self) -> String {
        match self {
            Wire::Lab(lab) => lab.interface(Host::A).into(),
            Wire::Here { near, .. } | Wire::Away { near, .. } => near.clone(),
        }
    }
}

impl End {
    /// The interface `name` of the caller's network namespace.
    ///
    /// # Errors
    /// There is none, or the kernel does not tell what the guards need.
    pub fn live(name: &str) -> Result<End> {
        Ok(End::of(name, InterfaceUsage::live(name)?))
    }

    /// The end by what its host reports; `name` is the user's name for it.
    pub fn of(name: &str, usage: InterfaceUsage) -> End {
        End {
            name: name.to_owned(),
            up: usage.up,
            loopback: usage.loopback,
            address: usage.address.and_then(|text| text.parse().ok()),
            mtu: usage.mtu.map(|mtu| u16::try_from(mtu.0).unwrap_or(u16::MAX)),
            speed: usage.speed.map(|speed| BitsPerSecond(8.0 * speed.0)),
            carries: usage.carries,
            default_route: usage.default_route,
            connection: usage.connection.map(|peer| peer.to_string()),
            programs: usage.programs,
        }
    }
}
