//! Tests of `endpoint` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod connections;
mod crowd;
mod endpoint;
mod join;
mod killed;
mod lent;
mod network;
mod pid_namespaces;
mod shortage;
mod stopped;
