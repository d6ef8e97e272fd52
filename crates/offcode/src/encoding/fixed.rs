//! The encoding for bodies in C and BPF: values one after the other, little endian, without padding, as in a packed C
//! structure. A `bool` is one byte, 0 or 1. A `&[u8]` may only come last and takes what is left.

use super::{Malformed, Sink, end};

/// A value of known length. Implement it for a structure by putting and taking its fields in order.
pub trait Fixed: Sized {
    /// Length of the encoded value, in bytes.
    const LENGTH: usize;

    /// Appends the value to `sink`.
    fn put(&self, sink: &mut impl Sink);

    /// Takes one value off the front.
    fn take(rest: &mut &[u8]) -> Result<Self, Malformed>;
}

/// Appends one value.
#[inline]
pub fn put<T: Fixed>(value: &T, sink: &mut impl Sink) -> Result<(), Malformed> {
    value.put(sink);
    Ok(())
}

/// Takes one value off the front.
#[inline]
pub fn take<T: Fixed>(rest: &mut &[u8]) -> Result<T, Malformed> {
    T::take(rest)
}

/// Reads the one value that `bytes` hold. Bytes left over are an error.
#[inline]
pub fn whole<T: Fixed>(mut bytes: &[u8]) -> Result<T, Malformed> {
    let value = T::take(&mut bytes)?;
    end(bytes)?;
    Ok(value)
}

#[inline]
fn octets<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let Some((head, after)) = rest.split_first_chunk::<N>() else {
        return Err(Malformed(format!("{N} bytes wanted, {} are left", rest.len())));
    };
    *rest = after;
    Ok(*head)
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Fixed for $number {
            const LENGTH: usize = size_of::<$number>();

            #[inline]
            fn put(&self, sink: &mut impl Sink) {
                sink.extend(&self.to_le_bytes());
            }

            #[inline]
            fn take(rest: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(<$number>::from_le_bytes(octets(rest)?))
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 }

impl Fixed for bool {
    const LENGTH: usize = 1;

    #[inline]
    fn put(&self, sink: &mut impl Sink) {
        sink.push(u8::from(*self));
    }

    #[inline]
    fn take(rest: &mut &[u8]) -> Result<Self, Malformed> {
        match octets(rest)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [n] => Err(Malformed(format!("a bool is 0 or 1, not {n}"))),
        }
    }
}

impl<T: Fixed, const N: usize> Fixed for [T; N] {
    const LENGTH: usize = N * T::LENGTH;

    #[inline]
    fn put(&self, sink: &mut impl Sink) {
        self.iter().for_each(|value| value.put(sink));
    }

    #[inline]
    fn take(rest: &mut &[u8]) -> Result<Self, Malformed> {
        if rest.len() < Self::LENGTH {
            return Err(Malformed(format!("{} bytes wanted, {} are left", Self::LENGTH, rest.len())));
        }
        let mut failed = None;
        // `Default` is not asked of T: the first failure leaves through `failed`, and the length was checked above.
        let values: [Option<T>; N] = std::array::from_fn(|_| {
            if failed.is_some() {
                return None;
            }
            T::take(rest).map_err(|why| failed = Some(why)).ok()
        });
        match failed {
            Some(why) => Err(why),
            None => Ok(values.map(|value| value.expect("every element was taken"))),
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        #[allow(non_snake_case, unused_variables)]
        impl<$($name: Fixed),*> Fixed for ($($name,)*) {
            const LENGTH: usize = 0 $(+ $name::LENGTH)*;

            #[inline]
            fn put(&self, sink: &mut impl Sink) {
                let ($($name,)*) = self;
                $($name.put(sink);)*
            }

            #[inline]
            fn take(rest: &mut &[u8]) -> Result<Self, Malformed> {
                Ok(($($name::take(rest)?,)*))
            }
        }
    )*};
}

tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }
