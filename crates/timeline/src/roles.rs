//! The effect of an MPI function on operations.

use std::sync::LazyLock;

use record::functions::{Class, Function, FunctionId, functions};

/// Who waits for whom in a collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collective {
    /// Everyone waits for everyone.
    All,
    /// Everyone waits for the root.
    FromRoot,
    /// The root waits for everyone.
    ToRoot,
    /// Everyone waits for those of lower rank.
    Prefix,
    /// Everyone waits for its neighbours, which a timeline does not name.
    Neighbours,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Send,
    Receive,
    Exchange,
    Collective(Collective),
    /// Waits for, or tests, operations begun before.
    Complete,
    Probe,
    /// Takes a message out of the queue to be received later (MPI_Mprobe): for the sender, this is the receive.
    Take,
    Start,
    Cancel,
    /// Nothing that other ranks see.
    Local,
    /// Something that other ranks may see, in a way that the timeline does not tell.
    Other,
}

/// How a function begins its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub role: Role,
    /// Whether the operation is complete when the call returns.
    pub blocking: bool,
    /// Whether the call only describes the operation, for MPI_Start.
    pub persistent: bool,
}

static PARTS: LazyLock<Vec<Part>> = LazyLock::new(|| functions().iter().map(part).collect());

pub fn part_of(function: FunctionId) -> Part {
    PARTS.get(usize::from(function.0)).copied().unwrap_or(Part { role: Role::Other, blocking: true, persistent: false })
}

fn part(function: &Function) -> Part {
    let name = function.name;
    let persistent = name.ends_with("_init");
    let posted = matches!(function.class, Class::Post) || function.argument("request").is_some();
    let base = name.trim_end_matches("_init");
    let role = match function.class {
        Class::Send => Role::Send,
        Class::Receive if name == "Mrecv" => Role::Local,
        Class::Receive => Role::Receive,
        Class::Exchange => Role::Exchange,
        Class::Post => match name {
            "Start" | "Startall" => Role::Start,
            "Irecv" => Role::Receive,
            "Isendrecv" | "Isendrecv_replace" => Role::Exchange,
            "Isend" | "Ibsend" | "Issend" | "Irsend" => Role::Send,
            _ => Role::Local,
        },
        Class::Completion => Role::Complete,
        Class::Probe if name.contains("mprobe") || name == "Mprobe" => Role::Take,
        Class::Probe => Role::Probe,
        Class::Request => match base {
            "Cancel" => Role::Cancel,
            "Request_free" => Role::Local,
            "Recv" | "Precv" => Role::Receive,
            "Send" | "Bsend" | "Ssend" | "Rsend" | "Psend" => Role::Send,
            _ => Role::Collective(collective(base)),
        },
        Class::Collective | Class::Neighbour => Role::Collective(collective(base)),
        Class::Management if joins_all(name) => Role::Collective(Collective::All),
        Class::Synchronization if name == "Win_fence" => Role::Collective(Collective::All),
        _ => Role::Other,
    };
    Part { role, blocking: !posted && !persistent, persistent }
}

/// Whether it is a management function that every member of a communicator calls, and that none leaves before all came.
fn joins_all(name: &str) -> bool {
    const ALL: [&str; 15] = [
        "Comm_dup",
        "Comm_dup_with_info",
        "Comm_create",
        "Comm_split",
        "Comm_split_type",
        "Cart_create",
        "Cart_sub",
        "Graph_create",
        "Dist_graph_create",
        "Dist_graph_create_adjacent",
        "Win_create",
        "Win_allocate",
        "Win_allocate_shared",
        "Win_create_dynamic",
        "Comm_idup",
    ];
    ALL.contains(&name)
}

/// The waits of a collective function; nonblocking variants are accepted.
fn collective(name: &str) -> Collective {
    let blocking = match name.strip_prefix('I') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest,
        _ => name,
    };
    match blocking.to_ascii_lowercase().as_str() {
        "bcast" | "scatter" | "scatterv" => Collective::FromRoot,
        "reduce" | "gather" | "gatherv" => Collective::ToRoot,
        "scan" | "exscan" => Collective::Prefix,
        name if name.starts_with("neighbor") => Collective::Neighbours,
        _ => Collective::All,
    }
}

#[cfg(test)]
mod tests {
    use record::functions::named;

    use super::*;

    #[test]
    fn functions_have_the_parts_that_the_standard_gives_them() {
        let part = |name: &str| {
            let part = part_of(named(name).unwrap().id);
            (part.role, part.blocking, part.persistent)
        };
        assert_eq!(part("Send"), (Role::Send, true, false));
        assert_eq!(part("Isend"), (Role::Send, false, false));
        assert_eq!(part("Precv_init"), (Role::Receive, false, true));
        assert_eq!(part("Ibcast"), (Role::Collective(Collective::FromRoot), false, false));
        assert_eq!(part("Igatherv"), (Role::Collective(Collective::ToRoot), false, false));
        assert_eq!(part("Exscan_init"), (Role::Collective(Collective::Prefix), false, true));
        assert_eq!(part("Ineighbor_alltoall"), (Role::Collective(Collective::Neighbours), false, false));
        assert_eq!(part("Iallreduce"), (Role::Collective(Collective::All), false, false));
        assert_eq!(part("Improbe").0, Role::Take);
        assert_eq!(part("Mprobe").0, Role::Take);
        assert_eq!(part("Iprobe").0, Role::Probe);
        assert_eq!(part("Imrecv").0, Role::Local);
    }
}
