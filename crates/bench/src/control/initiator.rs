//! The initiator's side of the control connection.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use machine::bounds::BENCH_INBOX;
use machine::{Fault, Result};

use super::connection::Connection;
use super::message::{Reply, Request, Serving, VERSION};

/// Port of `plimsoll serve` where none is named.
pub const SERVE_PORT: u16 = 5310;

/// Time to wait for an answer that needs no traffic.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

const SERVE_THERE: &str = "start 'plimsoll serve --listen ADDRESS' there and check the route and firewall";

/// Connects to the `plimsoll serve` of `host`: a name or an address, with a port or without.
pub(crate) fn reach(host: &str) -> Result<(Connection, IpAddr)> {
    let named = if let Ok(address) = host.parse::<IpAddr>() {
        SocketAddr::new(address, SERVE_PORT).to_string()
    } else if host.parse::<SocketAddr>().is_ok() || host.matches(':').count() == 1 {
        host.to_owned()
    } else {
        format!("{host}:{SERVE_PORT}")
    };
    let addresses = named.to_socket_addrs().map_err(|e| Fault::because(format!("host {host}"), e, SERVE_THERE))?;
    let mut last = Fault::new(format!("host {host}"), "its name has no address", SERVE_THERE);
    for address in addresses {
        match connect(address, &named) {
            Ok(control) => return Ok((control, address.ip())),
            Err(fault) => last = fault,
        }
    }
    Err(last)
}

/// A control connection to the `plimsoll serve` of the host `named` at `address`.
pub(crate) fn connect(address: SocketAddr, named: &str) -> Result<Connection> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
        .map_err(|e| Fault::because(format!("host {named}"), e, SERVE_THERE))?;
    stream.set_nodelay(true).map_err(|e| Fault::because("control connection", e, "run again"))?;
    Connection::new(stream, format!("peer at {named}"), BENCH_INBOX.each.bytes())
}

/// Agrees on the version; gives the host of a peer that serves others.
///
/// # Errors
/// The peer is not a responder, has another version, or is busy.
pub(crate) fn greet(control: &mut Connection) -> Result<Option<Serving>> {
    match ask(control, &Request::Hello { plimsoll: VERSION })? {
        Reply::Welcome { plimsoll: VERSION, host, .. } => Ok(host),
        reply => Err(unexpected(control, &reply)),
    }
}

/// The peer's host: its grants, and its cores for parties that poll, near ones first; no cores if it is this machine, in a
/// namespace or container, whose cores both ends share. The session ends.
///
/// # Errors
/// As for [`greet`]; the peer does not serve others.
pub(crate) fn host_of(control: &mut Connection) -> Result<Serving> {
    let there = greet(control)?;
    control.send(&Request::Bye, ANSWER)?;
    let mut there = there.ok_or_else(|| {
        Fault::new(control.peer(), "it does not tell its host", "use the same version of plimsoll on both ends")
    })?;
    if there.machine == Serving::here(&[])?.machine {
        there.cores.clear();
    }
    Ok(there)
}

pub(crate) fn ask(control: &mut Connection, request: &Request) -> Result<Reply> {
    control.send(request, ANSWER)?;
    answer(control)
}

pub(crate) fn answer(control: &mut Connection) -> Result<Reply> {
    control.receive(ANSWER)
}

pub(crate) fn unexpected(control: &Connection, reply: &Reply) -> Fault {
    match reply {
        Reply::Failed { subject, cause, next } => {
            Fault::new(subject.as_str(), cause.as_str(), next.as_str()).within(control.peer())
        }
        _ => Fault::new(
            control.peer(),
            "it gave an answer to another question",
            "use the same version of plimsoll on both ends",
        ),
    }
}
