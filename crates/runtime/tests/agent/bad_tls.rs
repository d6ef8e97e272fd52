//! Who has no right to an agent gets nothing from it, is logged, and is counted.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime::agent::{Limits, Reason, keys};
use runtime::site::agent::AgentSite;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::rig::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(&fs::read(path).unwrap()).map(Result::unwrap).collect()
}

/// A client that trusts `authority` and shows the certificate and key in `own`, if any.
fn config(authority: &Path, own: Option<(&Path, &Path)>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(chain(authority).remove(0)).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    match own {
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(&fs::read(key).unwrap()).unwrap();
            builder.with_client_auth_cert(chain(certificate), key).unwrap()
        }
        None => builder.with_no_client_auth(),
    }
}

fn tls(agent: &Running, config: ClientConfig) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), agent.stream())
}

/// An authenticated stream, below the protocol.
pub fn authenticated(agent: &Running) -> StreamOwned<ClientConnection, TcpStream> {
    let keys = agent.client_keys();
    tls(agent, config(&keys.join("ca.pem"), Some((&keys.join("client.pem"), &keys.join("client.key")))))
}

/// A frame with this body.
pub fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

/// Variant 0, version 5.
pub const HELLO: &[u8] = &[0, 5];

/// Greets with certificates that must not do, and gets nothing but an alert.
fn is_refused(agent: &Running, config: ClientConfig) {
    let mut stream = tls(agent, config);
    let sent = stream.write_all(&frame(HELLO)).and_then(|()| stream.flush());
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    assert!(sent.is_err() || read.is_err(), "the connection ended in good order");
    assert!(answer.is_empty(), "{answer:?}");
}

#[test]
fn without_a_certificate() {
    let agent = Running::start(Limits::default());
    is_refused(&agent, config(&agent.client_keys().join("ca.pem"), None));
    agent.logged("refused: no certificate");
    agent.serves();
    assert_eq!(refused(&agent.end(), Reason::NoCertificate), 1);
}

#[test]
fn with_a_certificate_of_another_authority() {
    let agent = Running::start(Limits::default());
    let other = keys();
    let theirs = other.path().join("client");
    let own = (theirs.join("client.pem"), theirs.join("client.key"));
    is_refused(&agent, config(&agent.client_keys().join("ca.pem"), Some((&own.0, &own.1))));
    agent.logged("refused: wrong certificate");
    agent.serves();
    assert_eq!(refused(&agent.end(), Reason::WrongCertificate), 1);
}

#[test]
fn with_an_agents_certificate() {
    let agent = Running::start(Limits::default());
    let own = agent.keys.path().join("198.18.0.1");
    let own = (own.join("agent.pem"), own.join("agent.key"));
    is_refused(&agent, config(&agent.client_keys().join("ca.pem"), Some((&own.0, &own.1))));
    agent.logged("refused: wrong certificate");
    assert_eq!(refused(&agent.end(), Reason::WrongCertificate), 1);
}

#[test]
fn with_an_expired_certificate_and_with_one_of_tomorrow() {
    let agent = Running::start(Limits::default());
    let now = SystemTime::now();
    for then in [now - 30 * DAY, now + 30 * DAY] {
        keys::make_at(agent.keys.path(), &[], then, DAY).unwrap();
        let fault = AgentSite::connect(&agent.host(), &agent.client_keys()).map(drop).unwrap_err().to_string();
        assert!(fault.contains("expired") || fault.contains("does not take our certificate"), "{fault}");
    }
    agent.logged("refused: expired certificate");
    keys::make(agent.keys.path(), &[]).unwrap();
    agent.serves();
    assert_eq!(refused(&agent.end(), Reason::Expired), 2);
}

