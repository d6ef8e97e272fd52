//! A terminal used as one screen, and restored when its holder ends: on an error, on a panic and on the signals that
//! [`crate::signal`] watches, which interrupt the wait for a key.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use machine::{Fault, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Switches to the alternate screen and hides the cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Letter(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C was pressed.
    Interrupt,
}

/// Whether standard input and output are a terminal.
pub fn is_there() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

pub struct Screen {
    saved: Termios,
    /// Bytes read that are not yet a whole key.
    pending: Vec<u8>,
}

impl Screen {
    pub fn take() -> Result<Screen> {
        let refused = |e: Errno| Fault::because("the terminal", e, "print once to a file instead, with --once");
        let saved = tcgetattr(stdin()).map_err(refused)?;
        let mut raw = saved.clone();
        // Keys come one by one without echo; Ctrl-C too, so that it ends the display in order.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &raw).map_err(refused)?;
        let screen = Screen { saved, pending: Vec::new() };
        screen.put(ENTER)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Shows lines from the top, in place of the earlier ones.
    pub fn show(&self, lines: &[String]) -> Result<()> {
        let mut text = String::from("\x1b[H");
        for (row, line) in lines.iter().enumerate() {
            if row > 0 {
                text.push_str("\r\n");
            }
            text.push_str(line);
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        self.put(&text)
    }

    /// The next key; `None` when none comes within `within`, when a signal asks to end, or when the window changes its size.
    pub fn key(&mut self, within: Duration) -> Result<Option<Key>> {
        let deadline = Instant::now() + within;
        let size = self.size();
        loop {
            if let Some(key) = self.next() {
                return Ok(Some(key));
            }
            let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(100));
            if left.is_zero() || crate::signal::interrupted() || self.size() != size {
                return Ok(None);
            }
            let stdin = stdin();
            let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
            let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut watched, Some(&left)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(e) => return Err(Fault::because("the terminal", e, "print once instead, with --once")),
            }
            let mut bytes = [0; 64];
            match rustix::io::read(stdin.as_fd(), &mut bytes) {
                // The terminal is gone.
                Ok(0) => return Ok(Some(Key::Letter('q'))),
                Ok(count) => self.pending.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(_) => return Ok(Some(Key::Letter('q'))),
            }
        }
    }

    fn next(&mut self) -> Option<Key> {
        while !self.pending.is_empty() {
            let (key, length) = decode(&self.pending);
            self.pending.drain(..length);
            if key.is_some() {
                return key;
            }
        }
        None
    }

    fn put(&self, text: &str) -> Result<()> {
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|e| Fault::because("the terminal", e, "print once instead, with --once"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.put(LEAVE);
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.saved);
    }
}

/// The first key and its number of bytes; unknown sequences are skipped.
fn decode(bytes: &[u8]) -> (Option<Key>, usize) {
    let known: [(&[u8], Key); 10] = [
        (b"\x1b[A", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOA", Key::Up),
        (b"\x1bOB", Key::Down),
        (b"\x1b[5~", Key::PageUp),
        (b"\x1b[6~", Key::PageDown),
        (b"\x1b[H", Key::Home),
        (b"\x1b[F", Key::End),
        (b"\x1b[1~", Key::Home),
        (b"\x1b[4~", Key::End),
    ];
    if let Some((sequence, key)) = known.iter().find(|(sequence, _)| bytes.starts_with(sequence)) {
        return (Some(*key), sequence.len());
    }
    match bytes {
        [3, ..] => (Some(Key::Interrupt), 1),
        // Ctrl-D.
        [4, ..] => (Some(Key::Letter('q')), 1),
        [0x1b, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(rest.len(), |place| place + 1);
            (None, 2 + end)
        }
        [byte, ..] if byte.is_ascii_graphic() || *byte == b' ' => (Some(Key::Letter(char::from(*byte))), 1),
        _ => (None, 1),
    }
}

/// The columns of the terminal at standard output, if it is one.
pub fn columns() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_however_they_come() {
        assert_eq!(decode(b"s"), (Some(Key::Letter('s')), 1));
        assert_eq!(decode(b"\x1b[Bq"), (Some(Key::Down), 3));
        assert_eq!(decode(b"\x1b[5~"), (Some(Key::PageUp), 4));
        assert_eq!(decode(b"\x03"), (Some(Key::Interrupt), 1));
        assert_eq!(decode(b"\x04"), (Some(Key::Letter('q')), 1));
        assert_eq!(decode(b"\x1b[1;5Cq"), (None, 6), "one that means nothing here");
        assert_eq!(decode(b"\x1b"), (None, 1));
        assert_eq!(decode("é".as_bytes()).0, None);
    }
}
