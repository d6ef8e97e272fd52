//! The meter of another host's cores, read over its `plimsoll serve`.

use machine::accounting::CoreCost;
use machine::{Reading, Result};

use crate::control::{Connection, Reply, Request, ask, greet, unexpected};

/// Counts what a served host's cores do between `begin` and `end`, like a `HostMeter` of this host.
#[derive(Debug)]
pub struct RemoteMeter(Connection);

impl RemoteMeter {
    /// Opens the meter and begins. `control` is a new connection to the server.
    ///
    /// # Errors
    /// The server cannot be reached. One that cannot count tells why at the end.
    pub fn open(mut control: Connection) -> Result<RemoteMeter> {
        greet(&mut control)?;
        let mut meter = RemoteMeter(control);
        meter.begin()?;
        Ok(meter)
    }

    /// # Errors
    /// The server has gone.
    pub fn begin(&mut self) -> Result<()> {
        match ask(&mut self.0, &Request::Count)? {
            Reply::Counting => Ok(()),
            reply => Err(unexpected(&self.0, &reply)),
        }
    }

    /// Counts of the cores since the last `begin`.
    ///
    /// # Errors
    /// The server has gone.
    pub fn end(&mut self) -> Result<Reading<Vec<CoreCost>>> {
        match ask(&mut self.0, &Request::Tell)? {
            Reply::Counted(cores) => Ok(cores),
            reply => Err(unexpected(&self.0, &reply)),
        }
    }
}
