//! Seeded simulation: two to five engines on wires that lose, duplicate, delay and reorder, are cut for a while or for
//! good, with ports that are full and applications that sleep, do not read, cancel, or die. Some ports receive at
//! the driver hook. A seed replays a world:
//! `PLIMSOLL_SEED=n cargo test -p engine simulation`. `PLIMSOLL_MESSAGES=n` sets how many messages are moved,
//! `PLIMSOLL_FIRST_SEED=n` where seeds begin, `PLIMSOLL_MINUTES=n` when no further world begins. `make soak` sets them.

mod hook;
mod host;
mod ledger;
pub(crate) mod random;
mod soak;
mod wire;
mod world;

use soak::Totals;
use world::World;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

#[test]
fn nothing_is_lost_doubled_altered_or_out_of_order() {
    simulate(400_000);
}

#[test]
#[ignore = "make check"]
fn nothing_is_lost_doubled_altered_or_out_of_order_of_two_million() {
    simulate(2_000_000);
}

/// Runs worlds for so many messages, or for as many as the environment asks for.
fn simulate(messages: u64) {
    if let Some(seed) = number("PLIMSOLL_SEED") {
        eprintln!("seed {seed}: {:?}", World::new(seed).run());
        return;
    }
    let Totals { outcome, failed, .. } = soak::run(
        number("PLIMSOLL_FIRST_SEED").unwrap_or(1),
        number("PLIMSOLL_MESSAGES").unwrap_or(messages),
        number("PLIMSOLL_MINUTES"),
    );
    assert!(failed.is_empty(), "worlds of these seeds failed, see above: {failed:?}");
    // A simulation in which nothing goes wrong proves nothing.
    assert!(outcome.retransmitted > 0 && outcome.duplicates > 0 && outcome.single_copies > 0 && outcome.deaths > 0);
    assert!(outcome.hooked > 0 && outcome.hook_acknowledgements > 0 && outcome.hook_passed > 0);
}
