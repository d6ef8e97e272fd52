//! The arguments of a function that a timeline records.

use record::functions::{Class, Function, functions};

use crate::rules::NONE;

#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    /// Destination, else source, else root, else target.
    pub peer: u8,
    pub tag: u8,
    /// Source and tag of a receive or probe.
    pub source: u8,
    pub source_tag: u8,
    pub source_count: u8,
    pub source_datatype: u8,
    /// One status, or an array of as many as the call may complete.
    pub status: u8,
    pub flag: u8,
    pub new_communicator: u8,
    pub new_window: u8,
    /// A blocking receive, or a probe: its status has source, tag and bytes.
    pub receives: bool,
    /// A call that begins or prepares a receive, which its request completes.
    pub receives_by_request: bool,
    /// A send and a receive in one call.
    pub exchanges: bool,
    pub completes: bool,
    /// One status for each request that the call may complete.
    pub many: bool,
    pub cancels: bool,
}

/// The arguments by function number.
pub fn all() -> Vec<Arguments> {
    functions().iter().map(Arguments::of).collect()
}

impl Arguments {
    fn of(function: &Function) -> Arguments {
        let first = |names: &[&str]| {
            let places = names.iter().filter_map(|name| function.argument(name));
            places.map(|place| place as u8).next().unwrap_or(NONE)
        };
        let (dest, source) = (first(&["dest"]), first(&["source"]));
        let tagged = dest != NONE || source != NONE;
        // A communicator made by a request does not exist yet when the call returns.
        let made = first(&["newcomm", "comm_cart", "comm_graph", "comm_dist_graph", "newintracomm"]);
        let completes = function.class == Class::Completion;
        Arguments {
            peer: first(&["dest", "source", "root", "target_rank", "rank"]),
            tag: if tagged { first(&["tag", "sendtag"]) } else { NONE },
            source,
            source_tag: if source != NONE { first(&["recvtag", "tag"]) } else { NONE },
            source_count: first(&["recvcount", "count"]),
            source_datatype: first(&["recvtype", "datatype"]),
            status: first(&["status", "statuses"]),
            flag: if completes { NONE } else { first(&["flag"]) },
            new_communicator: if first(&["request"]) == NONE { made } else { NONE },
            new_window: if first(&["comm"]) != NONE { first(&["win"]) } else { NONE },
            receives: source != NONE && matches!(function.class, Class::Receive | Class::Exchange | Class::Probe),
            receives_by_request: first(&["request"]) != NONE && (source != NONE || function.name == "Imrecv"),
            exchanges: source != NONE && dest != NONE,
            completes,
            many: first(&["statuses"]) != NONE,
            cancels: function.name == "Cancel",
        }
    }
}
