//! MPI programs that more than one test or script runs; `scripts/make-bank` records all of `programs/`.

/// All kinds of calls that a replay follows, in as many rounds as the first argument says, else 200.
pub const KINDS: &str = include_str!("programs/kinds.c");
