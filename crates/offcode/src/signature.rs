//! Signatures of interfaces: numbers by which a body and a manifest of different sources are told apart.

use crate::guid::Guid;

/// The signature of no interface at all.
pub(crate) const UNSIGNED: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over what was signed so far and `bytes`.
pub(crate) const fn sign(so_far: u64, bytes: &[u8]) -> u64 {
    let (mut signature, mut at) = (so_far, 0);
    while at < bytes.len() {
        signature = (signature ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    signature
}

/// Signs a method's name with an end mark, a byte that no name has.
pub(crate) const fn sign_method(so_far: u64, name: &str) -> u64 {
    sign(sign(so_far, name.as_bytes()), &[0])
}

/// A number that stands for interfaces with their methods, in order. Two builds of different sources have different ones.
pub const fn signature(interfaces: &[(Guid, &[&str])]) -> u64 {
    let (mut signature, mut at) = (UNSIGNED, 0);
    while at < interfaces.len() {
        let (guid, methods) = interfaces[at];
        signature = sign(signature, guid.bytes());
        let mut method = 0;
        while method < methods.len() {
            signature = sign_method(signature, methods[method]);
            method += 1;
        }
        at += 1;
    }
    signature
}
