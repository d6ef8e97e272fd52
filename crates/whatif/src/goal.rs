//! GOAL, the text in which LogGOPSim's schedules are written, and the schedule that it says.
//!
//! ```text
//! num_ranks 2
//! rank 0 {                                   all ranks below num_ranks, each once
//! a: calc 100 cpu 1                          ns
//! b: send 8b to 1 tag 3 cpu 0 nic 0          what is not given is 0
//! b requires a                               begins when a is over; irequires: when a has started
//! }                                          // to the end of the line, /* or to here */
//! rank 1 {
//! recv 8b from -1 tag -1                     from any rank, any tag
//! }
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use machine::fault::{Fault, Result};

/// Matches any rank, or any tag.
pub const ANY: u32 = u32::MAX;

/// The kinds of operations, in the order in which those begin that become free at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Send,
    Receive,
    Compute,
}

/// One operation of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    pub kind: Kind,
    /// Bytes of a message, or nanoseconds to compute.
    pub amount: u64,
    /// The other rank; 0 where it computes.
    pub peer: u32,
    pub tag: u32,
    /// The program's number of the operation.
    pub number: u32,
    pub cpu: u16,
    pub nic: u8,
}

/// Operations of all ranks, those of rank 0 first, as a struct of arrays. Operations are known by their place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The first operation of each rank, and one more.
    first: Vec<u32>,
    kinds: Vec<Kind>,
    amounts: Vec<u64>,
    peers: Vec<u32>,
    tags: Vec<u32>,
    /// Indices among the cpu numbers in the text.
    cpus: Vec<u16>,
    nics: Vec<u8>,
    /// The number of requirements of each operation.
    requires: Vec<u32>,
    /// Operations that wait for the start of an operation, and for its end.
    on_start: Edges,
    on_end: Edges,
}

/// By operation: those that wait for it, in the order of the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Edges {
    first: Vec<u32>,
    to: Vec<u32>,
}

impl Edges {
    /// Adds the edges of operations from the last known one to `end`.
    fn add(&mut self, end: usize, edges: &mut [(u32, u32)]) {
        edges.sort_by_key(|(from, _)| *from);
        let mut edges = edges.iter().peekable();
        for operation in self.first.len()..end {
            self.first.push(self.to.len() as u32);
            while let Some((_, to)) = edges.next_if(|(from, _)| *from as usize == operation) {
                self.to.push(*to);
            }
        }
    }

    fn of(&self, operation: u32) -> &[u32] {
        let place = operation as usize;
        let end = self.first.get(place + 1).map_or(self.to.len(), |end| *end as usize);
        &self.to[self.first[place] as usize..end]
    }
}

impl Schedule {
    pub fn ranks(&self) -> u32 {
        (self.first.len() - 1) as u32
    }

    /// How many operations there are.
    pub fn operations(&self) -> usize {
        self.kinds.len()
    }

    /// How many messages are sent.
    pub fn messages(&self) -> u64 {
        self.kinds.iter().filter(|kind| **kind == Kind::Send).count() as u64
    }

    /// The operations of a rank.
    pub fn of(&self, rank: u32) -> impl Iterator<Item = Operation> {
        (self.first[rank as usize]..self.first[rank as usize + 1]).map(|number| self.operation(number))
    }

    /// Operations that wait for the end of an operation, by number.
    pub fn after_end(&self, number: u32) -> &[u32] {
        self.on_end.of(number)
    }

    /// Operations that wait for the start of an operation.
    pub fn after_start(&self, number: u32) -> &[u32] {
        self.on_start.of(number)
    }

    /// The number of requirements of each operation, by number.
    pub fn requirements(&self) -> &[u32] {
        &self.requires
    }

    /// The rank whose operation that is.
    pub fn rank_of(&self, number: u32) -> u32 {
        self.first.partition_point(|first| *first <= number) as u32 - 1
    }

    /// How many cpus and network interfaces each rank has.
    pub fn places(&self) -> (usize, usize) {
        let cpus = self.cpus.iter().max().map_or(1, |most| usize::from(*most) + 1);
        (cpus, self.nics.iter().max().map_or(1, |most| usize::from(*most) + 1))
    }

    pub fn operation(&self, number: u32) -> Operation {
        let at = number as usize;
        Operation {
            kind: self.kinds[at],
            amount: self.amounts[at],
            peer: self.peers[at],
            tag: self.tags[at],
            number,
            cpu: self.cpus[at],
            nic: self.nics[at],
        }
    }

    fn push(&mut self, operation: Operation) {
        self.kinds.push(operation.kind);
        self.amounts.push(operation.amount);
        self.peers.push(operation.peer);
        self.tags.push(operation.tag);
        self.cpus.push(operation.cpu);
        self.nics.push(operation.nic);
        self.requires.push(0);
    }

