//! The name of an interface's driver, by the ioctl of the `ethtool` command.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// From `linux/ethtool.h`.
const ETHTOOL_GDRVINFO: u32 = 3;
const NAME: usize = 32;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInformation {
    command: u32,
    driver: [u8; NAME],
    rest: [u8; 160],
}

const _: () = assert!(std::mem::size_of::<DriverInformation>() == 196);

/// The driver of an interface in the calling thread's namespace; `None` where the kernel does not tell it.
pub(super) fn name_of(interface: &str) -> Option<String> {
    let socket = UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0")).ok()?;
    let mut information = DriverInformation { command: ETHTOOL_GDRVINFO, driver: [0; NAME], rest: [0; 160] };
    // SAFETY: `ifreq` is plain integers, arrays and pointers, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left for the terminating zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut information).cast();
    // SAFETY: SIOCETHTOOL takes an `ifreq` whose data points to the structure of its command, for GDRVINFO an
    // `ethtool_drvinfo`; both are live and exclusively ours for the length of the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } != 0 {
        return None;
    }
    let end = information.driver.iter().position(|&byte| byte == 0).unwrap_or(NAME);
    Some(String::from_utf8_lossy(&information.driver[..end]).into_owned()).filter(|name| !name.is_empty())
}
