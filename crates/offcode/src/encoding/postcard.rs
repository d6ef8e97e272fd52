//! The default encoding: the postcard wire format, version 1 (<https://postcard.jamesmunns.com>).

use postcard::ser_flavors::Flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use super::{Malformed, Sink, end};

/// Appends one value.
#[inline]
pub fn put<T: Serialize + ?Sized>(value: &T, sink: &mut impl Sink) -> Result<(), Malformed> {
    postcard::serialize_with_flavor(value, Into(sink)).map_err(|e| Malformed(e.to_string()))
}

/// Takes one value off the front.
#[inline]
pub fn take<'a, T: Deserialize<'a>>(rest: &mut &'a [u8]) -> Result<T, Malformed> {
    let (value, after) = postcard::take_from_bytes(rest).map_err(|e| Malformed(e.to_string()))?;
    *rest = after;
    Ok(value)
}

/// Reads the one owned value that `bytes` hold, such as a result. Bytes left over are an error.
#[inline]
pub fn whole<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, Malformed> {
    let value = take(&mut bytes)?;
    end(bytes)?;
    Ok(value)
}

/// Bytes that are encoded in one copy, as serde encodes a slice, which it would walk byte by byte.
pub struct Octets<'a>(pub &'a [u8]);

impl Serialize for Octets<'_> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

struct Into<'a, S>(&'a mut S);

impl<S: Sink> Flavor for Into<'_, S> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend(data);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
