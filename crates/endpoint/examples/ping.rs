//! One application, any placement: `cargo run --release -p endpoint --example ping -- core:1`.
//!
//! A child process answers pings over shared memory; where the engine runs in either process is the one argument.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use endpoint::{Direction, Endpoint, Source, TagSelector, shm_links};
use machine::{Fault, PeerIndex, Result, Site};
use ports::shm::{Role, ShmPort};

const PEER: PeerIndex = PeerIndex(0);
const TAG: u64 = 7;
const PINGS: u32 = 100_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().unwrap_or_else(|| "app".into());
    match first.as_str() {
        "answer" => answer(&arguments.next().unwrap_or_default().parse()?),
        site => ask(&site.parse()?),
    }
}

fn open(stream: &UnixStream, role: Role, site: &Site) -> Result<Endpoint<ShmPort, Vec<u8>>> {
    let mut port = ShmPort::default();
    port.connect(stream, role)?;
    let links = shm_links(&port, 1);
    let endpoint = Endpoint::open(port, &links, site, &[])?;
    for note in &endpoint.placed().notes {
        println!("{note}");
    }
    Ok(endpoint)
}

/// Sends one message to the peer and receives one.
fn exchange(endpoint: &mut Endpoint<ShmPort, Vec<u8>>, send_first: bool) -> Result<()> {
    endpoint.receive(Source::Peer(PEER), TagSelector::exactly(TAG), vec![0; 8], 0)?;
    let mut to_send = Some(vec![0; 8]);
    if send_first {
        endpoint.send(PEER, TAG, to_send.take().unwrap_or_default(), 0)?;
    }
    let (mut sent, mut received) = (false, false);
    while !sent || !received {
        match endpoint.poll()? {
            Some(done) if done.direction == Direction::Send => sent = true,
            Some(_) => {
                received = true;
                if let Some(answer) = to_send.take() {
                    endpoint.send(PEER, TAG, answer, 0)?;
                }
            }
            None => endpoint.relax(),
        }
    }
    Ok(())
}

fn ask(site: &Site) -> Result<()> {
    let failed = |e| Fault::because("the answering process", e, "look at what it printed");
    let (here, there) = UnixStream::pair().map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .args(["answer", &site.to_string()])
        .stdin(Stdio::from(OwnedFd::from(there)))
        .spawn()
        .map_err(failed)?;
    let mut endpoint = open(&here, Role::Create, site)?;
    let start = Instant::now();
    for _ in 0..PINGS {
        exchange(&mut endpoint, true)?;
    }
    let half = start.elapsed() / PINGS / 2;
    println!("engine at {site}: {} ns, half a round trip of 8 bytes", half.as_nanos());
    child.wait().map_err(failed)?;
    Ok(())
}

fn answer(site: &Site) -> Result<()> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    let stream =
        UnixStream::from(stdin.map_err(|e| Fault::because("standard input", e, "run the example without arguments"))?);
    let mut endpoint = open(&stream, Role::Join, site)?;
    for _ in 0..PINGS {
        exchange(&mut endpoint, false)?;
    }
    endpoint.settle(Duration::from_secs(1))
}
