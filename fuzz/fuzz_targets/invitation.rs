//! An invitation from any process of this user, and any words in the memory that comes with it: packets stay within the mtu.
//!
//! The input is the invitation, a byte that says what memory is passed with it, and words for that memory: each has two bytes
//! for its place.
#![no_main]

use std::fs::File;
use std::hint::black_box;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::fuzz_target;
use linux::region::Region;
use ports::shm::{Geometry, INTRODUCTION, Invitation, ShmPort};
use machine::Port;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// Bytes of an invitation.
const LENGTH: usize = 128;

/// Memory as an inviter makes it, which keeps it while it lives.
fn memory() -> (ShmPort, OwnedFd) {
    let (mine, theirs) = UnixStream::pair().unwrap();
    let mut inviter = ShmPort::default();
    let peer = inviter.add_peer();
    inviter.invite(peer, theirs, &[0; INTRODUCTION]).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; LENGTH];
    rustix::net::recvmsg(&mine, &mut [IoSliceMut::new(&mut bytes)], &mut attached, RecvFlags::CMSG_CLOEXEC).unwrap();
    let passed = attached.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    (inviter, passed.expect("the memory"))
}

fn say(stream: &UnixStream, invitation: &[u8], memory: Option<BorrowedFd>) {
    let memory = memory.map(|memory| [memory]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    if let Some(memory) = &memory {
        attached.push(SendAncillaryMessage::ScmRights(memory));
    }
    rustix::net::sendmsg(stream, &[IoSlice::new(invitation)], &mut attached, SendFlags::empty()).unwrap();
}

fuzz_target!(|bytes: &[u8]| {
    let (invitation, rest) = bytes.split_at(bytes.len().min(LENGTH));
    if invitation.is_empty() {
        return;
    }
    let (_inviter, memory) = memory();
    let memory = File::from(memory);
    let unsealed = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&unsealed, memory.metadata().unwrap().len()).unwrap();
    let short = Region::create("fuzz", 4096).unwrap();
    let (mine, theirs) = UnixStream::pair().unwrap();
    // The kernel names the sender of what comes from now on.
    rustix::net::sockopt::set_socket_passcred(&mine, true).unwrap();
    let (how, words) = rest.split_first().unwrap_or((&0, &[]));
    let passed = match how {
        1 => None,
        2 => Some(unsealed.as_fd()),
        3 => Some(short.fd()),
        _ => Some(memory.as_fd()),
    };
    say(&theirs, invitation, passed);
    let Ok(Some(taken)) = Invitation::take(&mine) else { return };
    assert!(invitation.len() == LENGTH && !matches!(how, 1..=3));
    let mtu = Geometry::default().mtu;
    let mut port = ShmPort::default();
    let peer = port.add_peer();
    if port.accept(peer, taken, mine).is_err() {
        return;
    }
    for record in words.chunks_exact(10) {
        let place = 8 * u64::from(u16::from_le_bytes([record[0], record[1]]));
        memory.write_all_at(&record[2..], place).unwrap();
        let deliver = |from, packet: &[u8]| {
            assert!(from == peer && packet.len() <= mtu);
            black_box(packet.iter().fold(0, |sum, byte| sum ^ byte));
        };
        assert!(port.receive(8, deliver).unwrap() <= 8);
    }
    port.notices(|_| ()).unwrap();
});
