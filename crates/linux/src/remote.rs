//! Another process's memory: one copy between its buffer and ours, by the kernel, which checks that this process may.

use std::io;

use rustix::process::Pid;

/// Fills `into` from `address` in the memory of `pid`.
pub fn read(pid: Pid, address: u64, into: &mut [u8]) -> io::Result<()> {
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

/// Copies the whole of `from` to `address` in the memory of `pid`.
pub fn write(pid: Pid, address: u64, from: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < from.len() {
        let rest = &from[done..];
        let local = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
        let start = address.checked_add(done as u64).and_then(|a| usize::try_from(a).ok());
        let start = start.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(start), iov_len: rest.len() };
        // SAFETY: `local` is a live slice of ours, which the kernel only reads; it checks `remote` against the other process.
        let n = unsafe { libc::process_vm_writev(pid.as_raw_nonzero().get(), &local, 1, &remote, 1, 0) };
        match n {
            -1 => return Err(io::Error::last_os_error()),
            0 => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            n => done += n as usize,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_hole_is_an_error() {
        let me = rustix::process::getpid();
        let mut place = vec![0u8; 10_000];
        let address = place.as_mut_ptr() as u64;
        write(me, address, &[7; 10_000]).unwrap();
        let mut back = vec![0; 10_000];
        read(me, address, &mut back).unwrap();
        assert_eq!(back, [7; 10_000]);
        assert!(write(me, 8, &[1]).is_err() && read(me, 8, &mut [0]).is_err());
    }
}
