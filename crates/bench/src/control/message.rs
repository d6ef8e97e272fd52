//! Requests of the initiator and replies of the responder, in the order of a session: `Hello` -> `Welcome`, `Prepare` ->
//! `Ready`, `Meet` -> `Met`, then per block `Run` -> `Started` -> `Finished`, and `Bye`. An initiator whose messages go
//! another way may send `Count` -> `Counting` and `Tell` -> `Counted` instead of `Prepare` and what follows, as often as it
//! likes. `Failed` may stand for any answer and ends the session. At a server with a key, `Challenge` -> `Challenge` and
//! `Proof` -> `Proof` come first. At one that was started for one bench, `Secret` does, and one connection says `Hold` ->
//! `Held` instead of the rest.

use std::net::SocketAddr;

use machine::accounting::{CoreCost, ThreadCost};
use machine::choice::for_polling_here;
use machine::{CoreId, Fault, Reading, Result};
use serde::{Deserialize, Serialize};

use crate::secret::digest;
use exchange::endpoint::{Job, Outcome};
use exchange::path::Prepare;
use exchange::stack::Offer;

/// Raised with every change of these messages; both ends must have the same.
pub const VERSION: u32 = 5;

/// Most jobs of one `Run`.
pub const MAX_JOBS: usize = 8;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Random bytes made for this connection alone.
    Challenge([u8; 32]),
    /// An HMAC of both challenges by the key's word.
    Proof([u8; 32]),
    /// The secret of the bench that the server was started for.
    Secret(String),
    /// Asks that the server end with this connection.
    Hold,
    /// `plimsoll` is the initiator's version of this protocol.
    Hello {
        plimsoll: u32,
    },
    Prepare(Prepare),
    /// The initiator begins to connect the message path, from `from` if the responder must know beforehand.
    Meet {
        from: Option<SocketAddr>,
    },
    Run {
        jobs: Vec<Job>,
    },
    /// Begins to count what the responder's cores do.
    Count,
    /// Asks for the counts since.
    Tell,
    Bye,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Challenge([u8; 32]),
    Proof([u8; 32]),
    Welcome {
        plimsoll: u32,
        process: u32,
        #[serde(default)]
        host: Option<Serving>,
    },
    Held,
    Ready(Offer),
    Met,
    Started,
    Finished(Box<Finished>),
    Counting,
    Counted(Reading<Vec<CoreCost>>),
    Failed {
        subject: String,
        cause: String,
        next: String,
    },
}

machine::named! {
    /// A right that a server may grant beside patterns over sockets.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Grant ("grant") {
        /// An engine on a core of its own.
        Cores = "cores",
        /// An engine at the driver's hook of an interface.
        Hooks = "hooks",
    }
}

/// The host of a responder that serves others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Identity of the machine: equal for its namespaces and containers.
    pub machine: String,
    /// Cores for parties that poll, near ones first.
    pub cores: Vec<CoreId>,
    pub allows: Vec<Grant>,
}

impl Serving {
    /// This host, with the grants `allows`.
    ///
    /// # Errors
    /// Its topology cannot be read.
    pub fn here(allows: &[Grant]) -> Result<Serving> {
        let boot = machine::here::boot().unwrap_or_default();
        let cores = for_polling_here(&linux::affinity::allowed()?)?;
        // A digest: others need not know the boot's own number.
        Ok(Serving { machine: digest(&boot), cores, allows: allows.to_vec() })
    }
}

/// The responder's results of a `Run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// One for each job.
    pub outcomes: Vec<Outcome>,
    pub threads: Vec<ThreadCost>,
    /// Counts of the responder's cores, if it runs on another host than the initiator.
    pub cores: Reading<Vec<CoreCost>>,
    pub notes: Vec<String>,
}

impl Reply {
    pub fn failed(fault: &Fault) -> Reply {
        Reply::Failed {
            subject: fault.subject().to_owned(),
            cause: fault.cause().to_owned(),
            next: fault.next().to_owned(),
        }
    }
}
