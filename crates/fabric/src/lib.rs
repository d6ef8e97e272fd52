//! The libfabric provider `plimsoll`: the message engine for programs that speak libfabric, MPI libraries above all.
//!
//! libfabric loads every `*-fi.so` in FI_PROVIDER_PATH and asks it for `fi_prov_ini`. What is served and what is not is
//! in `docs/fabric.md`.
//!
//! All calls arrive through `extern "C"` functions, out of which no panic unwinds: Rust ends the process at that border.

pub mod abi;

mod account;
mod address_vector;
mod arguments;
mod arithmetic;
mod atomic;
mod completion_queue;
mod connection;
mod counter;
mod datagram;
mod deferred_work;
mod domain;
mod endpoint;
mod endpoint_calls;
mod event_queue;
mod fabric;
mod handshake;
mod host;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod hostile_connections;
#[cfg(test)]
mod hostile_remote;
#[cfg(test)]
mod hostile_triggers;
mod info;
mod initiator;
mod listener;
mod memory;
mod object;
mod offer;
mod parameters;
mod passive_endpoint;
mod peek;
mod poll_set;
mod progress;
mod provider;
mod receive;
mod receive_order;
mod record;
mod refuse;
mod region;
mod remote;
mod report;
mod rma;
mod send;
mod service;
mod shared;
mod shared_calls;
#[cfg(test)]
mod stopped;
mod tables;
mod target;
mod trigger;
mod wait_object;
mod waiting;
mod wire;
