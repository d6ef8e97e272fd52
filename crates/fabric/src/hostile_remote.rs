//! Remote memory: growth caused by peers, accesses that outlive their region, and promises that calls ask for.

use std::ptr::null_mut;

use endpoint::Space;
use machine::bounds::WRITTEN_UNREAD;

use crate::abi::atomic::{AtomicMessage, RemoteElements};
use crate::abi::completion::Entry;
use crate::abi::constants::*;
use crate::abi::info::{Info, TransmitAttr};
use crate::abi::object::*;
use crate::abi::transfer::{Message, RemoteIovec, RemoteMessage, TaggedMessage};
use crate::completion_queue::CompletionQueue;
use crate::endpoint::Endpoint;
use crate::hostile::{BOTH, Bytes, Peer, Victim, WRITE, close, until};
use crate::refuse::signed;
use crate::wire::{APART, Header, Kind, WITH_DATA, answered, given};
use crate::{counter, endpoint_calls};

/// Makes progress without reading completions.
fn turn(victim: &Victim) {
    // SAFETY: an open endpoint, and no reference to its state is in use.
    unsafe {
        let endpoint = Endpoint::of(victim.endpoint);
        let _entered = endpoint.domain.enter();
        endpoint.progress(None);
    }
}

fn set_flags(victim: &Victim, mut flags: u64) -> i32 {
    // SAFETY: an open endpoint, and the flags that the command wants.
    unsafe { ((*(*victim.endpoint).fid.ops).control)(victim.endpoint.cast(), FI_SETOPSFLAG, (&raw mut flags).cast()) }
}

#[test]
fn writes_with_data_that_nobody_reads_of_are_refused_beyond_their_bound() {
    let victim = Victim::open(FI_RMA);
    let mut peer = Peer::of(&victim);
    let bytes = Bytes::new(8);
    let region = victim.register(bytes, FI_REMOTE_WRITE, 1);
    // Stands for entries of so many writes.
    for _ in 0..WRITTEN_UNREAD.total.count() {
        let (op_context, buffer) = (null_mut(), null_mut());
        let entry = Entry { op_context, flags: 0, length: 0, buffer, data: 0, tag: 0 };
        // SAFETY: an open queue that one thread uses.
        unsafe { (*victim.queue.cast::<CompletionQueue>()).push(entry, FI_ADDR_NOTAVAIL) };
    }
    let write = |ticket, flags| Header { flags, ticket, ..WRITE };
    for flags in [WITH_DATA, WITH_DATA | APART] {
        peer.ask(write(1, flags), &[6; 8]);
        let told = until("the write is refused", || {
            turn(&victim);
            peer.told()
        });
        assert_eq!((told.kind, told.error as i32), (Kind::Failed, FI_EOVERRUN));
    }
    assert_eq!(bytes.look(), [0; 8]);
    // Writes without an entry go on, and another with one after a read.
    for flags in [0, WITH_DATA] {
        let ticket = 2 + u64::from(flags);
        peer.await_answer(ticket, 8);
        peer.ask(write(ticket, flags), &[6; 8]);
        until("the write has ended", || {
            turn(&victim);
            peer.answer(ticket)
        });
        assert_eq!(bytes.look(), [6; 8]);
        assert!(victim.poll().is_some());
    }
    close(region);
}

/// A write that had come whole, but was not handled when its region was closed.
#[test]
fn a_region_counts_no_access_to_another_that_had_its_key() {
    let victim = Victim::open(FI_RMA | FI_MSG);
    let mut peer = Peer::of(&victim);
    let region = victim.register(Bytes::new(5000), FI_REMOTE_WRITE, 1);
    victim.receive(Bytes::new(8));
    peer.await_answer(9, 8);
    peer.ask(Header { ticket: 9, flags: APART, length: 5000, ..WRITE }, &[]);
    peer.is_served(&victim);
    peer.say(Space::Message, 0, vec![0; 8]);
    peer.say(Space::RemoteData, given(9), vec![7; 5000]);
    // The read has room for the message only.
    let came = until("a message", || {
        peer.poll();
        victim.poll()
    });
    assert!(came.is_ok());
    close(region);

    let region = victim.register(Bytes::new(5000), FI_REMOTE_WRITE, 1);
    let mut counter = null_mut::<FidCounter>();
    // SAFETY: an open domain, an open region, an open counter.
    unsafe {
        assert_eq!(counter::open(victim.domain, null_mut(), &mut counter, null_mut()), 0);
        assert_eq!(((*(*region).ops).bind)(region, counter.cast(), FI_REMOTE_WRITE), 0);
    }
    until("the write has ended, or was refused", || {
        turn(&victim);
        peer.answer(9).map(drop).or_else(|| peer.told().map(drop))
    });
    // SAFETY: an open counter.
    assert_eq!(unsafe { ((*(*counter).ops).read)(counter) }, 0);
    close(region);
    close(counter.cast());
}

