//! A map with its memory, and all of an offcode.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use machine::bounds::OFFCODE_MAPS_MEMORY;
use machine::{Bytes, Fault, Result};

use super::{Entries, HEAD, MAPS_EACH, MapId, Put, Shape};
use crate::state::State;

/// One map with its memory.
pub struct Table {
    name: String,
    shape: Shape,
    cells: Vec<u8>,
    /// Places of the entries, from 1 on, by the hashes of their keys; what does not find its bucket free is in a later one.
    buckets: Vec<u32>,
    count: usize,
    hasher: RandomState,
}

impl Table {
    /// # Errors
    /// No map has this name or this shape, or there is no memory for it.
    pub fn new(name: &str, shape: Shape) -> Result<Table> {
        shape.check(name)?;
        let (mut cells, mut buckets) = (Vec::new(), Vec::new());
        let (bytes, places) = (shape.cells() as usize, shape.buckets() as usize);
        if cells.try_reserve_exact(bytes).and_then(|()| buckets.try_reserve_exact(places)).is_err() {
            let cause = format!("there are no {} of memory for it", shape.memory());
            return Err(Fault::new(format!("map {name}"), cause, "open it for fewer entries"));
        }
        cells.resize(bytes, 0);
        buckets.resize(places, 0);
        Ok(Table { name: name.into(), shape, cells, buckets, count: 0, hasher: RandomState::default() })
    }

    /// What it was opened as.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was opened with.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The piece of memory that its entries lie in, which stays where it is.
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// Its entries, in no order.
    pub fn entries(&self) -> Entries<'_> {
        Entries::within(self.shape, &self.cells)
    }

    fn at(&self, place: usize) -> usize {
        HEAD + place * self.shape.entry()
    }

    fn key(&self, place: usize) -> &[u8] {
        &self.cells[self.at(place)..][..self.shape.key as usize]
    }

    fn home(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize & (self.buckets.len() - 1)
    }

    fn after(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// The bucket of a key and its place; or the one that it would get.
    #[inline]
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let mut bucket = self.home(key);
        // One bucket at least is free.
        while self.buckets[bucket] != 0 {
            if self.key(self.buckets[bucket] as usize - 1) == key {
                return Ok(bucket);
            }
            bucket = self.after(bucket);
        }
        Err(bucket)
    }

    fn fits(&self, what: &str, bytes: &[u8], length: u32) -> Result<()> {
        if bytes.len() == length as usize {
            return Ok(());
        }
        let cause = format!("a {what} of {} bytes, and its {what}s have {length}", bytes.len());
        Err(Fault::new(format!("map {}", self.name), cause, "keep to the sizes that it was opened with"))
    }

    /// The value under a key.
    ///
    /// # Errors
    /// The key is of another size.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>> {
        self.fits("key", key, self.shape.key)?;
        let Ok(bucket) = self.find(key) else { return Ok(None) };
        let at = self.at(self.buckets[bucket] as usize - 1) + self.shape.key as usize;
        Ok(Some(&self.cells[at..][..self.shape.value as usize]))
    }

    /// Puts an entry in, or another value under its key.
    ///
    /// # Errors
    /// Key or value are of another size.
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Put> {
        self.fits("key", key, self.shape.key)?;
        self.fits("value", value, self.shape.value)?;
        let (place, put) = match self.find(key) {
            Ok(bucket) => (self.buckets[bucket] as usize - 1, Put::Replaced),
            Err(_) if self.count == self.shape.entries as usize => return Ok(Put::Full),
            Err(bucket) => {
                let place = self.count;
                self.buckets[bucket] = place as u32 + 1;
                self.set_count(place + 1);
                (place, Put::New)
            }
        };
        let at = self.at(place);
        let (of_key, rest) = self.cells[at..].split_at_mut(key.len());
        of_key.copy_from_slice(key);
        rest[..value.len()].copy_from_slice(value);
        Ok(put)
    }

    /// Takes out what is under a key; whether there was something.
    ///
    /// # Errors
    /// The key is of another size.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool> {
        self.fits("key", key, self.shape.key)?;
        let Ok(mut free) = self.find(key) else { return Ok(false) };
        let (place, last) = (self.buckets[free] as usize - 1, self.count - 1);
        // What was put behind the bucket for want of its own moves up.
        let mut bucket = self.after(free);
        while self.buckets[bucket] != 0 {
            let home = self.home(self.key(self.buckets[bucket] as usize - 1));
            let mask = self.buckets.len() - 1;
            if (bucket.wrapping_sub(home) & mask) >= (bucket.wrapping_sub(free) & mask) {
                self.buckets[free] = self.buckets[bucket];
                free = bucket;
            }
            bucket = self.after(bucket);
        }
        self.buckets[free] = 0;
        if place != last {
            if let Ok(bucket) = self.find(self.key(last)) {
                self.buckets[bucket] = place as u32 + 1;
            }
            let (from, to) = (self.at(last), self.at(place));
            self.cells.copy_within(from..from + self.shape.entry(), to);
        }
        self.set_count(last);
        Ok(true)
    }

    fn clear(&mut self) {
        self.buckets.fill(0);
        self.set_count(0);
    }

    fn set_count(&mut self, count: usize) {
        self.count = count;
        self.cells[..4].copy_from_slice(&(count as u32).to_le_bytes());
    }
}

