/// Text from elsewhere for a terminal, which it must not drive, and for a line, which it must not break: control
/// characters become U+FFFD.
pub fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "\u{FFFD}")
}
