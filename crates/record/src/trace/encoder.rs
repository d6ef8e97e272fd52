use super::{
    CALL_BYTES, COMMON, Call, Header, LONGEST_RUN, MATCHED_BYTES, Matched, RARE, REFERENCE_BYTES, Reference, Shape,
    Shapes, extra, fold, mode,
};

/// Writes the calls of one thread.
#[derive(Debug, Clone)]
pub struct Encoder {
    shapes: Shapes,
    /// Number of operations begun so far, which is the number of the next.
    begun: u64,
    /// End of the last call, in the file's units.
    left: u64,
    shift: u32,
    thread: u16,
}

impl Encoder {
    /// A writer of the calls after this header.
    pub fn new(header: &Header) -> Encoder {
        Encoder {
            shapes: Shapes::new(),
            begun: 0,
            left: header.started >> header.shift,
            shift: header.shift,
            thread: header.thread as u16,
        }
    }

    /// The number of the next operation that this thread begins.
    #[inline]
    pub fn next_operation(&self) -> u64 {
        self.begun
    }

    /// Writes a call to the start of `out` and returns its number of bytes. `None`, with no change, where `out` might
    /// be too short; [`Encoder::room`] is enough. Bytes of `out` beyond the call may change.
    #[inline]
    pub fn encode(
        &mut self,
        call: &Call,
        references: &[Reference],
        matched: &[Matched],
        out: &mut [u8],
    ) -> Option<usize> {
        if out.len() < Encoder::room(references.len(), matched.len()) {
            return None;
        }
        let shape = self.shape(call, references, matched);
        let entered = (call.entered >> self.shift).max(self.left);
        let left = (call.left >> self.shift).max(entered);
        let (gap, duration) = (entered - self.left, left - entered);
        let (gap_code, duration_code) = (length_code(gap), length_code(duration));
        let lengths = (gap_code << 3 | duration_code) as u8;

        let expected = self.shapes.expected();
        let mut at = if same(&self.shapes.slots[expected].shape, &shape) {
            self.shapes.previous = expected;
            out[0] = mode::FOLLOWS << 6 | lengths;
            1
        } else {
            self.other(&shape, lengths, out)
        };
        at = put(out, at, gap, code_length(gap_code));
        at = put(out, at, duration, code_length(duration_code));
        if shape[0] & extra::ALL != 0 {
            at = self.extras(&shape, references, matched, out, at);
        }
        self.left = left;
        self.begun += u64::from(call.begun);
        Some(at)
    }

    /// A number of bytes that is enough for a call.
    #[inline]
    pub fn room(references: usize, matched: usize) -> usize {
        CALL_BYTES + references * REFERENCE_BYTES + matched * MATCHED_BYTES
    }

    #[inline]
    fn shape(&self, call: &Call, references: &[Reference], matched: &[Matched]) -> Shape {
        let (mut extras, mut distance) = (if matched.is_empty() { 0 } else { extra::MATCHED }, 0);
        if let Some(first) = references.first() {
            distance = self.begun.wrapping_sub(first.ordinal);
            let mut own = first.thread == self.thread && distance.wrapping_sub(1) < u64::from(u32::MAX);
            let mut run = references.len() <= LONGEST_RUN;
            for (place, reference) in references.iter().enumerate().skip(1) {
                own &= reference.thread == self.thread && reference.ordinal < self.begun;
                run &= reference.ordinal == first.ordinal.wrapping_add(place as u64);
            }
            if !own {
                distance = 0;
                extras |= extra::FOREIGN;
            } else if !run {
                extras |= extra::LIST;
            }
        }
        [
            u64::from(call.function.0) | extras | u64::from(call.communicator) << 32,
            fold(call.peer) | fold(call.tag) << 32,
            call.bytes,
            references.len() as u64 | distance << 32,
            u64::from(call.begun) | u64::from(call.site) << 32,
            fold(call.source) | fold(call.source_tag) << 32,
            call.source_bytes,
        ]
    }

