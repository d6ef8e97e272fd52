//! Outside references: other programs that measure the same, in the same session, on the same cores.

pub mod netpipe;
