//! Ping-pong: one message there, one back (NetPIPE's default, OSU's latency test). Each receive is posted before the
//! message that it answers leaves.

use machine::Result;

use super::Ready;
use crate::endpoint::Endpoint;
use crate::stack::Stack;

pub fn initiate<S: Stack>(end: &mut Endpoint<'_, S>) -> Result<()> {
    let (size, messages) = (end.job().size, end.job().messages);
    for message in 1..=messages {
        end.post_receive(size)?;
        end.post_send(size)?;
        end.until_received(message)?;
    }
    end.until_sent(messages)
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
        end.post_send(size)?;
    }
    end.until_sent(messages)
}
