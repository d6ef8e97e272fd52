//! Link settings that suit the ports of this host.

use engine::LinkConfig;
use machine::Port;
use machine::bounds::ENGINE_WINDOW;
use ports::shm::ShmPort;
use ports::udp::UdpPort;

/// Greatest window: more packets in flight only fill queues.
const WINDOW_MOST: u64 = ENGINE_WINDOW.each.count() as u64;
const WINDOW_LEAST: u64 = 4;

/// One setting for each of the port's `peers`.
pub fn shm_links(port: &ShmPort, peers: usize) -> Vec<LinkConfig> {
    vec![LinkConfig::for_shared_memory(&port.capabilities()); peers]
}

/// One setting for each peer; `sessions[i]` names the conversation with peer `i`, agreed out of band. The windows of all peers
/// together fit the socket's buffer; the peer's is assumed to be as large.
pub fn udp_links(port: &UdpPort, sessions: &[u32]) -> Vec<LinkConfig> {
    let capabilities = port.capabilities();
    let share = port.buffers().receive_window(capabilities.mtu) / sessions.len().max(1) as u64;
    let window = share.clamp(WINDOW_LEAST, WINDOW_MOST) as u32;
    let link = |&session| {
        let mut link = LinkConfig::for_port(&capabilities, session);
        if let Some(reliability) = &mut link.reliability {
            reliability.window = window;
        }
        link
    };
    sessions.iter().map(link).collect()
}
