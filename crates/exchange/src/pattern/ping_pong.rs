//! Ping-pong: one message there, one back, each end sending before it posts its next receive (NetPIPE's default, OSU's
//! latency test: `MPI_Send`, then `MPI_Recv`).

use machine::Result;

use super::Ready;
use crate::endpoint::Endpoint;
use crate::stack::Stack;

pub fn initiate<S: Stack>(end: &mut Endpoint<'_, S>) -> Result<()> {
    let (size, messages) = (end.job().size, end.job().messages);
    for message in 1..=messages {
        end.post_send(size)?;
        end.post_receive(size)?;
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
        end.post_send(size)?;
        if message < messages {
            end.post_receive(size)?;
        }
    }
    end.until_sent(messages)
}
