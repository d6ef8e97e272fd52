//! NetPIPE's bidirectional send-receive with preposted receives (`-2 -a`): both ends do the same; the receive of the
//! next message is posted before the wait for this one.

use machine::Result;

use super::Ready;
use crate::endpoint::Endpoint;
use crate::stack::Stack;

pub fn run<S: Stack>(end: &mut Endpoint<'_, S>, ready: Ready<'_>) -> Result<()> {
    let (size, messages) = (end.job().size, end.job().messages);
    end.post_receive(size)?;
    ready()?;
    for message in 1..=messages {
        if message < messages {
            end.post_receive(size)?;
        }
        end.post_send(size)?;
        end.until_received(message)?;
        end.until_sent(message)?;
    }
    Ok(())
}
