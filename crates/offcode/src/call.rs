//! Calls: a method's number and its serialized inputs, as they travel over a channel (HYDRA section 1.2.2).

mod outgoing;

pub use outgoing::{Arguments, Call, ResultOf};

/// The header of every message of a call: 16 bytes, little endian. With up to 32 bytes of arguments a call fits beside
/// the channel's own word in one cache line.
///
/// ```text
///  0           8        10     11      12   16
///  | interface | method | kind | route | id | arguments or result ...
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// [`Guid::short`](crate::Guid::short) of the interface.
    pub interface: u64,
    /// The method's place in its trait, from 0.
    pub method: u16,
    /// Whether the message is a call or an answer.
    pub kind: Kind,
    /// Only out of band, on the way from an offcode to the switchboard: the peer that a call is for, by its place in
    /// the manifest's list of peers, from 1. Elsewhere 0.
    pub route: u8,
    /// Chosen by the caller, repeated in the answer.
    pub id: u32,
}

/// The kind of a call's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A call that wants an answer.
    Call = 1,
    /// A call that wants no answer.
    OneWay = 2,
    /// The answer: the result follows.
    Reply = 3,
    /// The answer where the call was not carried out: a UTF-8 sentence that says why follows.
    Refused = 4,
}

impl Header {
    /// Bytes of a header.
    pub const LENGTH: usize = 16;

    /// Writes the header as it travels.
    #[inline]
    pub fn write(&self, into: &mut [u8; Self::LENGTH]) {
        into[0..8].copy_from_slice(&self.interface.to_le_bytes());
        into[8..10].copy_from_slice(&self.method.to_le_bytes());
        into[10] = self.kind as u8;
        into[11] = self.route;
        into[12..16].copy_from_slice(&self.id.to_le_bytes());
    }

    /// The header and what follows it; `None` if this is no message of a call.
    #[inline]
    pub fn read(message: &[u8]) -> Option<(Header, &[u8])> {
        let (head, rest) = message.split_first_chunk::<{ Self::LENGTH }>()?;
        let kind = match head[10] {
            1 => Kind::Call,
            2 => Kind::OneWay,
            3 => Kind::Reply,
            4 => Kind::Refused,
            _ => return None,
        };
        let header = Header {
            interface: u64::from_le_bytes(head[0..8].try_into().ok()?),
            method: u16::from_le_bytes([head[8], head[9]]),
            kind,
            route: head[11],
            id: u32::from_le_bytes([head[12], head[13], head[14], head[15]]),
        };
        Some((header, rest))
    }
}

/// A call as it reaches an offcode.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'a> {
    /// [`Guid::short`](crate::Guid::short) of the interface.
    pub interface: u64,
    /// The method's place in its trait, from 0.
    pub method: u16,
    /// The arguments, encoded one after the other.
    pub arguments: &'a [u8],
}

/// Why an offcode did not carry a call out: a sentence for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// The offcode does not implement the interface; `interface` is its [`Guid::short`](crate::Guid::short).
    pub fn no_such_interface(interface: u64) -> Self {
        Refusal(format!("the offcode has no interface {interface:016x}"))
    }

    /// The interface has fewer methods.
    pub fn no_such_method(interface: &str, method: u16) -> Self {
        Refusal(format!("interface {interface} has no method {method}"))
    }

    /// The arguments are not those that the method takes; `why` says what is wrong with them.
    pub fn bad_arguments(interface: &str, method: &str, why: impl std::fmt::Display) -> Self {
        Refusal(format!("{interface}.{method}: the arguments do not decode: {why}"))
    }
}