#[test]
fn a_client_takes_no_agent_but_its_own() {
    let agent = Running::start(Limits::default());
    // Another authority than the agent's.
    let other = keys();
    let fault = AgentSite::connect(&agent.host(), &other.path().join("client")).map(drop).unwrap_err().to_string();
    assert!(fault.contains("UnknownIssuer") || fault.contains("invalid peer certificate"), "{fault}");
    agent.logged("refused: no handshake: it says that our certificate is of an authority that it does not know");
    // The right authority, another host.
    let host = format!("localhost:{}", agent.address.port());
    let fault = AgentSite::connect(&host, &agent.client_keys()).map(drop).unwrap_err().to_string();
    assert!(fault.contains("not valid for name"), "{fault}");
    // An agent whose certificate has expired.
    let past = SystemTime::now() - 30 * DAY;
    keys::make_at(agent.keys.path(), &["127.0.0.1".into()], past, DAY).unwrap();
    keys::make(agent.keys.path(), &[]).unwrap();
    let options = runtime::agent::Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        keys: agent.keys.path().join("127.0.0.1"),
        limits: Limits::default(),
    };
    let stale =
        runtime::agent::Agent::bind(&options, registry(), vec![Box::<super::site::PlainSite>::default()], |_| {})
            .unwrap();
    let address = stale.address().unwrap().to_string();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let bell = stale.bell();
    std::thread::scope(|scope| {
        scope.spawn(|| stale.run(|| stop.load(std::sync::atomic::Ordering::Relaxed)).unwrap());
        let fault = AgentSite::connect(&address, &agent.client_keys()).map(drop).unwrap_err().to_string();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        bell.ring();
        assert!(fault.contains("expired"), "{fault}");
    });
    agent.serves();
}

#[test]
fn plain_text_and_garbage_before_tls() {
    let agent = Running::start(Limits::default());
    let mut random = vec![0u8; 4096];
    random.iter_mut().enumerate().for_each(|(n, byte)| *byte = ((n * 2654435761) >> 7) as u8);
    // What looks like a record of TLS and is none; one with a length that no record has; a client of TLS 1.2.
    let record = [0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0xff];
    let endless = [0x16, 3, 1, 0xff, 0xff, 0];
    for bytes in [&b"GET / HTTP/1.1\r\nHost: plimsoll\r\n\r\n"[..], &frame(HELLO), &random, &record, &endless] {
        let mut stream = agent.stream();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // An alert at most; a reset where bytes were left unread.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 16, "{answer:?}");
    }
    agent.logged("refused: not TLS 1.3");
    agent.serves();
    assert_eq!(refused(&agent.end(), Reason::NotTls), 5);
}

/// Sends bytes within TLS and reads to the end, which must come.
fn after_tls(agent: &Running, bytes: &[u8]) {
    let mut stream = authenticated(agent);
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn garbage_and_oversized_requests_inside_tls() {
    let agent = Running::start(Limits::default());
    // Announced: 4 GiB, and one byte over the limit.
    after_tls(&agent, &u32::MAX.to_le_bytes());
    after_tls(&agent, &(Limits::default().frame.0 as u32 + 1).to_le_bytes());
    agent.logged("refused: oversized: a frame of 4294967295 bytes was announced");
    // No frame; a request before the greeting; a second greeting; what only agents send; a tail.
    let request = [3u8, 1, 2, 0];
    let twice = [frame(HELLO), frame(HELLO)].concat();
    let pong = [frame(HELLO), frame(&[9])].concat();
    for bytes in [frame(&[0xff; 50]), frame(&[]), frame(&request), twice, pong] {
        after_tls(&agent, &bytes);
    }
    agent.logged("refused: not the protocol");
    after_tls(&agent, &frame(&[0, 77]));
    agent.logged("refused: other version: the client speaks version 77");
    agent.serves();
    let summary = agent.end();
    assert_eq!(refused(&summary, Reason::Oversized), 2, "{summary:?}");
    assert_eq!(refused(&summary, Reason::Protocol), 5, "{summary:?}");
    assert_eq!(refused(&summary, Reason::Version), 1, "{summary:?}");
}

#[test]
fn any_bytes_inside_tls_are_survived() {
    let agent = Running::start(Limits::default());
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..60 {
        let mut bytes = frame(HELLO);
        for _ in 0..8 {
            // Requests of each kind, with nonsense inside.
            let mut body: Vec<u8> = (0..next() % 200).map(|_| next() as u8).collect();
            body.splice(..0, [3, next() as u8 & 0x7f, (next() % 17) as u8]);
            bytes.extend(frame(&body));
        }
        let mut stream = authenticated(&agent);
        let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
        let _ = stream.sock.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    agent.serves();
}
