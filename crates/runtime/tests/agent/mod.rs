//! The agent and its site, against clients that mean well, mean harm, or die.

mod bad_tls;
mod channels;
mod deaths;
mod floods;
mod hooks;
mod hostile;
mod lab;
mod moves;
mod rig;
mod service;
mod shares;
mod site;
mod suite;
