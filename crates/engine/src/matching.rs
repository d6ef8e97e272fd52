//! Posted and unexpected queues: hashed, in MPI order, O(1) however many receives wait.
//!
//! Receives fall into classes by their space and by what they leave open: (any source?, mask). Within a class a receive is found by the
//! hash of (source, tag & mask), first come first served. An arriving message looks into each class in use and takes
//! the receive posted first. An unexpected message is listed in every class that receives have asked for so far; a
//! class asked for the first time is listed from the arrival order once.

use std::collections::HashMap;

use machine::PeerIndex;
use slotmap::Key;

use crate::slots::{self, Slot, Slots};
use crate::tag::{Label, Source, Space, Tag, TagSelector};

const NIL: u32 = u32::MAX;
const ANY: u32 = u32::MAX;

/// Classes beyond this many are searched in arrival order instead of being listed.
const LISTED_CLASSES: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Class {
    space: Space,
    any_source: bool,
    mask: u64,
}

/// Source and tag of a chain.
type Matched = (u32, u64);

impl Class {
    fn of(source: Source, selector: TagSelector) -> (Class, Matched) {
        let (any_source, peer) = match source {
            Source::Any => (true, ANY),
            Source::Peer(peer) => (false, peer.0),
        };
        (Class { space: selector.space, any_source, mask: selector.mask }, (peer, selector.tag))
    }

    fn key(&self, peer: PeerIndex, tag: Tag) -> Matched {
        (if self.any_source { ANY } else { peer.0 }, tag & self.mask)
    }
}

/// The entries of one key, first come first served. `tail` is of no account where there are none.
#[derive(Clone, Copy)]
struct Chain {
    head: u32,
    tail: u32,
}

const EMPTY: Chain = Chain { head: NIL, tail: NIL };

#[derive(Debug, Clone, Copy)]
struct Links {
    /// Of no account in the first of a chain, so that this can leave without a look at the next.
    previous: u32,
    next: u32,
    chain: u32,
}

const UNLINKED: Links = Links { previous: NIL, next: NIL, chain: NIL };

/// An element of a chain.
trait Node {
    fn links(&mut self) -> &mut Links;
}

impl Node for Links {
    #[inline(always)]
    fn links(&mut self) -> &mut Links {
        self
    }
}

/// The entries of one class, chained under their key.
struct Table {
    class: Class,
    /// Index of each key's chain. The key looked up last is remembered: messages of one key tend to follow one another.
    index: HashMap<Matched, u32, foldhash::fast::RandomState>,
    recent: (Matched, u32),
    chains: Vec<Chain>,
    free: Vec<u32>,
    live: usize,
}

impl Table {
    fn new(class: Class) -> Self {
        // No message has this key.
        let recent = ((if class.any_source { 0 } else { ANY }, 0), NIL);
        Table { class, index: HashMap::default(), recent, chains: Vec::new(), free: Vec::new(), live: 0 }
    }

    /// Appends node `node` of `nodes` to its key's chain; returns the links that it is to have.
    #[inline(always)]
    fn append(&mut self, nodes: &mut [impl Node], key: Matched, node: u32) -> Links {
        let chain = match self.find(key) {
            Some(chain) => chain,
            None => self.open(key),
        };
        self.live += 1;
        let ends = &mut self.chains[chain as usize];
        let previous = std::mem::replace(&mut ends.tail, node);
        if ends.head == NIL {
            ends.head = node;
        } else {
            nodes[previous as usize].links().next = node;
        }
        Links { previous, next: NIL, chain }
    }

    #[inline(always)]
    fn find(&mut self, key: Matched) -> Option<u32> {
        if self.recent.0 == key { Some(self.recent.1) } else { self.look_up(key) }
    }

    fn look_up(&mut self, key: Matched) -> Option<u32> {
        let chain = *self.index.get(&key)?;
        self.recent = (key, chain);
        Some(chain)
    }

