use std::net::{SocketAddr, UdpSocket};

use super::*;

fn open() -> Paths {
    Paths::open(&Settings { address: Some([127, 0, 0, 1].into()), ..Settings::default() }).unwrap()
}

#[test]
fn no_more_peers_introduce_themselves_than_the_total() {
    let mut paths = open();
    let address = SocketAddr::from(([10, 0, 0, 1], 5));
    let host = Host::here().unwrap();
    let name = |token: usize| Name::new(host, 1, 2, token as u64, 4, address);
    let inserted = paths.insert(&name(0));
    for token in 1..=INTRODUCED.total.count() {
        assert!(paths.meet(&name(token)).is_some());
    }
    assert_eq!(paths.meet(&name(INTRODUCED.total.count() + 1)), None);
    assert_eq!(paths.meet(&name(0)), Some(inserted), "who is known stays so");
}

/// Introduces the endpoint of this host and token to `paths` from a socket.
fn call(paths: &Paths, host: Host, token: u64) -> (UdpSocket, Name) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = Name::new(host, paths.name.user(), 2, token, 4, socket.local_addr().unwrap());
    socket.send_to(&Introduction::write(&name, &paths.name), paths.network.local_address()).unwrap();
    (socket, name)
}

/// Polls until so many peers are reached over the network.
fn hear(paths: &mut Paths, reached: usize) {
    while paths.from_network.len() < reached {
        paths.network.receive(64, |_, _| ()).unwrap();
        paths.accept_callers().unwrap();
    }
}

#[test]
fn who_claims_this_host_over_the_network_is_not_met() {
    let mut paths = open();
    let _hostile = call(&paths, paths.name.host(), 1);
    let (_socket, honest) = call(&paths, Name::example().host(), 2);
    hear(&mut paths, 1);
    let [peer] = &paths.peers[..] else { panic!("one is met") };
    assert_eq!((peer.name, peer.local), (honest, false));
    assert!(paths.admit().unwrap().reliability.is_some() && paths.admit().is_none());
}

#[test]
fn who_shows_the_token_of_a_peer_is_not_taken_for_it() {
    let mut paths = open();
    for (token, host) in [(1, paths.name.host()), (2, Name::example().host())] {
        let named = Name::new(host, paths.name.user(), 2, token, 9, SocketAddr::from(([10, 0, 0, 1], 5)));
        let peer = paths.insert(&named);
        let (_socket, impostor) = call(&paths, Name::example().host(), token);
        hear(&mut paths, token as usize);
        assert_eq!(paths.peers[peer.0 as usize].way, Route::Untried);
        let met = paths.insert(&impostor);
        assert_ne!(met, peer);
        assert!(matches!(paths.peers[met.0 as usize].way, Route::Network(_)));
    }
}

#[test]
fn an_invitation_in_a_name_that_is_reached_otherwise_is_refused() {
    let mut paths = open();
    let here = Name::new(paths.name.host(), paths.name.user(), 2, 1, 4, SocketAddr::from(([127, 0, 0, 1], 5)));
    let another_user = Name::new(here.host(), !here.user(), 2, 1, 4, here.address());
    for name in [Name::example(), another_user, here.with(false, Semantics::Matched), here] {
        let (mine, theirs) = UnixStream::pair().unwrap();
        let mut inviter = ShmPort::default();
        let peer = inviter.add_peer();
        inviter.invite(peer, theirs, name.as_bytes()).unwrap();
        let invitation = Invitation::take(&mine).unwrap().expect("an invitation");
        assert_eq!(paths.accept(invitation, mine).is_ok(), name == here, "{name:?}");
        assert_eq!(paths.peers.len(), usize::from(name == here));
    }
}
