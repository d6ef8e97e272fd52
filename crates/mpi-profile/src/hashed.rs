//! A hash table from words to addresses, for one thread.

/// Open addressing with linear probing; half of the slots stay free. Key 0 marks a free slot.
#[derive(Debug)]
pub struct Hashed {
    slots: Box<[(u64, usize)]>,
    used: usize,
    shift: u32,
}

/// Knuth's multiplicative hashing: 2^64 over the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hashed {
    /// A table with room for `1 << (bits - 1)` keys until it grows.
    pub fn new(bits: u32) -> Hashed {
        Hashed { slots: vec![(0, 0); 1 << bits].into_boxed_slice(), used: 0, shift: 64 - bits }
    }

    #[inline]
    pub fn get(&self, key: u64) -> Option<usize> {
        let mut at = (key.wrapping_mul(GOLDEN) >> self.shift) as usize;
        loop {
            // The mask wraps the probe, and spares the check of the bounds.
            let (known, value) = self.slots[at & (self.slots.len() - 1)];
            if known == key {
                return Some(value);
            }
            if known == 0 {
                return None;
            }
            at += 1;
        }
    }

    pub fn len(&self) -> usize {
        self.used
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Adds a key that the table does not have.
    pub fn insert(&mut self, key: u64, value: usize) {
        if (self.used + 1) * 2 > self.slots.len() {
            let mut larger = Hashed::new(64 - self.shift + 1);
            for (key, value) in self.slots.iter().filter(|(key, _)| *key != 0) {
                larger.insert(*key, *value);
            }
            *self = larger;
        }
        let mut at = (key.wrapping_mul(GOLDEN) >> self.shift) as usize;
        while self.slots[at & (self.slots.len() - 1)].0 != 0 {
            at += 1;
        }
        let mask = self.slots.len() - 1;
        self.slots[at & mask] = (key, value);
        self.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(keys in proptest::collection::vec(1u64..5000, 0..3000)) {
            let mut model = HashMap::new();
            let mut table = Hashed::new(2);
            for (at, key) in keys.iter().enumerate() {
                // The keys are near one another, as return addresses are.
                let key = 0x5555_0000_0000 + key * 5;
                prop_assert_eq!(table.get(key), model.get(&key).copied());
                if table.get(key).is_none() {
                    table.insert(key, at);
                    model.insert(key, at);
                }
            }
            prop_assert_eq!(table.len(), model.len());
            for (key, value) in model {
                prop_assert_eq!(table.get(key), Some(value));
            }
        }
    }
}
