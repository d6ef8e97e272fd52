//! The check of outputs against any bytes, and against outputs that are right but for one thing.

use offcode::abi::{Action, GONE, Record, Records};
use proptest::prelude::*;
use wasm::output::{Allowed, Answer, check};

fn allowed() -> impl Strategy<Value = Allowed> {
    any::<[bool; 7]>().prop_map(|[answer, refusal, worked, state, timers, memory, maps]| Allowed {
        answer,
        refusal,
        worked,
        state,
        timers,
        memory,
        maps,
    })
}

fn room() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![Just(GONE), 0u32..5], 0..6)
}

/// Records near those that a guest would write.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let channel = prop_oneof![4 => 0u32..6, 1 => (0u32..4).prop_map(|place| 1 << 31 | place), 1 => any::<u32>()];
    let record = (0u16..13, channel, prop::collection::vec(any::<u8>(), 0..40));
    prop::collection::vec(record, 0..12).prop_map(|records| {
        let mut area = vec![0; 1024];
        let mut end = 0;
        for (kind, channel, payload) in records {
            end = Record { kind, channel, ..Record::default() }.put(&mut area, end, &[&payload]).unwrap();
        }
        area.truncate(end);
        area
    })
}

fn holds(bytes: &[u8], allowed: Allowed, before: &[u32], peers: u32) -> Result<(), TestCaseError> {
    let mut room = before.to_vec();
    let Ok(said) = check(bytes, allowed, &mut room, peers) else { return Ok(()) };
    // Whatever passed may be carried out: every record decodes, keeps to the room and answers what was asked.
    let (mut writes, mut answers) = (vec![0u32; before.len()], Vec::new());
    for record in Records::of(bytes) {
        let (record, payload) = record.map_err(|m| TestCaseError::fail(m.to_string()))?;
        match Action::from_kind(record.kind) {
            Some(Action::Write) if record.channel >> 31 == 1 => {
                prop_assert!(record.channel & 0x7FFF_FFFF < peers);
                writes[0] += 1;
            }
            Some(Action::Write) => writes[record.channel as usize] += 1,
            Some(Action::Reply) => {
                prop_assert!(allowed.answer);
                answers.push(Answer::Reply(payload));
            }
            Some(Action::Refuse) => {
                prop_assert!(allowed.answer || allowed.refusal || allowed.state);
                answers.push(Answer::Refused(payload));
            }
            Some(Action::State) => {
                prop_assert!(allowed.state);
                answers.push(Answer::State(payload));
            }
            Some(Action::Worked) => prop_assert!(allowed.worked && said.worked),
            Some(Action::Log) => prop_assert!(said.acts),
            Some(Action::Timer) => prop_assert!(allowed.timers && said.acts && payload.len() == 16),
            Some(Action::Store) => prop_assert!(allowed.memory && said.acts && payload.len() % 8 == 0),
            Some(Action::Share | Action::Load) => prop_assert!(allowed.memory && said.acts),
            Some(Action::Map) => prop_assert!(allowed.maps && said.acts),
            None => prop_assert!(false, "kind {}", record.kind),
        }
    }
    for ((writes, before), after) in writes.iter().zip(before).zip(&room) {
        prop_assert!(*before == GONE || writes + after == *before);
        prop_assert!(*writes == 0 || said.acts);
    }
    prop_assert!(answers.len() <= 1 && (!(allowed.answer || allowed.state) || answers.len() == 1));
    prop_assert_eq!(said.answer, answers.first().copied());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_passes_may_be_carried_out(bytes in output(), allowed in allowed(), room in room(), peers in 0u32..4) {
        holds(&bytes, allowed, &room, peers)?;
    }

    #[test]
    fn any_bytes_are_checked(bytes in prop::collection::vec(any::<u8>(), 0..200), allowed in allowed(), room in room()) {
        holds(&bytes, allowed, &room, 2)?;
    }
}

#[test]
fn an_output_of_everything_that_is_allowed_passes() {
    let mut area = [0; 256];
    let mut end = 0;
    for (action, channel) in
        [(Action::Write, 1), (Action::Write, 1 << 31), (Action::Log, 0), (Action::Reply, 0), (Action::Worked, 0)]
    {
        end = Record { kind: action as u16, channel, ..Record::default() }.put(&mut area, end, &[b"abc"]).unwrap();
    }
    let allowed = Allowed { answer: true, worked: true, ..Allowed::default() };
    let mut room = [1, 2];
    let said = check(&area[..end], allowed, &mut room, 1).unwrap();
    assert_eq!((said.answer, said.worked, said.acts, room), (Some(Answer::Reply(b"abc")), true, true, [0, 1]));
    assert!(check(&area[..end], allowed, &mut [0, 2], 1).unwrap_err().contains("beyond the room"));
    assert!(check(&area[..end], allowed, &mut [1, 2], 0).unwrap_err().contains("a peer that it does not have"));
    assert!(check(&area[..end - 1], allowed, &mut [1, 2], 1).is_err());
}