    /// A chain for a key that has none. Emptied chains stay for the next message of their key; they are swept once
    /// they outnumber the rest.
    #[inline(never)]
    fn open(&mut self, key: Matched) -> u32 {
        if self.index.len() > 2 * self.live + 64 {
            let Table { index, chains, free, .. } = self;
            index.retain(|_, chain| {
                let keep = chains[*chain as usize].head != NIL;
                if !keep {
                    free.push(*chain);
                }
                keep
            });
            // A sweep walks the capacity, which a burst long gone must not have left large.
            if index.capacity() > 16 * self.live + 1024 {
                index.shrink_to(2 * self.live + 128);
            }
        }
        let chain = self.free.pop().unwrap_or_else(|| {
            self.chains.push(EMPTY);
            (self.chains.len() - 1) as u32
        });
        self.chains[chain as usize] = EMPTY;
        self.index.insert(key, chain);
        self.recent = (key, chain);
        chain
    }

    #[inline(always)]
    fn first(&mut self, key: Matched) -> Option<u32> {
        let chain = self.find(key)?;
        Some(self.chains[chain as usize].head).filter(|&head| head != NIL)
    }

    #[inline(always)]
    fn remove(&mut self, nodes: &mut [impl Node], node: u32) {
        let Links { previous, next, chain } = *nodes[node as usize].links();
        let ends = &mut self.chains[chain as usize];
        self.live -= 1;
        if ends.head == node {
            ends.head = next;
            return;
        }
        nodes[previous as usize].links().next = next;
        if next == NIL {
            ends.tail = previous;
        } else {
            nodes[next as usize].links().previous = previous;
        }
    }
}

/// Nodes with stable indices.
struct Nodes<N> {
    entries: Vec<Option<N>>,
    free: Vec<u32>,
}

impl<N> Nodes<N> {
    #[inline]
    fn insert(&mut self, node: N) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(node);
                index
            }
            None => {
                self.entries.push(Some(node));
                (self.entries.len() - 1) as u32
            }
        }
    }

    fn get(&self, index: u32) -> &N {
        self.entries[index as usize].as_ref().expect("a listed node is live")
    }

    fn remove(&mut self, index: u32) -> N {
        self.free.push(index);
        self.entries[index as usize].take().expect("a listed node is live")
    }
}

impl<N> Default for Nodes<N> {
    fn default() -> Self {
        Nodes { entries: Vec::new(), free: Vec::new() }
    }
}

/// The place of a receive in the queue of those that wait; in the receive, so that one slot holds both.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Order of posting; the oldest receive that fits takes the message.
    order: u64,
    table: u32,
    links: Links,
}

impl Default for Place {
    fn default() -> Self {
        Place { order: 0, table: 0, links: UNLINKED }
    }
}

/// A receive that can wait for a message.
pub trait Posted {
    /// Its place in the queue; of use while it is posted.
    fn place(&mut self) -> &mut Place;
}

impl<V: Posted> Node for Slot<V> {
    #[inline(always)]
    fn links(&mut self) -> &mut Links {
        &mut self.value.place().links
    }
}

/// Receives that wait for a message.
#[derive(Default)]
pub struct PostedQueue {
    tables: Vec<Table>,
    posted: u64,
}

impl PostedQueue {
    /// An empty queue.
    pub fn new() -> Self {
        PostedQueue::default()
    }

    /// Number of receives that wait.
    pub fn len(&self) -> usize {
        self.tables.iter().map(|table| table.live).sum()
    }

    /// Whether no receive waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds one of `receives`, behind all that wait.
    #[inline(always)]
    pub fn post<K: Key, V: Posted + Default>(
        &mut self,
        receives: &mut Slots<K, V>,
        source: Source,
        selector: TagSelector,
        receive: K,
    ) {
        let (class, key) = Class::of(source, selector);
        let table = match self.tables.iter().position(|table| table.class == class) {
            Some(table) => table,
            None => self.open_class(Class { ..class }),
        };
        let (node, nodes) = (slots::index(receive), receives.nodes());
        let links = self.tables[table].append(nodes, key, node);
        *nodes[node as usize].value.place() = Place { order: self.posted, table: table as u32, links };
        self.posted += 1;
    }

