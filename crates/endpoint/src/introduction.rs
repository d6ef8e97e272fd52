//! Introductions: the first packet to an endpoint on another host that may not know the sender.

use std::mem::MaybeUninit;

use machine::{Fault, Result};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::name::Name;

const MAGIC: [u8; 8] = *b"plimhi1\0";
const LENGTH: usize = MAGIC.len() + Name::LENGTH + 8;

/// Magic, the sender's name, the receiver's secret: only those who have the receiver's name can write one.
pub struct Introduction {
    /// Name of the sender.
    pub name: Name,
}

impl Introduction {
    /// The introduction of `from` to `to`.
    pub fn write(from: &Name, to: &Name) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..8 + Name::LENGTH].copy_from_slice(from.as_bytes());
        bytes[8 + Name::LENGTH..].copy_from_slice(&to.secret().to_le_bytes());
        bytes
    }

    /// `None` for anything but an introduction to `me`.
    pub fn read(bytes: &[u8], me: &Name) -> Option<Introduction> {
        let secret = bytes.strip_prefix(&MAGIC)?.get(Name::LENGTH..)?;
        if secret != me.secret().to_le_bytes() {
            return None;
        }
        Some(Introduction { name: Name::from_bytes(&bytes[8..8 + Name::LENGTH]).ok()? })
    }
}

/// Whether the packet is an introduction, by its length and first bytes; no packet of the engine has both.
#[inline]
pub(crate) fn is_one(packet: &[u8]) -> bool {
    packet.len() == LENGTH && packet.starts_with(&MAGIC)
}

/// 64 bits that cannot be guessed.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [MaybeUninit::uninit(); 8];
    let (filled, _) = getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|e| Fault::because("random numbers", e, "permit the getrandom system call"))?;
    let bytes: [u8; 8] = (&*filled)
        .try_into()
        .map_err(|_| Fault::new("random numbers", "the kernel gave fewer than asked for", "try again"))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name::Host;

    fn name(token: u64, secret: u64) -> Name {
        Name::new(Host::here().unwrap(), 1, 2, token, secret, ([127, 0, 0, 1], 9).into())
    }

    proptest! {
        #[test]
        fn only_who_knows_the_secret_is_introduced(secret: u64, guess: u64, cut in 0usize..80, flip in 0usize..80) {
            let (me, caller) = (name(1, secret), name(2, 5));
            let bytes = Introduction::write(&caller, &me);
            prop_assert_eq!(Introduction::read(&bytes, &me).unwrap().name, caller);
            if guess != secret {
                prop_assert!(Introduction::read(&bytes, &name(1, guess)).is_none());
            }
            prop_assert!(Introduction::read(&bytes[..cut.min(LENGTH - 1)], &me).is_none());
            let mut bent = bytes;
            bent[flip] ^= 0x55;
            let _ = Introduction::read(&bent, &me);
        }
    }
}
