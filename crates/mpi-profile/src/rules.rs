//! The arguments that recording reads from a call, derived once from the table of functions.

use record::functions::{Class, Function, functions};

/// No argument.
pub const NONE: u8 = u8::MAX;

/// The bytes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amount {
    Nothing,
    /// A count of elements, multiplied by `times`.
    Elements {
        count: u8,
        datatype: u8,
        times: Times,
    },
    /// One element.
    Element {
        datatype: u8,
    },
    /// This rank's element of an array of counts.
    Own {
        counts: u8,
        datatype: u8,
    },
    /// The sum of an array with a count for each rank of the own group, or for each addressed rank.
    Sum {
        counts: u8,
        datatype: u8,
        own: bool,
    },
    /// The sum of an array of counts, each with its own datatype.
    SumEach {
        counts: u8,
        datatypes: u8,
    },
    Rooted {
        root: u8,
        at_root: Box<Amount>,
        elsewhere: Box<Amount>,
    },
    /// The bytes of the persistent requests that the call starts.
    Started,
    /// The bytes of the operations that the call found complete.
    Completed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    Once,
    /// Ranks of the addressed group, or neighbours.
    Addressed,
    /// Ranks of the own group.
    Own,
    /// The value of an argument.
    Argument(u8),
}

/// The requests among the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    No,
    /// The call writes a new request to the address in this argument.
    Begins(u8),
    /// The call writes a new persistent request to the address in this argument.
    Prepares(u8),
    Starts {
        count: u8,
        requests: u8,
    },
    Completes(Completes),
    Frees(u8),
    Readies {
        request: u8,
        partitions: Partitions,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitions {
    One,
    Range { low: u8, high: u8 },
    List { length: u8 },
}

/// The requests that are complete after the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completes {
    One { request: u8, flag: u8 },
    All { count: u8, requests: u8, flag: u8 },
    Any { count: u8, requests: u8, index: u8, flag: u8 },
    Some { count: u8, requests: u8, outcount: u8, indices: u8 },
}

/// The effect of a call on MPI itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    No,
    Init,
    Finalize,
    /// Opens a session, whose handle is at the address in this argument.
    Opens(u8),
    Closes(u8),
    Abort,
    /// Frees a communicator or window, whose handle may be reused.
    Forgets,
}

#[derive(Debug, Clone)]
pub struct Rule {
    pub class: Class,
    pub special: Special,
    /// `count * datatype` to or from one peer: the short path through the recorder.
    pub simple: bool,
    /// Peer of a message that begins with the call, or with the start of the request that the call makes.
    pub dest: u8,
    pub source: u8,
    pub tag: u8,
    pub comm: u8,
    pub win: u8,
    /// `win` is the address at which the call writes a new window.
    pub makes_window: bool,
    pub target: u8,
    pub count: u8,
    pub datatype: u8,
    pub root: u8,
    /// On an intercommunicator the rank that passes MPI_ROOT gives data, and does not only take it.
    pub root_gives: bool,
    /// The call communicates along the edges of a topology.
    pub neighbour: bool,
    /// Calls are counted in rows by the communicator's size.
    pub grouped: bool,
    /// Counts have type MPI_Count in every variant.
    pub wide: bool,
    pub amount: Amount,
    /// Where this argument is MPI_IN_PLACE, the amount is `in_place`.
    pub send_buffer: u8,
    pub in_place: Amount,
    pub requests: Requests,
    /// The number of partitions of a partitioned operation.
    pub partitions: u8,
}

/// The rules by function number.
pub fn rules() -> Vec<Rule> {
    functions().iter().map(Rule::of).collect()
}

fn place(function: &Function, name: &str) -> u8 {
    function.argument(name).map_or(NONE, |place| place as u8)
}

/// The first of these arguments that the function has.
fn place_of(function: &Function, names: &[&str]) -> u8 {
    names.iter().map(|name| place(function, name)).find(|place| *place != NONE).unwrap_or(NONE)
}

