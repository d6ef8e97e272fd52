//! Endpoints by host and service, for programs that know their peers as `HOST:PORT` and exchange no names: an endpoint opened
//! with such a source tells its name to processes of the same user on this host. It listens on an abstract socket of its
//! network namespace, which no other host reaches, and answers no other user.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use endpoint::Name;
use linux::rendezvous::{self, Meeting};
use machine::{Fault, FaultKind, Result};

/// Time to wait for one that does not listen yet.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(1);
/// First bytes of a service's address, in place of a name's magic.
const MARK: [u8; 4] = *b"plms";

/// An address in `src_addr` and `dest_addr`, as long as a name; port 0 stands for any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    pub port: u16,
}

impl Service {
    pub const ANY: Service = Service { port: 0 };

    /// The service of `fi_getinfo`'s arguments. `None` if it is of another host, or no number.
    pub fn of(node: Option<&str>, service: Option<&str>) -> Option<Service> {
        let port = service.map_or(Some(0), |service| service.trim().parse().ok())?;
        let is_here = |ip: IpAddr| ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok();
        let here = match node {
            None => true,
            Some(node) => (node, port).to_socket_addrs().ok()?.any(|address| is_here(address.ip())),
        };
        here.then_some(Service { port })
    }

    pub fn bytes(self) -> [u8; Name::LENGTH] {
        let mut bytes = [0; Name::LENGTH];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..6].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }

    /// `None` if the bytes are no address of a service.
    pub fn read(bytes: &[u8]) -> Option<Service> {
        let rest = bytes.strip_prefix(&MARK)?;
        Some(Service { port: u16::from_be_bytes([*rest.first()?, *rest.get(1)?]) })
    }

    /// The name of the endpoint that has this address.
    ///
    /// # Errors
    /// No endpoint of this user has it.
    pub fn ask(self) -> Result<Name> {
        let until = Instant::now() + TIMEOUT;
        loop {
            match self.look() {
                Err(fault) if fault.kind() == FaultKind::Closed && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                found => return found,
            }
        }
    }

    /// The same, without waiting for an endpoint that does not listen yet.
    ///
    /// # Errors
    /// As for [`Service::ask`].
    pub fn look(self) -> Result<Name> {
        let subject = format!("endpoint of service {}", self.port);
        let next = "start the one that is to be reached first, as the same user, on this host";
        let absent = |fault: Fault| Fault::new(&*subject, fault.cause(), next).of_kind(fault.kind());
        let mut stream = rendezvous::call(&self.meeting()).map_err(absent)?;
        let mut bytes = [0; Name::LENGTH];
        let heard = stream.set_read_timeout(Some(ANSWER)).and_then(|()| stream.read_exact(&mut bytes));
        heard.map_err(|error| Fault::because(&*subject, error, next))?;
        Name::from_bytes(&bytes)
    }

    fn meeting(self) -> String {
        format!("plimsoll-service-{}", self.port)
    }
}

/// A node or a service as text.
///
/// # Safety
/// `given` is NULL or a string that outlives the result.
pub unsafe fn text<'a>(given: *const c_char) -> Option<&'a str> {
    // A string that is no text names nothing here.
    // SAFETY: the caller's promise.
    (!given.is_null()).then(|| unsafe { CStr::from_ptr(given) }.to_str().unwrap_or("?"))
}

/// The bytes of an address.
///
/// # Safety
/// `address` is NULL or holds `length` bytes.
pub unsafe fn given<'a>(address: *const c_void, length: usize) -> Option<&'a [u8]> {
    if address.is_null() || length != Name::LENGTH {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { std::slice::from_raw_parts(address.cast(), length) })
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }
}

/// Tells an endpoint's name while the endpoint lives.
#[derive(Debug)]
pub struct NameServer {
    meeting: Arc<Meeting>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// # Errors
    /// Another endpoint has the service; the error number is libfabric's.
    pub fn at(service: Service, name: Name) -> std::result::Result<NameServer, c_int> {
        let code = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let refused = |fault: Fault| fault.source().and_then(|e| e.downcast_ref()).map_or(libc::EIO, code);
        let meeting = Arc::new(Meeting::open(&service.meeting()).map_err(refused)?);
        let served = meeting.clone();
        let serve = move || {
            while let Some(mut stream) = served.accept() {
                // A caller that leaves early gets nothing.
                let _ = stream.set_write_timeout(Some(ANSWER)).and_then(|()| stream.write_all(name.as_bytes()));
            }
        };
        let thread = std::thread::Builder::new().name("plimsoll-service".into()).spawn(serve).map_err(|e| code(&e))?;
        Ok(NameServer { meeting, thread: Some(thread) })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.meeting.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_and_are_no_names() {
        for port in [0, 1, 47592, u16::MAX] {
            let service = Service { port };
            assert_eq!(Service::read(&service.bytes()), Some(service));
            assert!(Name::from_bytes(&service.bytes()).is_err());
        }
        assert_eq!(Service::read(b"plm2"), None);
        assert_eq!(Service::read(b"plms"), None);
    }

    #[test]
    fn hosts_and_services_of_this_host_are_served() {
        assert_eq!(Service::of(None, None), Some(Service::ANY));
        assert_eq!(Service::of(Some("localhost"), Some("47592")), Some(Service { port: 47592 }));
        // Reserved for documentation: no host has it.
        assert_eq!(Service::of(Some("192.0.2.1"), Some("47592")), None);
        assert_eq!(Service::of(None, Some("ssh")), None);
    }

    #[test]
    fn nobody_is_waited_for_in_vain_and_a_service_is_had_once() {
        let service = Service { port: std::process::id() as u16 | 1 };
        let mut bytes = [0; Name::LENGTH];
        bytes[..4].copy_from_slice(b"plm2");
        bytes[47] = 1;
        let name = Name::from_bytes(&bytes).unwrap();
        let told = NameServer::at(service, name).unwrap();
        assert_eq!(NameServer::at(service, name).unwrap_err(), libc::EADDRINUSE);
        assert!(service.ask().is_ok_and(|found| found == name));
        drop(told);
        let fault = service.ask().unwrap_err().to_string();
        assert!(fault.contains("start the one that is to be reached first"), "{fault}");
        drop(NameServer::at(service, name).unwrap());
        let Some(_theirs) = skip::another_user(|| NameServer::at(service, name).unwrap()) else { return };
        assert_eq!(service.ask().unwrap_err().kind(), FaultKind::NotPermitted);
    }
}
