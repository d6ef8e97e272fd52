//! The open models of MPI: the world, from MPI_Init to MPI_Finalize, and sessions. Threads of a program open and close
//! models independently of each other; a query of the MPI under a model that is not open ends the process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    World,
    /// A session, by its C handle.
    Session(usize),
}

#[derive(Debug, Default)]
pub struct Models {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    models: Vec<One>,
    /// MPI_Finalize was called.
    world_is_over: bool,
}

#[derive(Debug)]
struct One {
    model: Model,
    /// Queries of the MPI that are under way in this model.
    asking: u32,
    /// No new query begins in this model.
    is_closing: bool,
}

/// A query under way: its model is not closed as long as this value lives.
pub struct Asking<'a> {
    models: &'a Models,
    /// The model to query for ranks of the world: the world itself, else any session; `None`: nothing is open.
    pub model: Option<Model>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut open = self.models.open();
        if let Some(one) = open.models.iter_mut().find(|one| Some(one.model) == self.model) {
            one.asking = one.asking.saturating_sub(1);
        }
    }
}

impl Models {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn ask(&self) -> Asking<'_> {
        let mut open = self.open();
        let chosen = open.models.iter_mut().filter(|one| !one.is_closing).max_by_key(|one| one.model == Model::World);
        let model = chosen.map(|one| {
            one.asking += 1;
            one.model
        });
        Asking { models: self, model }
    }

    pub fn opened(&self, model: Model) {
        let mut open = self.open();
        match open.models.iter_mut().find(|one| one.model == model) {
            Some(one) => one.is_closing = false,
            None => open.models.push(One { model, asking: 0, is_closing: false }),
        }
    }

    /// Marks a model as closing, and waits until no query is under way in it: queries are local and short. Returns whether
    /// no model is left open.
    pub fn closing(&self, model: Model) -> bool {
        // The wait is bounded: a handler of errors may have left a query by longjmp.
        for _ in 0..10_000 {
            let mut open = self.open();
            open.world_is_over |= model == Model::World;
            open.models.iter_mut().filter(|one| one.model == model).for_each(|one| one.is_closing = true);
            open.models.retain(|one| one.model != model || one.asking > 0);
            if open.models.iter().all(|one| one.model != model) {
                return open.models.is_empty();
            }
            drop(open);
            std::thread::sleep(Duration::from_micros(100));
        }
        let mut open = self.open();
        open.models.retain(|one| one.model != model);
        open.models.is_empty()
    }

    pub fn world_is_over(&self) -> bool {
        self.open().world_is_over
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_world_is_asked_where_it_is_open_else_a_session() {
        let models = Models::default();
        assert_eq!(models.ask().model, None);
        models.opened(Model::Session(1));
        models.opened(Model::Session(2));
        assert_eq!(models.ask().model, Some(Model::Session(2)));
        models.opened(Model::World);
        assert_eq!(models.ask().model, Some(Model::World));
        assert!(!models.closing(Model::World) && models.world_is_over());
        assert!(!models.closing(Model::Session(2)));
        assert_eq!(models.ask().model, Some(Model::Session(1)));
        assert!(models.closing(Model::Session(1)));
        assert_eq!(models.ask().model, None);
    }

    #[test]
    fn nothing_is_closed_while_it_is_asked() {
        let models = Models::default();
        let closed = AtomicU32::new(0);
        models.opened(Model::World);
        std::thread::scope(|scope| {
            let asking = models.ask();
            scope.spawn(|| {
                models.closing(Model::World);
                closed.store(1, Ordering::SeqCst);
            });
            while models.open().models.iter().any(|one| !one.is_closing) {
                std::thread::yield_now();
            }
            assert_eq!((asking.model, closed.load(Ordering::SeqCst)), (Some(Model::World), 0));
            assert_eq!(models.ask().model, None, "what is being closed is not asked");
        });
        assert_eq!(closed.load(Ordering::SeqCst), 1);
    }
}
