//! A call on its way out: method and serialized inputs, before it is known over which channel it goes.

use std::fmt;

use machine::{Fault, Result};

use super::{Header, Kind, Refusal};
use crate::channel::{Cast, Channel, Written};
use crate::context::{ChannelId, Context};
use crate::encoding::{Malformed, Sink};
use crate::guid::Guid;

/// Header and arguments up to this length need no allocation: a cache line.
const INLINE: usize = 64;

/// A call as a proxy's method returns it. It can be sent over one channel or several, any number of times.
///
/// The manual path, with an encoder of one's own (HYDRA section 1.2.2):
///
/// ```
/// use offcode::{Call, Guid, encoding::{Malformed, Sink}};
///
/// let filter = Guid::named("example.filter");
/// let mut call = Call::manual(&filter, 2, "Filter.limit", |result| match result {
///     [0] => Ok(false),
///     [1] => Ok(true),
///     _ => Err(Malformed("not one byte of 0 or 1".into())),
/// });
/// call.arguments().extend(&900u16.to_be_bytes());
/// assert_eq!(call.length(), 18);
/// ```
#[must_use = "a call does nothing until it is sent"]
pub struct Call<R> {
    message: Message,
    kind: Kind,
    result: ResultOf<R>,
}

/// How to read the result of a call.
pub struct ResultOf<R> {
    name: &'static str,
    decode: fn(&[u8]) -> Result<R, Malformed>,
}

enum Message {
    Inline {
        length: u8,
        bytes: [u8; INLINE],
    },
    Heap(Vec<u8>),
    /// An argument that has no bytes: sending the call says why.
    Unwritable(String),
}

/// Where the arguments of a call go.
pub struct Arguments<'a>(&'a mut Message);

impl Sink for Arguments<'_> {
    #[inline]
    fn extend(&mut self, more: &[u8]) {
        match self.0 {
            Message::Inline { length, bytes } => {
                let from = usize::from(*length);
                match bytes.get_mut(from..from + more.len()) {
                    Some(room) => {
                        room.copy_from_slice(more);
                        *length += more.len() as u8;
                    }
                    None => *self.0 = Message::spilled(&bytes[..from], more),
                }
            }
            Message::Heap(bytes) => bytes.extend_from_slice(more),
            Message::Unwritable(_) => {}
        }
    }
}

impl Message {
    #[cold]
    fn spilled(before: &[u8], more: &[u8]) -> Message {
        let mut bytes = Vec::with_capacity((before.len() + more.len()).next_power_of_two());
        bytes.extend_from_slice(before);
        bytes.extend_from_slice(more);
        Message::Heap(bytes)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Message::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Message::Heap(bytes) => bytes,
            Message::Unwritable(_) => &[],
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Message::Inline { length, bytes } => &mut bytes[..usize::from(*length)],
            Message::Heap(bytes) => bytes,
            Message::Unwritable(_) => &mut [],
        }
    }
}

impl<R> Call<R> {
    /// A call without arguments yet. `name` is for messages, as `Filter.limit`; `decode` reads the result.
    #[inline]
    pub fn manual(
        interface: &Guid,
        method: u16,
        name: &'static str,
        decode: fn(&[u8]) -> Result<R, Malformed>,
    ) -> Call<R> {
        Call::of(interface.short(), method, Kind::Call, ResultOf { name, decode })
    }

    #[inline]
    fn of(interface: u64, method: u16, kind: Kind, result: ResultOf<R>) -> Call<R> {
        let mut bytes = [0; INLINE];
        if let Some(head) = bytes.first_chunk_mut() {
            Header { interface, method, kind, route: 0, id: 0 }.write(head);
        }
        Call { message: Message::Inline { length: Header::LENGTH as u8, bytes }, kind, result }
    }

