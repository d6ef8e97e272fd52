//! Bounds of everything that others can make grow in a process of plimsoll: the table that the crates read.
//!
//! `docs/threat-model.md` shows it; `tests/threat_model.rs` compares the two.

use std::fmt;

use crate::quantity::Bytes;

/// The amount of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// A number of things.
    Count(usize),
    /// A number of bytes.
    Size(Bytes),
    /// Words that say what the amount follows from, where it has no number of its own.
    Words(&'static str),
}

use Amount::{Count, Size, Words};

impl Amount {
    /// # Panics
    /// The amount is no count: at compile time, where a constant is made of it.
    pub const fn count(self) -> usize {
        match self {
            Count(count) => count,
            _ => panic!("this amount is no count"),
        }
    }

    /// # Panics
    /// The amount is no number of bytes.
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
            Words(words) => f.write_str(words),
        }
    }
}

/// One thing that grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The thing that grows, in words.
    pub what: &'static str,
    /// The party that makes it grow, one of possibly many.
    pub by: &'static str,
    /// How far one such party can make it grow.
    pub each: Amount,
    /// How far all such parties together can make it grow.
    pub total: Amount,
    /// Behaviour at the bound.
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

/// `count` times `each`.
const fn times(count: Amount, each: Amount) -> Amount {
    match each {
        Count(each) => Count(each * count.count()),
        Size(each) => Size(Bytes(each.0 * count.count() as u64)),
        Words(words) => Words(words),
    }
}

const NONE: Amount = Words("-");

