//! The suite that every kind of channel passes.
