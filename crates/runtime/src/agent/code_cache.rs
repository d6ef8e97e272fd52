//! Bodies that clients sent, by their content: a second deploy of the same code sends nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use machine::{Bytes, Fault, Result};

use super::protocol::Hash;
use crate::code::digest;

/// The bodies used last, within a bound.
pub(crate) struct CodeCache {
    limit: Bytes,
    bytes: u64,
    /// Bodies in order of use, the last used at the back.
    kept: VecDeque<(Hash, Arc<[u8]>)>,
}

impl CodeCache {
    pub fn new(limit: Bytes) -> CodeCache {
        CodeCache { limit, bytes: 0, kept: VecDeque::new() }
    }

    pub fn get(&mut self, hash: &Hash) -> Option<Arc<[u8]>> {
        let at = self.kept.iter().position(|(kept, _)| kept == hash)?;
        let entry = self.kept.remove(at)?;
        let code = entry.1.clone();
        self.kept.push_back(entry);
        Some(code)
    }

    pub fn put(&mut self, hash: Hash, code: Arc<[u8]>) {
        if self.get(&hash).is_some() || code.len() as u64 > self.limit.0 {
            return;
        }
        self.bytes += code.len() as u64;
        self.kept.push_back((hash, code));
        while self.bytes > self.limit.0 {
            let Some((_, gone)) = self.kept.pop_front() else { break };
            self.bytes -= gone.len() as u64;
        }
    }
}

/// A body that arrives in parts.
pub(crate) struct Upload {
    hash: Hash,
    length: u64,
    bytes: Vec<u8>,
}

impl Upload {
    /// Takes the next part. Returns the body once it is whole and has the stated hash.
    pub fn take(
        upload: &mut Option<Upload>,
        hash: Hash,
        length: u64,
        offset: u64,
        part: &[u8],
    ) -> Result<Option<Arc<[u8]>>> {
        let fault = |cause: &str| Err(Fault::new("upload of a body", cause, "send it in order, from its start"));
        if offset == 0 {
            *upload = Some(Upload { hash, length, bytes: Vec::new() });
        }
        let Some(open) = upload.as_mut().filter(|open| open.hash == hash && open.length == length) else {
            return fault("no such upload is in progress");
        };
        if offset != open.bytes.len() as u64 || part.len() as u64 > length - offset {
            *upload = None;
            return fault("a part does not follow the one before");
        }
        // Memory grows with what has arrived, not with what was announced.
        open.bytes.extend_from_slice(part);
        if (open.bytes.len() as u64) < length {
            return Ok(None);
        }
        let bytes = upload.take().map(|open| open.bytes).unwrap_or_default();
        if digest(&bytes).0 != hash {
            return fault("what arrived is not what its hash says");
        }
        Ok(Some(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_used_last_within_its_bound() {
        let mut cache = CodeCache::new(Bytes(10));
        let code = |n: u8| -> Arc<[u8]> { vec![n; 4].into() };
        for n in 0..2 {
            cache.put(digest(&code(n)).0, code(n));
        }
        assert!(cache.get(&digest(&code(0)).0).is_some());
        cache.put(digest(&code(2)).0, code(2));
        assert!(cache.get(&digest(&code(1)).0).is_none(), "the one not used for longest goes");
        assert!(cache.get(&digest(&code(0)).0).is_some());
        cache.put([9; 32], vec![0; 11].into());
        assert!(cache.get(&[9; 32]).is_none());
        assert!(cache.bytes <= 10);
    }

    #[test]
    fn a_body_arrives_whole_or_not_at_all() {
        let code = b"0123456789";
        let right = digest(code).0;
        let mut upload = None;
        assert!(Upload::take(&mut upload, right, 10, 0, &code[..4]).unwrap().is_none());
        assert_eq!(&*Upload::take(&mut upload, right, 10, 4, &code[4..]).unwrap().unwrap(), code);
        assert!(Upload::take(&mut upload, right, 10, 4, &code[4..]).is_err(), "nothing is in progress");
        assert!(Upload::take(&mut upload, right, 10, 0, &code[..4]).unwrap().is_none());
        assert!(Upload::take(&mut upload, right, 10, 5, &code[5..]).is_err(), "a gap");
        assert!(Upload::take(&mut upload, right, 4, 0, code).is_err(), "more than was said");
        assert!(Upload::take(&mut upload, [0; 32], 10, 0, code).is_err(), "another body");
    }
}
