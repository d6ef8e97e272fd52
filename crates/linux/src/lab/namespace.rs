//! A network namespace, and ways to run code in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;

use machine::{Fault, Result};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::AS_ROOT;

/// From `linux/magic.h`.
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

/// A network namespace, held open, and its host name.
#[derive(Debug)]
pub(super) struct Namespace {
    /// Its name in faults: `host a`.
    name: String,
    hostname: String,
    file: File,
    inode: u64,
}

impl Namespace {
    /// A new namespace that nothing but this value keeps alive.
    pub(super) fn unnamed(name: impl ToString, hostname: &str) -> Result<Namespace> {
        // A new thread is moved instead of this process, since namespaces belong to threads.
        let file = on_a_thread(|| {
            unshare(UnshareFlags::NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        let name = name.to_string();
        match file {
            Ok(file) => Namespace::hold(name, hostname, file),
            Err(error) => Err(refused(&name, error)),
        }
    }

    /// The namespace that is bound to `path`; `None` if nothing is.
    pub(super) fn bound_to(name: impl ToString, hostname: &str, path: &Path) -> Result<Option<Namespace>> {
        let name = name.to_string();
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| refused(&name, error))?,
        };
        let system = rustix::fs::fstatfs(&file).map_err(|error| refused(&name, error.into()))?;
        // A maker that was killed between the two steps leaves a plain file.
        if system.f_type != NSFS_MAGIC { Ok(None) } else { Namespace::hold(name, hostname, file).map(Some) }
    }

    fn hold(name: String, hostname: &str, file: File) -> Result<Namespace> {
        let inode = file.metadata().map_err(|error| refused(&name, error))?.ino();
        Ok(Namespace { name, hostname: hostname.to_owned(), file, inode })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn hostname(&self) -> &str {
        &self.hostname
    }

    /// The inode by which `/proc/PID/ns/net` names this namespace.
    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    /// A path by which another process can open this namespace while this value lives.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    pub(super) fn enter<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command> {
        let file: OwnedFd = self.file.try_clone().map_err(|error| refused(&self.name, error))?.into();
        let hostname = self.hostname.clone();
        let arrive = move || arrive(file.as_fd(), hostname.as_bytes());
        // SAFETY: between fork and exec only async-signal-safe calls may be made: `arrive` makes system calls on
        // values captured here and neither allocates, locks nor unwinds.
        Ok(unsafe { command.pre_exec(arrive) })
    }

    pub(super) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_a_thread(|| {
            arrive(self.file.as_fd(), self.hostname.as_bytes())?;
            Ok(work())
        })
        .map_err(|error| refused(&self.name, error))
    }
}

/// Moves the calling thread into a host: network, host name, and a `/sys` that shows the host's interfaces.
///
/// A sysfs mount shows the interfaces of the namespace that mounted it. Only the two folders that list interfaces are
/// covered, so that control groups, tracing and the rest of `/sys` stay accessible. The mount namespace is the thread's
/// own and ends with it. Makes system calls only, as it also runs between fork and exec.
fn arrive(network: BorrowedFd<'_>, hostname: &[u8]) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(network, Some(LinkNameSpaceType::Network))?;
    unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUTS)?;
    rustix::system::sethostname(hostname)?;
    rustix::mount::mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    // The fresh sysfs is mounted temporarily on a folder that a part of it then covers.
    rustix::mount::mount(c"sysfs", c"/sys/class/net", c"sysfs", MountFlags::empty(), None)?;
    rustix::mount::mount_bind(c"/sys/class/net/devices/virtual/net", c"/sys/devices/virtual/net")?;
    rustix::mount::mount_bind(c"/sys/class/net/class/net", c"/sys/class/net")?;
    Ok(())
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: what can break other code is a file descriptor table that is no longer shared (FILES); the flags passed
    // here give the calling thread a network, a mount view or a host name of its own and leave descriptors alone.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Runs `work` on a new thread that ends afterwards, and with it its namespaces.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("lab".into()).spawn_scoped(scope, work)?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn refused(name: &str, error: io::Error) -> Fault {
    let next = match error.kind() {
        io::ErrorKind::PermissionDenied => AS_ROOT,
        io::ErrorKind::NotFound => "make the lab anew with `plimsoll lab up`",
        _ => "check that this kernel has network namespaces (CONFIG_NET_NS) and that /proc and /sys are mounted",
    };
    Fault::because(format!("lab: {name}"), error, next)
}
