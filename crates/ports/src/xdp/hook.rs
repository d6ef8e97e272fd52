//! The receiving program at an interface, and the lanes that it serves.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machine::{Fault, Result, XdpMode};

use super::layout::{self, LANES};
use super::ownership;
use linux::xdp::{self, Attached, Attachment, Interface, Loader, Map, Object};

/// The program, attached while this lives; the kernel detaches it also when this process is killed. Packets then go to
/// the endpoints' sockets again.
#[derive(Debug)]
pub struct Hook {
    /// Dropped first: no packet comes to a lane after that.
    attachment: Attachment,
    interface: Interface,
    object: Object,
    namespace: u64,
    seats: Mutex<Seats>,
}

#[derive(Debug)]
struct Seats {
    /// Number of the present holder of each lane; 0: free.
    holders: Vec<u64>,
    endpoints: HashMap<SocketAddr, u32>,
    admitted: u64,
}

/// A lane of a hook, until dropped. Processes that map its memory keep it, but no packets come there any more.
#[derive(Debug)]
pub struct LentLane {
    hook: Arc<Hook>,
    endpoint: SocketAddr,
    number: u32,
    holder: u64,
}

impl Hook {
    /// Attaches the program to `interface` of the calling thread's network namespace, in `mode` without fallback.
    pub fn attach(interface: &str, mode: XdpMode) -> Result<Hook> {
        let interface = Interface::named(interface)?;
        let code = xdp::built("receiving program", bpf::LANES)?;
        // A NIC's memory is not the host's: an endpoint could not map its lane.
        if mode == XdpMode::Hardware {
            let subject = format!("receiving program at interface {}, hardware mode", interface.name());
            return Err(Fault::new(subject, "its lanes are memory of this host", "ask for native mode"));
        }
        // XDP_TX does not wake the other end of a veth; see the program.
        let redirects = mode == XdpMode::Native && interface.driver().as_deref() == Some("veth");
        let loader = Loader::new("lanes", code).variable("TURN_BY_REDIRECT", &u32::from(redirects).to_ne_bytes());
        let object = loader.load()?;
        let attachment = Attachment::new(object.program("receive")?, &interface, mode)?;
        let namespace = interface.inside(ownership::namespace_here)??;
        let seats = Seats { holders: vec![0; LANES as usize], endpoints: HashMap::new(), admitted: 0 };
        Ok(Hook { attachment, interface, object, namespace, seats: Mutex::new(seats) })
    }

    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The program's number, by which the kernel and `bpftool` know it.
    pub fn id(&self) -> u32 {
        self.object.program("receive").map_or(0, xdp::Program::id)
    }

    pub fn mode(&self) -> XdpMode {
        self.attachment.mode()
    }

    /// The attachment by the kernel's account. A fault where it is not this program in this mode.
    pub fn prove(&self) -> Result<Attached> {
        self.attachment.prove(&self.interface)
    }

    /// The program itself, to run it on test frames.
    pub fn program(&self) -> Result<&xdp::Program> {
        self.object.program("receive")
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, cause: impl ToString, next: &str) -> Fault {
        Fault::new(format!("a lane at interface {}", self.interface.name()), cause.to_string(), next)
    }

    /// A lane for the packets to `socket`, a UDP socket of this namespace that is bound to an address. Access to the
    /// socket entitles to its packets; a second call for it gives a new lane in place of the old.
    ///
    /// The map is the lane's memory, for the endpoint's process alone.
    pub fn admit(self: &Arc<Hook>, socket: BorrowedFd<'_>) -> Result<(LentLane, Map)> {
        let endpoint = ownership::endpoint_of(socket, self.namespace, self.interface.index())?;
        let mut seats = self.seats();
        if let Some(number) = seats.endpoints.remove(&endpoint) {
            self.clear(&mut seats, endpoint, number);
        }
        let free = seats.holders.iter().position(|&holder| holder == 0);
        let number = free.ok_or_else(|| self.fault("all 64 are taken", "run fewer ranks on this interface"))? as u32;
        let refused = |error: std::io::Error| self.fault(error, "raise the limit of locked memory (ulimit -l)");
        let memory = self.object.map("MEMORY")?;
        let lane = memory.make_inner("lane").map_err(refused)?;
        let state = self.object.map("STATE")?;
        state.put(number, &vec![0; state.value_size()]).map_err(refused)?;
        memory.put(number, &lane.as_fd().as_raw_fd().to_ne_bytes()).map_err(refused)?;
        let (map, key) = layout::endpoint_key(endpoint);
        self.object.map(map)?.put_at(&key, &number.to_ne_bytes()).map_err(refused)?;
        seats.admitted += 1;
        let holder = seats.admitted;
        seats.holders[number as usize] = holder;
        seats.endpoints.insert(endpoint, number);
        Ok((LentLane { hook: self.clone(), endpoint, number, holder }, lane))
    }

    /// Frees a lane. No program uses it any more when this returns, since removing memory waits for running programs.
    fn clear(&self, seats: &mut Seats, endpoint: SocketAddr, number: u32) {
        let remove = |map: &str, key: &[u8]| self.object.map(map).map(|map| map.remove(key));
        let (endpoints, key) = layout::endpoint_key(endpoint);
        let _ = remove(endpoints, &key);
        let _ = remove("MEMORY", &number.to_ne_bytes());
        seats.holders[number as usize] = 0;
    }
}

impl LentLane {
    pub fn hook(&self) -> &Arc<Hook> {
        &self.hook
    }
}

impl Drop for LentLane {
    fn drop(&mut self) {
        let mut seats = self.hook.seats();
        if seats.holders[self.number as usize] == self.holder {
            seats.endpoints.remove(&self.endpoint);
            self.hook.clear(&mut seats, self.endpoint, self.number);
        }
    }
}

/// Whether this user can attach programs here, else why not; for tests that skip.
pub fn possible() -> Result<()> {
    let code = xdp::built("receiving program", bpf::LANES)?;
    xdp::Object::load("lanes", code).map(drop)
}
