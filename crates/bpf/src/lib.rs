//! BPF programs in C, built by clang at build time.
//!
//! Each program is `None` where clang was missing; [`MISSING`] then says why. Install clang and build again.
#![forbid(unsafe_code)]

/// The loader reads an object in place, as 64-bit words.
#[repr(C, align(8))]
struct Aligned<const N: usize>([u8; N]);

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_there_or_the_reason_is() {
        assert_eq!(SOFTIRQ.is_none(), MISSING.is_some());
        let Some(object) = SOFTIRQ else { return skip::test(MISSING.unwrap_or_default()) };
        assert_eq!(&object[..4], b"\x7fELF");
        assert_eq!(u16::from_le_bytes([object[18], object[19]]), 247, "the machine is not EM_BPF");
        assert!(object.as_ptr().addr().is_multiple_of(8));
    }
}
