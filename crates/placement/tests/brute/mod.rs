//! The solver, the proof and the clashes against the plainest possible search, on small layouts of every shape.

mod answers;
mod clashes;
mod layouts;
mod oracle;
mod proofs;
