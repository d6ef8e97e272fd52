//! The calling end: answers in any order, late, malformed, refused, for others, and none at all.

use crate::queue;
use machine::Nanoseconds;
use offcode::call::{Header, Kind};
use offcode::channel::{Buffers, Cast, Delivery, Specification, Synchronization};
use offcode::{Caller, Channel, Written, interface};
use proptest::prelude::*;

#[interface(guid = "6c1b1f52-0f9e-4b0d-9c52-1f2e3d4c5b6a")]
trait Doubler {
    fn double(&mut self, number: u64) -> u64;
    fn tell(&mut self, number: u64);
}

const DOUBLER: DoublerProxy = DoublerProxy;
const SOON: Nanoseconds = Nanoseconds(2_000_000);
const AMPLE: Nanoseconds = Nanoseconds(10_000_000_000);

fn joined() -> (Caller<queue::End>, queue::End) {
    let (near, far) = queue::pair(Specification::default());
    (Caller::new(near), far)
}

/// The calls that wait at the far end.
fn taken(far: &mut queue::End) -> Vec<(Header, u64)> {
    let mut calls = Vec::new();
    while far
        .read_with(&mut |message| {
            let (header, arguments) = Header::read(message).unwrap();
            calls.push((header, offcode::encoding::postcard::whole(arguments).unwrap()));
        })
        .unwrap()
    {}
    calls
}

fn answer(far: &mut queue::End, call: Header, kind: Kind, rest: &[u8]) {
    let mut message = vec![0; Header::LENGTH];
    Header { kind, ..call }.write(message.first_chunk_mut().unwrap());
    message.extend_from_slice(rest);
    assert_eq!(far.write(&message).unwrap(), Written::Taken);
}

fn doubled(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    offcode::encoding::postcard::put(&(2 * number), &mut bytes).unwrap();
    bytes
}

proptest! {
    /// Each result reaches its call, whatever the order of answers, of waiting, and of giving up.
    #[test]
    fn answers_find_their_calls(order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
                                waiting in Just((0..12u64).collect::<Vec<_>>()).prop_shuffle(),
                                forgotten in 0usize..4) {
        let (mut caller, mut far) = joined();
        let mut pending: Vec<_> = (0..12u64).map(|n| Some(DOUBLER.double(n).over(&mut caller).unwrap())).collect();
        for &number in &waiting[..forgotten] {
            caller.forget(pending[number as usize].take().unwrap());
        }
        let calls = taken(&mut far);
        for &place in &order {
            let (header, number) = calls[place];
            answer(&mut far, header, Kind::Reply, &doubled(number));
        }
        for &number in &waiting[forgotten..] {
            let one = pending[number as usize].take().unwrap();
            prop_assert_eq!(caller.wait(one, AMPLE, || {}).unwrap(), 2 * number);
        }
        caller.sort().unwrap();
        prop_assert_eq!((caller.unanswered(), caller.strays()), (0, forgotten as u64));
    }

    /// Bytes that no offcode wrote neither end the caller nor become a result that was not sent.
    #[test]
    fn noise_is_no_answer(noise in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20)) {
        let (mut caller, mut far) = joined();
        let pending = DOUBLER.double(21).over(&mut caller).unwrap();
        let (header, _) = taken(&mut far)[0];
        for message in &noise {
            let _ = far.write(message).unwrap();
        }
        answer(&mut far, header, Kind::Reply, &doubled(21));
        prop_assert_eq!(caller.wait(pending, AMPLE, || {}).unwrap(), 42);
    }
}

