//! The check of what a guest put out. Nothing is carried out before all of it has passed.

use offcode::ChannelId;
use offcode::abi::{self, Action, GONE, Malformed, Records};

/// Answers that the events of one entry allow the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    /// A call: one reply or refusal must come.
    pub answer: bool,
    /// `initialize`, `start` or an attribute: a refusal may come.
    pub refusal: bool,
    /// A turn: it may say that it worked.
    pub worked: bool,
    /// `save`: a part of the state or a refusal must come.
    pub state: bool,
    /// The manifest asks for timers.
    pub timers: bool,
    /// The manifest asks for shared words.
    pub memory: bool,
    /// The manifest asks for maps.
    pub maps: bool,
}

/// The content of a checked output beside writes and log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputSummary<'a> {
    pub answer: Option<Answer<'a>>,
    pub worked: bool,
    /// Whether there is anything to write or to log.
    pub acts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    Reply(&'a [u8]),
    Refused(&'a [u8]),
    State(&'a [u8]),
}

/// Checks an output. `room` is the guest's room table as the host wrote it, one entry a channel; writes are taken off
/// it. `peers` is how many its manifest names.
///
/// # Errors
/// A sentence about what the guest did wrong.
#[inline]
pub fn check<'a>(
    output: &'a [u8],
    allowed: Allowed,
    room: &mut [u32],
    peers: u32,
) -> Result<OutputSummary<'a>, String> {
    let mut said = OutputSummary::default();
    for record in Records::of(output) {
        let (record, payload) = record.map_err(|malformed: Malformed| malformed.to_string())?;
        match Action::from_kind(record.kind) {
            Some(Action::Write) => {
                let channel = record.channel;
                let is_peer = ChannelId(channel).as_peer().is_some();
                if is_peer && channel >= ChannelId::peer(0).0 + peers {
                    return Err(format!("it wrote to channel {channel:#x}, a peer that it does not have"));
                }
                match room.get_mut(abi::line(channel) as usize) {
                    Some(&mut GONE) => {}
                    Some(0) => return Err(format!("it wrote to channel {channel} beyond the room that it was told")),
                    Some(room) => *room -= 1,
                    None => return Err(format!("it wrote to channel {channel}, which it does not have")),
                }
                said.acts = true;
            }
            Some(Action::Log) => said.acts = true,
            Some(Action::Timer) if allowed.timers && payload.len() == 16 => said.acts = true,
            Some(Action::Timer) if allowed.timers => return Err("it set a timer to no time".into()),
            Some(Action::Store) if allowed.memory && !payload.len().is_multiple_of(8) => {
                return Err("it stored a part of a word".into());
            }
            Some(Action::Share | Action::Store | Action::Load) if allowed.memory => said.acts = true,
            Some(Action::Map) if allowed.maps => said.acts = true,
            Some(action @ (Action::Timer | Action::Share | Action::Store | Action::Load | Action::Map)) => {
                return Err(format!("it used a service that its manifest does not ask for ({action:?})"));
            }
            Some(kind @ (Action::Reply | Action::Refuse | Action::State)) => {
                if said.answer.is_some() {
                    return Err("it answered twice".into());
                }
                said.answer = Some(match kind {
                    Action::Reply if allowed.answer => Answer::Reply(payload),
                    Action::State if allowed.state => Answer::State(payload),
                    Action::Refuse if allowed.answer || allowed.refusal || allowed.state => Answer::Refused(payload),
                    _ => return Err(format!("it answered (action {}) where nothing was asked", record.kind)),
                });
            }
            Some(Action::Worked) if allowed.worked => said.worked = true,
            Some(Action::Worked) => return Err("it told of a turn where there was none".into()),
            None => return Err(format!("action {} does not exist", record.kind)),
        }
    }
    if allowed.answer && said.answer.is_none() {
        return Err("it returned from a call without a reply or a refusal".into());
    }
    if allowed.state && said.answer.is_none() {
        return Err("it was to save its state and said neither a part of it nor a refusal".into());
    }
    Ok(said)
}
