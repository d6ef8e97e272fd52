//! The operating system as the rest sees it: cores and their accounting, memory and messages between processes, namespaces
//! and labs, BPF programs, signals.

pub mod accounting;
pub mod addresses;
pub mod affinity;
pub mod barrier;
pub mod clock;
pub mod clock_setting;
pub mod contention;
pub mod control_messages;
pub mod credentials;
pub mod datagrams;
pub mod doorbell;
pub mod ethtool;
pub mod inherited;
pub mod interface_usage;
mod journal;
pub mod lab;
pub mod mask;
pub mod metrics;
pub mod netlink;
pub mod output;
mod ownership;
pub mod passing;
pub mod power;
pub mod region;
pub mod relay;
pub mod remote;
pub mod rendezvous;
pub mod scheduling;
pub mod shield;
pub mod shortage;
pub mod signal;
pub mod steering;
pub mod terminal;
pub mod warden;
pub mod write_ahead;
pub mod xdp;
