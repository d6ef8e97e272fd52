//! A file of the kernel that is read repeatedly.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// Longest text of a number with unit and time.
const LONGEST: usize = 128;

/// An open file, since opening costs more than reading.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    file: Option<File>,
    text: [u8; LONGEST],
}

impl Held {
    pub fn new(path: PathBuf) -> Held {
        Held { path, file: None, text: [0; LONGEST] }
    }

    /// Its present text. A file that has gone is opened again.
    pub fn read(&mut self) -> Result<&str, String> {
        match self.length() {
            Ok(length) => match std::str::from_utf8(&self.text[..length]) {
                Ok(text) => Ok(text.trim()),
                Err(_) => Err(format!("{} holds no text", self.path.display())),
            },
            Err(error) => {
                self.file = None;
                Err(format!("{}: {error}", self.path.display()))
            }
        }
    }

    fn length(&mut self) -> io::Result<usize> {
        // sysfs reports a removed device by an error; a plain file was removed if its name is gone.
        if let Some(file) = &self.file
            && file.metadata()?.nlink() == 0
        {
            self.file = None;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path)?),
        };
        file.read_at(&mut self.text, 0)
    }

    /// The first word as a number.
    pub fn number(&mut self) -> Result<u64, String> {
        let word = self.read()?.split_whitespace().next().unwrap_or_default();
        match word.parse() {
            Ok(number) => Ok(number),
            Err(_) => {
                let word = word.to_owned();
                Err(format!("{} holds '{word}', which is no number from 0 up", self.path.display()))
            }
        }
    }
}
