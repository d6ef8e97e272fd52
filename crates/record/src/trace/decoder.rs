use machine::{Fault, Result};
use zerocopy::FromBytes;

use super::{
    COMMON, COMMON_WITHOUT_SITES, Call, Header, LONGEST_RUN, MAGIC, Matched, RARE, Reference, Shape, Shapes, VERSION,
    WITHOUT_SITES, block, extra, mode, unfold,
};
use crate::functions::{self, FunctionId};

/// A call that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The call, with times in ticks, rounded down to the file's units.
    pub call: Call,
    /// The number of the first operation that it begins.
    pub operation: u64,
    pub references: Vec<Reference>,
    pub matched: Vec<Matched>,
}

/// Reads the calls of one thread, in order. Bytes after the last whole call are ignored.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    header: Header,
    bytes: &'a [u8],
    /// End of the calls of an open block.
    complete: usize,
    at: usize,
    /// End of the present block.
    end: usize,
    shapes: Shapes,
    begun: u64,
    left: u64,
    event: Event,
}

impl<'a> Decoder<'a> {
    /// Reads a whole file. A file that was cut off may end within its last block only if that block is open.
    pub fn new(file: &'a [u8]) -> Result<Decoder<'a>> {
        Decoder::up_to(file, file.len())
    }

    /// Reads a file; of an open block only calls before byte `complete`, which the rank's tables give.
    pub fn up_to(file: &'a [u8], complete: usize) -> Result<Decoder<'a>> {
        let (header, _) = Header::read_from_prefix(file).map_err(|_| damaged("it is too short"))?;
        if header.magic != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
        if !matches!(header.version, VERSION | WITHOUT_SITES) || header.functions != functions::digest() {
            return Err(Fault::new(
                "a timeline",
                "another version of plimsoll wrote it",
                "read it with the plimsoll that profiled the program, or profile it again",
            ));
        }
        if header.seal != header.sealed().seal || header.shift > 16 {
            return Err(damaged("its header is damaged"));
        }
        Ok(Decoder {
            header,
            bytes: file,
            complete: complete.min(file.len()),
            at: size_of::<Header>(),
            end: size_of::<Header>(),
            shapes: Shapes::new(),
            begun: 0,
            left: header.started >> header.shift,
            event: Event {
                call: Call::new(FunctionId(0), 0, 0),
                operation: 0,
                references: Vec::new(),
                matched: Vec::new(),
            },
        })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Number of bytes up to the end of the last call that was read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next call; `None` after the last whole call. An invalid call is a fault; the calls before it are good.
    pub fn next_event(&mut self) -> Result<Option<&Event>> {
        let mut at = self.at;
        if at == self.end {
            let end = match block::end(self.bytes, at) {
                None => return Ok(None),
                Some(Err(())) => return Err(damaged(&format!("the block at byte {at} is not what was written"))),
                Some(Ok(block::End::Closed(end))) => end,
                Some(Ok(block::End::Open)) => self.complete,
            };
            at += block::HEAD;
            self.end = end.max(at);
            // A block without calls is the last.
            self.at = at;
        }
        let mut cursor = Cursor { bytes: &self.bytes[..self.end], at };
        match self.read(&mut cursor) {
            Ok(()) => {
                self.at = cursor.at;
                Ok(Some(&self.event))
            }
            Err(Stop::End) => Ok(None),
            Err(Stop::Damaged(how)) => Err(damaged(how)),
        }
    }

    fn read(&mut self, cursor: &mut Cursor) -> std::result::Result<(), Stop> {
        let head = cursor.byte()?;
        let (shape, place) = match head >> 6 {
            mode::FOLLOWS => {
                let place = self.shapes.expected();
                (self.shapes.slots[place].shape, Some(place))
            }
            mode::PLACE => {
                let place = u16::from_le_bytes([cursor.byte()?, cursor.byte()?]);
                if place & 0x8000 == 0 {
                    let place = usize::from(place);
                    let slot = self.shapes.slots.get(place).ok_or(Stop::Damaged("a shape has no such place"))?;
                    (slot.shape, Some(place))
                } else {
                    (self.definition(place as u8, true, cursor)?, None)
                }
            }
            mode::DEFINED => {
                let function = cursor.byte()?;
                (self.definition(function, false, cursor)?, None)
            }
            _ if head == 0 => return Err(Stop::End),
            _ => return Err(Stop::Damaged("a call begins with what cannot be")),
        };
        let gap = cursor.number(code_length(head >> 3 & 7))?;
        let duration = cursor.number(code_length(head & 7))?;
        let entered = self.left.checked_add(gap);
        let left = entered.and_then(|entered| entered.checked_add(duration));
        let most = u64::MAX >> self.header.shift;
        let (Some(entered), Some(left)) = (entered, left.filter(|left| *left <= most)) else {
            return Err(Stop::Damaged("a time is beyond all times"));
        };
        self.references(&shape, cursor)?;
        self.matched(&shape, cursor)?;

        let function = FunctionId(shape[0] as u16);
        functions::function(function).ok_or(Stop::Damaged("a call is of no function that there is"))?;
        let begun = u16::try_from(shape[4] as u32).map_err(|_| Stop::Damaged("a call begins too many operations"))?;
        if begun > 1 && usize::from(begun) != self.event.references.len() {
            return Err(Stop::Damaged("a call begins too many operations"));
        }
        let site = u16::try_from(shape[4] >> 32).map_err(|_| Stop::Damaged("a call has no such site"))?;
        self.event.call = Call {
            function,
            site,
            begun,
            communicator: (shape[0] >> 32) as u32,
            peer: unfold(shape[1]),
            tag: unfold(shape[1] >> 32),
            bytes: shape[2],
            source: unfold(shape[5]),
            source_tag: unfold(shape[5] >> 32),
            source_bytes: shape[6],
            entered: entered << self.header.shift,
            left: left << self.header.shift,
        };
        self.event.operation = self.begun;
        self.begun += u64::from(begun);
        self.left = left;
        let place = place.unwrap_or_else(|| self.shapes.define(&shape));
        self.shapes.came(place);
        Ok(())
    }

    fn definition(&self, function: u8, rare: bool, cursor: &mut Cursor) -> std::result::Result<Shape, Stop> {
        let common = u16::from_le_bytes([cursor.byte()?, cursor.byte()?]);
        let rare = if rare { u16::from_le_bytes([cursor.byte()?, cursor.byte()?]) } else { 0 };
        let bits = if self.header.version == WITHOUT_SITES { COMMON_WITHOUT_SITES } else { COMMON };
        let [communicator, peer, tag, bytes, site] = cursor.numbers(common, bits)?;
        let [flags, references, source, source_bytes] = cursor.numbers(rare, RARE)?;
        let mut shape = self.shapes.last[usize::from(function)];
        if [communicator, peer, tag, site].iter().any(|field| *field > u64::from(u32::MAX)) {
            return Err(Stop::Damaged("a number is too large"));
        }
        shape[0] ^= communicator << 32 | (flags & 0xffff) << 16;
        shape[1] ^= tag << 32 | peer;
        shape[2] ^= bytes;
        shape[3] ^= references;
        shape[4] ^= flags >> 16 | site << 32;
        shape[5] ^= source;
        shape[6] ^= source_bytes;
        Ok(shape)
    }

    fn references(&mut self, shape: &Shape, cursor: &mut Cursor) -> std::result::Result<(), Stop> {
        const NONE_SUCH: Stop = Stop::Damaged("a call names an operation that was not begun");
        let references = &mut self.event.references;
        references.clear();
        let (count, distance) = (shape[3] as u32 as usize, shape[3] >> 32);
        let thread = self.header.thread as u16;
        if shape[0] & extra::FOREIGN != 0 {
            for _ in 0..count {
                let thread = u16::try_from(cursor.varint()?).map_err(|_| NONE_SUCH)?;
                references.push(Reference { thread, ordinal: cursor.varint()? });
            }
            return Ok(());
        }
        if count == 0 {
            return Ok(());
        }
        let mut ordinal = self.begun.checked_sub(distance).ok_or(NONE_SUCH)?;
        references.push(Reference { thread, ordinal });
        if shape[0] & extra::LIST != 0 {
            for _ in 1..count {
                let step = cursor.varint()?;
                ordinal = ordinal.wrapping_add_signed((step >> 1) as i64 ^ -((step & 1) as i64));
                references.push(Reference { thread, ordinal });
            }
        } else if count <= LONGEST_RUN {
            let rest = (1..count as u64).map(|further| ordinal.wrapping_add(further));
            references.extend(rest.map(|ordinal| Reference { thread, ordinal }));
        } else {
            return Err(NONE_SUCH);
        }
        // References go back only, so none is beyond the operations begun.
        if references.iter().any(|reference| reference.ordinal >= self.begun) {
            return Err(NONE_SUCH);
        }
        Ok(())
    }

    fn matched(&mut self, shape: &Shape, cursor: &mut Cursor) -> std::result::Result<(), Stop> {
        self.event.matched.clear();
        if shape[0] & extra::MATCHED == 0 {
            return Ok(());
        }
        let narrow = |number: u64| u32::try_from(number).map_err(|_| Stop::Damaged("a number is too large"));
        for _ in 0..cursor.varint()? {
            let place = narrow(cursor.varint()?)?;
            let source = unfold(u64::from(narrow(cursor.varint()?)?));
            let tag = unfold(u64::from(narrow(cursor.varint()?)?));
            self.event.matched.push(Matched { place, source, tag, bytes: cursor.varint()? });
        }
        Ok(())
    }
}

enum Stop {
    /// The bytes end here, perhaps within a call.
    End,
    Damaged(&'static str),
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> std::result::Result<u8, Stop> {
        let byte = *self.bytes.get(self.at).ok_or(Stop::End)?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self, length: usize) -> std::result::Result<u64, Stop> {
        let bytes = self.bytes.get(self.at..self.at + length).ok_or(Stop::End)?;
        self.at += length;
        let mut word = [0; 8];
        word[..length].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }

    /// Numbers of these lengths, each length in so many bits.
    fn numbers<const N: usize>(&mut self, mut lengths: u16, bits: [u32; N]) -> std::result::Result<[u64; N], Stop> {
        let mut numbers = [0; N];
        for (number, bits) in numbers.iter_mut().zip(bits) {
            let length = usize::from(lengths & ((1 << bits) - 1));
            lengths = lengths.checked_shr(bits).unwrap_or(0);
            if length > 8 {
                return Err(Stop::Damaged("a number is too long"));
            }
            *number = self.number(length)?;
        }
        Ok(numbers)
    }

    fn varint(&mut self) -> std::result::Result<u64, Stop> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Stop::Damaged("a number is too long"))
    }
}

fn code_length(code: u8) -> usize {
    usize::from(code) + usize::from(code == 7)
}

fn damaged(how: &str) -> Fault {
    Fault::new("a timeline", how, "the file is damaged or of something else; profile the program again")
}