impl Rule {
    pub fn of(function: &Function) -> Rule {
        let amount = amount(function, function.bytes.unwrap_or("-"));
        let persistent = function.name.ends_with("_init");
        let grouped = matches!(function.class, Class::Collective | Class::Neighbour)
            || function.class == Class::Request
                && place(function, "dest") == NONE
                && place(function, "comm") != NONE
                && place(function, "source") == NONE;
        let dest = place(function, "dest");
        let requests = requests(function, persistent);
        Rule {
            class: function.class,
            special: special(function),
            simple: matches!(function.class, Class::Send | Class::Receive | Class::Post)
                && place(function, "comm") != NONE
                && (dest == NONE || place(function, "source") == NONE)
                && function.bytes == Some("count*datatype"),
            dest,
            source: place(function, "source"),
            tag: place_of(function, &["tag", "sendtag"]),
            comm: place_of(function, &["comm", "comm_old"]),
            win: place(function, "win"),
            makes_window: function.argument("win").is_some_and(|at| function.arguments[at].by_pointer)
                && place(function, "comm") != NONE,
            target: place(function, "target_rank"),
            count: place(function, "count"),
            datatype: place(function, "datatype"),
            root: place(function, "root"),
            root_gives: function.name.contains("cast") || function.name.to_lowercase().contains("scatter"),
            neighbour: function.name.to_lowercase().contains("neighbor"),
            grouped,
            wide: matches!(function.name, "Psend_init" | "Precv_init"),
            send_buffer: if grouped { place(function, "sendbuf") } else { NONE },
            in_place: if grouped { in_place(function, &amount) } else { Amount::Nothing },
            amount,
            requests,
            partitions: if persistent { place(function, "partitions") } else { NONE },
        }
    }
}

fn special(function: &Function) -> Special {
    match function.name {
        "Init" | "Init_thread" => Special::Init,
        "Finalize" => Special::Finalize,
        "Session_init" => Special::Opens(place(function, "session")),
        "Session_finalize" => Special::Closes(place(function, "session")),
        "Abort" => Special::Abort,
        "Comm_free" | "Comm_disconnect" | "Win_free" => Special::Forgets,
        _ => Special::No,
    }
}

fn requests(function: &Function, persistent: bool) -> Requests {
    let at = |name: &str| place(function, name);
    let (request, requests, flag) = (at("request"), at("requests"), at("flag"));
    let partitions = match () {
        _ if at("partition_low") != NONE => Partitions::Range { low: at("partition_low"), high: at("partition_high") },
        _ if at("length") != NONE => Partitions::List { length: at("length") },
        _ => Partitions::One,
    };
    match function.name {
        "Start" => Requests::Starts { count: NONE, requests: request },
        "Startall" => Requests::Starts { count: at("count"), requests },
        "Wait" | "Test" => Requests::Completes(Completes::One { request, flag }),
        "Waitall" | "Testall" => Requests::Completes(Completes::All { count: at("count"), requests, flag }),
        "Waitany" | "Testany" => {
            Requests::Completes(Completes::Any { count: at("count"), requests, index: at("index"), flag })
        }
        "Waitsome" | "Testsome" => Requests::Completes(Completes::Some {
            count: at("incount"),
            requests,
            outcount: at("outcount"),
            indices: at("indices"),
        }),
        "Request_free" => Requests::Frees(request),
        "Pready" | "Pready_range" | "Pready_list" => Requests::Readies { request, partitions },
        "Cancel" | "Parrived" | "Request_get_status" => Requests::No,
        _ if request == NONE => Requests::No,
        _ if persistent => Requests::Prepares(request),
        _ => Requests::Begins(request),
    }
}

