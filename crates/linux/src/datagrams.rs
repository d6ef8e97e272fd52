//! Many datagrams by one system call on an ordinary UDP socket.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags};

/// Most datagrams of one call, of either kind below (`UDP_MAX_SEGMENTS` and `UIO_MAXIOV` of the kernel are not less).
pub const AT_ONCE: usize = 64;

/// Sends up to [`AT_ONCE`] datagrams over a connected socket by one `sendmmsg`; returns how many were taken.
pub fn send_many<'a>(socket: &UdpSocket, datagrams: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
    let mut slices: [[IoSlice<'_>; 1]; AT_ONCE] = std::array::from_fn(|_| [IoSlice::new(&[])]);
    let mut count = 0;
    for (slice, datagram) in slices.iter_mut().zip(datagrams) {
        *slice = [IoSlice::new(datagram)];
        count += 1;
    }
    let mut controls: [SendAncillaryBuffer<'_, '_, '_>; AT_ONCE] =
        std::array::from_fn(|_| SendAncillaryBuffer::new(&mut []));
    let mut headers: [MMsgHdr<'_>; AT_ONCE] = {
        let mut parts = slices.iter().zip(&mut controls);
        std::array::from_fn(|_| parts.next().map(|(slice, control)| MMsgHdr::new(slice, control)).expect("as many"))
    };
    rustix::net::sendmmsg(socket, &mut headers[..count], SendFlags::DONTWAIT).map_err(Into::into)
}

/// Makes the kernel cut every later send on `socket` into datagrams of `length` bytes, the last perhaps shorter
/// (UDP_SEGMENT, Linux 4.18); 0 stops it.
pub fn cut_into(socket: &UdpSocket, length: u16) -> io::Result<()> {
    let value = libc::c_int::from(length);
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option takes an int, which lives across the call.
    match unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const value).cast(), size)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        (a, b)
    }

    fn expect(socket: &UdpSocket, wanted: &[u8]) {
        let mut buffer = [0; 2048];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], wanted);
    }

    #[test]
    fn many_arrive_each_as_it_was() {
        let (a, b) = pair();
        let messages: Vec<Vec<u8>> = (0..80).map(|n| vec![n as u8; 1 + n * 3]).collect();
        assert_eq!(send_many(&a, messages.iter().map(Vec::as_slice)).unwrap(), AT_ONCE);
        assert_eq!(send_many(&a, messages[AT_ONCE..].iter().map(Vec::as_slice)).unwrap(), 80 - AT_ONCE);
        messages.iter().for_each(|message| expect(&b, message));
    }

    #[test]
    fn one_send_is_cut_into_many() {
        let (a, b) = pair();
        let bytes: Vec<u8> = (0..1000).map(|n| n as u8).collect();
        match cut_into(&a, 300) {
            Ok(()) => {}
            Err(e) => return skip::test(format_args!("no UDP_SEGMENT: {e}")),
        }
        assert_eq!(a.send(&bytes).unwrap(), 1000);
        bytes.chunks(300).for_each(|chunk| expect(&b, chunk));
        cut_into(&a, 0).unwrap();
        a.send(&bytes).unwrap();
        expect(&b, &bytes);
    }
}
