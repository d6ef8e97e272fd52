//! Shared memory that two processes map: a sealed memfd of ordinary pages, passed by its descriptor.
//!
//! No seal that lets both write keeps a peer from punching holes. The bytes are zeros then, which the peer could have
//! written as well, and a touched page is allocated anew. Huge pages may have run out, and a process that touches the
//! hole ends by SIGBUS: such memory is refused. Ordinary pages run out only where the host has none for anybody or,
//! with `vm.overcommit_memory` 2, has promised all of them; a peer that can cause that can end processes anyway.

use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use machine::{Bytes, Fault, Result};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A span of memory of fixed size, mapped shared, readable and writable by its owner alone, with every page present,
/// and its descriptor for passing it on.
///
/// It has no name in the file system; it ends with the last process that maps it. A peer may change its bytes at any
/// time, so only this crate reads it, and reads each word once.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    fd: OwnedFd,
}

/// A mapping of such memory. It stays valid when every descriptor of it is closed.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; who accesses what is the users' protocol.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out no reference to the bytes.
unsafe impl Sync for Mapping {}

/// The file system of memfds of ordinary pages.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The next step where memory is short.
const FREE: &str = "free memory, or raise the limits of this user or container";

/// Not rustix's, which aborts under valgrind: this is also called in applications.
fn page_size() -> usize {
    // SAFETY: it tells a figure.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Makes memory of `length` bytes, none of it present yet. `name` shows in `/proc/PID/maps`.
pub fn make(name: &str, length: usize) -> Result<OwnedFd> {
    let fail = |e| Fault::because(format!("shared memory of {}", Bytes(length as u64)), e, FREE);
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(fail)?;
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(fail)?;
    rustix::fs::ftruncate(&fd, length as u64).map_err(fail)?;
    rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(fail)?;
    Ok(fd)
}

/// Refuses memory of a peer unless it is exactly `length` bytes, with sealed size, and of ordinary pages: a peer that
/// could shrink it, or punch out a page without replacement, could end this process by SIGBUS.
pub fn check(fd: BorrowedFd<'_>, length: usize) -> Result<()> {
    let refuse = |cause: &str| Fault::new("peer's shared memory", cause, "connect to a peer of the same version");
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| refuse("it is not a memfd"))?;
    if !seals.contains(SealFlags::SHRINK) || seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
        return Err(refuse("its size is not sealed"));
    }
    let system = rustix::fs::fstatfs(fd).map_err(|_| refuse("its file system cannot be read"))?;
    if system.f_type != TMPFS_MAGIC {
        return Err(refuse("it does not consist of ordinary pages"));
    }
    let size = rustix::fs::fstat(fd).map_err(|_| refuse("its size cannot be read"))?.st_size;
    if usize::try_from(size) != Ok(length) {
        return Err(refuse(&format!("it has {size} bytes where {length} were announced")));
    }
    Ok(())
}

impl Region {
    /// Makes a region of `length` bytes, zeroed. `name` shows in `/proc/PID/maps`.
    pub fn create(name: &str, length: usize) -> Result<Region> {
        Self::map(make(name, length)?, length)
    }

    /// Maps a region that a peer made. Refused unless it is exactly `length` bytes with sealed size.
    pub fn adopt(fd: OwnedFd, length: usize) -> Result<Region> {
        check(fd.as_fd(), length)?;
        Self::map(fd, length)
    }

    fn map(fd: OwnedFd, length: usize) -> Result<Region> {
        let mapping = Mapping::of(fd.as_fd(), length)?;
        mapping.provide(0..length)?;
        Ok(Region { mapping, fd })
    }

    /// The descriptor to pass to a peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for Region {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

impl Mapping {
    fn of(fd: BorrowedFd<'_>, length: usize) -> Result<Mapping> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, fd, 0)
        };
        let base = base.map_err(|e| Fault::because(format!("mapping of {}", Bytes(length as u64)), e, FREE))?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0 unasked");
        Ok(Mapping { base, length })
    }