/// The maps of one offcode.
#[derive(Default)]
pub struct Maps(Vec<Table>);

impl Maps {
    /// The map of this name, where there is one.
    ///
    /// # Errors
    /// It is of another shape.
    pub fn opened(&self, name: &str, shape: Shape) -> Result<Option<MapId>> {
        let Some(id) = self.0.iter().position(|table| table.name == name) else { return Ok(None) };
        let there = self.0[id].shape;
        if there == shape {
            return Ok(Some(MapId(id as u32)));
        }
        let cause = format!("{shape:?} is asked for, and under this name there is {there:?}");
        Err(Fault::new(format!("map {name}"), cause, "open it with the same sizes, or give it another name"))
    }

    /// As of [`crate::Context::open_map`], in memory that nobody else counts.
    ///
    /// # Errors
    /// The errors of [`crate::Context::open_map`].
    pub fn open(&mut self, name: &str, shape: Shape) -> Result<MapId> {
        if let Some(id) = self.opened(name, shape)? {
            return Ok(id);
        }
        shape.check(name)?;
        let refuse = |cause: String| Err(Fault::new(format!("map {name}"), cause, "join some, or open smaller ones"));
        if self.0.len() == MAPS_EACH {
            return refuse(format!("an offcode has {MAPS_EACH} maps at most"));
        }
        let (takes, most) = (Bytes(self.memory().0 + shape.memory().0), OFFCODE_MAPS_MEMORY.each.bytes());
        if takes > most {
            return refuse(format!("with it the offcode's maps take {takes}, and they take {most} at most"));
        }
        self.0.push(Table::new(name, shape)?);
        Ok(MapId(self.0.len() as u32 - 1))
    }

    /// Bytes that all of them take.
    pub fn memory(&self) -> Bytes {
        Bytes(self.0.iter().map(|table| table.shape.memory().0).sum())
    }

    /// All, in their order.
    pub fn tables(&self) -> &[Table] {
        &self.0
    }

    /// Forgets the one that was opened last.
    pub(crate) fn close_last(&mut self) {
        self.0.pop();
    }

    /// # Errors
    /// None has this number.
    #[inline]
    pub fn table(&mut self, map: MapId) -> Result<&mut Table> {
        self.0.get_mut(map.0 as usize).ok_or_else(|| {
            Fault::new(format!("map {}", map.0 as i32), "this offcode has not opened it", "open it in `initialize`")
        })
    }

    /// [`crate::Context::map_get`].
    ///
    /// # Errors
    /// The errors of that call.
    #[inline]
    pub fn get(&mut self, map: MapId, key: &[u8], value: &mut [u8]) -> Result<bool> {
        let table = self.table(map)?;
        table.fits("value", value, table.shape.value)?;
        let found = table.get(key)?;
        if let Some(found) = found {
            value.copy_from_slice(found);
        }
        Ok(found.is_some())
    }

