//! Keyed maps as authors use them: with the types of their keys and values.

use std::marker::PhantomData;

use machine::{Fault, Result};

use crate::context::Context;
use crate::encoding::fixed::{self, Fixed};
use crate::map::{MapId, Put, Shape};

/// A map with keys and values of types in the encoding that bodies in C and BPF read. Before it is opened, as it is by default,
/// nothing can be done with it.
///
/// ```
/// use offcode::{Context, Map, Result};
///
/// #[derive(Default)]
/// struct Flows {
///     bytes: Map<u32, u64>,
/// }
/// impl Flows {
///     fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
///         self.bytes = Map::open(context, "bytes", 1024)?;
///         Ok(())
///     }
///     fn count(&mut self, context: &mut dyn Context, address: u32, length: u64) -> Result<()> {
///         let so_far = self.bytes.get(context, &address)?.unwrap_or(0);
///         self.bytes.put(context, &address, &(so_far + length)).map(drop)
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Map<K, V> {
    id: MapId,
    key: Vec<u8>,
    value: Vec<u8>,
    types: PhantomData<fn(K, V)>,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Map { id: MapId::NONE, key: Vec::new(), value: Vec::new(), types: PhantomData }
    }
}

impl<K: Fixed, V: Fixed> Map<K, V> {
    /// [`Context::open_map`].
    ///
    /// # Errors
    /// The errors of that call.
    pub fn open(context: &mut dyn Context, name: &str, entries: u32) -> Result<Self> {
        let id = context.open_map(name, Shape::of::<K, V>(entries))?;
        let (key, value) = (Vec::with_capacity(K::LENGTH), vec![0; V::LENGTH]);
        Ok(Map { id, key, value, types: PhantomData })
    }

    fn key(&mut self, key: &K) {
        self.key.clear();
        key.put(&mut self.key);
    }

    /// The value under a key.
    ///
    /// # Errors
    /// It is not open, or the value is none of its type.
    pub fn get(&mut self, context: &mut dyn Context, key: &K) -> Result<Option<V>> {
        self.key(key);
        self.value.resize(V::LENGTH, 0);
        let found = context.map_get(self.id, &self.key, &mut self.value)?;
        found.then(|| read(&self.value)).transpose()
    }

    /// Puts an entry in, or another value under its key.
    ///
    /// # Errors
    /// It is not open.
    pub fn put(&mut self, context: &mut dyn Context, key: &K, value: &V) -> Result<Put> {
        self.key(key);
        self.value.clear();
        value.put(&mut self.value);
        context.map_put(self.id, &self.key, &self.value)
    }

    /// Takes out what is under a key; whether there was something.
    ///
    /// # Errors
    /// It is not open.
    pub fn remove(&mut self, context: &mut dyn Context, key: &K) -> Result<bool> {
        self.key(key);
        context.map_remove(self.id, &self.key)
    }

    /// Shows each entry, in no order, as long as `each` says true.
    ///
    /// # Errors
    /// It is not open, or an entry is none of its types.
    pub fn visit(&self, context: &mut dyn Context, mut each: impl FnMut(K, V) -> bool) -> Result<()> {
        let mut failed = None;
        context.map_visit(self.id, &mut |key, value| {
            let entry = read(key).and_then(|key| Ok((key, read(value)?)));
            entry.map(|(key, value)| each(key, value)).unwrap_or_else(|fault| {
                failed = Some(fault);
                false
            })
        })?;
        failed.map_or(Ok(()), Err)
    }
}

fn read<T: Fixed>(bytes: &[u8]) -> Result<T> {
    fixed::whole(bytes).map_err(|why| Fault::new("entry of a map", why.to_string(), "open the map with other types"))
}
