//! Receive merging (GRO) of an interface, by the ioctl that the `ethtool` command uses.

use std::ffi::c_void;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use machine::{Fault, Result};

/// From `linux/ethtool.h`.
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches GRO of `interface`, which must be one of the calling thread's namespace, and checks that it took.
pub(super) fn set_gro(interface: &str, on: bool) -> Result<()> {
    let subject = || format!("GRO of {interface}");
    let next = "use a kernel whose veth has GRO (5.13 or newer)";
    ask(interface, ETHTOOL_SGRO, on.into()).map_err(|error| Fault::because(subject(), error, next))?;
    match gro(interface)? == on {
        true => Ok(()),
        false => Err(Fault::new(subject(), "the kernel took the setting and did not keep it", next)),
    }
}

pub(super) fn gro(interface: &str) -> Result<bool> {
    let next = "use a kernel with the ethtool interface";
    let value = ask(interface, ETHTOOL_GGRO, 0);
    value.map(|value| value != 0).map_err(|error| Fault::because(format!("GRO of {interface}"), error, next))
}

fn ask(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let mut value = Value { command, data };
    // SAFETY: `ifreq` is plain integers, arrays and pointers, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left for the terminating zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast::<c_void>().cast();
    // SAFETY: SIOCETHTOOL takes an `ifreq` whose data points to the structure of its command, for GGRO and SGRO an
    // `ethtool_value`; both are live and exclusively ours for the length of the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
        0 => Ok(value.data),
        _ => Err(io::Error::last_os_error()),
    }
}
