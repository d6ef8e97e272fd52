//! Uses the offcodes of a running application from any other program of the same user, as `plimsoll run` started it:
//!
//! ```no_run
//! # use offcode::interface;
//! # #[interface(guid = "0a3c2f6e-93b7-4b0e-8f3b-5a0b1c2d3e4f")]
//! # trait Filter {
//! #     fn counts(&self) -> (u64, u64);
//! # }
//! let application = attach::application("packets")?;
//! let mut filter = application.caller::<dyn Filter>("example.filter")?;
//! let (passed, dropped) = filter.call(|filter| filter.counts())?;
//! # Ok::<(), machine::Fault>(())
//! ```
//!
//! Channels to offcodes at `app` and at cores are memory that both processes map. What is at a driver hook or at an agent
//! is reached through the application's process, which hands messages on. The rules by which a channel can be had are the
//! application's own (`runtime::possible`); this crate brings no wasm compiler, no TLS and no solver.
#![forbid(unsafe_code)]

pub mod control;
pub mod evidence;
pub mod moved;
pub mod watched;

use std::marker::PhantomData;
use std::os::unix::net::UnixStream;

use machine::channel::{Content, Counted, Loss};
use machine::{Fault, Nanoseconds, Result};
use offcode::{Call, Caller, Channel, Interface, Specification, Written};

use control::{Report, Request};

/// How long a call may take unless the caller says otherwise.
const LIMIT: Nanoseconds = Nanoseconds(5_000_000_000);

/// A running application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Application {
    process: u32,
}

/// The running application of this name, or of this process number.
///
/// # Errors
/// None runs, or several of that name do.
pub fn application(wanted: &str) -> Result<Application> {
    if let Ok(process) = wanted.parse() {
        return control::status(process).map(|_| Application { process });
    }
    // Processes that end meanwhile are left out.
    let reports: Vec<Report> = control::processes()?.into_iter().filter_map(|one| control::status(one).ok()).collect();
    let named: Vec<u32> = reports.iter().filter(|one| one.application == wanted).map(|one| one.process).collect();
    let subject = format!("application {wanted}");
    match named.as_slice() {
        [process] => Ok(Application { process: *process }),
        [] => {
            let all: Vec<_> = reports.iter().map(|one| one.application.as_str()).collect();
            let running = if all.is_empty() { "nothing runs".into() } else { format!("{} runs", all.join(", ")) };
            Err(Fault::new(
                subject,
                format!("it does not run here; {running}"),
                "start it with `plimsoll run APP.toml`",
            ))
        }
        several => {
            let list = several.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            Err(Fault::new(subject, format!("it runs several times: processes {list}"), "name the process instead"))
        }
    }
}

impl Application {
    /// Number of its process.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Its offcodes, where they are, and what proves it.
    pub fn report(&self) -> Result<Report> {
        control::status(self.process)
    }

    /// A channel to one of its offcodes, given by its instance's name, or by its package's name or GUID where that fits one
    /// alone. The offcode knows the channel by `name`.
    ///
    /// # Errors
    /// The offcode does not run, or cannot have such a channel where it is.
    pub fn channel(&self, offcode: &str, name: &str, specification: Specification) -> Result<Attached> {
        let (offcode, name) = (offcode.to_owned(), Some(name.to_owned()));
        self.attach(&Request::Attach { offcode, name, interface: None, specification })
    }

    /// The calling end of an interface of one of its offcodes.
    ///
    /// # Errors
    /// The errors of [`Application::channel`]; the offcode does not serve the interface.
    pub fn caller<I: Interface + ?Sized>(&self, offcode: &str) -> Result<Client<I>> {
        let specification = Specification { content: Content::Calls, ..Specification::default() };
        let (offcode, interface) = (offcode.to_owned(), Some(I::GUID));
        let channel = self.attach(&Request::Attach { offcode, name: None, interface, specification })?;
        Ok(Client { caller: Caller::new(channel), limit: LIMIT, interface: PhantomData })
    }

    fn attach(&self, request: &Request) -> Result<Attached> {
        let (end, connection) = control::attach_to(self.process, request)?;
        Ok(Attached { end: end.into_channel(), _connection: connection })
    }
}

/// Calls an offcode of another process by its interface.
pub struct Client<I: Interface + ?Sized> {
    caller: Caller<Attached>,
    limit: Nanoseconds,
    interface: PhantomData<fn(&I)>,
}

impl<I: Interface + ?Sized> Client<I> {
    /// How long each call may take.
    pub fn limit(mut self, limit: Nanoseconds) -> Self {
        self.limit = limit;
        self
    }

    /// Makes one call and waits for its result.
    ///
    /// # Errors
    /// The offcode's refusal; it has gone; no result within the limit.
    pub fn call<R>(&mut self, call: impl FnOnce(I::Proxy) -> Call<R>) -> Result<R> {
        self.caller.call(&call(I::Proxy::default()), self.limit, std::thread::yield_now)
    }

    /// The caller behind this client, for several calls at a time.
    pub fn caller(&mut self) -> &mut Caller<Attached> {
        &mut self.caller
    }
}

/// This process's end of a channel to an offcode of another.
pub struct Attached {
    end: Box<dyn Channel>,
    // The application frees the channel's name when this ends, however this process does.
    _connection: UnixStream,
}

impl Channel for Attached {
    fn specification(&self) -> &Specification {
        self.end.specification()
    }

    fn write_with(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<Written> {
        self.end.write_with(length, fill)
    }

    fn read_with(&mut self, deliver: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.end.read_with(deliver)
    }

    fn poll(&mut self) -> Result<bool> {
        self.end.poll()
    }

    fn wait(&mut self, limit: Nanoseconds) -> Result<bool> {
        self.end.wait(limit)
    }

    fn is_abandoned(&self) -> bool {
        self.end.is_abandoned()
    }

    fn loses(&self) -> Loss {
        self.end.loses()
    }

    fn counted(&self) -> Counted {
        self.end.counted()
    }
}
