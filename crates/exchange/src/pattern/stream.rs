//! NetPIPE's stream (`-s`): messages one way, one at a time as blocking calls would send and receive them,
//! acknowledged once at the end.

use machine::Result;

use super::{ACKNOWLEDGEMENT, Ready};
use crate::endpoint::Endpoint;
use crate::stack::Stack;

pub fn initiate<S: Stack>(end: &mut Endpoint<'_, S>) -> Result<()> {
    let (size, messages) = (end.job().size, end.job().messages);
    end.post_receive(ACKNOWLEDGEMENT)?;
    for message in 1..=messages {
        end.post_send(size)?;
        end.until_sent(message)?;
    }
    end.until_received(1)
}

pub fn respond<S: Stack>(end: &mut Endpoint<'_, S>, ready: Ready<'_>) -> Result<()> {
    let (size, messages) = (end.job().size, end.job().messages);
    end.post_receive(size)?;
    ready()?;
    for message in 1..=messages {
        end.until_received(message)?;
        if message < messages {
            end.post_receive(size)?;
        }
    }
    end.post_send(ACKNOWLEDGEMENT)?;
    end.until_sent(1)
}