/// The amount that a rule of the table describes.
fn amount(function: &Function, rule: &str) -> Amount {
    let at = |name: &str| place(function, name);
    if let Some(rest) = rule.strip_prefix("root:") {
        let (at_root, elsewhere) = rest.split_once(',').expect("a rule for the root and one for others");
        return Amount::Rooted {
            root: at("root"),
            at_root: Box::new(amount(function, at_root)),
            elsewhere: Box::new(amount(function, elsewhere)),
        };
    }
    if let Some((summed, datatype)) = rule.strip_prefix("sum(").and_then(|rest| rest.split_once(')')) {
        return match summed.split_once('*') {
            Some((counts, datatypes)) => Amount::SumEach { counts: at(counts), datatypes: at(datatypes) },
            None => {
                let datatype = at(datatype.trim_start_matches('*'));
                Amount::Sum { counts: at(summed), datatype, own: summed == "recvcounts" }
            }
        };
    }
    match rule {
        "-" => Amount::Nothing,
        "request" => Amount::Started,
        "completed" => Amount::Completed,
        _ => match rule.split('*').collect::<Vec<_>>()[..] {
            [datatype] => Amount::Element { datatype: at(datatype) },
            [count, datatype] => Amount::Elements { count: at(count), datatype: at(datatype), times: Times::Once },
            [count, datatype, "size"] => {
                let times = if count == "recvcount" { Times::Own } else { Times::Addressed };
                Amount::Elements { count: at(count), datatype: at(datatype), times }
            }
            [times, count, datatype] => {
                Amount::Elements { count: at(count), datatype: at(datatype), times: Times::Argument(at(times)) }
            }
            _ => panic!("no rule: {rule}"),
        },
    }
}

/// With MPI_IN_PLACE the arguments of the receiving side describe the contribution of a rank.
fn in_place(function: &Function, amount: &Amount) -> Amount {
    let at = |name: &str| place(function, name);
    let (count, counts, datatype) = (at("recvcount"), at("recvcounts"), at("recvtype"));
    match amount {
        Amount::Elements { times, .. } if datatype != NONE && count != NONE => {
            Amount::Elements { count, datatype, times: *times }
        }
        Amount::Elements { .. } if datatype != NONE && counts != NONE => Amount::Own { counts, datatype },
        Amount::Sum { .. } if datatype != NONE && counts != NONE => Amount::Sum { counts, datatype, own: true },
        Amount::SumEach { .. } => Amount::SumEach { counts, datatypes: at("recvtypes") },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use record::functions::named;

    use super::*;

    fn rule(name: &str) -> Rule {
        Rule::of(named(name).unwrap())
    }

    #[test]
    fn every_rule_of_the_table_is_understood() {
        for function in functions() {
            let rule = Rule::of(function);
            let text = function.bytes.unwrap_or_default();
            if text.contains('*') {
                assert!(!format!("{:?}", rule.amount).contains("255"), "{}: {:?}", function.name, rule.amount);
            }
            if rule.send_buffer != NONE {
                assert!(!format!("{:?}", rule.in_place).contains("255"), "{}: {:?}", function.name, rule.in_place);
            }
        }
    }

    #[test]
    fn in_place_turns_to_the_receiving_side() {
        let gatherv = rule("Gatherv");
        assert_eq!(gatherv.amount, Amount::Elements { count: 1, datatype: 2, times: Times::Once });
        assert_eq!(gatherv.in_place, Amount::Own { counts: 4, datatype: 6 });
        assert_eq!(rule("Alltoallw").in_place, Amount::SumEach { counts: 5, datatypes: 7 });
        assert_eq!(rule("Allreduce").in_place, rule("Allreduce").amount);
        assert_eq!(rule("Scatter").in_place, rule("Scatter").amount);
    }

    #[test]
    fn messages_of_one_way_are_simple() {
        let simple: Vec<_> = functions().iter().filter(|f| Rule::of(f).simple).map(|f| f.name).collect();
        assert_eq!(simple, ["Send", "Bsend", "Ssend", "Rsend", "Recv", "Isend", "Ibsend", "Issend", "Irsend", "Irecv"]);
    }

    #[test]
    fn requests_are_begun_prepared_started_and_completed() {
        assert_eq!(rule("Irecv").requests, Requests::Begins(6));
        assert_eq!(rule("Iallreduce").requests, Requests::Begins(6));
        assert_eq!(rule("Rget").requests, Requests::Begins(8));
        assert_eq!(rule("Comm_idup").requests, Requests::Begins(2));
        assert_eq!(rule("Allreduce_init").requests, Requests::Prepares(7));
        assert_eq!(rule("Start").requests, Requests::Starts { count: NONE, requests: 0 });
        assert_eq!(rule("Parrived").requests, Requests::No);
        assert!(rule("Allreduce_init").grouped && !rule("Send_init").grouped && !rule("Recv_init").grouped);
        assert!(!rule("Request_free").grouped && !rule("Comm_split").grouped);
    }
}
