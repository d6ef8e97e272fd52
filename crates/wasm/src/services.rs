//! A guest's use of its site's services: its timers, the words that it shares or has copies of, and the maps in its own
//! memory.

use machine::Nanoseconds;
use machine::bounds::OFFCODE_ARRAYS;
use offcode::abi::{self, Action, Event, Record};
use offcode::map::MAPS_EACH;
use offcode::service::{MAPS, MEMORY, TIMERS, WORDS_EACH};
use offcode::{Context, Manifest, Shape, Wake};

use crate::instance::printable;

pub struct Services {
    /// Whether the manifest asks for each service.
    pub timers: bool,
    pub memory: bool,
    pub maps: bool,
    /// Maps that the guest has opened.
    pub opened: Vec<Opened>,
    /// Names that the guest shares, in their order.
    own: Vec<String>,
    copies: Vec<Copied>,
}

/// A map in the guest's memory.
pub struct Opened {
    pub name: String,
    pub shape: Shape,
    pub at: usize,
}

/// Words that the guest has in its own memory.
struct Copied {
    name: String,
    /// The guest's values; empty before the first copy.
    values: Vec<u64>,
    count: usize,
    /// Words that only the guest changes are copied to it once.
    own: bool,
    /// Whether the reason why they cannot be copied was logged.
    said: bool,
}

impl Services {
    pub fn of(manifest: &Manifest) -> Services {
        let software = &manifest.software;
        let [timers, memory, maps] = [TIMERS, MEMORY, MAPS].map(|service| software.asks(&service));
        Services { timers, memory, maps, opened: Vec::new(), own: Vec::new(), copies: Vec::new() }
    }

    /// Carries out one action that was checked.
    ///
    /// # Errors
    /// Why the site refuses it.
    pub fn carry_out(
        &mut self,
        (action, record, payload): (Action, Record, &[u8]),
        context: &mut dyn Context,
    ) -> Result<(), String> {
        let refused = |fault: machine::Fault| format!("it was refused: {}: {}", fault.subject(), fault.cause());
        match action {
            Action::Timer => {
                let [at, every] = payload.as_chunks().0 else { return Err("it set a timer to no time".into()) };
                let [at, every] = [at, every].map(|time| Nanoseconds(u64::from_le_bytes(*time)));
                let timer = u8::try_from(record.id).unwrap_or(u8::MAX);
                context.set_timer(timer, Wake { at, every }).map_err(refused)
            }
            Action::Share => {
                let name = name(payload)?;
                context.share(name, record.id).map_err(refused)?;
                self.copy(name, record.id as usize, true)?;
                self.own.push(name.to_owned());
                Ok(())
            }
            Action::Store => {
                let own = self.own.get(record.channel as usize);
                let own =
                    own.ok_or_else(|| format!("it stored into words {}, which it has not shared", record.channel))?;
                let values: Vec<u64> = payload.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
                context.store(own, record.id, &values).map_err(refused)
            }
            Action::Load => self.copy(name(payload)?, record.id as usize, false),
            Action::Map => self.open(record.id, payload).map_err(|why| format!("it opened a map that is none: {why}")),
            _ => Ok(()),
        }
    }

    /// Opens a map. [`Services::lie_within`] checks its address.
    fn open(&mut self, entries: u32, payload: &[u8]) -> Result<(), String> {
        let Some((sizes, name)) = payload.split_first_chunk::<12>() else { return Err("it has no sizes".into()) };
        let [key, value, at] =
            [0, 4, 8].map(|n| u32::from_le_bytes([sizes[n], sizes[n + 1], sizes[n + 2], sizes[n + 3]]));
        let (name, shape) = (self::name(name)?, Shape { entries, key, value });
        shape.check(name).map_err(|fault| fault.cause().to_owned())?;
        if self.opened.iter().any(|known| known.name == name) {
            return Err(format!("there is one of the name {} already", printable(name.as_bytes())));
        }
        if self.opened.len() == MAPS_EACH {
            return Err(format!("an offcode has {MAPS_EACH} maps at most"));
        }
        self.opened.push(Opened { name: name.to_owned(), shape, at: at as usize });
        Ok(())
    }

    /// Looks at the maps that were opened after the first `looked_at`.
    ///
    /// # Errors
    /// One is not within the guest's memory of so many bytes, which never shrinks.
    pub fn lie_within(&self, looked_at: usize, memory: usize) -> Result<(), String> {
        let outside = |map: &&Opened| (map.at as u64).saturating_add(map.shape.cells()) > memory as u64;
        self.opened[looked_at..].iter().find(outside).map_or(Ok(()), |map| {
            let (name, at, size) = (printable(map.name.as_bytes()), map.at, map.shape.cells());
            Err(format!("its map {name} at {at:#x} of {size} bytes is not within its memory of {memory} bytes"))
        })
    }

    /// Gives the guest a copy of the first `count` words of this name from the next entry on.
    fn copy(&mut self, name: &str, count: usize, own: bool) -> Result<(), String> {
        if count > WORDS_EACH {
            return Err(format!("it asked for {count} words, and an offcode has {WORDS_EACH} at most"));
        }
        if let Some(known) = self.copies.iter_mut().find(|known| known.name == name) {
            known.count = known.count.max(count);
            known.said = false;
            return Ok(());
        }
        let most = OFFCODE_ARRAYS.each.count();
        if self.copies.len() == most {
            return Err(format!("it asked for words of more than {most} names"));
        }
        self.copies.push(Copied { name: name.to_owned(), values: Vec::new(), count, own, said: false });
        Ok(())
    }

    /// Puts the words that have changed into the input area, from `filled` on; returns the end.
    pub fn tell(&mut self, area: &mut [u8], mut filled: usize, context: &mut dyn Context) -> usize {
        for copy in &mut self.copies {
            if copy.own && !copy.values.is_empty() {
                continue;
            }
            let mut values = vec![0; copy.count];
            let why = match context.load(&copy.name, 0, &mut values) {
                Ok(false) => continue,
                Ok(true) if values == copy.values => continue,
                Ok(true) => {
                    let length = (copy.name.len() as u32).to_le_bytes();
                    let gap = &[0; 8][..abi::words_at(copy.name.len()) - 4 - copy.name.len()];
                    let words: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                    let record = Record { kind: Event::Words as u16, ..Record::default() };
                    match record.put(area, filled, &[&length, copy.name.as_bytes(), gap, &words]) {
                        Some(end) => {
                            filled = end;
                            copy.values = values;
                            continue;
                        }
                        None => "they do not fit the body's input area".to_owned(),
                    }
                }
                Err(fault) => fault.cause().to_owned(),
            };
            if !std::mem::replace(&mut copy.said, true) {
                context.log(&format!("words {} are not passed on: {why}", printable(copy.name.as_bytes())));
            }
        }
        filled
    }

    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }
}

fn name(payload: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(payload).map_err(|_| "it gave words or a map a name that is no UTF-8".to_owned())
}
