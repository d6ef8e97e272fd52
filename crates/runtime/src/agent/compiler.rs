//! The thread on which bodies are compiled, so that the site's thread goes on meanwhile. Clients take turns: one that
//! brings many bodies waits for itself.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use machine::{Fault, Result};

use super::host::{Job, Order, Orders, Task};
use super::state::AgentState;
use crate::code::Code;
use crate::site::Preparation;

pub(crate) struct Compiler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Waiting jobs by client, the next client first; none is here twice.
    waiting: VecDeque<(u64, VecDeque<Job>)>,
    /// The client whose job is under way, unless it has gone.
    busy: Option<u64>,
    ended: bool,
}

impl Queue {
    fn put(&mut self, job: Job) {
        match self.waiting.iter_mut().find(|(session, _)| *session == job.session) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.waiting.push_back((job.session, [job].into())),
        }
    }

    fn take(&mut self) -> Option<Job> {
        let (session, mut jobs) = self.waiting.pop_front()?;
        let job = jobs.pop_front();
        if !jobs.is_empty() {
            self.waiting.push_back((session, jobs));
        }
        self.busy = job.as_ref().map(|job| job.session);
        job
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Compiler {
    /// Starts the thread: it prepares code by `prepare`, and hands the jobs on to the site as `orders`.
    pub fn start(prepare: Preparation, common: Arc<AgentState>, orders: Orders) -> Result<Compiler> {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new() });
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name("agent compiler".into())
            .spawn(move || run(&theirs, prepare, &common, &orders))
            .map_err(|e| Fault::because("thread of the agent's compiler", e, "raise the limit on processes"))?;
        Ok(Compiler { shared, thread: Some(thread) })
    }

    /// A job to deploy a body that is to be compiled.
    pub fn put(&self, job: Job) {
        self.shared.lock().put(job);
        self.shared.changed.notify_one();
    }

    /// Forgets a client that has gone: none of its jobs reaches the site any more.
    pub fn forget(&self, session: u64) {
        let mut queue = self.shared.lock();
        queue.waiting.retain(|(waiting, _)| *waiting != session);
        queue.busy = queue.busy.filter(|busy| *busy != session);
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, prepare: Preparation, common: &AgentState, orders: &Orders) {
    loop {
        let mut queue = shared.lock();
        let mut job = loop {
            if queue.ended {
                return;
            }
            match queue.take() {
                Some(job) => break job,
                None => queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(queue);
        let compiled = compile(&mut job, prepare);
        // Sent under the lock, so that a forgotten client has nothing under way to the site.
        let mut queue = shared.lock();
        if queue.busy.take().is_none() {
            continue;
        }
        match compiled {
            // Without a site's thread there is nobody to answer to either.
            Ok(()) => {
                orders.send(Order::Do(job));
            }
            Err(fault) => job.answer(Err(fault), common),
        }
    }
}

fn compile(job: &mut Job, prepare: Preparation) -> Result<()> {
    let Task::Deploy(_, deployment, shares) = &mut job.task else { return Ok(()) };
    let name = format!("offcode {}", deployment.name);
    let code = catch_unwind(AssertUnwindSafe(|| prepare(deployment.code.clone())));
    let panicked = |_| Fault::new("wasm module", "the compiler panicked on it", "report it with the module");
    deployment.code = code.map_err(panicked).and_then(|code| code).map_err(|fault| fault.within(name))?;
    if let Code::Compiled(module) = &deployment.code {
        shares.push(job.budgets.sandbox(module.memory())?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::time::Duration;

    use offcode::manifest::Package;
    use offcode::{Attributes, Guid, Manifest, Registry};

    use super::*;
    use crate::agent::Limits;
    use crate::agent::code_cache::CodeCache;
    use crate::agent::journal::Journal;
    use crate::agent::limits::Budgets;
    use crate::agent::wire::Outbox;
    use crate::site::{Client, Deployment};

    /// How many compilations may end.
    static ALLOWED: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());

    fn allow(count: u32) {
        *ALLOWED.0.lock().unwrap() += count;
        ALLOWED.1.notify_all();
    }

    fn when_allowed(code: Code) -> Result<Code> {
        let mut allowed = ALLOWED.1.wait_while(ALLOWED.0.lock().unwrap(), |allowed| *allowed == 0).unwrap();
        *allowed -= 1;
        Ok(code)
    }

    fn job(session: u64, id: u32) -> Job {
        let package = Package {
            guid: Guid::named("test"),
            name: "test".into(),
            version: "1".into(),
            description: String::new(),
            interfaces: Vec::new(),
            bodies: Vec::new(),
            attributes: Vec::new(),
            state: Default::default(),
        };
        let manifest = Manifest { package, hardware: Vec::new(), software: Default::default() }.into();
        let code = Code::Wasm([][..].into());
        let deployment = Deployment {
            name: "test".into(),
            manifest,
            code,
            attributes: Attributes::default(),
            memory: Default::default(),
        };
        Job {
            session,
            from: ([127, 0, 0, 1], 1).into(),
            id,
            slot: 0,
            task: Task::Deploy(0, Box::new(deployment), Vec::new()),
            outbox: Arc::new(Outbox::new(1 << 20).unwrap()),
            budgets: Arc::new(Budgets::of_all(&Limits::default())),
            client: Client::new(session, None),
            waiting: Vec::new(),
        }
    }

    fn next(orders: &Receiver<Order>) -> (u64, u32) {
        match orders.recv_timeout(Duration::from_secs(20)) {
            Ok(Order::Do(job)) => (job.session, job.id),
            other => panic!("no job: {}", other.is_ok()),
        }
    }

    #[test]
    fn clients_take_turns_and_those_who_go_are_forgotten() {
        let limits = Limits::default();
        let common = AgentState {
            budgets: Budgets::of_all(&limits),
            registry: Registry::new(),
            cache: Mutex::new(CodeCache::new(limits.cache)),
            journal: Journal::new(Box::new(|_| {})),
            survey: Default::default(),
            limits,
        };
        let (sender, orders) = Orders::new().unwrap();
        let compiler = Compiler::start(when_allowed, Arc::new(common), sender).unwrap();
        for id in 0..4 {
            compiler.put(job(1, id));
        }
        compiler.put(job(2, 0));
        allow(3);
        // At most the one under way and one that was put before go first.
        let first = [next(&orders), next(&orders), next(&orders)];
        assert!(first.contains(&(1, 0)) && first.contains(&(1, 1)) && first.contains(&(2, 0)), "{first:?}");
        // One of the first client's is under way now, one waits.
        while compiler.shared.lock().busy.is_none() {
            std::thread::yield_now();
        }
        compiler.forget(1);
        compiler.put(job(3, 0));
        allow(2);
        assert_eq!(next(&orders), (3, 0));
        drop(compiler);
        assert!(orders.recv().is_err(), "nothing came of a client that has gone");
    }
}