    /// Where arguments are appended.
    #[inline]
    pub fn arguments(&mut self) -> Arguments<'_> {
        Arguments(&mut self.message)
    }

    /// Appends one argument by an encoder. Where the encoder refuses the value, sending the call fails with its reason.
    #[inline]
    pub fn with(mut self, encode: impl FnOnce(&mut Arguments<'_>) -> Result<(), Malformed>) -> Call<R> {
        if let Err(why) = encode(&mut self.arguments()) {
            self.message = Message::Unwritable(why.0);
        }
        self
    }

    /// The same call, whose result nobody waits for. The offcode carries it out and sends nothing back.
    pub fn without_answer(self) -> Call<()> {
        let Call { mut message, result, .. } = self;
        if let Some(head) = message.bytes_mut().first_chunk_mut()
            && let Some((header, _)) = Header::read(head)
        {
            Header { kind: Kind::OneWay, ..header }.write(head);
        }
        Call { message, kind: Kind::OneWay, result: ResultOf { name: result.name, decode: |_| Ok(()) } }
    }

    /// Interface and method, as `Filter.limit`.
    pub fn name(&self) -> &'static str {
        self.result.name
    }

    /// Whether an answer comes.
    pub fn is_one_way(&self) -> bool {
        self.kind == Kind::OneWay
    }

    /// How to read the result, for those who receive it themselves.
    #[inline]
    pub fn result(&self) -> ResultOf<R> {
        self.result
    }

    /// Length of the whole message, in bytes.
    pub fn length(&self) -> usize {
        self.message.bytes().len()
    }

    /// Header, with the number 0, and inputs: for those who carry the call themselves.
    ///
    /// # Errors
    /// An argument that could not be encoded.
    #[inline]
    pub fn message(&self) -> Result<&[u8]> {
        match &self.message {
            Message::Unwritable(why) => Err(self.unwritable(why)),
            message => Ok(message.bytes()),
        }
    }

    /// Sends the call over `channel` under a number of the sender's choice, which the answer repeats. Most callers use
    /// [`crate::Caller`], which chooses the numbers and finds the answers.
    ///
    /// # Errors
    /// An argument that could not be encoded, and those of [`Channel::write_with`].
    #[inline]
    pub fn write_to<C: Channel + ?Sized>(&self, channel: &mut C, id: u32) -> Result<Written> {
        let message = self.message()?;
        channel.write_with(message.len(), &mut |buffer| {
            buffer.copy_from_slice(message);
            if let Some(place) = buffer.get_mut(12..16) {
                place.copy_from_slice(&id.to_le_bytes());
            }
        })
    }

    /// Sends one message to all readers of a multicast channel.
    ///
    /// # Errors
    /// A call that wants an answer, since a multicast channel carries none back; a channel that is not multicast; and
    /// those of [`Call::write_to`].
    pub fn multicast<C: Channel + ?Sized>(&self, channel: &mut C) -> Result<Written> {
        if channel.specification().cast != Cast::Multicast {
            return Err(Fault::new(
                format!("call {}", self.name()),
                "the channel is unicast",
                "send it with `over`, or create the channel as multicast",
            ));
        }
        if !self.is_one_way() {
            return Err(Fault::new(
                format!("call {}", self.name()),
                "it wants an answer, and a multicast channel carries none back",
                "send `call.without_answer()`, or use `send_to` with a unicast channel to each offcode",
            ));
        }
        self.write_to(channel, 0)
    }

    /// Sends the call from inside an offcode. The answer comes to [`crate::Lifecycle::answered`] with the same channel
    /// and `id`, and [`Call::result`] reads it. May be repeated in a later turn after [`Written::Full`].
    ///
    /// # Errors
    /// An argument that could not be encoded.
    pub fn through(&mut self, context: &mut dyn Context, channel: ChannelId, id: u32) -> Result<Written> {
        if let Message::Unwritable(why) = &self.message {
            return Err(self.unwritable(why));
        }
        let message = self.message.bytes_mut();
        if let Some(place) = message.get_mut(12..16) {
            place.copy_from_slice(&id.to_le_bytes());
        }
        Ok(context.write(channel, message))
    }

    #[cold]
    fn unwritable(&self, why: &str) -> Fault {
        Fault::new(
            format!("call {}", self.name()),
            format!("an argument cannot be encoded: {why}"),
            "pass a value that serde can write without knowing its type",
        )
    }
}

impl Call<()> {
    /// A call without arguments yet, to which no answer comes.
    #[inline]
    pub fn one_way(interface: &Guid, method: u16, name: &'static str) -> Call<()> {
        Call::of(interface.short(), method, Kind::OneWay, ResultOf { name, decode: |_| Ok(()) })
    }
}

impl<R> ResultOf<R> {
    /// Interface and method, as `Filter.limit`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The result, or why there is none.
    ///
    /// # Errors
    /// The offcode's refusal; a result that does not decode.
    #[inline]
    pub fn read(&self, result: Result<&[u8], &Refusal>) -> Result<R> {
        match result {
            Ok(bytes) => (self.decode)(bytes).map_err(|why| self.malformed(&why)),
            Err(refusal) => Err(self.refused(&refusal.0)),
        }
    }

    #[cold]
    fn malformed(&self, why: &Malformed) -> Fault {
        Fault::new(
            format!("result of {}", self.name),
            why.to_string(),
            "build both ends from the same definition of the interface",
        )
    }

    #[cold]
    pub(crate) fn refused(&self, why: &str) -> Fault {
        Fault::new(format!("call {}", self.name), format!("refused: {why}"), "see what the offcode says")
    }
}

impl<R> Clone for ResultOf<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for ResultOf<R> {}

impl<R> fmt::Debug for ResultOf<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "result of {}", self.name)
    }
}

impl<R> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} bytes of arguments", self.name(), self.length().saturating_sub(Header::LENGTH))
    }
}
