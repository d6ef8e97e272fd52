//! Memory and descriptors per used peer over `shm`: one that was written to and has written back. They belong to the port and
//! the paths, not to the engine, and are the same for all semantics.

use std::time::{Duration, Instant};

use endpoint::{Endpoint, Paths, Settings, Source, TagSelector};
use linux::accounting::{heap, shared};
use linux::shortage::{descriptors, raise_descriptor_limit};
use machine::{Bytes, Fault, PeerIndex, Reading, Result};
use serde::{Deserialize, Serialize};

use super::layer::{Message, check};

/// Growth per peer from endpoints that know each other to endpoints that have written to each other. Both ends are in this
/// process: shared memory counts once, each end's own twice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Used {
    pub peers: u32,
    /// Pages of the links in both directions, after short messages.
    pub shared: Reading<Bytes>,
    /// Pages of the links after long messages.
    pub shared_long: Reading<Bytes>,
    /// Memory at the allocator.
    pub heap: Reading<Bytes>,
    /// Descriptors of all peers together, once the links are in use.
    pub descriptors: Reading<u64>,
}

type End = Endpoint<Paths, Message>;

/// Lengths of the messages of each end; long ones are sent peer by peer.
const SHORT: usize = 8;
const LONG: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Polls after which each end has looked for news about its peers.
const POLLS: u32 = 2 * 4096;

struct Look {
    shared: Reading<Bytes>,
    heap: Reading<Bytes>,
    descriptors: Reading<u64>,
}

impl Look {
    fn now() -> Look {
        Look { shared: shared(), heap: heap(), descriptors: descriptors() }
    }
}

fn end() -> Result<End> {
    End::join(&Settings { address: Some([127, 0, 0, 1].into()), ..Settings::default() })
}

/// Has the hub and each leaf send one another a message. Then all poll `rest` times more.
fn exchange(
    hub: &mut End,
    leaves: &mut [End],
    to: &[(PeerIndex, PeerIndex)],
    size: usize,
    mut rest: u32,
) -> Result<()> {
    for (leaf, (to_leaf, to_hub)) in leaves.iter_mut().zip(to) {
        for (end, peer) in [(&mut *hub, to_leaf), (leaf, to_hub)] {
            end.receive(Source::Peer(*peer), TagSelector::any(), vec![0; size], 0)?;
            end.send(*peer, 1, vec![1; size], 0)?;
        }
    }
    let deadline = Instant::now() + TIMEOUT;
    // A send and a receive for each peer at each end.
    let mut left = 4 * leaves.len();
    while left > 0 || rest > 0 {
        for end in leaves.iter_mut().chain([&mut *hub]) {
            while let Some(done) = end.poll()? {
                check(done.status)?;
                left -= 1;
            }
        }
        if left == 0 {
            rest = rest.saturating_sub(1);
        } else if Instant::now() > deadline {
            return Err(Fault::new("used peers over shm", format!("{left} messages did not come"), "run it again"));
        }
    }
    Ok(())
}

/// Measures one end with so many peers.
///
/// # Errors
/// This process may not have enough descriptors for so many endpoints, or no message came.
pub fn used(peers: u32) -> Result<Used> {
    raise_descriptor_limit();
    let mut hub = end()?;
    let mut leaves = (0..peers).map(|_| end()).collect::<Result<Vec<End>>>()?;
    let mut to = Vec::with_capacity(leaves.len());
    let name = hub.name();
    for leaf in &mut leaves {
        let leaf_name = leaf.name();
        to.push((hub.insert(&leaf_name)?, leaf.insert(&name)?));
    }
    let before = Look::now();
    exchange(&mut hub, &mut leaves, &to, SHORT, POLLS)?;
    let after = Look::now();
    for (leaf, to) in leaves.iter_mut().zip(&to) {
        exchange(&mut hub, std::slice::from_mut(leaf), std::slice::from_ref(to), LONG, 0)?;
    }
    let shared_long = shared();
    let each = |before: &Reading<Bytes>, after: Reading<Bytes>| match before.value() {
        Some(before) => after.map(|after| Bytes(after.0.saturating_sub(before.0).div_ceil(u64::from(peers)))),
        None => after,
    };
    Ok(Used {
        peers,
        shared: each(&before.shared, after.shared),
        shared_long: each(&before.shared, shared_long),
        heap: each(&before.heap, after.heap),
        descriptors: match before.descriptors.value() {
            Some(before) => after.descriptors.map(|after| after.saturating_sub(*before)),
            None => after.descriptors,
        },
    })
}
