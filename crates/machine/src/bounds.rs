//! What others can make grow in a process of plimsoll, and how far: the table that the crates read.
//!
//! `docs/threat-model.md` shows it; `tests/threat_model.rs` compares the two.

use std::fmt;

use crate::quantity::Bytes;

/// How much, of one or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many things.
    Count(usize),
    /// So many bytes.
    Size(Bytes),
    /// No number of its own: what it follows from.
    Said(&'static str),
}

use Amount::{Count, Said, Size};

impl Amount {
    /// # Panics
    /// If it is no count: at compile time, where a constant is made of it.
    pub const fn count(self) -> usize {
        match self {
            Count(count) => count,
            _ => panic!("this amount is no count"),
        }
    }

    /// # Panics
    /// If it is no number of bytes.
    pub const fn bytes(self) -> Bytes {
        match self {
            Size(bytes) => bytes,
            _ => panic!("this amount is no number of bytes"),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count(count) => write!(f, "{count}"),
            Size(bytes) => write!(f, "{bytes}"),
            Said(words) => f.write_str(words),
        }
    }
}

/// One thing that grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The thing that grows, in words.
    pub what: &'static str,
    /// Who makes it grow, one of them.
    pub by: &'static str,
    /// How far one of those can make it grow.
    pub each: Amount,
    /// How far all of them together can.
    pub total: Amount,
    /// What happens at the bound.
    pub beyond: &'static str,
}

macro_rules! table {
    ($($name:ident: $what:literal, $by:literal, $each:expr, $total:expr, $beyond:literal;)*) => {
        $(
            #[doc = $what]
            pub const $name: Bound = Bound { what: $what, by: $by, each: $each, total: $total, beyond: $beyond };
        )*
        /// All rows, in the order of the documentation.
        pub const ALL: &[Bound] = &[$($name),*];
    };
}

const fn kib(count: u64) -> Amount {
    Size(Bytes(count << 10))
}

const fn mib(count: u64) -> Amount {
    Size(Bytes(count << 20))
}

/// `each` so many times.
const fn times(count: Amount, each: Amount) -> Amount {
    match each {
        Count(each) => Count(each * count.count()),
        Size(each) => Size(Bytes(each.0 * count.count() as u64)),
        Said(words) => Said(words),
    }
}

const NONE: Amount = Said("-");

