use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use bench::admission::Admission;
use bench::control::{Grant, SERVE_PORT};
use bench::key::Key;
use bench::owner::Owner;
use bench::serve::Server;
use linux::output::under;
use machine::{Fault, Result};

/// Waits for a bench on another host.
///
/// Each request is bounded in size, memory and time. Without --key there is no authentication: whoever reaches the port can
/// make this host work, by messages over its sockets alone. Listen on a network that you trust.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address to listen on, with or without a port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address)]
    listen: SocketAddr,
    /// File (mode 0600) with a secret word of 16 bytes or more: clients that do not know it are refused; they name a copy of
    /// the file with their own --key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// What clients with the key may ask for beyond messages over sockets: cores (the engine on a core of its own), hooks (the
    /// engine's networks afxdp and xdp, which attach a program to the interface that the client came by)
    #[arg(long, value_name = "WHAT,...", value_delimiter = ',', requires = "key")]
    allow: Vec<Grant>,
    /// Answers nobody but the bench whose secret has this SHA-256, and ends with it
    #[arg(long, value_name = "DIGEST", hide = true, conflicts_with = "key")]
    owner: Option<String>,
}

fn address(text: &str) -> Result<SocketAddr> {
    let with_port = text.parse::<SocketAddr>();
    with_port.or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, SERVE_PORT))).map_err(|_| {
        Fault::new(
            format!("address '{text}'"),
            "it is not a numeric address",
            format!("write it like 127.0.0.1, 192.0.2.7:{SERVE_PORT} or [::1]:{SERVE_PORT}"),
        )
    })
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let (admission, allows) = match (&arguments.owner, &arguments.key) {
        (Some(digest), _) => (Admission::Owner(Owner::new(digest)), Grant::ALL.to_vec()),
        (None, Some(file)) => (Admission::Key(Key::read(file)?), arguments.allow),
        (None, None) => (Admission::Anybody, Vec::new()),
    };
    let server = Server::bind(arguments.listen, admission, allows)?;
    println!("plimsoll serve: listening on {}", server.address()?);
    linux::signal::watch()?;
    server.run(linux::signal::interrupted, |line| eprintln!("{}", under("plimsoll serve", line)))?;
    // The parent may have stopped reading.
    let _ = writeln!(std::io::stdout(), "plimsoll serve: ended");
    Ok(linux::signal::exit_status_of_server().map_or(ExitCode::SUCCESS, ExitCode::from))
}
