//! Frames: a length, then that many bytes. The length is checked before memory is taken, and memory is taken only as
//! bytes arrive.

use std::io::{self, Read};

use serde::Serialize;

pub(crate) const LENGTH: usize = 4;
const STEP: usize = 64 << 10;

/// The bytes of a frame, with its length.
pub(crate) fn encode(frame: &impl Serialize) -> Vec<u8> {
    // Types of the protocol are made of what postcard can write, and a Vec takes any length.
    let mut bytes = postcard::to_extend(frame, vec![0; LENGTH]).expect("a frame of the protocol serializes");
    let length = (bytes.len() - LENGTH) as u32;
    bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Cuts a stream of bytes into frames.
pub(crate) struct Decoder {
    limit: usize,
    head: [u8; LENGTH],
    /// Bytes of `head` or of the body that have arrived.
    got: usize,
    body: Vec<u8>,
    in_body: bool,
}

/// The result of a look at the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cut<'a> {
    Frame(&'a [u8]),
    /// No whole frame yet.
    Nothing,
    /// The stream has ended, between frames or within one.
    End {
        within: bool,
    },
    Oversized {
        length: u64,
    },
}

impl Decoder {
    pub fn new(limit: usize) -> Decoder {
        Decoder { limit, head: [0; LENGTH], got: 0, body: Vec::new(), in_body: false }
    }

    /// Reads until a frame is whole or `stream` would block. After `End` or `Oversized` the decoder is of no more use.
    pub fn next(&mut self, stream: &mut impl Read) -> io::Result<Cut<'_>> {
        loop {
            if !self.in_body {
                match read_some(stream, &mut self.head[self.got..])? {
                    Some(0) => return Ok(Cut::End { within: self.got > 0 }),
                    Some(n) => self.got += n,
                    None => return Ok(Cut::Nothing),
                }
                if self.got < LENGTH {
                    continue;
                }
                let length = u32::from_le_bytes(self.head) as usize;
                if length > self.limit {
                    return Ok(Cut::Oversized { length: length as u64 });
                }
                self.in_body = true;
                self.got = 0;
                // A large frame leaves no large buffer behind.
                self.body.truncate(0);
                self.body.shrink_to(STEP);
            }
            let length = u32::from_le_bytes(self.head) as usize;
            while self.got < length {
                let end = length.min(self.got + STEP);
                self.body.resize(end, 0);
                match read_some(stream, &mut self.body[self.got..end])? {
                    Some(0) => return Ok(Cut::End { within: true }),
                    Some(n) => self.got += n,
                    None => return Ok(Cut::Nothing),
                }
            }
            self.in_body = false;
            self.got = 0;
            return Ok(Cut::Frame(&self.body[..length]));
        }
    }
}

/// Reads some bytes; `None` where it would block.
fn read_some(stream: &mut impl Read, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match stream.read(into) {
            Ok(n) => return Ok(Some(n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The error of rustls for a peer that closed without a close_notify.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives its bytes in pieces of the given sizes, blocking between them.
    struct Pieces {
        bytes: Vec<u8>,
        sizes: Vec<usize>,
        at: usize,
        piece: usize,
        block: bool,
    }

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.at == self.bytes.len() {
                return Ok(0);
            }
            self.block = !self.block;
            if self.block {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let size = self.sizes[self.piece % self.sizes.len()];
            self.piece += 1;
            let n = size.min(into.len()).min(self.bytes.len() - self.at);
            into[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
            self.at += n;
            Ok(n)
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8),
            sizes in proptest::collection::vec(1usize..200, 1..8),
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(encode).collect();
            let mut stream = Pieces { bytes, sizes, at: 0, piece: 0, block: false };
            let mut decoder = Decoder::new(1 << 16);
            let mut got: Vec<Vec<u8>> = Vec::new();
            loop {
                match decoder.next(&mut stream).unwrap() {
                    Cut::Frame(frame) => got.push(postcard::from_bytes(frame).unwrap()),
                    Cut::Nothing => {}
                    end => {
                        prop_assert_eq!(end, Cut::End { within: false });
                        break;
                    }
                }
            }
            prop_assert_eq!(got, frames);
        }
    }

    #[test]
    fn an_oversized_frame_takes_no_memory() {
        let mut decoder = Decoder::new(1000);
        let cut = decoder.next(&mut &u32::MAX.to_le_bytes()[..]).unwrap();
        assert_eq!(cut, Cut::Oversized { length: u64::from(u32::MAX) });
        assert_eq!(decoder.body.capacity(), 0);
    }

    #[test]
    fn a_frame_that_is_only_announced_takes_little() {
        let mut decoder = Decoder::new(1 << 30);
        let mut stream = &(1u32 << 30).to_le_bytes()[..];
        assert_eq!(decoder.next(&mut stream).unwrap(), Cut::End { within: true });
        assert!(decoder.body.capacity() <= STEP);
    }
}
