//! Another process's memory: one copy between its buffer and ours, by the kernel, which checks permission. A process
//! number may have been reused; [`crate::identity::Identity::living`] gives that of a living one.

use std::io;

use rustix::process::Pid;

/// Fills `into` from `address` in the memory of `pid`.
#[inline]
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

/// A word of a process's memory, which identifies the memory: a later process of the same number does not have it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    pub address: u64,
    pub word: u64,
}

/// As [`read`], and checks `token` in the same system call. False, with `into` undefined, where the token is not there.
#[inline]
pub fn read_from(pid: Pid, token: &Token, address: u64, into: &mut [u8]) -> io::Result<bool> {
    let place = |address: u64, length| {
        let address = usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
        Ok::<_, io::Error>(libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: length })
    };
    let mut done = 0;
    loop {
        let mut word = [0u8; 8];
        let rest = &mut into[done..];
        let start = address.saturating_add(done as u64);
        let remote = [place(token.address, word.len())?, place(start, rest.len())?];
        let local = [
            libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() },
            libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
        ];
        // SAFETY: `local` are live mutable places of ours; the kernel checks `remote` against the other process.
        let n = unsafe { libc::process_vm_readv(pid.as_raw_nonzero().get(), local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        let copied = match usize::try_from(n) {
            Ok(n) => n,
            Err(_) => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::EFAULT) => 0,
                e => return Err(e),
            },
        };
        if copied < word.len() || u64::from_ne_bytes(word) != token.word {
            return Ok(false);
        }
        let copied = copied - word.len();
        done += copied;
        if done == into.len() {
            return Ok(true);
        }
        if copied == 0 {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
    }
}

/// Whether the kernel lets this process copy memory so at all, tried on its own. Seccomp may forbid it.
///
/// # Errors
/// The kernel's refusal.
pub fn check_allowed() -> io::Result<()> {
    let (from, mut into) = ([1u8; 8], [0u8; 8]);
    read(rustix::process::getpid(), from.as_ptr().expose_provenance() as u64, &mut into)
}

/// Copies the whole of `from` to `address` in the memory of `pid`.
#[inline]
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

    #[test]
    fn memory_is_read_only_where_its_token_is() {
        let me = rustix::process::getpid();
        let (word, bytes) = (Box::new(77u64), vec![5u8; 3 << 20]);
        let token = Token { address: &raw const *word as u64, word: 77 };
        let at = bytes.as_ptr() as u64;
        let mut into = vec![0; bytes.len()];
        assert!(read_from(me, &token, at, &mut into).unwrap());
        assert_eq!(into, bytes);
        assert!(read_from(me, &token, 0, &mut []).unwrap(), "the token alone");
        for wrong in [Token { word: 78, ..token }, Token { address: 8, ..token }] {
            assert!(!read_from(me, &wrong, at, &mut into).unwrap());
        }
        let fault = read_from(me, &token, 8, &mut into).unwrap_err();
        assert_eq!(fault.raw_os_error(), Some(libc::EFAULT));
        assert!(read_from(me, &token, u64::MAX, &mut into).is_err());
    }
}