    #[cold]
    fn open_class(&mut self, class: Class) -> usize {
        // An empty class makes room for the new one, so that odd masks do not pile up.
        match self.tables.iter().position(|table| table.live == 0) {
            Some(table) if self.tables.len() >= LISTED_CLASSES => {
                self.tables[table] = Table::new(class);
                table
            }
            _ => {
                self.tables.push(Table::new(class));
                self.tables.len() - 1
            }
        }
    }

    /// Takes the receive, posted first, that fits this message.
    pub fn take<K: Key, V: Posted + Default>(
        &mut self,
        receives: &mut Slots<K, V>,
        peer: PeerIndex,
        space: Space,
        tag: Tag,
    ) -> Option<K> {
        let node = self.find(receives, peer, space, tag)?;
        self.pop(receives.nodes()[node as usize].value.place());
        Some(receives.key(node))
    }

    /// The node of the receive that [`PostedQueue::take`] would take.
    #[inline(always)]
    pub(crate) fn find<K: Key, V: Posted + Default>(
        &mut self,
        receives: &mut Slots<K, V>,
        peer: PeerIndex,
        space: Space,
        tag: Tag,
    ) -> Option<u32> {
        let mut oldest = NIL;
        for table in &mut self.tables {
            if table.live == 0 || table.class.space != space {
                continue;
            }
            let Some(node) = table.first(table.class.key(peer, tag)) else { continue };
            oldest = if oldest == NIL { node } else { older(receives, oldest, node) };
        }
        (oldest != NIL).then_some(oldest)
    }

    /// Takes out the receive at that place, which [`PostedQueue::find`] has found, hence the first of its chain.
    #[inline(always)]
    pub(crate) fn pop(&mut self, place: &Place) {
        let table = &mut self.tables[place.table as usize];
        table.live -= 1;
        table.chains[place.links.chain as usize].head = place.links.next;
    }

    /// Whether any receive of this space waits.
    pub fn waits_within(&self, space: Space) -> bool {
        self.tables.iter().any(|table| table.live > 0 && table.class.space == space)
    }

    /// Withdraws a receive that is posted.
    pub fn remove<K: Key, V: Posted + Default>(&mut self, receives: &mut Slots<K, V>, receive: K) {
        let (node, nodes) = (slots::index(receive), receives.nodes());
        let table = nodes[node as usize].value.place().table;
        self.tables[table as usize].remove(nodes, node);
    }
}

/// The node of the two whose receive was posted first.
#[cold]
fn older<K: Key, V: Posted + Default>(receives: &mut Slots<K, V>, one: u32, other: u32) -> u32 {
    let mut order = |node: u32| receives.nodes()[node as usize].value.place().order;
    if order(one) < order(other) { one } else { other }
}

/// Neighbours in the order of arrival.
struct Arrival {
    previous: u32,
    next: u32,
}

struct UnexpectedNode<T> {
    peer: PeerIndex,
    label: Label,
    arrival: Arrival,
    value: T,
}

/// The messages as they are chained for one class of receives.
struct Listed {
    table: Table,
    links: Vec<Links>,
}

impl Listed {
    fn append(&mut self, key: Matched, node: u32) {
        if self.links.len() <= node as usize {
            self.links.resize(node as usize + 1, UNLINKED);
        }
        self.links[node as usize] = self.table.append(&mut self.links, key, node);
    }
}

/// Messages that wait for a receive.
pub struct UnexpectedQueue<T> {
    tables: Vec<Listed>,
    nodes: Nodes<UnexpectedNode<T>>,
    head: u32,
    tail: u32,
    live: usize,
}

