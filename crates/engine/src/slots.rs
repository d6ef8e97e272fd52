//! Requests by key: a slot is used again once its request has ended, and an old key then names nothing.
//!
//! A `SlotMap` without its costs for a short message: a request is written in place and never moved.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use slotmap::{Key, KeyData};

/// A place for a request.
pub(crate) struct Slot<V> {
    /// Version as in `slotmap`'s keys: odd while the slot is taken.
    version: u32,
    /// The next free slot, while this one is free.
    next: u32,
    /// The vacant value while the slot is free.
    pub(crate) value: V,
}

/// Requests by key.
pub struct Slots<K, V> {
    /// Slot i has the index i + 1 in its key, as 0 stands for none.
    slots: Vec<Slot<V>>,
    /// The first free slot; the number of slots where there is none.
    free: u32,
    keys: PhantomData<fn() -> K>,
}

impl<K, V> Default for Slots<K, V> {
    fn default() -> Self {
        Slots { slots: Vec::new(), free: 0, keys: PhantomData }
    }
}

impl<K: Key, V: Default> Slots<K, V> {
    /// No requests.
    pub fn new() -> Self {
        Slots::default()
    }

    /// Adds a request.
    pub fn insert(&mut self, value: V) -> K {
        let (key, slot) = self.take();
        *slot = value;
        key
    }

    /// Takes a slot, whose vacant value is to be filled in place.
    #[inline(always)]
    pub fn take(&mut self) -> (K, &mut V) {
        let index = self.free;
        if index as usize >= self.slots.len() {
            self.add();
        }
        let slot = &mut self.slots[index as usize];
        self.free = slot.next;
        slot.version = slot.version.wrapping_add(1);
        (key(index, slot.version), &mut slot.value)
    }

    #[cold]
    fn add(&mut self) {
        let next = u32::try_from(self.slots.len() + 1).expect("there is no memory for so many requests");
        self.slots.push(Slot { version: 0, next, value: V::default() });
    }

    /// Makes the slot vacant and returns its value.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let value = std::mem::take(self.get_mut(key)?);
        self.forget(key);
        Some(value)
    }

    /// Frees the slot, whose value is vacant or as good as that.
    #[inline(always)]
    pub fn forget(&mut self, key: K) {
        if self.get(key).is_some() {
            self.vacate(index(key));
        }
    }

    /// The slots, by the index of their keys.
    #[inline(always)]
    pub(crate) fn nodes(&mut self) -> &mut [Slot<V>] {
        &mut self.slots
    }

    /// The key of the slot at this index, which is taken.
    #[inline(always)]
    pub(crate) fn key(&self, index: u32) -> K {
        key(index, self.slots[index as usize].version)
    }

    /// Frees the taken slot at this index, whose value is vacant or as good as that.
    #[inline(always)]
    pub(crate) fn vacate(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.version = slot.version.wrapping_add(1);
        slot.next = std::mem::replace(&mut self.free, index);
    }

    /// The request of a key.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        let (index, version) = parts(key);
        self.slots.get(index as usize).filter(|slot| slot.version == version).map(|slot| &slot.value)
    }

    /// The request of a key.
    #[inline(always)]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let (index, version) = parts(key);
        self.slots.get_mut(index as usize).filter(|slot| slot.version == version).map(|slot| &mut slot.value)
    }

    /// All requests with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let taken = self.slots.iter().enumerate().filter(|(_, slot)| slot.version % 2 == 1);
        taken.map(|(index, slot)| (key(index as u32, slot.version), &slot.value))
    }
}

#[inline(always)]
fn key<K: Key>(index: u32, version: u32) -> K {
    KeyData::from_ffi(u64::from(version) << 32 | (u64::from(index) + 1)).into()
}

/// The index of a key's slot.
#[inline(always)]
pub(crate) fn index(key: impl Key) -> u32 {
    parts(key).0
}

/// Index and version of a key; the null key's index is beyond all.
#[inline(always)]
fn parts(key: impl Key) -> (u32, u32) {
    let bits = key.data().as_ffi();
    ((bits as u32).wrapping_sub(1), (bits >> 32) as u32)
}

impl<K: Key, V: Default> Index<K> for Slots<K, V> {
    type Output = V;

    #[inline]
    fn index(&self, key: K) -> &V {
        self.get(key).expect("a request in progress")
    }
}

impl<K: Key, V: Default> IndexMut<K> for Slots<K, V> {
    #[inline]
    fn index_mut(&mut self, key: K) -> &mut V {
        self.get_mut(key).expect("a request in progress")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slotmap::{DefaultKey, SlotMap};

    use super::*;

    proptest! {
        /// Keys are given, found and forgotten as by a `SlotMap`, null and old keys too.
        #[test]
        fn it_is_a_slot_map(steps in proptest::collection::vec((0..4, any::<prop::sample::Index>()), 1..200)) {
            let (mut slots, mut model) = (Slots::<DefaultKey, usize>::new(), SlotMap::new());
            let mut keys = vec![(DefaultKey::default(), DefaultKey::default())];
            for (step, (kind, which)) in steps.into_iter().enumerate() {
                let (key, same) = keys[which.index(keys.len())];
                match kind {
                    0 => keys.push({
                        let (key, value) = slots.take();
                        prop_assert_eq!(std::mem::replace(value, step), 0);
                        (key, model.insert(step))
                    }),
                    1 => prop_assert_eq!(slots.remove(key), model.remove(same)),
                    2 => {
                        slots.get_mut(key).map(std::mem::take);
                        slots.forget(key);
                        model.remove(same);
                    }
                    _ => prop_assert_eq!(slots.get_mut(key), model.get_mut(same)),
                }
                let (mut mine, mut theirs): (Vec<_>, Vec<_>) =
                    (slots.iter().map(|(_, value)| *value).collect(), model.values().copied().collect());
                mine.sort_unstable();
                theirs.sort_unstable();
                prop_assert_eq!(mine, theirs);
                prop_assert!(slots.iter().all(|(key, value)| slots.get(key) == Some(value)));
            }
            let bits: Vec<u64> = keys[1..].iter().map(|(key, _)| key.data().as_ffi()).collect();
            prop_assert!(bits.iter().collect::<std::collections::HashSet<_>>().len() == bits.len(), "no key twice");
            for bits in [0, 1, u64::MAX, 1 << 32, 3 << 32 | 7000] {
                let key: DefaultKey = KeyData::from_ffi(bits).into();
                prop_assert!(slots.get(key).is_none() || keys.iter().any(|(given, _)| *given == key));
            }
        }
    }
}
