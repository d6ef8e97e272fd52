//! Certificates: an authority of the user's own, one certificate for each agent, one for the client.
//!
//! ```text
//! DIRECTORY/ca.pem, ca.key      the authority; its key stays here and signs what is made later
//! DIRECTORY/client/             ca.pem, client.pem, client.key: what a runtime needs to use any of the agents
//! DIRECTORY/HOST/               ca.pem, agent.pem, agent.key: copy this folder to HOST, and nothing else
//! ```
//!
//! Folders have mode 0700 and files 0600. An agent's certificate is good for serving only and a client's for asking only,
//! so that the key of a captured agent opens no other one. There is no list of revoked certificates: they are
//! short-lived, and a new authority ends all at once.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use machine::{Fault, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

const DAY: u64 = 24 * 3600;

/// Days for which an authority signs.
pub const AUTHORITY_DAYS: u64 = 365;

/// Days for which a certificate is valid; never longer than its authority.
pub const CERTIFICATE_DAYS: u64 = 90;

/// Clocks of hosts that differ by less than this still agree that a new certificate is valid.
const SKEW: Duration = Duration::from_secs(3600);

const END_LINE: &str = "signs until day ";

/// A certificate that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub directory: PathBuf,
    pub for_whom: String,
    /// The day on which it ends, as 2027-02-19.
    pub until: String,
    /// Whether it replaced one for the same name.
    pub renewed: bool,
}

/// The default folder of keys: `plimsoll` in the user's configuration folder.
pub fn default_directory() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    match set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config"))) {
        Some(folder) => Ok(folder.join("plimsoll")),
        None => Err(Fault::new("keys", "neither XDG_CONFIG_HOME nor HOME is set", "name a folder")),
    }
}

/// The client's own folder: `directory/client` where that is one that [`make`] made, else `directory` itself. Without
/// a directory, in the default one.
pub fn of_client(directory: Option<&Path>) -> Result<PathBuf> {
    let directory = directory.map_or_else(default_directory, |directory| Ok(directory.to_owned()))?;
    let inner = directory.join("client");
    Ok(if inner.is_dir() { inner } else { directory })
}

/// Makes what is missing in `directory` and renews what is there: the authority (kept while it lasts), the client's
/// certificate, and one for an agent on each of `hosts`, a DNS name or an address as clients will write it.
pub fn make(directory: &Path, hosts: &[String]) -> Result<Vec<Made>> {
    make_at(directory, hosts, SystemTime::now(), Duration::from_secs(CERTIFICATE_DAYS * DAY))
}

/// As [`make`] at the time `now`, with certificates valid for the days stated.
pub fn make_at(directory: &Path, hosts: &[String], now: SystemTime, good_for: Duration) -> Result<Vec<Made>> {
    for host in hosts {
        check(host)?;
    }
    folder(directory)?;
    let authority = Authority::open(directory, now)?;
    let mut made = Vec::new();
    let mut write = |folder_name: &str, role: Role, subject: &str| -> Result<()> {
        let at = directory.join(folder_name);
        folder(&at)?;
        let renewed = at.join(role.certificate()).exists();
        let (certificate, key, until) = authority.issue(role, subject, now, good_for)?;
        put(&at.join("ca.pem"), &authority.pem)?;
        put(&at.join(role.key()), &key)?;
        put(&at.join(role.certificate()), &certificate)?;
        made.push(Made { directory: at, for_whom: subject.into(), until, renewed });
        Ok(())
    };
    write("client", Role::Client, "client")?;
    for host in hosts {
        write(host, Role::Agent, host)?;
    }
    Ok(made)
}

/// A host's name becomes a folder's: refuse what is neither a DNS name nor an address, or is a name taken here.
fn check(host: &str) -> Result<()> {
    let taken = ["client", "ca.pem", "ca.key"].contains(&host);
    if taken || ServerName::try_from(host).is_err() || host.contains('/') {
        let cause = if taken { "this name is taken in the folder of keys" } else { "it is no DNS name and no address" };
        return Err(Fault::new(format!("host '{host}'"), cause, "give the name or address that clients will use"));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Agent,
    Client,
}

impl Role {
    fn certificate(self) -> &'static str {
        if self == Role::Agent { "agent.pem" } else { "client.pem" }
    }

    fn key(self) -> &'static str {
        if self == Role::Agent { "agent.key" } else { "client.key" }
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// The day at whose start it ends, counted from 1970.
    end_day: u64,
}

