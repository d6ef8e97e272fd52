//! Registered memory: the only bytes that a channel adapter reads and writes.

use slotmap::{Key, KeyData, SlotMap};

slotmap::new_key_type! {
    struct RegionKey;
}

/// Names a registered region to this adapter (L_Key) and, sent to a peer, to that (R_Key). Offsets count from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryKey(pub u64);

/// Bytes of a registered region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub key: MemoryKey,
    pub offset: u64,
    pub length: u64,
}

const PAGE: usize = 4096;

enum Region<B> {
    /// Buffers of the MPI layer.
    Pool(Box<[u8]>),
    /// A message's own buffer, until it is deregistered.
    Message { buffer: B, writable: bool },
}

pub(crate) struct Registered<B> {
    regions: SlotMap<RegionKey, Region<B>>,
    bytes: u64,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Registered<B> {
    pub fn new() -> Self {
        Registered { regions: SlotMap::with_key(), bytes: 0 }
    }

    fn enter(&mut self, region: Region<B>) -> MemoryKey {
        self.bytes += region.bytes().len() as u64;
        // What pinning would do: each page has to be there.
        region.bytes().iter().step_by(PAGE).for_each(|byte| {
            std::hint::black_box(*byte);
        });
        MemoryKey(self.regions.insert(region).data().as_ffi())
    }

    pub fn pool(&mut self, length: usize) -> MemoryKey {
        let mut bytes = vec![0; length].into_boxed_slice();
        bytes.iter_mut().step_by(PAGE).for_each(|byte| *std::hint::black_box(byte) = 1);
        self.enter(Region::Pool(bytes))
    }

    /// `writable`: by the peer, through RDMA writes.
    pub fn register(&mut self, buffer: B, writable: bool) -> MemoryKey {
        self.enter(Region::Message { buffer, writable })
    }

    /// The buffer comes back; `None` where the key names no message's buffer.
    pub fn deregister(&mut self, key: MemoryKey) -> Option<B> {
        let key = region_key(key);
        if matches!(self.regions.get(key)?, Region::Pool(_)) {
            return None;
        }
        let region = self.regions.remove(key)?;
        self.bytes -= region.bytes().len() as u64;
        match region {
            Region::Message { buffer, .. } => Some(buffer),
            Region::Pool(_) => None,
        }
    }

    /// Bytes registered now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub fn read(&self, segment: Segment) -> Option<&[u8]> {
        let bytes = self.regions.get(region_key(segment.key))?.bytes();
        bytes.get(range(segment)?)
    }

    #[inline]
    pub fn write(&mut self, segment: Segment) -> Option<&mut [u8]> {
        let range = range(segment)?;
        match self.regions.get_mut(region_key(segment.key))? {
            Region::Pool(bytes) => bytes.get_mut(range),
            Region::Message { buffer, .. } => buffer.as_mut().get_mut(range),
        }
    }

    /// Bytes that a peer names.
    pub fn write_for_peer(&mut self, segment: Segment) -> Option<&mut [u8]> {
        let range = range(segment)?;
        match self.regions.get_mut(region_key(segment.key))? {
            Region::Message { buffer, writable: true } => buffer.as_mut().get_mut(range),
            _ => None,
        }
    }
}

impl<B: AsRef<[u8]>> Region<B> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Region::Pool(bytes) => bytes,
            Region::Message { buffer, .. } => buffer.as_ref(),
        }
    }
}

fn region_key(key: MemoryKey) -> RegionKey {
    KeyData::from_ffi(key.0).into()
}

#[inline]
fn range(segment: Segment) -> Option<std::ops::Range<usize>> {
    let from = usize::try_from(segment.offset).ok()?;
    let upto = from.checked_add(usize::try_from(segment.length).ok()?)?;
    Some(from..upto)
}