impl<T> Default for UnexpectedQueue<T> {
    fn default() -> Self {
        UnexpectedQueue { tables: Vec::new(), nodes: Nodes::default(), head: NIL, tail: NIL, live: 0 }
    }
}

impl<T> UnexpectedQueue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        UnexpectedQueue::default()
    }

    /// Number of messages that wait.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Adds a message that arrived after all that wait; returns the node that stands for it.
    pub fn push(&mut self, peer: PeerIndex, label: Label, value: T) -> u32 {
        let arrival = Arrival { previous: self.tail, next: NIL };
        let node = self.nodes.insert(UnexpectedNode { peer, label, arrival, value });
        if self.tail == NIL {
            self.head = node;
        } else {
            self.nodes.entries[self.tail as usize].as_mut().expect("the tail is live").arrival.next = node;
        }
        self.tail = node;
        for listed in self.tables.iter_mut().filter(|listed| listed.table.class.space == label.space) {
            listed.append(listed.table.class.key(peer, label.tag), node);
        }
        self.live += 1;
        node
    }

    /// The message, arrived first, that this receive takes.
    #[inline]
    pub fn find(&mut self, source: Source, selector: TagSelector) -> Option<u32> {
        if self.live == 0 { None } else { self.search(source, selector) }
    }

    fn search(&mut self, source: Source, selector: TagSelector) -> Option<u32> {
        let (class, key) = Class::of(source, selector);
        if let Some(listed) = self.tables.iter_mut().find(|listed| listed.table.class == class) {
            return listed.table.first(key);
        }
        if self.tables.len() < LISTED_CLASSES {
            let mut listed = Listed { table: Table::new(class), links: Vec::new() };
            for node in self.arrivals() {
                let entry = self.nodes.get(node);
                if entry.label.space == class.space {
                    listed.append(class.key(entry.peer, entry.label.tag), node);
                }
            }
            let found = listed.table.first(key);
            self.tables.push(listed);
            return found;
        }
        self.arrivals().find(|&node| {
            let entry = self.nodes.get(node);
            source.takes(entry.peer) && selector.takes(entry.label.space, entry.label.tag)
        })
    }

    /// The sender, label and value of the message at a node.
    pub fn get(&self, node: u32) -> (PeerIndex, Label, &T) {
        let entry = self.nodes.get(node);
        (entry.peer, entry.label, &entry.value)
    }

    /// The value of the message at a node.
    pub fn get_mut(&mut self, node: u32) -> &mut T {
        &mut self.nodes.entries[node as usize].as_mut().expect("a listed node is live").value
    }

    /// Takes the message at a node out of the queue.
    pub fn remove(&mut self, node: u32) -> (PeerIndex, Label, T) {
        let UnexpectedNode { peer, label, arrival, value } = self.nodes.remove(node);
        match arrival.previous {
            NIL => self.head = arrival.next,
            previous => self.nodes.entries[previous as usize].as_mut().expect("linked").arrival.next = arrival.next,
        }
        match arrival.next {
            NIL => self.tail = arrival.previous,
            next => self.nodes.entries[next as usize].as_mut().expect("linked").arrival.previous = arrival.previous,
        }
        for Listed { table, links } in &mut self.tables {
            if table.class.space == label.space {
                table.remove(links, node);
            }
        }
        self.live -= 1;
        (peer, label, value)
    }

    /// Drops those messages of a peer that `dropped` names.
    pub fn drop_from(&mut self, peer: PeerIndex, dropped: impl Fn(&T) -> bool) {
        let of_peer = |&node: &u32| matches!(self.get(node), (from, _, message) if from == peer && dropped(message));
        for node in self.arrivals().filter(of_peer).collect::<Vec<_>>() {
            self.remove(node);
        }
    }

    /// Nodes in the order of arrival.
    fn arrivals(&self) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let node = at;
            (node != NIL).then(|| {
                at = self.nodes.get(node).arrival.next;
                node
            })
        })
    }
}