    /// [`crate::Context::map_visit`].
    ///
    /// # Errors
    /// The errors of that call.
    pub fn visit(&mut self, map: MapId, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let _ = self.table(map)?.entries().all(|(key, value)| each(key, value));
        Ok(())
    }

    /// Puts what is in them into a state, as tables of their names.
    ///
    /// # Errors
    /// The state has records of such a name.
    pub fn save(&self, state: &mut State) -> Result<()> {
        for table in &self.0 {
            if state.table(&table.name).next().is_some() {
                let cause = "its `save` puts records under this name, under which its entries go along";
                return Err(Fault::new(format!("map {}", table.name), cause, "save them under another name"));
            }
            table.entries().for_each(|(key, value)| state.put(&table.name, key, value));
        }
        Ok(())
    }

    /// Takes the tables of their names out of a state. What was in them before is gone.
    ///
    /// # Errors
    /// An entry has another size, or there are more than a map takes.
    pub fn restore(&mut self, state: &mut State) -> Result<()> {
        for table in &mut self.0 {
            table.clear();
            for (key, value) in state.take(&table.name) {
                let why = match table.put(&key, &value) {
                    Ok(Put::New | Put::Replaced) => continue,
                    Ok(Put::Full) => format!("it takes {} entries", table.shape.entries),
                    Err(fault) => fault.cause().to_owned(),
                };
                return Err(state.unfit(format!("its records '{}' do not fit the map: {why}", table.name)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SMALL: Shape = Shape { entries: 6, key: 2, value: 3 };

    #[derive(Debug, Clone)]
    enum Step {
        Put(u8, u8),
        Remove(u8),
        Get(u8),
        /// To another map, as where an offcode moves.
        Move,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0u8..12, any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
            3 => (0u8..12).prop_map(Step::Remove),
            2 => (0u8..12).prop_map(Step::Get),
            1 => Just(Step::Move),
        ];
        prop::collection::vec(step, 0..200)
    }

    fn maps(shape: Shape) -> (Maps, MapId) {
        let mut maps = Maps::default();
        let id = maps.open("flows", shape).unwrap();
        (maps, id)
    }

    proptest! {
        #[test]
        fn a_map_is_what_a_model_is(steps in steps(), entries in 1u32..9) {
            let shape = Shape { entries, ..SMALL };
            let (mut maps, id) = maps(shape);
            let mut model = BTreeMap::new();
            let (piece, room) = (maps.table(id).unwrap().cells().as_ptr(), maps.memory());
            let key = |key: u8| [key, 7];
            for step in steps {
                match step {
                    Step::Put(k, v) => {
                        let put = maps.table(id).unwrap().put(&key(k), &[v; 3]).unwrap();
                        let full = model.len() == entries as usize && !model.contains_key(key(k).as_slice());
                        let expected = match full {
                            true => Put::Full,
                            false if model.insert(key(k).to_vec(), vec![v; 3]).is_some() => Put::Replaced,
                            false => Put::New,
                        };
                        prop_assert_eq!(put, expected);
                    }
                    Step::Remove(k) => {
                        let removed = maps.table(id).unwrap().remove(&key(k)).unwrap();
                        prop_assert_eq!(removed, model.remove(key(k).as_slice()).is_some());
                    }
                    Step::Get(k) => {
                        let mut value = [0; 3];
                        let found = maps.get(id, &key(k), &mut value).unwrap();
                        prop_assert_eq!(found.then(|| value.to_vec()), model.get(key(k).as_slice()).cloned());
                    }
                    Step::Move => {
                        let mut state = State::new(1);
                        maps.save(&mut state).unwrap();
                        let mut state = State::decode(&state.encode().unwrap()).unwrap();
                        maps.restore(&mut state).unwrap();
                        prop_assert_eq!(state.records().count(), 0);
                    }
                }
                let table = &maps.tables()[0];
                let there: BTreeMap<_, _> = table.entries().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
                prop_assert_eq!(&there, &model);
                prop_assert_eq!(table.entries().count(), model.len());
            }
            prop_assert_eq!((maps.table(id).unwrap().cells().as_ptr(), maps.memory()), (piece, room));
        }

        #[test]
        fn cells_of_others_show_what_fits(bytes in prop::collection::vec(any::<u8>(), 0..200), shape in any::<[u16; 3]>()) {
            let [entries, key, value] = shape.map(|size| u32::from(size % 64));
            let shape = Shape { entries, key, value };
            let mut shown = 0;
            for (k, v) in Entries::within(shape, &bytes) {
                prop_assert_eq!((k.len(), v.len()), (key as usize, value as usize));
                shown += 1;
            }
            prop_assert!(shown <= entries as usize);
        }
    }

    #[test]
    fn sizes_that_no_map_has_are_refused() {
        let huge = u32::MAX;
        for (shape, why) in [
            (Shape { key: 0, ..SMALL }, "keys have 0 bytes"),
            (Shape { key: 513, ..SMALL }, "1 to 512"),
            (Shape { value: 0, ..SMALL }, "values have 0 bytes"),
            (Shape { value: huge, ..SMALL }, "1 to 65536"),
            (Shape { entries: 0, ..SMALL }, "no entries"),
            (Shape { entries: huge, ..SMALL }, "16 MiB at most"),
            (Shape { entries: huge, key: 512, value: 65_536 }, "16 MiB at most"),
        ] {
            let said = Maps::default().open("flows", shape).unwrap_err().to_string();
            assert!(said.contains(why), "{said} does not say '{why}'");
        }
        assert!(Maps::default().open("a/b", SMALL).is_err());
        let mut many = Maps::default();
        (0..16).for_each(|n| assert_eq!(many.open(&format!("m{n}"), SMALL).unwrap(), MapId(n)));
        assert_eq!(many.open("m3", SMALL).unwrap(), MapId(3), "the same once more");
        assert!(many.open("m3", Shape { value: 4, ..SMALL }).unwrap_err().to_string().contains("other"));
        assert!(many.open("late", SMALL).unwrap_err().to_string().contains("16 maps at most"));
        let mut large = Maps::default();
        let half = Shape { entries: 6 << 20 >> 3, key: 4, value: 4 };
        large.open("one", half).unwrap();
        assert!(large.open("two", half).unwrap_err().to_string().contains("and they take 16 MiB at most"));
    }

    #[test]
    fn what_does_not_fit_is_a_fault_and_changes_nothing() {
        let (mut maps, id) = maps(SMALL);
        assert_eq!(maps.table(id).unwrap().put(&[1, 2], &[3; 3]).unwrap(), Put::New);
        for (key, value) in [(&[1][..], &[0; 3][..]), (&[1, 2], &[0; 2]), (&[], &[]), (&[0; 9], &[0; 3])] {
            assert!(maps.table(id).unwrap().put(key, value).is_err());
        }
        assert!(maps.get(id, &[1, 2], &mut [0; 4]).is_err() && maps.get(id, &[1], &mut [0; 3]).is_err());
        assert!(maps.table(MapId::NONE).is_err() && maps.table(MapId(1)).is_err());
        // A state with another shape, with too many entries, and an author's own records of this name.
        let refuses = |maps: &mut Maps, entries: &[(&[u8], &[u8])], why: &str| {
            let mut state = State::new(2);
            entries.iter().for_each(|(key, value)| state.put("flows", key, value));
            let said = maps.restore(&mut state).unwrap_err().to_string();
            assert!(said.contains("version 2") && said.contains(why), "{said}");
        };
        refuses(&mut maps, &[(&[1, 2], &[0; 4])], "a value of 4 bytes");
        refuses(&mut maps, &[(&[], &[0; 3])], "a key of 0 bytes");
        let many: Vec<[u8; 2]> = (0..7).map(|n| [n, 0]).collect();
        let many: Vec<(&[u8], &[u8])> = many.iter().map(|key| (&key[..], &[0; 3][..])).collect();
        refuses(&mut maps, &many, "it takes 6 entries");
        let mut state = State::new(1);
        state.keep("flows", &1u64);
        assert!(maps.save(&mut state).unwrap_err().to_string().contains("under another name"));
    }
}
