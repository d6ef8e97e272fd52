//! Links that the ranks of a host share, in closed form.

use super::*;

const LINKED: Price = Price { send: 0, receive: 0, trip: 1_000_000, engine: 0, link: 300_000, rendezvous: false };

/// Exits of receives of messages, given as sender and receiver, that are all sent at once between ranks on these hosts.
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

/// Both ends are in calls when the message reaches the engine's core.
#[test]
fn both_ends_of_a_rendezvous_wait_for_an_engine() {
    let mut builder = Builder::new(vec![0, 1], 1);
    builder.message(0, Kind { reach: Reach::Between, ..KIND });
    builder.lane(0, 0);
    builder.call(call("Send", 1), &[Step::Send(0), Step::Sent(0)]);
    builder.lane(1, 0);
    builder.call(call("Recv", 0), &[Step::Post(0), Step::Received(0)]);
    let graph = builder.finish();
    let price = Price { engine: 300_000, link: 0, rendezvous: true, ..LINKED };
    let replayed = replay(&graph, &conditions(&graph, price), Residuals::None).unwrap();
    assert_eq!(replayed.exits, [1_001_000; 2]);
}

/// In the run whose order is kept, rank 0 sends first; now rank 1 does, and would have to wait for it.
#[test]
fn an_order_that_is_kept_makes_who_comes_first_wait() {
    let graph = |late: [i64; 2]| {
        let mut builder = Builder::new(vec![0, 0, 1, 1], 2);
        (0..2).for_each(|message| builder.message(message, Kind { reach: Reach::Between, ..KIND }));
        for rank in 0..2 {
            builder.lane(rank, 0);
            builder.call(call("Isend", late[rank as usize]), &[Step::Send(rank)]);
        }
        for message in 0..2 {
            builder.lane(2 + message, 0);
            builder.call(call("Recv", 0), &[Step::Post(message), Step::Received(message)]);
        }
        builder.finish()
    };
    let received = |graph: &Graph, began: Option<[i64; 2]>, price| {
        let conditions = conditions(graph, price);
        let order = began.map(|began| Order::of(graph, &began, &conditions).unwrap());
        let replayed = replay_in(order, graph, &conditions, Residuals::None).unwrap();
        assert_eq!(critical(graph, &conditions, &replayed).parts.total(), replayed.total);
        [replayed.exits[2], replayed.exits[3]]
    };
    let now = graph([2_000, 1_000]);
    let engine = Price { engine: 400_000, link: 0, ..LINKED };
    for price in [LINKED, engine] {
        assert_eq!(received(&now, None, price), [3_000_000, 2_000_000]);
        assert_eq!(received(&now, Some([2_000_000, 1_000_000]), price), received(&now, None, price));
    }
    assert_eq!(received(&now, Some([0, 1]), LINKED), [3_000_000, 3_300_000]);
    assert_eq!(received(&now, Some([0, 1]), engine), [3_000_000, 3_400_000]);
    let unqueued = conditions(&now, Price { link: 0, ..LINKED });
    assert!(Order::of(&now, &[0, 1], &unqueued).is_none());
}
