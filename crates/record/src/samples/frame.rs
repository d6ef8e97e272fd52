//! Frames and numbers of the file.

use machine::Reading;

use crate::seal;

/// Kinds of frames. Readers skip unknown ones.
pub mod kind {
    /// The [`super::super::Head`].
    pub const HEAD: u8 = 1;
    /// A new subject, which gets the next number: kind of totals, its three identifying numbers, its name.
    pub const TRACK: u8 = 2;
    /// Time since the last moment, then the changes: number of the subject, a bit for each field, the increments.
    pub const WORK: u8 = 3;
    pub const LOAD: u8 = 4;
    pub const NOTE: u8 = 5;
    /// Sampling ended in order.
    pub const END: u8 = 6;
    /// The [`super::super::Accounting`].
    pub const ACCOUNTING: u8 = 7;
    /// A new sensor of power, which gets the next number.
    pub const SENSOR: u8 = 8;
    /// Samples of power: sensor's number, time since its last sample (ns), and increment.
    pub const POWER: u8 = 9;
    /// A sensor stopped: its number, when (CLOCK_MONOTONIC, ns), and why.
    pub const STOPPED: u8 = 10;
}

pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub fn put_reading(out: &mut Vec<u8>, reading: &Reading<String>) {
    let (tag, one, other) = match reading {
        Reading::Measured(how) => (0, how.as_str(), ""),
        Reading::Modelled(how) => (1, how.as_str(), ""),
        Reading::Absent { reason } => (2, reason.as_str(), ""),
        Reading::NotPermitted { reason, next } => (3, reason.as_str(), next.as_str()),
    };
    out.push(tag);
    put_text(out, one);
    put_text(out, other);
}

/// Writes 0 for not known, 1 for no, 2 for yes.
pub fn put_known(out: &mut Vec<u8>, known: Option<bool>) {
    out.push(known.map_or(0, |is| 1 + u8::from(is)));
}

/// Writes a signed number, small ones of either sign in few bytes.
pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, (number as u64) << 1 ^ (number >> 63) as u64);
}

/// Bytes to read; a read beyond their end gives `None`.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    pub fn known(&mut self) -> Option<Option<bool>> {
        match self.byte()? {
            0 => Some(None),
            is @ 1..=2 => Some(Some(is == 2)),
            _ => None,
        }
    }

    pub fn reading(&mut self) -> Option<Reading<String>> {
        let (tag, one, other) = (self.byte()?, self.text()?, self.text()?);
        Some(match tag {
            0 => Reading::Measured(one),
            1 => Reading::Modelled(one),
            2 => Reading::Absent { reason: one },
            3 => Reading::NotPermitted { reason: one, next: other },
            _ => return None,
        })
    }

    /// The next frame: its kind and contents; `None` where it is not complete.
    pub fn frame(&mut self) -> Result<Option<(u8, Cursor<'a>)>, Damaged> {
        let mut ahead = *self;
        let Some(length) = ahead.number() else {
            // Ten bytes are enough for any number.
            return if self.0.len() < 10 { Ok(None) } else { Err(Damaged) };
        };
        let length = usize::try_from(length).map_err(|_| Damaged)?;
        let Some(framed) = ahead.take(length) else { return Ok(None) };
        let Some(sealed) = ahead.take(SEAL) else { return Ok(None) };
        if sealed != seal_of(framed) {
            return Err(Damaged);
        }
        let mut contents = Cursor(framed);
        let kind = contents.byte().ok_or(Damaged)?;
        *self = ahead;
        Ok(Some((kind, contents)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

const SEAL: usize = size_of::<u32>();

/// Seal of a frame's kind and contents.
fn seal_of(framed: &[u8]) -> [u8; SEAL] {
    seal::short(seal::of(framed)).to_le_bytes()
}

pub fn put_frame(out: &mut Vec<u8>, kind: u8, contents: &[u8]) {
    put(out, contents.len() as u64 + 1);
    let start = out.len();
    out.push(kind);
    out.extend_from_slice(contents);
    let seal = seal_of(&out[start..]);
    out.extend(seal);
}