table! {
    SERVE_CONNECTIONS: "connections to `plimsoll serve`", "an address",
        Count(16), Count(64), "turned away";
    SERVE_SESSIONS: "sessions of `plimsoll serve`", "the network",
        NONE, Count(32), "refused";
    SERVE_INBOX: "bytes read of its control connection ahead of answers", "a connection to `plimsoll serve`",
        kib(16), times(SERVE_CONNECTIONS.total, kib(16)), "the connection ends";
    SERVE_BUFFERS: "message buffers of `plimsoll serve`", "a session",
        mib(1 << 10), mib(2 << 10), "refused; the session ends";
    BENCH_SESSIONS: "sessions of one bench", "the design of a study",
        NONE, Count(12), "the least recently used is closed";
    BENCH_INBOX: "bytes read of a peer's answers ahead of the bench", "a peer of a bench",
        kib(256), times(BENCH_SESSIONS.total, kib(256)), "the session ends";

    AGENT_PENDING: "unauthenticated connections to an agent", "the network",
        NONE, Count(256), "the least client-like is closed";
    AGENT_CLIENTS: "clients of an agent", "an address",
        Count(16), Count(32), "turned away";
    AGENT_FRAME: "a frame while it is read", "a client",
        kib(256), times(AGENT_CLIENTS.total, kib(256)), "the connection ends";
    AGENT_REQUESTS: "requests that wait for their answers", "a client",
        Count(64), times(AGENT_CLIENTS.total, Count(64)), "refused";
    AGENT_REQUEST_BYTES: "frames of the requests that wait", "a client",
        kib(512), times(AGENT_CLIENTS.total, kib(512)), "refused";
    AGENT_ENTRIES: "entries of a manifest's lists, and attributes", "a request to deploy",
        Count(1024), Words("as requests that wait"), "refused";
    AGENT_BACKLOG: "unread answers and messages", "a client",
        mib(8), times(AGENT_CLIENTS.total, mib(8)), "its connection ends";
    AGENT_CODE: "a body on its way, and the last whole one", "a client",
        mib(2), times(times(Count(2), AGENT_CLIENTS.total), mib(2)), "refused";
    AGENT_STATE: "an offcode's state on its way", "a client",
        mib(4), times(AGENT_CLIENTS.total, mib(4)), "refused";
    AGENT_CACHE: "bodies kept for later deployments", "all clients",
        NONE, mib(64), "the least recently used goes";
    AGENT_OFFCODES: "offcodes of an agent", "a client",
        Count(64), Count(256), "refused";
    AGENT_SANDBOXES: "memory and code of sandboxed bodies", "a client",
        mib(512), mib(2 << 10), "refused";
    AGENT_MAPS: "maps of bodies at an agent's hooks", "a client",
        mib(64), mib(256), "refused";
    AGENT_OBJECT: "maps and programs of an object for a hook", "a client's object",
        Count(32), Words("as offcodes"), "refused";
    AGENT_CHANNELS: "channels of an agent's offcodes", "a client",
        Count(64), Count(256), "refused";
    AGENT_BUFFERS: "buffers of one channel, count times size", "a client",
        mib(64), Words("as memory of channels"), "refused";
    AGENT_CHANNEL_MEMORY: "memory of channels", "a client",
        mib(512), mib(2 << 10), "refused";
    AGENT_LOG: "lines a second of an agent's log, for each reason to refuse and for offcodes", "a client",
        NONE, Count(20), "left out and counted";

    SITE_FRAME: "a frame of an agent, and the buffers of a channel to it", "an agent",
        mib(64), Words("as agents"), "the connection ends";
    SITE_BACKLOG: "requests and messages unread by an agent", "an agent",
        mib(64), Words("as agents"), "the connection ends";

    WASM_MODULE: "a module, whose compilation cannot be interrupted", "a guest's author",
        mib(2), Words("one at a time at an agent"), "refused";
    WASM_FUNCTION: "a module's largest function, each local variable as a byte", "a guest's author",
        kib(128), Words("as the module"), "refused";
    WASM_MEMORY: "linear memory of an instance", "a guest",
        mib(16), Words("as memory of sandboxed bodies"), "growth fails in the guest";
    WASM_TABLES: "elements of an instance's tables", "a guest",
        Count(10_000), Words("as offcodes"), "growth fails in the guest";
    WASM_OUTPUT: "output of one entry, and what is kept of it", "a guest",
        mib(1), Words("as offcodes"), "no room is promised; a guest that writes beyond it is ended";
    WASM_KEPT: "messages kept for a channel without room", "a guest",
        Count(64), Words("as channels"), "no room is promised";
    WASM_REPLY: "a reply to a call", "a guest",
        kib(64), Words("as calls"), "refused";
    OFFCODE_ATTRIBUTES: "names and values of an offcode's attributes", "who deploys it",
        kib(64), Words("as offcodes"), "refused";
    OFFCODE_STATE: "an offcode's state in a move", "an offcode that moves",
        mib(4), Words("as offcodes that a move takes together"), "the move is undone";
    OFFCODE_TIMERS: "timers of an offcode", "an offcode",
        Count(16), Words("as offcodes"), "refused";
    OFFCODE_WORDS: "shared words of an offcode, part of its target's memory", "an offcode",
        Count(8 << 10), Words("as offcodes"), "refused";
    OFFCODE_ARRAYS: "names of shared words, its own and those it reads", "an offcode",
        Count(16), Words("as offcodes"), "refused";
    OFFCODE_MAPS: "keyed maps of an offcode", "an offcode",
        Count(16), Words("as offcodes"), "refused";
    OFFCODE_MAPS_MEMORY: "memory of keyed maps, part of its target's memory", "an offcode",
        mib(16), Words("as offcodes"), "refused; an entry beyond the map's own number is not taken";
    CALLS_WAITING: "calls out of band that an offcode has not read", "an offcode",
        Count(256), Words("as offcodes"), "refused";
    CALLS_OPEN: "calls out of band without an answer yet", "an offcode",
        Count(1024), Words("as offcodes"), "refused";
    CALLS_TRACED: "calls that `plimsoll ps --calls` keeps", "a caller",
        Count(1024), Words("as offcodes"), "the oldest are counted alone";
    CONTROL_CALLERS: "callers of a runtime's control socket",
        "a process of this user", NONE, Count(32), "turned away";
    CONTROL_LINE: "a request at the control socket", "a caller",
        kib(64), times(CONTROL_CALLERS.total, kib(64)), "refused";
    CONTROL_ATTACHED: "channels of other processes to a runtime's offcodes", "a process of this user",
        NONE, Count(256), "refused";

    ENGINE_MESSAGES: "messages without a receive", "a peer",
        Count(16 << 10), Words("each for every peer"), "the peer waits, or is given up";
    ENGINE_WIDENED: "the same, where a receive waits behind them; the total is beyond the row above", "a peer",
        Count(1 << 20), Count(16 << 20), "the peer waits";
    ENGINE_BYTES: "bytes of messages without a receive, and of one being put together", "a peer",
        mib(1), Words("each for every peer"), "they wait at the sender, or the peer is given up";
    ENGINE_BYTES_NEAR: "the same, of a peer over shared memory", "a peer",
        mib(4), Words("each for every peer"), "as above";
    ENGINE_WINDOW: "packets out of order or unacknowledged", "a peer",
        Count(1024), Words("the socket's buffer, for eight peers at once"), "dropped, and sent again";
    ENGINE_OVERTAKEN: "messages read before all of their packets had come", "a peer over shared memory",
        NONE, Count(1024), "read, and not sent as well";
    ENGINE_ANSWERS: "answers that a peer does not take", "a peer",
        Count(1 << 20), Words("each for every peer"), "the peer is given up";
    SHM_LINKS: "links over shared memory to an endpoint", "a process of this user",
        NONE, Count(4096), "refused";
    SHM_LINK: "memory of such a link beyond its first two pages", "a peer that sends",
        mib(1), times(SHM_LINKS.total, mib(1)), "the peer waits";
    SHM_GROWN: "memory of an endpoint's own links beyond their longest packets", "a peer that does not receive",
        mib(1), mib(32), "the sender waits";
    SHM_CALLERS: "callers at an endpoint that have said nothing", "a process of this user",
        NONE, Count(64), "the oldest is turned away";
    INTRODUCED: "peers that introduce themselves to an endpoint", "who was given its name",
        NONE, Count(65536), "not read";
    CONNECTION_REQUESTS: "unanswered connection requests at a passive endpoint", "who was given its name",
        Count(1), Count(1024), "refused";
    CONNECTION_DATA: "a connection request's data", "who was given its name",
        Size(Bytes(256)), times(CONNECTION_REQUESTS.total, Size(Bytes(256))), "not read";
    WRITTEN_UNREAD: "unread completions, those of the endpoint's own calls included",
        "a peer", NONE, Count(1 << 20), "FI_EOVERRUN at the write's initiator";
    NODE_RANKS: "ranks that a node's engine serves", "a process of this user",
        NONE, Count(1024), "refused";
    NODE_CALLERS: "callers at a node's engine without a seat", "a process of this user",
        NONE, NODE_RANKS.total, "the oldest is turned away";
    NODE_WISHES: "what such a caller says", "a process of this user",
        kib(16), times(NODE_CALLERS.total, kib(16)), "turned away";
    NODE_REQUESTS: "sends and receives in progress at a node's engine", "a rank",
        Count(1 << 20), Words("each for every rank"), "the rank is given up";
    NODE_PENDING: "sends whose bytes a node's engine has, at most 8 KiB each", "a rank",
        Count(4096), Words("each for every rank"), "the rank waits";
    NODE_UNTOLD: "what a node's engine has to tell a rank", "a rank",
        mib(4), Words("each for every rank"), "the rank's peers wait";
    NODE_PEERS: "a rank's peers at a node's engine", "a rank",
        Count(1 << 20), Words("each for every rank"), "the rank is given up";
    UNKNOWN_SENDERS: "packets of unknown senders between two looks at a socket", "the network",
        NONE, Count(64), "dropped";
    UNKNOWN_PACKET: "one of those packets", "the network",
        Size(Bytes(9216)), times(UNKNOWN_SENDERS.total, Size(Bytes(9216))), "dropped";
    LANES: "lanes lent at one interface", "a process of this user",
        NONE, Count(64), "packets come by the kernel";
    LANE_CALLERS: "callers for a lane that have not shown their socket", "a process of this user",
        NONE, Count(64), "the oldest is turned away";

    REPORT_LINE: "a rank's report", "a rank",
        kib(256), Words("as reports"), "passes as it is";
    REPORTS: "reports of one job", "all ranks",
        NONE, mib(256), "pass as they are";

    PROFILE_JOB: "`job.json` of a profile", "who writes the profile",
        mib(4), Words("one at a time"), "refused";
    PROFILE_TABLES: "bytes read at once of a running rank's tables", "who writes the profile",
        mib(64), Words("one at a time"), "the rank is left out or its tables unchecked, and that is noted";
    WATCHED_JOBS: "jobs that `plimsoll daemon` watches", "a user",
        Count(256), Count(1024), "left and noted";
    WATCHED_PROFILES: "what `plimsoll daemon` and `top` keep of profiles; an open file counts 64 KiB", "a user",
        mib(512), mib(1 << 10), "left out and noted";
    WATCHED_ENVIRONMENT: "bytes that `plimsoll daemon` reads of an environment", "a process",
        mib(2), Words("one at a time"), "the rest is not read";
    FLEET_PARTITIONS: "partitions by name in the figures of `plimsoll fleet --metrics`", "who writes summaries of jobs",
        NONE, Count(64), "counted as one, `other`";
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
                (Words(_), Words(_)) => panic!("{}: no amount at all", row.what),
                (each, total) => {
                    assert!(matches!(each, Words(_)) || matches!(total, Words(_)), "{}: two units", row.what)
                }
            }
        }
    }
}
