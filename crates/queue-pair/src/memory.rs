//! Registered memory: the only bytes that a channel adapter reads and writes.

use engine::Buffer;
use slotmap::{Key, KeyData, SlotMap};

use crate::address::QueuePairNumber;

slotmap::new_key_type! {
    struct RegionKey;
}

/// Name of a registered region at this adapter (L_Key) and, sent to a peer, at that (R_Key). Offsets count from its start.
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
    Message { buffer: B, writer: Option<QueuePairNumber> },
}

pub(crate) struct Registered<B> {
    regions: SlotMap<RegionKey, Region<B>>,
    bytes: u64,
}

impl<B: Buffer> Registered<B> {
    pub fn new() -> Self {
        Registered { regions: SlotMap::with_key(), bytes: 0 }
    }

    fn enter(&mut self, region: Region<B>) -> MemoryKey {
        self.bytes += region.length() as u64;
        // Faults the pages in, as pinning would.
        for page in (0..region.length()).step_by(PAGE) {
            let mut byte = [0];
            region.read(page, &mut byte);
            std::hint::black_box(byte);
        }
        MemoryKey(self.regions.insert(region).data().as_ffi())
    }

    pub fn pool(&mut self, length: usize) -> MemoryKey {
        let mut bytes = vec![0; length].into_boxed_slice();
        bytes.iter_mut().step_by(PAGE).for_each(|byte| *std::hint::black_box(byte) = 1);
        self.enter(Region::Pool(bytes))
    }

    /// Registers a buffer; only the peer of the queue pair `writer` may write there, as into a memory window of type 2.
    pub fn register(&mut self, buffer: B, writer: Option<QueuePairNumber>) -> MemoryKey {
        self.enter(Region::Message { buffer, writer })
    }

    /// Replaces a message's buffer by one made from it.
    pub fn replace(&mut self, key: MemoryKey, stand_in: impl FnOnce(&B) -> B) {
        if let Some(Region::Message { buffer, .. }) = self.regions.get_mut(region_key(key)) {
            *buffer = stand_in(buffer);
        }
    }

    /// Gives the buffer back; `None` where the key names no message's buffer.
    pub fn deregister(&mut self, key: MemoryKey) -> Option<B> {
        let key = region_key(key);
        if matches!(self.regions.get(key)?, Region::Pool(_)) {
            return None;
        }
        let region = self.regions.remove(key)?;
        self.bytes -= region.length() as u64;
        match region {
            Region::Message { buffer, .. } => Some(buffer),
            Region::Pool(_) => None,
        }
    }

    /// Bytes registered now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether all of the segment is registered.
    #[inline]
    pub fn covers(&self, segment: Segment) -> bool {
        self.regions.get(region_key(segment.key)).is_some_and(|region| region.holds(segment))
    }

    /// Bytes of a pool's segment.
    #[inline]
    pub fn pooled(&self, segment: Segment) -> Option<&[u8]> {
        match self.regions.get(region_key(segment.key))? {
            Region::Pool(bytes) => bytes.get(range(segment)?),
            Region::Message { .. } => None,
        }
    }

    #[inline]
    pub fn pooled_mut(&mut self, segment: Segment) -> Option<&mut [u8]> {
        match self.regions.get_mut(region_key(segment.key))? {
            Region::Pool(bytes) => bytes.get_mut(range(segment)?),
            Region::Message { .. } => None,
        }
    }

    /// Copies `into.len()` registered bytes from `offset` on; false where they are not registered.
    #[inline]
    pub fn read(&self, key: MemoryKey, offset: u64, into: &mut [u8]) -> bool {
        let Some(region) = self.regions.get(region_key(key)) else { return false };
        let fits = region.holds(Segment { key, offset, length: into.len() as u64 });
        if fits {
            region.read(offset as usize, into);
        }
        fits
    }

    /// Writes the bytes of a queue pair's peer; false where it may not write.
    pub fn write_for_peer(&mut self, through: QueuePairNumber, key: MemoryKey, offset: u64, from: &[u8]) -> bool {
        let segment = Segment { key, offset, length: from.len() as u64 };
        let region = self.regions.get_mut(region_key(key)).filter(|region| region.holds(segment));
        match region {
            Some(Region::Message { buffer, writer }) if *writer == Some(through) => {
                buffer.write(offset as usize, from);
                true
            }
            _ => false,
        }
    }
}

impl<B: Buffer> Region<B> {
    #[inline]
    fn length(&self) -> usize {
        match self {
            Region::Pool(bytes) => bytes.len(),
            Region::Message { buffer, .. } => buffer.length(),
        }
    }

    #[inline]
    fn holds(&self, segment: Segment) -> bool {
        range(segment).is_some_and(|range| range.end <= self.length())
    }

    /// Copies a range that is inside.
    #[inline]
    fn read(&self, offset: usize, into: &mut [u8]) {
        match self {
            Region::Pool(bytes) => into.copy_from_slice(&bytes[offset..offset + into.len()]),
            Region::Message { buffer, .. } => buffer.read(offset, into),
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
