use super::*;
use crate::site::OUT_OF_BAND;

#[test]
fn calls_that_nobody_answers_are_bounded() {
    let ends = || ports::channel::unicast(&OUT_OF_BAND).unwrap();
    let ((caller, mut calls), (silent, mut called)) = (ends(), ends());
    let party = |end: ports::channel::Memory, peers: &[(u8, PartyId)]| {
        let peers = peers.iter().copied().collect();
        Some(Party { name: "test".into(), end: Box::new(end), peers, waiting: VecDeque::new(), trace: None })
    };
    let parties = vec![party(caller, &[(0, PartyId(1))]), party(silent, &[])];
    let mut board = Board { parties, ..Board::default() };
    let mut answers = Vec::new();
    for id in 0..=OPEN as u32 {
        let mut message = [0; Header::LENGTH];
        Header { interface: 1, method: 0, kind: Kind::Call, route: 1, id }.write(&mut message);
        assert_eq!(calls.write(&message).unwrap(), Written::Taken);
        board.turn();
        assert!(called.read_with(&mut |_| ()).unwrap() || id == OPEN as u32, "call {id} arrives");
        let mut take = |message: &[u8]| answers.push(String::from_utf8_lossy(&message[Header::LENGTH..]).into_owned());
        while calls.read_with(&mut take).unwrap() {}
    }
    assert_eq!(answers, ["too many calls wait for their answers"]);
    assert_eq!(board.open.len(), OPEN);
}

#[test]
fn the_calls_of_one_that_is_watched_are_noted_and_of_others_not() {
    let ends = || ports::channel::unicast(&OUT_OF_BAND).unwrap();
    let ((caller, mut calls), (answerer, mut called)) = (ends(), ends());
    let switchboard = Switchboard::start(Arc::new(|_| {})).unwrap();
    let (from, to) = (switchboard.add("one", Box::new(caller)), switchboard.add("other", Box::new(answerer)));
    switchboard.link(from, 0, to);
    let trace = Trace::default();
    let mut call = |kind: Kind, answer: Option<(Kind, &[u8])>| {
        let mut message = [7; Header::LENGTH + 3];
        let header = Header { interface: 1, method: 2, kind, route: 1, id: 9 };
        header.write(message.first_chunk_mut().unwrap());
        assert_eq!(calls.write(&message).unwrap(), Written::Taken);
        // The switchboard's own thread carries it, which may sleep.
        let mut came = None;
        while came.is_none() {
            called.read_with(&mut |message| came = Header::read(message).map(|(header, _)| header)).unwrap();
        }
        let Some((kind, rest)) = answer else { return };
        let mut message = vec![0; Header::LENGTH];
        Header { kind, ..came.unwrap() }.write(message.first_chunk_mut().unwrap());
        message.extend_from_slice(rest);
        assert_eq!(called.write(&message).unwrap(), Written::Taken);
        while !calls.read_with(&mut |_| ()).unwrap() {}
    };
    call(Kind::Call, Some((Kind::Reply, b"unseen")));
    switchboard.trace(to, Some(trace.clone()));
    call(Kind::Call, Some((Kind::Reply, b"result")));
    call(Kind::Call, Some((Kind::Refused, b"not today")));
    call(Kind::OneWay, None);
    switchboard.trace(to, None);
    call(Kind::Call, Some((Kind::Reply, b"unseen")));
    let package = offcode::manifest::Package {
        guid: offcode::Guid::named("other"),
        name: "other".into(),
        version: "1".into(),
        description: String::new(),
        interfaces: Vec::new(),
        bodies: Vec::new(),
        attributes: Vec::new(),
        state: Default::default(),
    };
    let manifest = offcode::Manifest { package, hardware: Vec::new(), software: Default::default() };
    let noted = trace.since(Some(0), &manifest);
    let outcomes: Vec<_> = noted.calls.iter().map(|call| call.outcome.clone()).collect();
    assert_eq!(outcomes, [Outcome::Result(6), Outcome::Refused("not today".into()), Outcome::OneWay]);
    assert!(noted.calls.iter().all(|call| call.from == "one" && call.bytes == 3), "{noted:?}");
    assert_eq!(noted.calls[0].method, "0000000000000001.2");
    assert_eq!((trace.since(Some(2), &manifest).calls.len(), trace.since(None, &manifest).calls.len()), (1, 0));
}
