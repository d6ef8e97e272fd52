//! SQLite's write-ahead log, applied to the bytes of a database, to read a store in a folder that is not writable.
//!
//! Format: <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>.

const HEADER: usize = 32;
const FRAME: usize = 24;
/// The magic number without its last bit, which marks checksums of big-endian words.
const MAGIC: u32 = 0x377f_0682;

/// `database` with all commits of `log`, up to the first frame with a wrong checksum or salt.
pub fn applied(mut database: Vec<u8>, log: &[u8]) -> Vec<u8> {
    let number = |at: usize| Some(u32::from_be_bytes(log.get(at..at + 4)?.try_into().ok()?));
    let pages = || {
        let (magic, page, salts) = (number(0)?, number(8)? as usize, log.get(16..24)?);
        let known = magic & !1 == MAGIC && page.is_power_of_two() && (512..=65_536).contains(&page);
        let mut sums = Sums { big: magic & 1 == 1, of: [0; 2] };
        sums.add(&log[..24]);
        let mut whole = Vec::new();
        let mut committed = (0, 0);
        if !known || sums.of != [number(24)?, number(28)?] {
            return None;
        }
        for at in (HEADER..log.len()).step_by(FRAME + page) {
            let Some(frame) = log.get(at..at + FRAME + page) else { break };
            sums.add(&frame[..8]);
            sums.add(&frame[FRAME..]);
            let (place, size) = (number(at)? as usize, number(at + 4)? as usize);
            if &frame[8..16] != salts || sums.of != [number(at + 16)?, number(at + 20)?] || place == 0 {
                break;
            }
            whole.push((place, &frame[FRAME..]));
            // Only the last frame of a commit has the database's number of pages; others have 0.
            if size > 0 {
                committed = (whole.len(), size);
            }
        }
        whole.truncate(committed.0);
        Some((page, committed.1, whole))
    };
    // The database has at most its earlier pages and those of the log.
    let room = |page: usize, pages: usize| database.len() + pages * page;
    let found = pages().filter(|(page, size, pages)| !pages.is_empty() && size * page <= room(*page, pages.len()));
    let Some((page, size, pages)) = found else { return database };
    database.resize(size * page, 0);
    for (place, bytes) in pages {
        if let Some(to) = database.get_mut((place - 1) * page..place * page) {
            to.copy_from_slice(bytes);
        }
    }
    database
}

/// Running checksum of the log.
struct Sums {
    big: bool,
    of: [u32; 2],
}

impl Sums {
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(8) {
            let [one, other] = [0, 4].map(|at| {
                let word = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
                if self.big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
            });
            self.of[0] = self.of[0].wrapping_add(one).wrapping_add(self.of[1]);
            self.of[1] = self.of[1].wrapping_add(other).wrapping_add(self.of[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_log_leaves_a_database(database in proptest::collection::vec(any::<u8>(), 0..600), log in proptest::collection::vec(any::<u8>(), 0..900), page in 0u32..70_000) {
            let mut made = log.clone();
            if let Some(head) = made.get_mut(..12) {
                head[..4].copy_from_slice(&MAGIC.to_be_bytes());
                head[8..].copy_from_slice(&page.to_be_bytes());
            }
            prop_assert_eq!(applied(database.clone(), &log), database.clone());
            prop_assert_eq!(applied(database.clone(), &made), database);
        }
    }
}
