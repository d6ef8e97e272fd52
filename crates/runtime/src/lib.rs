//! Carries a plan out: sites, channels between offcodes, gangs, agents, and the control of what runs.
#![forbid(unsafe_code)]

pub mod agent;
pub mod app_file;
pub mod application;
pub mod assembly;
pub mod catalogue;
pub mod channels;
pub mod closure;
pub mod code;
pub mod control;
pub mod costs;
mod create;
pub mod draft;
pub mod expectation;
mod gang;
pub mod ground;
pub mod grounds;
pub mod instance;
pub mod layout;
mod live;
pub mod measured;
pub mod migration;
pub mod objective;
mod obsolete;
pub mod possible;
pub mod rebalance;
pub mod site;
mod switchboard;
mod trace;
mod wanted;
mod watching;

pub use application::Runtime;
pub use attach::control::Running;
pub use catalogue::Catalogue;
pub use channels::Pathway;
pub use create::Decided;
pub use live::OffcodeId;
pub use wanted::Wanted;
