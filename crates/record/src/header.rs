//! Reads the header of a rank's tables, also while the rank writes it.

use machine::{Fault, Result};
use zerocopy::FromBytes;

use crate::functions;
use crate::layout::{COPY, DIRECTORY, Header, MAGIC, VERSION};

/// Attempts at a header, whose copies may be in the middle of a write when they are read.
const ATTEMPTS: usize = 100;

/// The header; `None` where the rank has not written it yet. `read` gives the file's first [`DIRECTORY`] bytes.
pub(crate) fn header(mut read: impl FnMut(&mut [u8]) -> Result<()>) -> Result<Option<Header>> {
    let mut page = [0; DIRECTORY];
    for _ in 0..ATTEMPTS {
        read(&mut page)?;
        let sealed = Header::SEALED + size_of::<u64>();
        let mut copy = page;
        copy.copy_within(COPY..COPY + sealed, 0);
        let of = |page: &[u8]| Header::read_from_prefix(page).map(|(header, _)| header).ok();
        let (Some(first), Some(second)) = (of(&page), of(&copy)) else { return Err(damaged("it is too short")) };
        let is_ours = |header: &Header| header.version == VERSION && header.functions == functions::digest();
        let whole =
            [first, second].into_iter().find(|header| header.magic == MAGIC && header.seal == header.own_seal());
        if let Some(header) = whole.filter(is_ours) {
            return Ok(Some(header));
        }
        if whole.is_some() || (first.magic == MAGIC && !is_ours(&first)) {
            return Err(Fault::new(
                "the tables of a rank",
                "another version of plimsoll wrote them",
                "read them with the plimsoll that profiled the program, or profile it again",
            ));
        }
        if first.seal == 0 && second.seal == 0 && [[0; 8], MAGIC].contains(&first.magic) {
            return Ok(None);
        }
        if first.magic != MAGIC && second.magic != MAGIC {
            return Err(damaged("it does not begin as one"));
        }
    }
    Err(damaged("both copies of its header are damaged"))
}

pub(crate) fn damaged(how: &str) -> Fault {
    Fault::new("the tables of a rank", how, "the file is damaged or of something else; profile the program again")
}
