//! OSU's windowed bandwidth and message rate: 64 sends at once, all completed, then one acknowledgement for the
//! window. The receiver posts the next window before it acknowledges this one, so that no message comes unexpected.

use machine::Result;

use super::{ACKNOWLEDGEMENT, Ready};
use crate::endpoint::Endpoint;
use crate::stack::Stack;

/// Messages in a window.
pub const WINDOW: u64 = 64;

pub fn initiate<S: Stack>(end: &mut Endpoint<'_, S>) -> Result<()> {
    let (size, messages) = (end.job().size, end.job().messages);
    let mut sent = 0;
    let mut windows = 0;
    while sent < messages {
        let window = WINDOW.min(messages - sent);
        end.post_receive(ACKNOWLEDGEMENT)?;
        for _ in 0..window {
            end.post_send(size)?;
        }
        sent += window;
        windows += 1;
        end.until_sent(sent)?;
        end.until_received(windows)?;
    }
    Ok(())
}

pub fn respond<S: Stack>(end: &mut Endpoint<'_, S>, ready: Ready<'_>) -> Result<()> {
    let (size, messages) = (end.job().size, end.job().messages);
    let mut posted = WINDOW.min(messages);
    for _ in 0..posted {
        end.post_receive(size)?;
    }
    ready()?;
    let mut windows = 0;
    let mut expected = posted;
    loop {
        end.until_received(expected)?;
        let next = WINDOW.min(messages - posted);
        for _ in 0..next {
            end.post_receive(size)?;
        }
        posted += next;
        end.post_send(ACKNOWLEDGEMENT)?;
        windows += 1;
        if next == 0 {
            return end.until_sent(windows);
        }
        expected = posted;
    }
}