    /// Writes a shape other than the expected one: by its index, or in full.
    #[inline(never)]
    fn other(&mut self, shape: &Shape, lengths: u8, out: &mut [u8]) -> usize {
        let place = Shapes::place(shape);
        if self.shapes.slots[place].shape == *shape {
            self.shapes.came(place);
            out[0] = mode::PLACE << 6 | lengths;
            out[1..3].copy_from_slice(&(place as u16).to_le_bytes());
            return 3;
        }
        let function = shape[0] as u8;
        let last = self.shapes.last[usize::from(function)];
        let differs = |word: usize| shape[word] ^ last[word];
        let low = |word: u64| word & 0xffff_ffff;
        let common = [differs(0) >> 32, low(differs(1)), differs(1) >> 32, differs(2), differs(4) >> 32];
        let rare = [differs(0) >> 16 & 0xffff | low(differs(4)) << 16, differs(3), differs(5), differs(6)];
        let is_rare = rare != [0; 4];
        let mut at;
        if is_rare {
            out[0] = mode::PLACE << 6 | lengths;
            out[1] = function;
            out[2] = 0x80;
            out[3..5].copy_from_slice(&lengths_of(&common, COMMON).to_le_bytes());
            out[5..7].copy_from_slice(&lengths_of(&rare, RARE).to_le_bytes());
            at = 7;
        } else {
            out[0] = mode::DEFINED << 6 | lengths;
            out[1] = function;
            out[2..4].copy_from_slice(&lengths_of(&common, COMMON).to_le_bytes());
            at = 4;
        }
        for field in common {
            at = put(out, at, field, byte_length(field));
        }
        if is_rare {
            for field in rare {
                at = put(out, at, field, byte_length(field));
            }
        }
        let place = self.shapes.define(shape);
        self.shapes.came(place);
        at
    }

    #[cold]
    fn extras(
        &self,
        shape: &Shape,
        references: &[Reference],
        matched: &[Matched],
        out: &mut [u8],
        mut at: usize,
    ) -> usize {
        if shape[0] & extra::FOREIGN != 0 {
            for reference in references {
                at = varint(out, at, u64::from(reference.thread));
                at = varint(out, at, reference.ordinal);
            }
        } else if shape[0] & extra::LIST != 0 {
            for pair in references.windows(2) {
                let step = pair[1].ordinal.wrapping_sub(pair[0].ordinal) as i64;
                at = varint(out, at, (step << 1 ^ step >> 63) as u64);
            }
        }
        if shape[0] & extra::MATCHED != 0 {
            at = varint(out, at, matched.len() as u64);
            for one in matched {
                at = varint(out, at, u64::from(one.place));
                at = varint(out, at, fold(one.source));
                at = varint(out, at, fold(one.tag));
                at = varint(out, at, one.bytes);
            }
        }
        at
    }
}

/// Compares without a branch for each word.
#[inline]
fn same(one: &Shape, other: &Shape) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// The number of bytes of a number: none for 0.
#[inline]
fn byte_length(number: u64) -> usize {
    (71 - number.leading_zeros() as usize) / 8
}

/// Code of a number's length in three bits, of which 7 stands for 8 bytes.
#[inline]
fn length_code(number: u64) -> usize {
    byte_length(number).min(7)
}

#[inline]
fn code_length(code: usize) -> usize {
    code + (code == 7) as usize
}

#[inline]
fn lengths_of<const N: usize>(fields: &[u64; N], bits: [u32; N]) -> u16 {
    let all = fields.iter().zip(bits).rev();
    all.fold(0, |lengths, (field, bits)| lengths << bits | byte_length(*field) as u16)
}

/// Writes whole words whatever the length, since a copy of a varying length costs more.
#[inline]
fn put(out: &mut [u8], at: usize, number: u64, length: usize) -> usize {
    out[at..at + 8].copy_from_slice(&number.to_le_bytes());
    at + length
}

#[inline]
fn varint(out: &mut [u8], mut at: usize, mut number: u64) -> usize {
    while number >= 0x80 {
        out[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    out[at] = number as u8;
    at + 1
}