impl Authority {
    fn open(directory: &Path, now: SystemTime) -> Result<Authority> {
        let (certificate, key) = (directory.join("ca.pem"), directory.join("ca.key"));
        if !key.exists() {
            let made = Authority::make(now)?;
            // The key comes last: where it is, the certificate is whole.
            put(&certificate, &made.pem)?;
            put(&key, &made.issuer.key().serialize_pem())?;
            return Ok(made);
        }
        private(&key)?;
        let anew = "move this folder away and make the keys anew; agents then need their new folders";
        let pem = read(&certificate)?;
        let end_day = pem
            .lines()
            .find_map(|line| line.strip_prefix(END_LINE)?.split(',').next()?.parse().ok())
            .ok_or_else(|| Fault::new(certificate.display().to_string(), "it does not say how long it signs", anew))?;
        if day(now) >= end_day {
            return Err(Fault::new(certificate.display().to_string(), "this authority's time is over", anew));
        }
        let key = KeyPair::from_pem(&read(&key)?)
            .map_err(|e| Fault::because(directory.join("ca.key").display().to_string(), e, anew))?;
        Ok(Authority { issuer: Issuer::new(Authority::parameters(&key), key), pem, end_day })
    }

    /// Named after its key: a peer of another authority is told so, not that a signature is wrong.
    fn parameters(key: &KeyPair) -> CertificateParams {
        let mut parameters = CertificateParams::default();
        let short: String =
            crate::code::digest(key.public_key_raw()).0[..8].iter().map(|b| format!("{b:02x}")).collect();
        parameters.distinguished_name = name(&format!("plimsoll: private authority {short}"));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters
    }

    fn make(now: SystemTime) -> Result<Authority> {
        let end_day = day(now) + AUTHORITY_DAYS;
        let key = KeyPair::generate().map_err(unmade)?;
        let mut parameters = Authority::parameters(&key);
        parameters.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now).saturating_sub(SKEW);
        parameters.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(end_day * DAY);
        let certificate = parameters.self_signed(&key).map_err(unmade)?;
        // Text outside the block is a comment in PEM.
        let end = date(end_day);
        let pem = format!("plimsoll: private authority\n{END_LINE}{end_day}, {end}\n{}", certificate.pem());
        Ok(Authority { issuer: Issuer::new(parameters, key), pem, end_day })
    }

    /// Issues a certificate. Returns it with its key and the day on which it ends.
    fn issue(
        &self,
        role: Role,
        subject: &str,
        now: SystemTime,
        good_for: Duration,
    ) -> Result<(String, String, String)> {
        let key = KeyPair::generate().map_err(unmade)?;
        let mut parameters = CertificateParams::new(match role {
            Role::Agent => vec![subject.to_owned()],
            Role::Client => Vec::new(),
        })
        .map_err(unmade)?;
        parameters.distinguished_name = name(&format!("plimsoll: {subject}"));
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![match role {
            Role::Agent => ExtendedKeyUsagePurpose::ServerAuth,
            Role::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        parameters.use_authority_key_identifier_extension = true;
        let end = (since_epoch(now) + good_for).min(Duration::from_secs(self.end_day * DAY));
        parameters.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now).saturating_sub(SKEW);
        parameters.not_after = rcgen::date_time_ymd(1970, 1, 1) + end;
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(unmade)?;
        Ok((certificate.pem(), key.serialize_pem(), date(end.as_secs() / DAY)))
    }
}

fn unmade(error: rcgen::Error) -> Fault {
    Fault::because("certificate", error, "check the names; if they are right, report it")
}

fn name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn day(time: SystemTime) -> u64 {
    since_epoch(time).as_secs() / DAY
}

pub(crate) fn date(day: u64) -> String {
    (rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(day * DAY)).date().to_string()
}

fn folder(path: &Path) -> Result<()> {
    let failed = |e| Fault::because(path.display().to_string(), e, "choose a folder that you may write");
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    // An existing folder may be open to others.
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)
}

/// Writes all or nothing: a reader sees the old file or the new one.
fn put(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("new");
    let write = || -> io::Result<()> {
        match fs::remove_file(&draft) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    };
    write().map_err(|e| Fault::because(path.display().to_string(), e, "choose a folder that you may write"))
}

const MAKE: &str = "make it with `plimsoll agent keys --host HOST` and name its folder with --keys";

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|e| Fault::because(path.display().to_string(), e, MAKE))
}

/// Refuses a key that others may read.
fn private(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_err(|e| Fault::because(path.display().to_string(), e, MAKE))?.mode();
    if mode & 0o077 != 0 {
        let cause = format!("others than its owner have rights to it (mode {:o})", mode & 0o777);
        let next = format!("chmod 600 {0}; if others may have read it, make new keys", path.display());
        return Err(Fault::new(path.display().to_string(), cause, next));
    }
    Ok(())
}