    /// The schedule with its ranks in order; `ranks` is their order in the text.
    fn in_order(self, ranks: &[u32]) -> Schedule {
        let mut blocks: Vec<usize> = (0..ranks.len()).collect();
        blocks.sort_by_key(|block| ranks[*block]);
        let mut first = vec![0];
        let mut here = Vec::with_capacity(self.kinds.len());
        for block in blocks {
            here.extend(self.first[block]..self.first[block + 1]);
            first.push(here.len() as u32);
        }
        let mut moved = vec![0; here.len()];
        here.iter().enumerate().for_each(|(to, from)| moved[*from as usize] = to as u32);
        let edges = |of: &Edges| {
            let mut edges = Edges::default();
            for from in &here {
                edges.first.push(edges.to.len() as u32);
                edges.to.extend(of.of(*from).iter().map(|to| moved[*to as usize]));
            }
            edges
        };
        Schedule {
            first,
            kinds: picked(&self.kinds, &here),
            amounts: picked(&self.amounts, &here),
            peers: picked(&self.peers, &here),
            tags: picked(&self.tags, &here),
            cpus: picked(&self.cpus, &here),
            nics: picked(&self.nics, &here),
            requires: picked(&self.requires, &here),
            on_start: edges(&self.on_start),
            on_end: edges(&self.on_end),
        }
    }
}

fn picked<T: Copy>(all: &[T], which: &[u32]) -> Vec<T> {
    which.iter().map(|at| all[*at as usize]).collect()
}

/// Numbers of cpus or network interfaces, which may be any, in the order of their appearance.
#[derive(Default)]
struct Numbers(BTreeMap<u32, u16>);

impl Numbers {
    fn of(&mut self, number: u32) -> Option<u16> {
        if let Some(known) = self.0.get(&number) {
            return Some(*known);
        }
        let next = u16::try_from(self.0.len()).ok()?;
        self.0.insert(number, next);
        Some(next)
    }

    /// By order of appearance: the index of each in numeric order. The cpu with the sender's number works on a message, so
    /// all ranks share one order.
    fn places(&self) -> Vec<u16> {
        let mut places = vec![0; self.0.len()];
        self.0.values().enumerate().for_each(|(place, came)| places[usize::from(*came)] = place as u16);
        places
    }
}

/// Reads a schedule.
///
/// # Errors
/// The first mistake, with line and column.
pub fn read(text: &[u8]) -> Result<Schedule> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    Reader { text, at: 0, cpus: Numbers::default(), nics: Numbers::default() }.schedule()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'t> {
    Word(&'t [u8]),
    Number(u64),
    /// `-1`
    Any,
    Sign(u8),
    Line,
    End,
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    cpus: Numbers,
    nics: Numbers,
}

