//! How an ODF spells what a manifest holds: one table for the reader and the writer.

use machine::{SiteKind, XdpMode};

use crate::channel::{Cast, Content, Delivery, Policy, Synchronization};
use crate::manifest::{BodyKind, Constraint, ProgramRole, StateKind};

/// An enumeration's values with their spelling.
pub(super) type Words<T> = [(&'static str, T)];

pub(super) const BODIES: &Words<BodyKind> =
    &[("native", BodyKind::Native), ("wasm", BodyKind::Wasm), ("bpf", BodyKind::Bpf)];
pub(super) const SITES: &Words<SiteKind> = &[
    ("app", SiteKind::App),
    ("core", SiteKind::Core),
    ("xdp", SiteKind::Xdp),
    ("tc", SiteKind::Tc),
    ("agent", SiteKind::Agent),
];
/// Where native and wasm bodies can be.
pub(super) const USER_SITES: &Words<SiteKind> =
    &[("app", SiteKind::App), ("core", SiteKind::Core), ("agent", SiteKind::Agent)];
pub(super) const ROLES: &Words<ProgramRole> = &[("hook", ProgramRole::Hook), ("producer", ProgramRole::Producer)];
pub(super) const STATES: &Words<StateKind> =
    &[("fixed-place", StateKind::FixedPlace), ("none", StateKind::None), ("saved", StateKind::Saved)];
pub(super) const MODES: &Words<XdpMode> =
    &[("native", XdpMode::Native), ("generic", XdpMode::Generic), ("hardware", XdpMode::Hardware)];
pub(super) const CONSTRAINTS: &Words<Constraint> =
    &[("link", Constraint::Link), ("pull", Constraint::Pull), ("gang", Constraint::Gang)];
pub(super) const CASTS: &Words<Cast> = &[("unicast", Cast::Unicast), ("multicast", Cast::Multicast)];
pub(super) const DELIVERIES: &Words<Delivery> =
    &[("reliable", Delivery::Reliable), ("unreliable", Delivery::Unreliable)];
pub(super) const SYNCHRONIZATIONS: &Words<Synchronization> =
    &[("poll", Synchronization::Poll), ("blocking", Synchronization::Blocking)];
pub(super) const CONTENTS: &Words<Content> = &[("calls", Content::Calls), ("messages", Content::Messages)];
pub(super) const POLICIES: &Words<Policy> =
    &[("any", Policy::Any), ("zero-copy", Policy::ZeroCopy), ("copy", Policy::Copy)];

pub(super) fn word<T: PartialEq>(words: &Words<T>, value: T) -> &'static str {
    words.iter().find(|(_, of)| *of == value).map_or("?", |(word, _)| word)
}

/// `app, core or agent`.
pub(super) fn listed(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<_> = words.into_iter().collect();
    let mut text = String::new();
    for (i, word) in words.iter().enumerate() {
        text += match i {
            0 => "",
            _ if i + 1 == words.len() => " or ",
            _ => ", ",
        };
        text += word.as_ref();
    }
    text
}

fn all(text: &str, first: impl Fn(u8) -> bool, then: impl Fn(u8) -> bool) -> bool {
    text.bytes().enumerate().all(|(i, b)| if i == 0 { first(b) } else { then(b) }) && !text.is_empty()
}

/// `[A-Za-z_][A-Za-z0-9_]{0,127}`
pub(super) fn is_identifier(text: &str) -> bool {
    text.len() <= 128 && all(text, |b| b.is_ascii_alphabetic() || b == b'_', |b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Identifiers joined by dots, in which there may be hyphens after the first character; 128 characters at most.
pub(super) fn is_dotted(text: &str) -> bool {
    let part = |part: &str| {
        all(part, |b| b.is_ascii_alphabetic() || b == b'_', |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    text.len() <= 128 && text.split('.').all(part)
}

/// `[0-9]+(\.[0-9]+){0,2}([+-][0-9A-Za-z.+-]+)?`, 64 characters at most.
pub(super) fn is_version(text: &str) -> bool {
    let (numbers, rest) = match text.find(['+', '-']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let number = |number: &str| all(number, |b| b.is_ascii_digit(), |b| b.is_ascii_digit());
    text.len() <= 64
        && numbers.split('.').count() <= 3
        && numbers.split('.').all(number)
        && rest.is_none_or(|rest| {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-');
            all(rest, allowed, allowed)
        })
}

/// Two to five words with hyphens between them, as `x86_64-unknown-linux-gnu`; 64 characters at most.
pub(super) fn is_triple(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.');
    text.len() <= 64
        && (2..=5).contains(&text.split('-').count())
        && text.split('-').all(|word| all(word, allowed, allowed))
}

/// A file beside the ODF: `[A-Za-z0-9_][A-Za-z0-9._-]{0,127}`, which leaves no way out of the package.
pub(super) fn is_file_name(text: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    text.len() <= 128 && all(text, |b| b.is_ascii_alphanumeric() || b == b'_', rest)
}