#[test]
fn keys_hold_in_their_own_domain_alone() {
    let (victim, other) = (Victim::open(FI_RMA), Victim::open(FI_RMA));
    let mut peer = Peer::of(&victim);
    let bytes = Bytes::new(8);
    let region = other.register(bytes, BOTH, 1);
    assert_eq!(peer.carry_out(&victim, WRITE, &[9; 8]), Err(FI_ENOKEY));
    assert_eq!(peer.carry_out(&victim, Header { kind: Kind::Read, ticket: 2, ..WRITE }, &[]), Err(FI_ENOKEY));
    assert_eq!(bytes.look(), [0; 8]);
    close(region);
}

/// A read needs a place for its bytes even if all calls of its endpoint inject.
#[test]
fn a_read_lands_whatever_flags_its_endpoint_has() {
    let victim = Victim::open(FI_RMA);
    let mut peer = Peer::of(&victim);
    let address = victim.insert(&peer.engine.name());
    assert_eq!(set_flags(&victim, FI_SEND | FI_INJECT), 0);
    for length in [100, 100_000] {
        let into = Bytes::new(length);
        victim.read(into, address, 1);
        let asked = until("the read is asked for", || {
            victim.poll();
            peer.told()
        });
        assert_eq!((asked.kind, asked.length), (Kind::Read, length as u64));
        peer.say(Space::RemoteData, answered(asked.ticket), vec![7; length]);
        let end = until("the read has ended", || {
            peer.poll();
            victim.poll()
        });
        assert_eq!(end.map(|entry| entry.length).map_err(|error| error.error), Ok(length));
        assert!(into.look().iter().all(|&byte| byte == 7), "{length}");
    }
}

/// Any error number of the target.
#[test]
fn an_inject_that_the_target_refuses_is_an_error_without_a_context() {
    let victim = Victim::open(FI_RMA);
    let mut peer = Peer::of(&victim);
    let address = victim.insert(&peer.engine.name());
    for (said, expected) in [(FI_ENOKEY, FI_ENOKEY), (0, FI_EIO), (FI_EAVAIL, FI_EIO), (-1, FI_EIO)] {
        // SAFETY: an open endpoint; the bytes are copied.
        let code = unsafe {
            let ep = victim.endpoint;
            ((*(*ep).rma).inject)(ep, [1u8; 8].as_ptr().cast(), 8, address, 0, 1)
        };
        assert_eq!(code, 0);
        let asked = until("the write is asked for", || {
            assert!(victim.poll().is_none());
            peer.told()
        });
        let refusal = Header { kind: Kind::Failed, error: said as u32, ticket: asked.ticket, ..WRITE };
        peer.say(Space::Remote, 0, refusal.write().to_vec());
        let end = until("the write has ended", || {
            peer.poll();
            victim.poll()
        });
        let error = end.err().expect("it was refused");
        assert_eq!((error.error, error.op_context.is_null()), (expected, true), "{said}");
    }
}

#[test]
fn an_order_or_a_durability_that_is_not_kept_is_refused() {
    let victim = Victim::open(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
    let addr = victim.insert(&victim.name());
    let (iov, desc, context) = (std::ptr::null(), null_mut(), null_mut());
    let remote = RemoteIovec { addr: 0, length: 0, key: 1 };
    let elements = RemoteElements { addr: 0, count: 0, key: 1 };
    let message = Message { iov, desc, iov_count: 0, addr, context, data: 0 };
    let tagged = TaggedMessage { iov, desc, iov_count: 0, addr, tag: 0, ignore: 0, context, data: 0 };
    let access =
        RemoteMessage { iov, desc, iov_count: 0, addr, remote_iov: &remote, remote_iov_count: 1, context, data: 0 };
    let atomic = AtomicMessage {
        iov: std::ptr::null(),
        desc,
        iov_count: 0,
        addr,
        remote_iov: &elements,
        remote_iov_count: 1,
        datatype: 0,
        op: 2,
        context,
        data: 0,
    };
    for flag in [FI_FENCE, FI_COMMIT_COMPLETE] {
        let ep = victim.endpoint;
        // SAFETY: an open endpoint, messages of nothing.
        let codes = unsafe {
            [
                ((*(*ep).msg).sendmsg)(ep, &message, flag),
                ((*(*ep).tagged).sendmsg)(ep, &tagged, flag),
                ((*(*ep).rma).readmsg)(ep, &access, flag),
                ((*(*ep).rma).writemsg)(ep, &access, flag),
                ((*(*ep).atomic).writemsg)(ep, &atomic, flag),
            ]
        };
        assert_eq!(codes, [signed(FI_EBADFLAGS); 5], "{flag:#x}");
        assert_eq!(set_flags(&victim, FI_SEND | flag), -FI_EBADFLAGS);
        // SAFETY: zeroed attributes are what applications pass for the usual.
        let (mut info, mut attr) = unsafe { (std::mem::zeroed::<Info>(), std::mem::zeroed::<TransmitAttr>()) };
        attr.op_flags = flag;
        (info.caps, info.tx_attr) = (FI_MSG, &raw mut attr);
        let mut endpoint = null_mut();
        // SAFETY: an open domain.
        let code = unsafe { endpoint_calls::open(victim.domain, &mut info, &mut endpoint, null_mut()) };
        assert_eq!(code, -FI_EINVAL);
    }
}
