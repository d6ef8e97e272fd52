//! Settings of an interface of the calling thread's network namespace, by the ioctl that the `ethtool` command uses.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use machine::{Fault, Result};

// From `linux/ethtool.h`.
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_SRXFHINDIR: u32 = 0x39;

/// Switches receive merging (GRO), and verifies that it took effect.
pub(crate) fn set_gro(interface: &str, on: bool) -> Result<()> {
    let subject = || format!("GRO of {interface}");
    let next = "use a kernel whose veth has GRO (5.13 or newer)";
    ask(interface, &mut [ETHTOOL_SGRO, on.into()]).map_err(|error| Fault::because(subject(), error, next))?;
    match gro(interface)? == on {
        true => Ok(()),
        false => Err(Fault::new(subject(), "the kernel took the setting and did not keep it", next)),
    }
}

pub(crate) fn gro(interface: &str) -> Result<bool> {
    let next = "use a kernel with the ethtool interface";
    let mut value = [ETHTOOL_GGRO, 0];
    ask(interface, &mut value).map_err(|error| Fault::because(format!("GRO of {interface}"), error, next))?;
    Ok(value[1] != 0)
}

/// The table by which the device spreads flows over its receive queues (RSS): a queue for each part of the hash.
pub fn indirection(interface: &str) -> io::Result<Vec<u32>> {
    let mut size = [ETHTOOL_GRXFHINDIR, 0];
    ask(interface, &mut size)?;
    let mut table = vec![0; 2 + size[1] as usize];
    table[..2].copy_from_slice(&[ETHTOOL_GRXFHINDIR, size[1]]);
    ask(interface, &mut table)?;
    Ok(table.split_off(2))
}

pub(crate) fn set_indirection(interface: &str, table: &[u32]) -> io::Result<()> {
    let mut request = vec![ETHTOOL_SRXFHINDIR, table.len() as u32];
    request.extend(table);
    ask(interface, &mut request)
}

/// Calls the ioctl; `words` is the structure of a command: `ethtool_value`, or `ethtool_rxfh_indir` with as many
/// entries as its size says.
fn ask(interface: &str, words: &mut [u32]) -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    // SAFETY: `ifreq` is plain integers, arrays and pointers, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left for the terminating zero.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL takes an `ifreq` whose data points to the structure of its command. The callers above pass whole
    // ones: two words, and for the tables as many more as the second word says. They are exclusively ours for the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
