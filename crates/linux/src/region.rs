//! Shared memory that two processes map: a sealed memfd, passed by its descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use machine::{Bytes, Fault, Result};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// A span of memory of fixed size, mapped shared, readable and writable by its owner alone.
///
/// It has no name in the file system; it ends with the last process that maps it. Its bytes may change at any time under
/// a peer's hand, so only this crate reads it, and reads each word once.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    length: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping belongs to the process, not to a thread; who accesses what is the users' protocol.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out no reference to the bytes.
unsafe impl Sync for Region {}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Region {
    /// Makes a region of `length` bytes, zeroed and with every page present. `name` shows in `/proc/PID/maps`.
    pub fn create(name: &str, length: usize) -> Result<Region> {
        let what = || format!("shared memory of {}", Bytes(length as u64));
        let fail = |e| Fault::because(what(), e, "free memory, or raise the limits of this user or container");
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(fail)?;
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(fail)?;
        rustix::fs::ftruncate(&fd, length as u64).map_err(fail)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(fail)?;
        Self::map(fd, length)
    }

    /// Maps a region that a peer made. Refused unless it is exactly `length` bytes and sealed so that it stays so:
    /// a peer that could shrink it could end this process by SIGBUS.
    pub fn adopt(fd: OwnedFd, length: usize) -> Result<Region> {
        let refuse = |cause: &str| Fault::new("peer's shared memory", cause, "connect to a peer of the same version");
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| refuse("it is not a memfd"))?;
        if !seals.contains(SealFlags::SHRINK) || seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(refuse("its size is not sealed"));
        }
        let size = rustix::fs::fstat(&fd).map_err(|_| refuse("its size cannot be read"))?.st_size;
        if usize::try_from(size) != Ok(length) {
            return Err(refuse(&format!("it has {size} bytes where {length} were announced")));
        }
        Self::map(fd, length)
    }

    fn map(fd: OwnedFd, length: usize) -> Result<Region> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                &fd,
                0,
            )
        };
        let base = base.map_err(|e| {
            Fault::because(
                format!("mapping of {}", Bytes(length as u64)),
                e,
                "free memory, or raise this user's limits",
            )
        })?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0 unasked");
        Ok(Region { base, length, fd })
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The descriptor to hand to a peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The first byte; valid, page aligned and writable for `len` bytes while the region lives.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` and `length` are of the one mapping made in `map`; whoever keeps pointers keeps the region.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(region: &Region, at: usize, byte: u8) {
        assert!(at < region.len());
        // SAFETY: in bounds; the tests use one thread.
        unsafe { region.base().add(at).write_volatile(byte) };
    }

    fn read(region: &Region, at: usize) -> u8 {
        assert!(at < region.len());
        // SAFETY: as in `write`.
        unsafe { region.base().add(at).read_volatile() }
    }

    #[test]
    fn two_mappings_see_the_same_bytes() {
        let one = Region::create("test", 8192).unwrap();
        let two = Region::adopt(one.fd().try_clone_to_owned().unwrap(), 8192).unwrap();
        write(&one, 8191, 7);
        assert_eq!((read(&two, 8191), read(&two, 0)), (7, 0));
    }

    #[test]
    fn nobody_else_may_open_it_and_nobody_may_resize_it() {
        let region = Region::create("test", 4096).unwrap();
        assert_eq!(rustix::fs::fstat(region.fd()).unwrap().st_mode & 0o777, 0o600);
        assert!(rustix::fs::ftruncate(region.fd(), 0).is_err());
        assert!(rustix::fs::ftruncate(region.fd(), 8192).is_err());
    }

    #[test]
    fn a_region_that_could_shrink_is_refused() {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert_eq!(Region::adopt(fd, 4096).unwrap_err().cause(), "its size is not sealed");
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Region::adopt(file.into(), 4096).unwrap_err().cause(), "it is not a memfd");
        let region = Region::create("test", 4096).unwrap();
        let fault = Region::adopt(region.fd().try_clone_to_owned().unwrap(), 8192).unwrap_err();
        assert_eq!(fault.cause(), "it has 4096 bytes where 8192 were announced");
    }
}
