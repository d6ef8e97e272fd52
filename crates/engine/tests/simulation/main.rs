//! Seeded simulation: two to five engines on wires that lose, duplicate, delay and reorder, are cut for a while or for
//! good, with ports that are full and applications that sleep, do not read, cancel, or die. Some ports receive at
//! the driver hook. A seed replays a world:
//! `PLIMSOLL_SEED=n cargo test -p engine --test simulation`. `PLIMSOLL_MESSAGES=n` sets how many messages are moved.
#![forbid(unsafe_code)]

mod hook;
mod host;
mod ledger;
mod random;
mod wire;
mod world;

use world::{Outcome, World};

/// Prints the seed if the world ends in a panic.
struct Watched(u64);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with PLIMSOLL_SEED={} cargo test -p engine --test simulation", self.0);
        }
    }
}

fn run(seed: u64) -> Outcome {
    let _watched = Watched(seed);
    World::new(seed).run()
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

#[test]
fn nothing_is_lost_doubled_altered_or_out_of_order() {
    if let Some(seed) = number("PLIMSOLL_SEED") {
        eprintln!("seed {seed}: {:?}", run(seed));
        return;
    }
    let wanted = number("PLIMSOLL_MESSAGES").unwrap_or(2_000_000);
    let first = number("PLIMSOLL_FIRST_SEED").unwrap_or(1);
    let (mut total, mut worlds) = (Outcome::default(), 0);
    while total.messages < wanted {
        let outcome = run(first + worlds);
        worlds += 1;
        total.messages += outcome.messages;
        total.packets += outcome.packets;
        total.retransmitted += outcome.retransmitted;
        total.duplicates += outcome.duplicates;
        total.single_copies += outcome.single_copies;
        total.deaths += outcome.deaths;
        total.hooked += outcome.hooked;
        total.hook_acknowledgements += outcome.hook_acknowledgements;
        total.hook_passed += outcome.hook_passed;
        total.virtual_time += outcome.virtual_time;
    }
    eprintln!("{worlds} worlds: {total:?}");
    // A simulation in which nothing goes wrong proves nothing.
    assert!(total.retransmitted > 0 && total.duplicates > 0 && total.single_copies > 0 && total.deaths > 0);
    assert!(total.hooked > 0 && total.hook_acknowledgements > 0 && total.hook_passed > 0);
}