#[test]
fn refusals_and_malformed_results_are_faults_of_their_call_only() {
    let (mut caller, mut far) = joined();
    let [one, two, three] = [1, 2, 3].map(|n| DOUBLER.double(n).over(&mut caller).unwrap());
    let calls = taken(&mut far);
    answer(&mut far, calls[0].0, Kind::Refused, "not today".as_bytes());
    answer(&mut far, calls[1].0, Kind::Reply, &[0x80, 0x80]);
    answer(&mut far, calls[2].0, Kind::Reply, &doubled(3));
    assert_eq!(caller.wait(three, AMPLE, || {}).unwrap(), 6);
    assert!(caller.wait(two, AMPLE, || {}).unwrap_err().subject().contains("result of Doubler.double"));
    assert_eq!(caller.try_take(&one).unwrap_err().cause(), "refused: not today");
    assert!(caller.try_take(&one).unwrap_err().cause().contains("taken already"));
    assert_eq!(caller.unanswered(), 0);
}

#[test]
fn a_limit_ends_the_wait_and_what_comes_later_is_a_stray() {
    let (mut caller, mut far) = joined();
    let mut turns = 0u64;
    let pending = DOUBLER.double(4).over(&mut caller).unwrap();
    let fault = caller.wait(pending, SOON, || turns += 1).unwrap_err();
    assert!(fault.cause().contains("no result came within") && turns > 0, "{fault}");
    let (header, _) = taken(&mut far)[0];
    answer(&mut far, header, Kind::Reply, &doubled(4));
    // The next call does not take the late answer for its own.
    let pending = DOUBLER.double(5).over(&mut caller).unwrap();
    let (header, _) = taken(&mut far)[0];
    answer(&mut far, header, Kind::Reply, &doubled(5));
    assert_eq!(caller.wait(pending, AMPLE, || {}).unwrap(), 10);
    assert_eq!((caller.strays(), caller.unanswered()), (1, 0));
}

#[test]
fn the_closure_may_be_what_answers() {
    let (mut caller, mut far) = joined();
    let result = caller.call(&DOUBLER.double(8), AMPLE, || {
        for (header, number) in taken(&mut far) {
            answer(&mut far, header, Kind::Reply, &doubled(number));
        }
    });
    assert_eq!(result.unwrap(), 16);
}

#[test]
fn an_end_that_goes_is_noticed_after_its_last_answer() {
    let (mut caller, mut far) = joined();
    let [one, two] = [1, 2].map(|n| DOUBLER.double(n).over(&mut caller).unwrap());
    let calls = taken(&mut far);
    answer(&mut far, calls[1].0, Kind::Reply, &doubled(2));
    drop(far);
    assert!(caller.wait(one, AMPLE, || {}).unwrap_err().cause().contains("has gone"));
    assert_eq!(caller.wait(two, AMPLE, || {}).unwrap(), 4);
    assert!(DOUBLER.tell(1).over(&mut caller).unwrap_err().cause().contains("has gone"));
}

#[test]
fn one_way_calls_wait_for_nothing() {
    let (mut caller, mut far) = joined();
    let pending = DOUBLER.tell(9).over(&mut caller).unwrap();
    caller.wait(pending, SOON, || panic!("nothing to wait for")).unwrap();
    let [(header, 9)] = taken(&mut far)[..] else { panic!("one call with 9") };
    assert_eq!((header.kind, header.method, caller.unanswered()), (Kind::OneWay, 1, 0));
}

#[test]
fn a_channel_without_room_says_so_and_room_that_comes_is_taken() {
    let specification =
        Specification { buffers: Buffers { count: 4, ..Specification::default().buffers }, ..Default::default() };
    let (near, mut far) = queue::pair(specification);
    let mut caller = Caller::new(near);
    let pending: Vec<_> = (0..4).map(|n| DOUBLER.double(n).over(&mut caller).unwrap()).collect();
    assert!(DOUBLER.double(4).over(&mut caller).unwrap_err().cause().contains("no room"));
    assert!(caller.send(&DOUBLER.double(4), SOON, || {}).unwrap_err().cause().contains("no room for 2 ms"));
    let fifth = caller.send(&DOUBLER.double(4), AMPLE, || {
        for (header, number) in taken(&mut far) {
            answer(&mut far, header, Kind::Reply, &doubled(number));
        }
    });
    let fifth = fifth.unwrap();
    for (n, one) in pending.into_iter().enumerate() {
        assert_eq!(caller.wait(one, AMPLE, || {}).unwrap(), 2 * n as u64);
    }
    caller.forget(fifth);

    let (near, _far) = queue::pair(Specification { delivery: Delivery::Unreliable, ..specification });
    let mut caller = Caller::new(near);
    for n in 0..4 {
        caller.call(&DOUBLER.tell(n), AMPLE, || {}).unwrap();
    }
    assert!(caller.try_send(&DOUBLER.tell(4)).unwrap_err().cause().contains("dropped"));
}

