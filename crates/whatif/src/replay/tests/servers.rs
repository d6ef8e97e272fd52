//! Links that the ranks of a host share, in closed form.

use super::*;

const LINKED: Price = Price { send: 0, receive: 0, trip: 1_000_000, engine: 0, link: 300_000, rendezvous: false };

/// Exits of the receives of messages that are all sent at once: each from a rank to another, on these hosts.
fn received(hosts: &[u32], messages: &[(u32, u32)], price: Price) -> Vec<i64> {
    let mut builder = Builder::new(hosts.to_vec(), messages.len() as u32);
    let all = || (0..).zip(messages);
    all().for_each(|(message, _)| builder.message(message, Kind { reach: Reach::Between, ..KIND }));
    for rank in 0..hosts.len() as u32 {
        builder.lane(rank, 0);
        for (message, (from, to)) in all() {
            if rank == *from {
                builder.call(call("Isend", 0), &[Step::Send(message)]);
            } else if rank == *to {
                builder.call(call("Recv", 0), &[Step::Post(message), Step::Received(message)]);
            }
        }
    }
    let graph = builder.finish();
    let conditions = conditions(&graph, price);
    let replayed = replay(&graph, &conditions, Residuals::None).unwrap();
    assert_eq!(critical(&graph, &conditions, &replayed).parts.total(), replayed.total);
    graph.messages.iter().map(|message| replayed.exits[message.receiver as usize]).collect()
}

#[test]
fn ranks_of_a_host_that_send_at_once_share_its_link() {
    // Out of a host, and into one.
    assert_eq!(received(&[0, 0, 1, 1], &[(0, 2), (1, 3)], LINKED), [1_000_000, 1_300_000]);
    assert_eq!(received(&[0, 1, 2, 2], &[(0, 2), (1, 3)], LINKED), [1_000_000, 1_300_000]);
    // Directions do not meet, and a rank that sends alone pays for its own bytes once.
    assert_eq!(received(&[0, 1, 0, 1], &[(0, 1), (3, 2)], LINKED), [1_000_000; 2]);
    assert_eq!(received(&[0, 1], &[(0, 1), (0, 1), (0, 1)], LINKED), [1_000_000, 1_300_000, 1_600_000]);
    let unshared = Price { link: 0, ..LINKED };
    assert_eq!(received(&[0, 0, 1, 1], &[(0, 2), (1, 3)], unshared), [1_000_000; 2]);
    // Through an engine's core that is slower than the link, nobody waits for the link.
    let engine = Price { engine: 400_000, ..LINKED };
    assert_eq!(received(&[0, 0, 1, 1], &[(0, 2), (1, 3)], Price { trip: 1_500_000, ..engine }), [1_500_000, 1_900_000]);
}