struct Loaded {
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn load(directory: &Path, role: Role) -> Result<Loaded> {
    let bad =
        |path: &Path, e: rustls::pki_types::pem::Error| Fault::new(path.display().to_string(), e.to_string(), MAKE);
    let certificates = |file: &str| -> Result<Vec<CertificateDer<'static>>> {
        let path = directory.join(file);
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(read(&path)?.as_bytes()).collect();
        certificates.map_err(|e| bad(&path, e))
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca.pem")? {
        let path = directory.join("ca.pem");
        roots.add(certificate).map_err(|e| Fault::because(path.display().to_string(), e, MAKE))?;
    }
    let chain = certificates(role.certificate())?;
    let path = directory.join(role.key());
    private(&path)?;
    let key = PrivateKeyDer::from_pem_slice(read(&path)?.as_bytes()).map_err(|e| bad(&path, e))?;
    Ok(Loaded { roots, chain, key })
}

fn unusable(directory: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Fault {
    Fault::because(directory.display().to_string(), error, MAKE)
}

/// TLS 1.3, a certificate of our authority asked of every client, nothing resumed: each connection shows a certificate
/// that is valid then.
pub(crate) fn server(directory: &Path) -> Result<Arc<ServerConfig>> {
    let Loaded { roots, chain, key } = load(directory, Role::Agent)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|e| unusable(directory, e))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(chain, key))
        .map_err(|e| unusable(directory, e))?;
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

pub(crate) fn client(directory: &Path) -> Result<Arc<ClientConfig>> {
    let Loaded { roots, chain, key } = load(directory, Role::Client)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(chain, key))
        .map_err(|e| unusable(directory, e))?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn keys_are_the_owners_alone_and_renewal_keeps_the_authority() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("keys");
        let made = make(&at, &["dpu-1".into(), "198.18.0.1".into()]).unwrap();
        assert_eq!(made.iter().map(|m| m.renewed).collect::<Vec<_>>(), [false; 3]);
        for file in ["ca.key", "ca.pem", "client/client.key", "dpu-1/agent.key", "198.18.0.1/agent.pem"] {
            assert_eq!(mode(&at.join(file)), 0o600, "{file}");
        }
        assert_eq!(mode(&at.join("dpu-1")), 0o700);
        assert!(!at.join("dpu-1/ca.key").exists(), "an agent must not be able to sign");
        let authority = fs::read(at.join("ca.pem")).unwrap();
        let before = fs::read(at.join("client/client.pem")).unwrap();
        assert!(make(&at, &[]).unwrap()[0].renewed);
        assert_eq!(fs::read(at.join("ca.pem")).unwrap(), authority);
        assert_ne!(fs::read(at.join("client/client.pem")).unwrap(), before);
        server(&at.join("dpu-1")).unwrap();
        client(&at.join("client")).unwrap();
    }

    #[test]
    fn an_authority_ends_and_its_certificates_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        make_at(folder.path(), &[], now, Duration::from_secs(DAY)).unwrap();
        let late = now + Duration::from_secs((AUTHORITY_DAYS - 10) * DAY);
        let made = make_at(folder.path(), &[], late, Duration::from_secs(90 * DAY)).unwrap();
        assert_eq!(made[0].until, date(day(now) + AUTHORITY_DAYS));
        let over = now + Duration::from_secs(AUTHORITY_DAYS * DAY);
        let fault = make_at(folder.path(), &[], over, Duration::from_secs(DAY)).unwrap_err().to_string();
        assert!(fault.contains("this authority's time is over"), "{fault}");
    }

    #[test]
    fn names_that_would_leave_the_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for host in ["..", "", "a/b", "/etc", "client", "ca.key", "two words", "-"] {
            assert!(make(folder.path(), &[host.into()]).is_err(), "{host}");
        }
        assert!(make(folder.path(), &["::1".into()]).is_ok());
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), &["h".into()]).unwrap();
        let key = folder.path().join("h/agent.key");
        fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
        assert!(server(&folder.path().join("h")).unwrap_err().to_string().contains("mode 640"));
    }

    #[test]
    fn what_is_no_certificate_is_said_so() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), &["h".into()]).unwrap();
        fs::write(folder.path().join("h/agent.pem"), "nothing").unwrap();
        assert!(server(&folder.path().join("h")).is_err());
        assert!(client(Path::new("/nonexistent")).unwrap_err().to_string().contains("plimsoll agent keys"));
    }
}
