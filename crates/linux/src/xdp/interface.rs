//! An interface, held with its network namespace, and its attached programs.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;

use machine::{Fault, Result, XdpMode};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::syscall::{self, Command};
use crate::netlink::attributes;

/// An interface of the network namespace that the thread was in when it named it. Works from any thread.
#[derive(Debug)]
pub struct Interface {
    name: String,
    index: u32,
    namespace: File,
    netlink: OwnedFd,
}

/// A program attached to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub mode: XdpMode,
    pub id: u32,
    /// Its name; `None` where this user may not know it.
    pub name: Option<String>,
}

impl Interface {
    pub fn named(name: &str) -> Result<Interface> {
        let fault = |error: io::Error| {
            let next = match error.raw_os_error() {
                Some(libc::ENODEV) => "name one that `ip link` lists here",
                _ => "check that /proc is mounted and netlink is allowed",
            };
            Fault::because(format!("interface {name}"), error, next)
        };
        let open = || {
            let namespace = File::open("/proc/thread-self/ns/net")?;
            let flags = SocketFlags::CLOEXEC;
            let netlink = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
            let index = rustix::net::netdevice::name_to_index(&netlink, name)?;
            Ok(Interface { name: name.into(), index, namespace, netlink })
        };
        open().map_err(fault)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn index(&self) -> u32 {
        self.index
    }

    /// Identifies it among all interfaces of this machine: device and inode of its network namespace, and its index.
    pub fn identity(&self) -> Result<(u64, u64, u32)> {
        let about = self.namespace.metadata();
        let about = about.map_err(|error| {
            Fault::because(format!("namespace of {}", self.name), error, "check that /proc is there")
        })?;
        Ok((about.dev(), about.ino(), self.index))
    }

    /// Runs `work` in the interface's namespace: in place if the calling thread is in it, else on a new thread.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let inode = |file: &File| file.metadata().map(|about| (about.dev(), about.ino()));
        let here = File::open("/proc/thread-self/ns/net").and_then(|file| inode(&file));
        if here.is_ok_and(|here| inode(&self.namespace).is_ok_and(|there| here == there)) {
            return Ok(work());
        }
        thread::scope(|scope| {
            let worker = thread::Builder::new().name("xdp".into()).spawn_scoped(scope, || {
                self.enter()?;
                Ok(work())
            });
            let worker = worker.map_err(|error| Fault::because("thread", error, "raise the limit of threads"))?;
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the interface's namespace, for good.
    pub fn enter(&self) -> Result<()> {
        move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|error| {
            Fault::because(format!("namespace of {}", self.name), error, "run as root (CAP_SYS_ADMIN)")
        })
    }

    /// The name of its driver; `None` where the kernel does not tell it.
    pub fn driver(&self) -> Option<String> {
        self.inside(|| super::driver::name_of(&self.name)).ok().flatten()
    }

    /// The programs attached now, by the kernel's account.
    pub fn attached(&self) -> Result<Vec<Attached>> {
        let told = self.ask().map_err(|error| {
            Fault::because(
                format!("programs at interface {}", self.name),
                error,
                "check that the interface is still there",
            )
        })?;
        Ok(told.into_iter().map(|(mode, id)| Attached { mode, id, name: program_name(id) }).collect())
    }

    fn ask(&self) -> io::Result<Vec<(XdpMode, u32)>> {
        // nlmsghdr: length, RTM_GETLINK, NLM_F_REQUEST, sequence, port; ifinfomsg: family, type, index, flags, change.
        let mut request = [0u8; 32];
        request[0..4].copy_from_slice(&32u32.to_ne_bytes());
        request[4..6].copy_from_slice(&18u16.to_ne_bytes());
        request[6..8].copy_from_slice(&1u16.to_ne_bytes());
        request[20..24].copy_from_slice(&self.index.to_ne_bytes());
        rustix::net::send(&self.netlink, &request, SendFlags::empty())?;
        let mut answer = vec![0u8; 1 << 16];
        let (length, _) = rustix::net::recv(&self.netlink, &mut answer[..], RecvFlags::empty())?;
        let answer = &answer[..length];
        let field = |at: usize| answer.get(at..at + 4).map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four")));
        match answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]])) {
            Some(16) => Ok(programs(answer.get(32..).unwrap_or_default())),
            Some(2) => Err(io::Error::from_raw_os_error(-(field(16).unwrap_or(0) as i32))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Parses IFLA_XDP of `linux/if_link.h`: the attached programs' numbers by mode.
fn programs(link: &[u8]) -> Vec<(XdpMode, u32)> {
    const IFLA_XDP: u16 = 43;
    const ATTACHED: u16 = 2;
    const PROGRAM: u16 = 4;
    const BY_MODE: [(u16, u8, XdpMode); 3] =
        [(5, 1, XdpMode::Native), (6, 2, XdpMode::Generic), (7, 3, XdpMode::Hardware)];
    let Some((_, xdp)) = attributes(link).find(|(kind, _)| *kind == IFLA_XDP) else { return Vec::new() };
    let id = |wanted: u16| {
        let (_, content) = attributes(xdp).find(|(kind, _)| *kind == wanted)?;
        Some(u32::from_ne_bytes(content.get(..4)?.try_into().ok()?)).filter(|&id| id != 0)
    };
    let attached =
        attributes(xdp).find(|(kind, _)| *kind == ATTACHED).and_then(|(_, content)| content.first().copied());
    let by_mode: Vec<_> = BY_MODE.iter().filter_map(|&(kind, _, mode)| Some((mode, id(kind)?))).collect();
    match attached {
        // Kernels before 4.19 report one mode and one number.
        Some(one) if by_mode.is_empty() => BY_MODE
            .iter()
            .filter(|(_, number, _)| *number == one)
            .filter_map(|&(_, _, mode)| Some((mode, id(PROGRAM)?)))
            .collect(),
        _ => by_mode,
    }
}

pub(super) fn program_name(id: u32) -> Option<String> {
    let program = syscall::make(Command::ProgramOfId, &mut syscall::OfId { id, ..Default::default() }).ok()?;
    syscall::program_information(program.as_fd()).ok().map(|information| syscall::name_of(&information))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_are_read_without_panic() {
        assert!(programs(&[]).is_empty());
        assert!(programs(&[255; 64]).is_empty());
        assert!(programs(&[0; 64]).is_empty());
        // IFLA_XDP { ATTACHED 1, PROG_ID 9, DRV_PROG_ID 9 }
        let nested = [5, 0, 2, 0, 1, 0, 0, 0, 8, 0, 4, 0, 9, 0, 0, 0, 8, 0, 5, 0, 9, 0, 0, 0];
        let link = [&[28, 0, 43, 0][..], &nested].concat();
        assert_eq!(programs(&link), [(XdpMode::Native, 9)]);
    }

    #[test]
    fn loopback_is_there_and_another_is_not() {
        let interface = Interface::named("lo").unwrap();
        assert_eq!((interface.name(), interface.inside(|| 7).unwrap()), ("lo", 7));
        assert!(interface.attached().is_ok());
        let fault = Interface::named("nothing-of-it").unwrap_err();
        assert!(fault.to_string().contains("ip link"), "{fault}");
    }
}
