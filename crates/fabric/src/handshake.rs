//! Messages of a connection's handshake: a client asks a passive endpoint, which accepts in the name of an endpoint or
//! refuses; the two connected ends then tell each other of the beginning and the end.

use endpoint::{Label, Name, Space, TagSelector};
use machine::bounds::CONNECTION_DATA;

/// Most bytes that applications send along with a request or an answer.
pub const DATA: usize = CONNECTION_DATA.each.bytes().0 as usize;

pub const LONGEST: usize = 1 + Name::LENGTH + DATA;

/// Tag of the handshake, apart from those of remote memory's tickets, none of which has all bits set.
const TAG: u64 = u64::MAX;

pub const LABEL: Label = Label { space: Space::RemoteData, tag: TAG, data: None };

pub fn selector() -> TagSelector {
    TagSelector::exactly(TAG).within(Space::RemoteData)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionMessage<'a> {
    /// The endpoint of that name asks for a connection.
    Ask(Name, &'a [u8]),
    /// The endpoint of that name is at the other end.
    Accept(Name, &'a [u8]),
    Refuse(&'a [u8]),
    /// The client says that it is connected.
    Ready,
    /// The connection has ended.
    Over,
}

impl<'a> ConnectionMessage<'a> {
    /// Data beyond the greatest length are cut off, as in fi_cm(3).
    pub fn write(self) -> Vec<u8> {
        let (kind, name, data) = match &self {
            ConnectionMessage::Ask(name, data) => (1, &name.as_bytes()[..], *data),
            ConnectionMessage::Accept(name, data) => (2, &name.as_bytes()[..], *data),
            ConnectionMessage::Refuse(data) => (3, &[][..], *data),
            ConnectionMessage::Ready => (4, &[][..], &[][..]),
            ConnectionMessage::Over => (5, &[][..], &[][..]),
        };
        [&[kind], name, &data[..data.len().min(DATA)]].concat()
    }

    /// `None` for bytes that no endpoint sends.
    pub fn read(bytes: &'a [u8]) -> Option<ConnectionMessage<'a>> {
        let (kind, rest) = bytes.split_first()?;
        let named = || {
            let (name, data) = rest.split_at_checked(Name::LENGTH)?;
            Some((Name::from_bytes(name).ok()?, data))
        };
        let word = match kind {
            1 => named().map(|(name, data)| ConnectionMessage::Ask(name, data))?,
            2 => named().map(|(name, data)| ConnectionMessage::Accept(name, data))?,
            3 => ConnectionMessage::Refuse(rest),
            4 if rest.is_empty() => ConnectionMessage::Ready,
            5 if rest.is_empty() => ConnectionMessage::Over,
            _ => return None,
        };
        (word.data().len() <= DATA).then_some(word)
    }

    fn data(&self) -> &'a [u8] {
        match self {
            ConnectionMessage::Ask(_, data) | ConnectionMessage::Accept(_, data) | ConnectionMessage::Refuse(data) => {
                data
            }
            ConnectionMessage::Ready | ConnectionMessage::Over => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        let mut bytes = [7; Name::LENGTH];
        bytes[..4].copy_from_slice(b"plm2");
        Name::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn words_read_back_as_written_and_nothing_else_reads() {
        let data = [9; DATA];
        for word in [
            ConnectionMessage::Ask(name(), &data),
            ConnectionMessage::Ask(name(), &[]),
            ConnectionMessage::Accept(name(), &data[..1]),
            ConnectionMessage::Refuse(&data),
            ConnectionMessage::Refuse(&[]),
            ConnectionMessage::Ready,
            ConnectionMessage::Over,
        ] {
            let bytes = word.write();
            assert!(bytes.len() <= LONGEST);
            assert_eq!(ConnectionMessage::read(&bytes), Some(word));
            // Cut within the name, or with too much data.
            let whole = bytes.len() - word.data().len();
            (0..whole)
                .for_each(|cut| assert_eq!(ConnectionMessage::read(&bytes[..cut]), None, "{word:?} cut to {cut}"));
            assert_eq!(ConnectionMessage::read(&[&bytes[..], &[0; DATA + 1]].concat()), None, "{word:?}");
        }
        for kind in [0].into_iter().chain(6..=u8::MAX) {
            assert_eq!(ConnectionMessage::read(&[&[kind], &[1; LONGEST - 1][..]].concat()), None);
        }
        assert_eq!(ConnectionMessage::read(&[&[1], &[1; Name::LENGTH][..]].concat()), None, "that is no name");
    }

    #[test]
    fn too_many_data_are_cut_off() {
        let data = [9; DATA + 9];
        assert_eq!(
            ConnectionMessage::read(&ConnectionMessage::Refuse(&data).write()),
            Some(ConnectionMessage::Refuse(&data[..DATA]))
        );
    }
}
