//! Why a file of `/sys` or `/proc` gave no answer.

use std::fmt;
use std::io;

/// An error number of Linux with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    errno: i32,
}

const NAMES: [(i32, &str); 12] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (5, "EIO"),
    (6, "ENXIO"),
    (13, "EACCES"),
    (16, "EBUSY"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (22, "EINVAL"),
    (30, "EROFS"),
    (61, "ENODATA"),
    (95, "EOPNOTSUPP"),
];

impl Refusal {
    /// No such file (ENOENT).
    pub const MISSING: Refusal = Refusal { errno: 2 };

    /// The refusal of this error number.
    pub fn from_errno(errno: i32) -> Refusal {
        Refusal { errno }
    }

    /// Reads [`Refusal::name`] back.
    pub fn from_name(name: &str) -> Option<Refusal> {
        let known = NAMES.iter().find(|(_, known)| *known == name).map(|(errno, _)| *errno);
        known.or_else(|| name.strip_prefix("errno")?.parse().ok()).map(Refusal::from_errno)
    }

    /// The error's name, such as `EACCES`; `errno71` where it has no name here.
    pub fn name(self) -> String {
        let known = NAMES.iter().find(|(errno, _)| *errno == self.errno);
        known.map_or_else(|| format!("errno{}", self.errno), |(_, name)| (*name).into())
    }

    /// Whether the file, or its subject, does not exist.
    pub fn missing(self) -> bool {
        matches!(self.errno, 2 | 20)
    }

    /// Whether this user lacks the permission.
    pub fn not_permitted(self) -> bool {
        matches!(self.errno, 1 | 13 | 30)
    }
}

impl From<&io::Error> for Refusal {
    fn from(error: &io::Error) -> Self {
        // Errors without a number come from platforms without these files.
        Refusal { errno: error.raw_os_error().unwrap_or(Refusal::MISSING.errno) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}
