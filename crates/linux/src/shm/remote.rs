//! Reading another process's memory: one copy, from its buffer to ours, by the kernel.

use std::io;

use rustix::process::Pid;

/// Fills `into` from `address` in the memory of `pid`.
pub(super) fn read(pid: Pid, address: u64, into: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        let local = libc::iovec { iov_base: into[done..].as_mut_ptr().cast(), iov_len: into.len() - done };
        let start = address.checked_add(done as u64).and_then(|a| usize::try_from(a).ok());
        let start = start.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: local.iov_len };
        // SAFETY: `local` is a live mutable slice of ours; the kernel checks `remote` against the other process.
        let n = unsafe { libc::process_vm_readv(pid.as_raw_nonzero().get(), &local, 1, &remote, 1, 0) };
        match n {
            -1 => return Err(io::Error::last_os_error()),
            0 => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            n => done += n as usize,
        }
    }
    Ok(())
}
