//! The costs of 20,000 small messages over the UDP port, by core and by thread.
//!
//! `cargo bench -p ports --bench accounting`: two threads on two cores play ping-pong over loopback. As root the time
//! inside softirqs is measured; otherwise only their count, with the reason.

use std::thread;

use linux::accounting::{HostMeter, ThreadMeter, current_thread};
use linux::affinity;
use machine::accounting::ThreadCost;
use machine::{CoreId, Nanoseconds, PeerIndex, Port, Result};
use ports::udp::UdpPort;

const MESSAGES: u32 = 20_000;
const ANY: &str = "127.0.0.1:0";

fn main() -> Result<()> {
    let cores = affinity::allowed()?;
    let mut meter = HostMeter::open()?;
    let (mut a, mut b) = (UdpPort::open(ANY.parse().unwrap())?, UdpPort::open(ANY.parse().unwrap())?);
    a.add_peer(b.local_address())?;
    b.add_peer(a.local_address())?;

    meter.begin()?;
    let (ping, pong) = thread::scope(|scope| {
        let ping = scope.spawn(|| play(&mut a, "ping", cores[0], true));
        let pong = scope.spawn(|| play(&mut b, "pong", cores[cores.len() - 1], false));
        (ping.join().expect("ping ends"), pong.join().expect("pong ends"))
    });
    let cores = meter.end()?;

    println!("{MESSAGES} messages of 8 B each way; the meter took {}", meter.overhead());
    for core in cores {
        println!("{}: receive softirqs {:?}, interrupts {:?}", core.core, core.net_rx, core.interrupts);
    }
    for cost in [ping, pong] {
        let cost = cost?;
        let each = cost.cpu.map(|cpu| Nanoseconds(cpu.0 / u64::from(MESSAGES)));
        println!("{} on {:?}: CPU {each:?} a round trip, {:?} waits", cost.role, cost.core, cost.voluntary_switches);
    }
    println!("port: {:?}\n{:?}\n{:?}", a.features(), a.buffers(), a.counters());
    Ok(())
}

fn play(port: &mut UdpPort, role: &str, core: CoreId, first: bool) -> Result<ThreadCost> {
    let _pinned = affinity::pin(core)?;
    let mut meter = ThreadMeter::open("local", role, current_thread())?;
    meter.begin()?;
    for i in 0..MESSAGES {
        if first {
            send(port, i)?;
        }
        while port.receive(1, |_, _| {})? == 0 {
            std::hint::spin_loop();
        }
        if !first {
            send(port, i)?;
        }
    }
    meter.end()
}

fn send(port: &mut UdpPort, i: u32) -> Result<()> {
    port.send(PeerIndex(0), 8, |room| room.copy_from_slice(&u64::from(i).to_le_bytes()))?;
    port.flush()
}