table! {
    SERVE_CONNECTIONS: "connections to `plimsoll serve`, greeted or not", "an address",
        Count(16), Count(64), "it is turned away with a sentence";
    SERVE_SESSIONS: "sessions of `plimsoll serve`: connections that have agreed on a version", "the network",
        NONE, Count(32), "the session is refused with a fault";
    SERVE_INBOX: "what was read of a control connection ahead of its answers", "a connection to `plimsoll serve`",
        kib(16), times(SERVE_CONNECTIONS.total, kib(16)), "the connection ends with a fault";
    SERVE_BUFFERS: "message buffers of the sessions of `plimsoll serve`", "a session",
        mib(1 << 10), mib(2 << 10), "the block is refused with a fault and the session ends";
    BENCH_SESSIONS: "sessions of one bench", "the design of a study",
        NONE, Count(12), "the one not used for longest is closed";
    BENCH_INBOX: "what was read of a peer's answers ahead of the bench", "a peer of a bench",
        kib(256), times(BENCH_SESSIONS.total, kib(256)), "the session ends with a fault";

    AGENT_PENDING: "connections to an agent that have not authenticated", "the network",
        NONE, Count(256), "the oldest that least looks like a client is closed";
    AGENT_CLIENTS: "clients of an agent", "an address",
        Count(16), Count(32), "it is turned away with a fault";
    AGENT_FRAME: "a frame while it is read", "a client",
        kib(256), times(AGENT_CLIENTS.total, kib(256)), "the connection ends";
    AGENT_REQUESTS: "requests that wait for their answers", "a client",
        Count(64), times(AGENT_CLIENTS.total, Count(64)), "the request is refused with a fault";
    AGENT_REQUEST_BYTES: "frames of the requests that wait", "a client",
        kib(512), times(AGENT_CLIENTS.total, kib(512)), "the request is refused with a fault";
    AGENT_ENTRIES: "entries of a manifest's lists, and attributes sent with it", "a request to deploy",
        Count(1024), Said("as requests that wait"), "the request is refused with a fault";
    AGENT_BACKLOG: "answers and messages that a client has not read", "a client",
        mib(8), times(AGENT_CLIENTS.total, mib(8)), "its connection ends";
    AGENT_CODE: "a body on its way, and the last that came whole", "a client",
        mib(2), times(times(Count(2), AGENT_CLIENTS.total), mib(2)), "the body is refused with a fault";
    AGENT_STATE: "the state of an offcode on its way to an agent", "a client",
        mib(4), times(AGENT_CLIENTS.total, mib(4)), "the state is refused with a fault";
    AGENT_CACHE: "bodies kept for later deployments", "all clients",
        NONE, mib(64), "the body not used for longest goes";
    AGENT_OFFCODES: "offcodes of an agent", "a client",
        Count(64), Count(256), "the deployment is refused with a fault";
    AGENT_SANDBOXES: "memory and machine code of sandboxed bodies", "a client",
        mib(512), mib(2 << 10), "the deployment is refused with a fault";
    AGENT_MAPS: "memory of the maps of bodies at an agent's driver hooks", "a client",
        mib(64), mib(256), "the deployment is refused with a fault";
    AGENT_OBJECT: "maps and programs of an object for an agent's driver hook", "a client's object",
        Count(32), Said("as offcodes"), "the object is refused with a fault";
    AGENT_CHANNELS: "channels of an agent's offcodes", "a client",
        Count(64), Count(256), "the channel is refused with a fault";
    AGENT_BUFFERS: "buffers of one channel, count times size", "a client",
        mib(64), Said("as memory of channels"), "the channel is refused with a fault";
    AGENT_CHANNEL_MEMORY: "memory of channels: messages either way, unacknowledged and out-of-order packets", "a client",
        mib(512), mib(2 << 10), "the channel is refused with a fault";
    AGENT_LOG: "lines a second of an agent's log, for each reason to refuse and for all offcodes together", "a client",
        NONE, Count(20), "lines are left out and counted";

    SITE_FRAME: "a frame of an agent while it is read, and the buffers of one channel to it", "an agent",
        mib(64), Said("as agents"), "the connection ends";
    SITE_BACKLOG: "requests and messages that an agent has not read", "an agent",
        mib(64), Said("as agents"), "the connection ends";

    WASM_MODULE: "a module; its compilation, which cannot be interrupted, takes longer the larger it is", "a guest's author",
        mib(2), Said("one at a time at an agent"), "the module is refused with a fault";
    WASM_FUNCTION: "the code of a module's largest function, each local variable as a byte", "a guest's author",
        kib(128), Said("as the module"), "the module is refused with a fault";
    WASM_MEMORY: "linear memory of an instance", "a guest",
        mib(16), Said("as memory of sandboxed bodies"), "growth fails inside the guest";
    WASM_TABLES: "elements of an instance's tables", "a guest",
        Count(10_000), Said("as offcodes"), "growth fails inside the guest";
    WASM_OUTPUT: "what one entry puts out, and what is kept of it for want of room", "a guest",
        mib(1), Said("as offcodes"), "no more room is promised to the guest; one that writes beyond its room is ended";
    WASM_KEPT: "messages kept for want of room, of one channel", "a guest",
        Count(64), Said("as channels"), "no more room is promised to the guest";
    WASM_REPLY: "a reply to a call", "a guest",
        kib(64), Said("as calls"), "the call is refused";
    OFFCODE_ATTRIBUTES: "names and values of an offcode's attributes", "who deploys it",
        kib(64), Said("as offcodes"), "the attribute is refused with a fault";
    OFFCODE_STATE: "what an offcode takes along when it moves", "an offcode that moves",
        mib(4), Said("as offcodes that a move takes together"), "the move is refused with a fault and undone";
    OFFCODE_TIMERS: "timers of an offcode", "an offcode",
        Count(16), Said("as offcodes"), "the timer is refused with a fault";
    OFFCODE_WORDS: "shared words of an offcode; their bytes count towards the memory of its target", "an offcode",
        Count(8 << 10), Said("as offcodes"), "they are refused with a fault";
    OFFCODE_ARRAYS: "names of an offcode's shared words, and of others' that it reads", "an offcode",
        Count(16), Said("as offcodes"), "the name is refused with a fault";
    OFFCODE_MAPS: "keyed maps of an offcode", "an offcode",
        Count(16), Said("as offcodes"), "the map is refused with a fault";
    OFFCODE_MAPS_MEMORY: "memory of an offcode's keyed maps; it counts towards the memory of its target", "an offcode",
        mib(16), Said("as offcodes"), "the map is refused with a fault; an entry beyond the map's own number is not taken";
    CALLS_WAITING: "calls out of band that wait for an offcode that does not read", "an offcode",
        Count(256), Said("as offcodes"), "the call is refused";
    CALLS_OPEN: "calls out of band without an answer yet", "an offcode",
        Count(1024), Said("as offcodes"), "the call is refused";
    CALLS_TRACED: "calls of an offcode that `plimsoll ps --trace` watches", "a caller",
        Count(1024), Said("as offcodes"), "the oldest are not shown, and counted";
    CONTROL_CALLERS: "callers of a runtime's control socket (`plimsoll ps`, `stop`) from accepting to answering",
        "a process of this user", NONE, Count(32), "it is turned away with a fault";
    CONTROL_LINE: "a request at the control socket", "a caller",
        kib(64), times(CONTROL_CALLERS.total, kib(64)), "it is refused with a fault";
    CONTROL_ATTACHED: "channels that other processes have to the offcodes of a runtime", "a process of this user",
        NONE, Count(256), "the channel is refused with a fault";

    ENGINE_MESSAGES: "messages that no receive was posted for", "a peer",
        Count(16 << 10), Said("each for every peer"), "the peer waits; one that does not is given up";
    ENGINE_WIDENED: "the same, where a receive waits behind them; the total is of those beyond the row above", "a peer",
        Count(1 << 20), Count(16 << 20), "the peer waits";
    ENGINE_BYTES: "bytes of messages that no receive was posted for, and of one that is being put together", "a peer",
        mib(1), Said("each for every peer"), "they wait at the sender; a peer that sends more is given up";
    ENGINE_BYTES_NEAR: "the same, of a peer over shared memory", "a peer",
        mib(4), Said("each for every peer"), "as above";
    ENGINE_WINDOW: "packets out of order, and packets not acknowledged", "a peer",
        Count(1024), Said("the socket's buffer, for eight peers that send at once"), "packets are dropped, and sent again";
    ENGINE_OVERTAKEN: "messages read before all of their packets had come", "a peer over shared memory",
        NONE, Count(1024), "messages are read, and not sent as well";
    ENGINE_ANSWERS: "answers that a peer does not take (clear to send, done, credit)", "a peer",
        Count(1 << 20), Said("each for every peer"), "the peer is given up";
    SHM_LINKS: "links over shared memory that others have made to an endpoint", "a process of this user",
        NONE, Count(4096), "the link is refused";
    SHM_LINK: "memory of such a link beyond its first two pages", "a peer that sends",
        mib(1), times(SHM_LINKS.total, mib(1)), "the peer waits";
    SHM_GROWN: "memory of an endpoint's own links beyond what their longest packets need", "a peer that does not receive",
        mib(1), mib(32), "the sender waits";
    SHM_CALLERS: "callers at an endpoint that have not said what they want", "a process of this user",
        NONE, Count(64), "the oldest is turned away";
    INTRODUCED: "peers that introduce themselves to an endpoint", "who was given its name",
        NONE, Count(65536), "the introduction is not read";
    CONNECTION_REQUESTS: "connection requests at a passive endpoint that its application has not answered", "who was given its name",
        Count(1), Count(1024), "the request is refused";
    CONNECTION_DATA: "what a connection request carries for the application", "who was given its name",
        Size(Bytes(256)), times(CONNECTION_REQUESTS.total, Size(Bytes(256))), "the request is not read";
    WRITTEN_UNREAD: "completions that the application has not read, of remote writes with data; those of its own calls count too",
        "a peer", NONE, Count(1 << 20), "the write is refused: FI_EOVERRUN at its initiator";
    NODE_RANKS: "ranks that a node's engine serves", "a process of this user",
        NONE, Count(1024), "the rank is refused with a fault";
    NODE_CALLERS: "callers at a node's engine that it has not seated", "a process of this user",
        NONE, NODE_RANKS.total, "the oldest that has not said its wishes is turned away";
    NODE_WISHES: "what such a caller says", "a process of this user",
        kib(16), times(NODE_CALLERS.total, kib(16)), "it is turned away with a fault";
    NODE_REQUESTS: "sends and receives in progress at a node's engine", "a rank",
        Count(1 << 20), Said("each for every rank"), "the rank is given up with a fault";
    NODE_PENDING: "sends in progress of which a node's engine has the bytes, at most 8 KiB each", "a rank",
        Count(4096), Said("each for every rank"), "the rank waits";
    NODE_UNTOLD: "what a rank does not take of what a node's engine has to tell it", "a rank",
        mib(4), Said("each for every rank"), "nothing comes for the rank and nothing leaves: its peers wait";
    NODE_PEERS: "peers that a node's engine knows of one rank's", "a rank",
        Count(1 << 20), Said("each for every rank"), "the rank is given up with a fault";
    UNKNOWN_SENDERS: "packets of unknown senders between two looks, of one socket or queue", "the network",
        NONE, Count(64), "packets are dropped";
    UNKNOWN_PACKET: "one of those packets", "the network",
        Size(Bytes(9216)), times(UNKNOWN_SENDERS.total, Size(Bytes(9216))), "the packet is dropped";
    LANES: "lanes lent at one interface", "a process of this user",
        NONE, Count(64), "no lane is lent: packets come by the kernel";
    LANE_CALLERS: "callers for a lane that have not shown their socket", "a process of this user",
        NONE, Count(64), "the oldest is turned away";

    REPORT_LINE: "a rank's report", "a rank",
        kib(256), Said("as reports"), "the line passes as it is";
    REPORTS: "reports of one job", "all ranks",
        NONE, mib(256), "lines pass as they are";

    PROFILE_JOB: "`job.json` of a profile", "who writes the profile",
        mib(4), Said("one at a time"), "the profile is refused with a fault";
    PROFILE_TABLES: "what is read at once of a rank's tables while it runs", "who writes the profile",
        mib(64), Said("one at a time"), "the rank is left out, or its tables are not held against themselves, which is noted";
    WATCHED_JOBS: "jobs that `plimsoll daemon` watches", "a user",
        Count(256), Count(1024), "the job is left, and that is noted";
    WATCHED_PROFILES: "what `plimsoll daemon` and `plimsoll top` keep of profiles; an open file counts 64 KiB", "a user",
        mib(512), mib(1 << 10), "ranks and hosts are left out, and that is noted";
    WATCHED_ENVIRONMENT: "what `plimsoll daemon` reads of a process's environment", "a process",
        mib(2), Said("one at a time"), "the rest is not read";
}

/// The rows as a table of the documentation.
pub fn table() -> String {
    let mut text =
        "| what grows | who makes it grow | each | in total | beyond it |\n|---|---|---|---|---|\n".to_owned();
    for Bound { what, by, each, total, beyond } in ALL {
        text += &format!("| {what} | {by} | {each} | {total} | {beyond} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_total_is_less_than_what_one_may_have() {
        for row in ALL {
            match (row.each, row.total) {
                (Count(each), Count(total)) => assert!(each <= total, "{}", row.what),
                (Size(each), Size(total)) => assert!(each <= total, "{}", row.what),
                (Said(_), Said(_)) => panic!("{}: no amount at all", row.what),
                (each, total) => {
                    assert!(matches!(each, Said(_)) || matches!(total, Said(_)), "{}: two units", row.what)
                }
            }
        }
    }
}