#[test]
fn one_call_goes_to_several() {
    let mut ends: Vec<_> = (0..3).map(|_| joined()).collect();
    let call = DOUBLER.double(7);
    let mut callers: Vec<_> = ends.iter_mut().map(|(caller, _)| caller).collect();
    let pending = call.send_to(&mut callers);
    for (place, (one, (caller, far))) in pending.into_iter().zip(&mut ends).enumerate() {
        let [(header, 7)] = taken(far)[..] else { panic!("one call with 7") };
        answer(far, header, Kind::Reply, &doubled(place as u64));
        assert_eq!(caller.wait(one.unwrap(), AMPLE, || {}).unwrap(), 2 * place as u64);
    }
}

#[test]
fn only_calls_without_answer_go_over_a_multicast_channel() {
    let (mut near, mut far) = queue::pair(Specification { cast: Cast::Multicast, ..Default::default() });
    assert!(DOUBLER.double(7).multicast(&mut near).unwrap_err().cause().contains("wants an answer"));
    assert_eq!(DOUBLER.double(7).without_answer().multicast(&mut near).unwrap(), Written::Taken);
    assert_eq!(DOUBLER.tell(8).multicast(&mut near).unwrap(), Written::Taken);
    let calls = taken(&mut far);
    assert!(calls.iter().all(|(header, _)| header.kind == Kind::OneWay) && calls.len() == 2);
    let (mut near, _far) = queue::pair(Specification::default());
    assert!(DOUBLER.tell(8).multicast(&mut near).unwrap_err().cause().contains("unicast"));
}

#[test]
fn what_is_no_answer_goes_to_the_handler_or_is_refused() {
    let (mut caller, mut far) = joined();
    let header = Header { interface: 1, method: 2, kind: Kind::Call, route: 0, id: 3 };
    answer(&mut far, header, Kind::Call, &[]);
    answer(&mut far, header, Kind::OneWay, &[]);
    caller.sort().unwrap();
    assert_eq!(caller.strays(), 1);
    far.read_with(&mut |message| {
        let (refused, why) = Header::read(message).unwrap();
        assert_eq!((refused.kind, refused.id), (Kind::Refused, 3));
        assert!(std::str::from_utf8(why).unwrap().contains("no interface 0000000000000001"));
    })
    .unwrap();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = seen.clone();
    caller.on_message(move |message| sink.lock().unwrap().push(message.len()));
    answer(&mut far, header, Kind::Call, &[1, 2]);
    let _ = far.write(b"no call at all").unwrap();
    caller.sort().unwrap();
    assert_eq!(*seen.lock().unwrap(), [18, 14]);
    assert!(!far.poll().unwrap());
}

#[test]
fn a_blocking_channel_may_be_slept_on() {
    let (near, mut far) =
        queue::pair(Specification { synchronization: Synchronization::Blocking, ..Default::default() });
    let mut caller = Caller::new(near);
    let pending = DOUBLER.double(3).over(&mut caller).unwrap();
    let other = std::thread::spawn(move || {
        let calls = taken(&mut far);
        answer(&mut far, calls[0].0, Kind::Reply, &doubled(3));
        far
    });
    assert_eq!(caller.sleep(pending, AMPLE).unwrap(), 6);
    let _far = other.join().unwrap();
    let pending = DOUBLER.double(3).over(&mut caller).unwrap();
    assert!(caller.sleep(pending, SOON).unwrap_err().cause().contains("no result"));
}
