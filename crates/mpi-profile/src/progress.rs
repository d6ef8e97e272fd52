//! The passes of a thread by the progress point, which switch delays on and off in blocks ([`record::blocks`]).

use std::ptr;

use record::blocks::{Blocks, Mark, Progress};
use record::functions::Class;
use record::layout::{Site, Thread, perturbed};
use zerocopy::IntoBytes;

use crate::call::Facts;
use crate::clock;
use crate::delays::Asked;
use crate::rank::Rank;
use crate::rules::Rule;

/// The counter of the main thread.
#[derive(Debug)]
pub struct Passes {
    blocks: Blocks,
    count: u64,
    /// The count of the next mark.
    next: u64,
    /// The site that is counted, once it is known.
    site: *const Site,
}

impl Passes {
    pub fn new(blocks: Blocks) -> Passes {
        let first = if blocks.guard > 0 { blocks.guard } else { blocks.every };
        Passes { blocks, count: 0, next: first.into(), site: ptr::null() }
    }

    /// Counts a call that succeeded, where it is the progress point.
    ///
    /// # Safety
    /// `thread` and `site` are mapped; `site` may be null.
    #[inline]
    pub unsafe fn after(
        &mut self,
        rule: &Rule,
        facts: &Facts,
        site: *const Site,
        rank: &Rank,
        asked: &Asked,
        thread: *const Thread,
    ) {
        let is_point = match self.blocks.progress {
            Progress::Collectives => facts.group == rank.world_size() && rule.class == Class::Collective,
            // SAFETY: by this function's contract.
            Progress::Site { offset, .. } => unsafe {
                !site.is_null() && (*site).offset == offset && self.is_site(site, rank)
            },
        };
        if !is_point {
            return;
        }
        self.count += 1;
        if self.count == self.next {
            // SAFETY: by this function's contract.
            let messages = unsafe { (&raw const (*thread).messages).read_volatile() };
            self.mark(messages, rank, asked);
        }
    }

    /// # Safety
    /// The site is mapped.
    unsafe fn is_site(&mut self, site: *const Site, rank: &Rank) -> bool {
        if self.site.is_null() {
            // SAFETY: by this function's contract.
            let (of, number) = unsafe { ((*site).function, (*site).module) };
            let Progress::Site { function, module, .. } = self.blocks.progress else { return false };
            if of == function.0 && rank.module_identity(number) == Some(module) {
                self.site = site;
            }
        }
        self.site == site
    }

    #[cold]
    fn mark(&mut self, messages: u64, rank: &Rank, asked: &Asked) {
        let (every, guard) = (u64::from(self.blocks.every), u64::from(self.blocks.guard));
        let mark =
            Mark { ticks: clock::ticks(rank.clock), count: self.count, on: asked.on(), messages, doses: asked.doses() };
        if !rank.add_mark(mark.words().as_bytes()) {
            asked.note(perturbed::FULL);
        }
        if self.count.is_multiple_of(every) {
            asked.switch(self.count / every);
            self.next = self.count + if guard > 0 { guard } else { every };
        } else {
            self.next = self.count - guard + every;
        }
    }
}
