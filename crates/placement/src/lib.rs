//! Layouts and the solver that turns them into plans: which site runs what, at which cost, and why not elsewhere
//! (HYDRA section 1.4). Pure: no clock but for the budget, no file, no machine.
#![forbid(unsafe_code)]

pub mod layout;