/// A requirement between two labels with their positions: the first operation waits for the second to end, or to start.
struct Requirement<'t> {
    own: (&'t [u8], usize),
    other: (&'t [u8], usize),
    over: bool,
}

/// The most cpus and network interfaces of all ranks together: a simulation's room.
const PLACES: u64 = 1 << 27;

const OPERATIONS: &str = "write an operation: send, recv or calc, as in 'l1: send 8b to 1 tag 0'";

impl<'t> Reader<'t> {
    fn fault(&self, at: usize, cause: impl Into<String>, next: &str) -> Fault {
        let before = &self.text[..at];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        Fault::new(format!("the schedule, line {line}, column {column}"), cause, next)
    }

    /// Skips blanks and comments, but not ends of lines.
    fn blanks(&mut self) -> Result<()> {
        while let [first, rest @ ..] = &self.text[self.at..] {
            match (first, rest.first()) {
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', Some(b'/')) => {
                    self.at += self.text[self.at..].iter().position(|byte| *byte == b'\n').unwrap_or(1 + rest.len());
                }
                (b'/', Some(b'*')) => {
                    let end = rest[1..].windows(2).position(|two| two == b"*/");
                    let Some(end) = end else {
                        return Err(self.fault(self.at, "this comment does not end", "end it by */"));
                    };
                    self.at += 2 + end + 2;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// The next token and where it begins.
    fn token(&mut self) -> Result<(Token<'t>, usize)> {
        self.blanks()?;
        let (start, rest) = (self.at, &self.text[self.at..]);
        let span = |which: fn(&u8) -> bool| rest.iter().position(|byte| !which(byte)).unwrap_or(rest.len());
        let (token, length) = match rest {
            [] => (Token::End, 0),
            [b'\n', ..] => (Token::Line, 1),
            [b'-', b'1', ..] => (Token::Any, 2),
            [b'0'..=b'9', ..] => {
                let digits = span(u8::is_ascii_digit);
                let number = std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse().ok());
                let Some(number) = number else {
                    return Err(self.fault(start, "this number needs more than 64 bits", "write a smaller one"));
                };
                (Token::Number(number), digits)
            }
            [byte, ..] if byte.is_ascii_alphabetic() => {
                let letters = span(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
                (Token::Word(&rest[..letters]), letters)
            }
            [byte, ..] => (Token::Sign(*byte), 1),
        };
        self.at += length;
        Ok((token, start))
    }

    /// The next token other than the end of a line.
    fn token_of_a_line(&mut self) -> Result<(Token<'t>, usize)> {
        loop {
            match self.token()? {
                (Token::Line, _) => {}
                other => return Ok(other),
            }
        }
    }

    fn expect(&mut self, token: Token, what: &str) -> Result<()> {
        match self.token()? {
            (found, _) if found == token => Ok(()),
            (_, at) => Err(self.fault(at, format!("{what} is expected here"), &format!("write {what}"))),
        }
    }

    fn number(&mut self, what: &str, below: u64) -> Result<u64> {
        match self.token()? {
            (Token::Number(number), _) if number < below => Ok(number),
            (Token::Number(number), at) => Err(self.fault(
                at,
                format!("{number} is too large for {what}"),
                &format!("write a number below {below}"),
            )),
            (_, at) => Err(self.fault(at, format!("{what} is expected here"), "write a whole number")),
        }
    }

    fn end_of_line(&mut self) -> Result<()> {
        match self.token()? {
            (Token::Line | Token::End, _) => Ok(()),
            (_, at) => Err(self.fault(at, "the line should end here", "begin a new line")),
        }
    }

    fn schedule(mut self) -> Result<Schedule> {
        match self.token_of_a_line()? {
            (Token::Word(b"num_ranks"), _) => {}
            (_, at) => {
                return Err(self.fault(at, "a schedule begins with num_ranks", "write num_ranks and their number"));
            }
        }
        self.blanks()?;
        let at = self.at;
        let ranks = self.number("the number of ranks", u64::from(ANY))?;
        if ranks == 0 {
            return Err(self.fault(at, "a schedule has one rank at least", "write their number"));
        }
        self.end_of_line()?;
        let mut schedule = Schedule { first: vec![0], ..Schedule::default() };
        let (mut order, mut known) = (Vec::new(), HashSet::new());
        for _ in 0..ranks {
            match self.token_of_a_line()? {
                (Token::Word(b"rank"), _) => {}
                (_, at) => {
                    let missing = (0..ranks as u32).find(|rank| !known.contains(rank)).unwrap_or_default();
                    return Err(self.fault(
                        at,
                        format!("rank {missing} of {ranks} is expected here"),
                        "write all ranks, each once",
                    ));
                }
            }
            self.blanks()?;
            let at = self.at;
            let rank = self.number("the rank", ranks)? as u32;
            if !known.insert(rank) {
                return Err(self.fault(at, format!("rank {rank} stands above already"), "write all ranks, each once"));
            }
            order.push(rank);
            self.expect(Token::Sign(b'{'), "{")?;
            self.rank(ranks, &mut schedule)?;
        }
        match self.token_of_a_line()? {
            (Token::End, _) => {
                let places = ranks * (self.cpus.0.len() + self.nics.0.len()) as u64;
                if places > PLACES {
                    let cause = format!("{ranks} ranks of {} cpus and {} nics", self.cpus.0.len(), self.nics.0.len());
                    return Err(Fault::new(
                        "the schedule",
                        format!("{cause} are more than {PLACES} places"),
                        "give the operations of different ranks the same numbers",
                    ));
                }
                let (cpus, nics) = (self.cpus.places(), self.nics.places());
                schedule.cpus.iter_mut().for_each(|cpu| *cpu = cpus[usize::from(*cpu)]);
                schedule.nics.iter_mut().for_each(|nic| *nic = nics[usize::from(*nic)] as u8);
                Ok(if order.is_sorted() { schedule } else { schedule.in_order(&order) })
            }
            (_, at) => Err(self.fault(at, "the last rank has ended", "delete what follows, or correct num_ranks")),
        }
    }

    fn rank(&mut self, ranks: u64, schedule: &mut Schedule) -> Result<()> {
        let mut labels: HashMap<&[u8], u32> = HashMap::new();
        let (mut on_start, mut on_end) = (Vec::new(), Vec::new());
        let mut required = Vec::new();
        loop {
            let (token, at) = self.token_of_a_line()?;
            let word = match token {
                Token::Word(word) => word,
                Token::Sign(b'}') => break,
                _ => return Err(self.fault(at, "this is no operation", OPERATIONS)),
            };
            if let b"send" | b"recv" | b"calc" = word {
                self.operation(word, at, ranks, schedule)?;
                continue;
            }
            match self.token()? {
                (Token::Sign(b':'), _) => {
                    if labels.insert(word, schedule.kinds.len() as u32).is_some() {
                        return Err(self.fault(at, "this rank has this label already", "give each operation its own"));
                    }
                    match self.token()? {
                        (Token::Word(word), at) => self.operation(word, at, ranks, schedule)?,
                        (_, at) => return Err(self.fault(at, "this is no operation", OPERATIONS)),
                    }
                }
                (Token::Word(how @ (b"requires" | b"irequires")), _) => {
                    let (Token::Word(other), other_at) = self.token()? else {
                        return Err(self.fault(
                            at,
                            "a label is expected after requires",
                            "write which operation comes first",
                        ));
                    };
                    let over = how == b"requires";
                    required.push(Requirement { own: (word, at), other: (other, other_at), over });
                    self.end_of_line()?;
                }
                (_, at) => {
                    return Err(self.fault(at, "after a label comes ':', requires or irequires", OPERATIONS));
                }
            }
        }
        for Requirement { own, other, over } in required {
            let known = |(label, at): (&[u8], usize)| {
                labels.get(label).copied().ok_or_else(|| {
                    let cause = format!("no operation of this rank has the label {}", label.escape_ascii());
                    self.fault(at, cause, "give it to an operation of this rank")
                })
            };
            let (own, other) = (known(own)?, known(other)?);
            let edges = if over { &mut on_end } else { &mut on_start };
            edges.push((other, own));
            schedule.requires[own as usize] += 1;
        }
        let end = schedule.kinds.len();
        schedule.first.push(end as u32);
        schedule.on_start.add(end, &mut on_start);
        schedule.on_end.add(end, &mut on_end);
        Ok(())
    }

    fn operation(&mut self, word: &[u8], at: usize, ranks: u64, schedule: &mut Schedule) -> Result<()> {
        let (kind, direction) = match word {
            b"send" => (Kind::Send, "to"),
            b"recv" => (Kind::Receive, "from"),
            b"calc" => (Kind::Compute, ""),
            _ => return Err(self.fault(at, "this is no operation", OPERATIONS)),
        };
        if schedule.kinds.len() as u32 >= ANY - 1 {
            return Err(self.fault(at, "this is operation 4,294,967,294", "split the schedule"));
        }
        let unit = if kind == Kind::Compute { "the time in ns" } else { "the size in bytes" };
        let amount = self.number(unit, u64::MAX)?;
        let mut operation = Operation { kind, amount, peer: 0, tag: 0, number: 0, cpu: 0, nic: 0 };
        let (mut cpu, mut nic) = ((0, at), (0, at));
        if kind != Kind::Compute {
            self.expect(Token::Word(b"b"), "b")?;
            self.expect(Token::Word(direction.as_bytes()), direction)?;
            operation.peer =
                if kind == Kind::Receive && self.any()? { ANY } else { self.number("a rank", ranks)? as u32 };
        }
        loop {
            match self.token()? {
                (Token::Word(b"tag"), _) if kind != Kind::Compute => {
                    operation.tag = if self.any()? { ANY } else { self.number("a tag", u64::from(ANY))? as u32 };
                }
                (Token::Word(b"cpu"), at) => cpu = (self.number("a cpu", 1 << 32)? as u32, at),
                (Token::Word(b"nic"), at) if kind != Kind::Compute => {
                    nic = (self.number("a nic", 1 << 32)? as u32, at);
                }
                (Token::Line | Token::End, _) => break,
                (_, at) => {
                    return Err(self.fault(at, "tag, cpu, nic or the end of the line is expected here", OPERATIONS));
                }
            }
        }
        let many = |reader: &Self, at: usize, cause: &str| reader.fault(at, cause, "use numbers of earlier ones again");
        let of_cpu = self.cpus.of(cpu.0);
        let of_nic = self.nics.of(nic.0).and_then(|nic| u8::try_from(nic).ok());
        operation.cpu = of_cpu.ok_or_else(|| many(self, cpu.1, "this is the 65,537th cpu"))?;
        operation.nic = of_nic.ok_or_else(|| many(self, nic.1, "this is the 257th network interface"))?;
        schedule.push(operation);
        Ok(())
    }

    /// Consumes `-1`, where it is next.
    fn any(&mut self) -> Result<bool> {
        self.blanks()?;
        let any = self.text[self.at..].starts_with(b"-1");
        self.at += 2 * usize::from(any);
        Ok(any)
    }
}
