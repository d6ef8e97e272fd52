/// Untrusted text for a terminal, which it must not control, and for a single line: control characters become U+FFFD.
pub fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "\u{FFFD}")
}