    /// A mapping whose pages are provided one by one.
    pub fn sparse(fd: BorrowedFd<'_>, length: usize) -> Result<Mapping> {
        let mapping = Mapping::of(fd, length)?;
        // Else a host with `shmem_enabled=always` puts 2 MiB under the first byte. Kernels without huge pages refuse
        // the advice.
        // SAFETY: the range is this mapping; the advice changes no bytes.
        let _ = unsafe { rustix::mm::madvise(mapping.base.as_ptr().cast(), length, Advice::LinuxNoHugepage) };
        Ok(mapping)
    }

    /// Makes the pages of the bytes in `range` present.
    pub fn provide(&self, range: Range<usize>) -> Result<()> {
        let page = page_size();
        let (start, end) = (range.start / page * page, range.end.min(self.length));
        assert!(start <= end);
        // SAFETY: inside the mapping, as asserted; the advice changes no bytes.
        let provided = unsafe {
            let from = self.base.as_ptr().add(start).cast();
            rustix::mm::madvise(from, end - start, Advice::LinuxPopulateWrite)
        };
        match provided {
            Ok(()) => Ok(()),
            // Linux before 5.14: a touched page is allocated, and without memory the process ends.
            Err(Errno::INVAL) => {
                for at in (start..end).step_by(page) {
                    // SAFETY: in bounds; a volatile read of plain bytes, whoever writes them.
                    let _ = unsafe { self.base.as_ptr().add(at).read_volatile() };
                }
                Ok(())
            }
            Err(e) => Err(Fault::because(format!("{} of shared memory", Bytes((end - start) as u64)), e, FREE)),
        }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first byte; valid, page aligned and writable for `len` bytes while the mapping lives.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `length` are of the one mapping made in `of`; whoever keeps pointers keeps the mapping.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FallocateFlags, fallocate};

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

    #[test]
    fn memory_of_huge_pages_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let fd = match rustix::fs::memfd_create("test", flags) {
            Ok(fd) => fd,
            Err(error) => return skip::test(format!("this kernel makes no memory of huge pages: {error}")),
        };
        // A page that need not be present before it is mapped.
        let page = rustix::fs::fstat(&fd).unwrap().st_blksize as usize;
        rustix::fs::ftruncate(&fd, page as u64).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
        assert_eq!(check(fd.as_fd(), page).unwrap_err().cause(), "it does not consist of ordinary pages");
    }

    #[test]
    fn a_hole_that_a_peer_punches_is_zeros_and_takes_bytes_again() {
        let page = page_size();
        let ours = Region::create("test", page).unwrap();
        write(&ours, 100, 7);
        let theirs = ours.fd().try_clone_to_owned().unwrap();
        fallocate(&theirs, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, page as u64).unwrap();
        assert_eq!(rustix::fs::fstat(&theirs).unwrap().st_blocks, 0);
        assert_eq!(read(&ours, 100), 0);
        write(&ours, 100, 8);
        assert_eq!(read(&ours, 100), 8);
    }

    #[test]
    fn sparse_memory_takes_what_is_provided_and_outlives_its_descriptors() {
        let fd = make("test", 1 << 20).unwrap();
        let present = || rustix::fs::fstat(&fd).unwrap().st_blocks * 512;
        let one = Mapping::sparse(fd.as_fd(), 1 << 20).unwrap();
        let two = Mapping::sparse(fd.as_fd(), 1 << 20).unwrap();
        assert_eq!(present(), 0);
        one.provide(5000..5001).unwrap();
        let page = page_size() as i64;
        assert_eq!(present(), page);
        one.provide(0..(1 << 20)).unwrap();
        assert_eq!(present(), 1 << 20);
        drop(fd);
        // SAFETY: in bounds; one thread.
        unsafe { one.base().add(99_999).write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { two.base().add(99_999).read_volatile() }, 7);
    }
}
