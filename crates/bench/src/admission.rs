//! Admission of clients to a `plimsoll serve`.

use std::time::Duration;

use machine::{Fault, Result};

use crate::control::{Connection, Reply, Request};
use crate::key::Key;
use crate::owner::Owner;

/// The clients that a server answers.
#[derive(Debug)]
pub enum Admission {
    Anybody,
    /// Clients that know the word of its key.
    Key(Key),
    /// The bench that started the server.
    Owner(Owner),
}

impl Admission {
    /// The first request of an admitted client; `None` from the owner, who held the server and has left.
    ///
    /// # Errors
    /// The client is not let in, or gone.
    pub(crate) fn admit(&self, connection: &mut Connection, within: Duration) -> Result<Option<Request>> {
        let refused = |cause: &str, next: &str| Err(Fault::new("plimsoll serve", cause, next));
        match (self, connection.receive(within)?) {
            (Admission::Owner(owner), Request::Secret(secret)) if owner.knows(&secret) => {
                match connection.receive(within)? {
                    Request::Hold => {
                        connection.send(&Reply::Held, within)?;
                        owner.hold(connection).map(|()| None)
                    }
                    first => Ok(Some(first)),
                }
            }
            (Admission::Owner(_), _) => refused(
                "it answers the bench alone that started it",
                "start one of your own: `plimsoll serve --listen ADDRESS`",
            ),
            (Admission::Key(key), Request::Challenge(challenge)) => {
                key.check(challenge, connection, within)?;
                connection.receive(within).map(Some)
            }
            (Admission::Key(_), _) => {
                refused("it answers those alone who show its key", "name a file with the same word: --key FILE")
            }
            (Admission::Anybody, Request::Challenge(_)) => {
                refused("it was started without a key", "start it with --key FILE, or leave --key out")
            }
            (Admission::Anybody, first) => Ok(Some(first)),
        }
    }

    /// Whether clients must prove who they are.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(self, Admission::Anybody)
    }

    /// Whether the bench that started the server has gone, in whatever way, or does not come.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Admission::Owner(owner) if owner.is_gone())
    }
}
