//! State that an agent has once, for all its clients.

use std::sync::Mutex;

use offcode::Registry;

use super::Limits;
use super::code_cache::CodeCache;
use super::journal::Journal;
use super::limits::Budgets;
use super::protocol::Survey;

pub(crate) struct AgentState {
    pub limits: Limits,
    pub budgets: Budgets,
    pub registry: Registry,
    pub cache: Mutex<CodeCache>,
    pub journal: Journal,
    pub survey: Survey,
}
