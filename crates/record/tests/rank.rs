//! The reader of a rank's tables, with intact and with damaged files.

use std::mem::offset_of;

use proptest::prelude::*;
use record::functions::{Class, named};
use record::image::Image;
use record::layout::{
    COPY, Cell, DIRECTORY, FIRST_REGION, Header, Module, PAGE, Peer, Phase, Region, Site, Thread, kind, text,
};
use record::rank::Rank;
use record::scale::size_class;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The tables of one thread: its totals are those of its cells, of its sites and of its peers.
fn image() -> Image {
    let mut image = Image::default();
    image.header.rank = 3;
    image.header.host = text("node-a");
    image.header.ended = 9_000;
    let mut thread = Thread { calls: 5, messages: 3, bytes: 8 + 9 + 65536, ..Thread::default() };
    thread.ticks[Class::Send as usize] = 4190;
    thread.ticks[Class::Collective as usize] = 400;
    image.region(kind::THREAD, 0, (0, 0), &[thread]);
    let (send, allreduce) = (named("Send").unwrap().id, named("Allreduce").unwrap().id);
    image.row(0, send, 0, [(100, 8), (90, 9), (4000, 65536)]);
    image.row(0, allreduce, 4, [(100, 8), (300, 8)]);
    let site = |function, offset, calls, ticks, most, bytes| Site {
        address: 0x40_0000 + offset,
        offset,
        module: 1,
        function,
        calls,
        ticks,
        most,
        bytes,
        ..Site::default()
    };
    let sites = [site(send.0, 0x1234, 3, 4190, 4000, 65553), site(allreduce.0, 0x99, 2, 400, 300, 16)];
    image.region(kind::SITES, 0, (0, 0), &sites);
    let peer = |messages, bytes| Peer { messages, bytes, ..Peer::default() };
    image.region(kind::PEERS, 0, (0, 0), &[peer(1, 17), peer(2, 65536), peer(0, 0), peer(0, 0)]);
    image.of_rank(kind::MODULES, &[Module { path: text("/bin/x"), ..Module::new_zeroed() }]);
    image.of_rank(kind::PHASES, &[Phase { ticks: 7, level: -1, ..Phase::default() }]);
    image.region(kind::MEMBERS, u16::MAX, (0, 9), &[2u32, 0]);
    image
}

/// The tables of a rank that was killed, or still runs.
fn unclosed() -> Image {
    let mut image = image();
    image.header.ended = 0;
    image
}

fn place(kind: u16, bytes: &[u8]) -> (usize, Region) {
    let entries = bytes[DIRECTORY..FIRST_REGION].chunks_exact(size_of::<Region>());
    let regions = entries.map(|entry| Region::read_from_bytes(entry).unwrap());
    let (place, region) = regions.enumerate().find(|(_, region)| region.kind == kind).unwrap();
    (DIRECTORY + place * size_of::<Region>(), region)
}

/// Offset of a word in the first record of a kind of region.
fn word(kind: u16, bytes: &[u8], offset: usize) -> usize {
    place(kind, bytes).1.offset as usize + offset
}

fn add(bytes: &mut [u8], at: usize, more: u64) {
    let word = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    bytes[at..at + 8].copy_from_slice(&word.wrapping_add(more).to_le_bytes());
}

#[test]
fn what_was_written_is_read() {
    let rank = Rank::read(&image().bytes()).unwrap();
    assert_eq!((rank.header.rank, rank.host().as_str(), rank.threads[&0].calls), (3, "node-a", 5));
    let [send, allreduce] = &rank.rows[..] else { panic!("{:?}", rank.rows.len()) };
    assert_eq!((send.function, send.group), (named("Send").unwrap().id, 0));
    assert_eq!(allreduce.group, 4);
    let cell = &send.cells[size_class(8)];
    assert_eq!((cell.calls, cell.bytes, cell.ticks, cell.least(), cell.most), (2, 17, 190, Some(90), 100));
    assert_eq!(rank.sites[0].1.offset, 0x1234);
    let peers: Vec<_> = rank.peers.iter().map(|peer| (peer.messages, peer.bytes)).collect();
    assert_eq!(peers, [(1, 17), (2, 65536), (0, 0), (0, 0)]);
    assert_eq!((rank.phases[0].level, rank.members[&9].as_slice(), rank.modules.len()), (-1, &[2, 0][..], 1));
    assert_eq!((rank.doubt, Rank::read(&unclosed().bytes()).unwrap().doubt), (None, None));
}

#[test]
fn peers_of_all_threads_are_added_up() {
    let mut image = image();
    image.region(kind::PEERS, 1, (0, 0), &[Peer { messages: 2, bytes: 3, ..Peer::default() }; 6]);
    let rank = Rank::read(&image.bytes()).unwrap();
    let peers: Vec<_> = rank.peers.iter().map(|peer| (peer.messages, peer.bytes)).collect();
    assert_eq!(peers, [(3, 20), (4, 65539), (2, 3), (2, 3), (2, 3), (2, 3)]);
}

#[test]
fn a_file_is_read_like_its_bytes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    image().write(file.path()).unwrap();
    let (opened, read) = (Rank::open(file.path()).unwrap(), Rank::read(&image().bytes()).unwrap());
    assert_eq!(format!("{opened:?}"), format!("{read:?}"));
    assert_eq!(Rank::header(file.path()).unwrap().rank, 3);
}

#[test]
fn bytes_are_read_wherever_they_lie_in_memory() {
    let bytes = image().bytes();
    for shift in 0..9 {
        let mut shifted = vec![0; shift];
        shifted.extend(&bytes);
        assert_eq!(Rank::read(&shifted[shift..]).unwrap().rows.len(), 2, "{shift}");
    }
}

#[test]
fn a_file_cut_off_is_refused_with_its_name_and_what_to_do() {
    let bytes = image().bytes();
    for length in [0, 7, 600, PAGE, FIRST_REGION - 1, FIRST_REGION + 1] {
        let fault = Rank::read(&bytes[..length]).unwrap_err().to_string();
        assert!(fault.contains("profile the program again"), "{length}: {fault}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes[..PAGE]).unwrap();
    let fault = Rank::open(file.path()).unwrap_err().to_string();
    assert!(fault.starts_with(&file.path().display().to_string()), "{fault}");
}

#[test]
fn a_file_of_another_version_says_so() {
    let mut bytes = image().bytes();
    for copy in [0, COPY] {
        bytes[copy + 8] = 1;
    }
    assert!(Rank::read(&bytes).unwrap_err().to_string().contains("another version"));
}

#[test]
fn regions_that_all_point_to_one_place_do_not_fill_the_memory() {
    let mut bytes = image().bytes();
    let (row, _) = place(kind::ROW, &bytes);
    let first = bytes[row..][..size_of::<Region>()].to_vec();
    for place in 0..8192 {
        bytes[DIRECTORY + place * first.len()..][..first.len()].copy_from_slice(&first);
    }
    bytes[offset_of!(Header, regions)..][..8].copy_from_slice(&8192u64.to_le_bytes());
    assert!(Rank::read(&bytes).unwrap_err().to_string().contains("into another"));
}

#[test]
fn a_header_that_is_being_written_is_read_from_its_other_copy() {
    for copy in [0, COPY] {
        let mut bytes = image().bytes();
        bytes[copy + 40..copy + 400].fill(0xa5);
        let rank = Rank::read(&bytes).unwrap();
        assert_eq!((rank.header.rank, rank.doubt), (3, None));
    }
    let mut bytes = image().bytes();
    bytes[40] ^= 1;
    bytes[COPY + 40] ^= 1;
    assert!(Rank::read(&bytes).unwrap_err().to_string().contains("its header"));
}

/// One call, counted up to each point at which a thread may be killed or read.
#[test]
fn a_call_that_is_half_counted_is_no_damage() {
    let send = u32::from(named("Send").unwrap().id.0);
    let mut half = unclosed().bytes();
    let inside = word(kind::THREAD, &half, offset_of!(Thread, inside));
    half[inside..inside + 4].copy_from_slice(&(send + 1).to_le_bytes());
    let cell = word(kind::ROW, &half, size_class(8) * size_of::<Cell>());
    let site = word(kind::SITES, &half, 0);
    let peer = word(kind::PEERS, &half, 0);
    let thread = word(kind::THREAD, &half, 0);
    let ticks = offset_of!(Thread, ticks) + 8 * Class::Send as usize;
    // The order in which the library counts a call of 95 ticks with 8 bytes.
    let steps = [
        (peer + offset_of!(Peer, messages), 1),
        (peer + offset_of!(Peer, bytes), 8),
        (cell + offset_of!(Cell, calls), 1),
        (cell + offset_of!(Cell, ticks), 95),
        (cell + offset_of!(Cell, bytes), 8),
        (cell + offset_of!(Cell, histogram) + 8 * record::scale::time_class(95), 1),
        (site + offset_of!(Site, calls), 1),
        (site + offset_of!(Site, ticks), 95),
        (site + offset_of!(Site, bytes), 8),
        (thread + offset_of!(Thread, messages), 1),
        (thread + offset_of!(Thread, bytes), 8),
        (thread + ticks, 95),
        (thread + offset_of!(Thread, calls), 1),
    ];
    for (at, more) in steps {
        add(&mut half, at, more);
        assert_eq!(Rank::read(&half).unwrap().doubt, None, "after the word at {at}");
    }
    // Two half-counted calls are one too many.
    for (at, more) in [steps[2], steps[2]] {
        add(&mut half, at, more);
    }
    assert!(Rank::read(&half).unwrap().doubt.is_some());
}

#[test]
fn counts_of_what_was_dropped_may_be_any() {
    let mut image = unclosed();
    (image.header.dropped.rows, image.header.dropped.sites) = (u64::MAX, 1);
    let rank = Rank::read(&image.bytes()).unwrap();
    assert_eq!(rank.header.dropped.rows, u64::MAX);
}

#[test]
fn what_disagrees_is_named() {
    for (change, said) in [
        ((kind::ROW, offset_of!(Cell, calls) + size_class(8) * size_of::<Cell>()), "thread 0, MPI_Send: its calls"),
        ((kind::SITES, offset_of!(Site, ticks)), "call sites"),
        ((kind::PEERS, offset_of!(Peer, bytes)), "its messages are not those to its peers"),
        ((kind::THREAD, offset_of!(Thread, calls)), "thread 0: its totals"),
    ] {
        let (kind, offset) = change;
        let mut bytes = unclosed().bytes();
        let at = word(kind, &bytes, offset);
        add(&mut bytes, at, 1 << 50);
        let doubt = Rank::read(&bytes).unwrap().doubt.unwrap();
        assert!(doubt.contains(said), "{doubt}");
        // A rank that ended in order leaves nothing half written.
        let mut bytes = image().bytes();
        let at = word(kind, &bytes, offset);
        add(&mut bytes, at, 1 << 50);
        let fault = Rank::read(&bytes).unwrap_err().to_string();
        assert!(fault.contains("its part ") && fault.contains(said), "{fault}");
    }
}

/// Whether both have the same contents, without fields that no reader uses.
fn same(one: &Rank, other: &Rank) -> bool {
    let bare = |rank: &Rank| {
        let mut rank = rank.clone();
        (rank.header.dropped_again, rank.header.closed) = (rank.header.dropped, 0);
        for row in &mut rank.rows {
            row.cells.iter_mut().for_each(|cell| cell.reserved = [0; 3]);
        }
        for thread in rank.threads.values_mut() {
            thread.injected = Default::default();
            thread.ticks[12..].fill(0);
        }
        format!("{rank:?}")
    };
    bare(one) == bare(other)
}

/// Writes random bytes at a random place, mostly at one that is used.
fn overwritten(bytes: &mut [u8], at: usize, noise: &[u8]) {
    let entry = |place: usize| DIRECTORY + place * size_of::<Region>();
    let spans = [(0, size_of::<Header>()), (COPY, Header::SEALED + 8), (entry(0), entry(8) - entry(0))];
    let all = spans.into_iter().chain([(FIRST_REGION, bytes.len() - FIRST_REGION), (0, bytes.len())]);
    let (start, length) = all.cycle().nth(at % 5).unwrap();
    let start = start + at / 5 % length;
    let end = (start + noise.len()).min(bytes.len());
    bytes[start..end].copy_from_slice(&noise[..end - start]);
}

proptest! {
    /// Every figure that is read from the tables of a rank that ended in order is one that was written.
    #[test]
    fn damage_to_closed_tables_is_never_read_as_figures(
        at in 0usize..1 << 30,
        noise in prop::collection::vec(any::<u8>(), 1..3000),
    ) {
        let mut bytes = image().bytes();
        let whole = Rank::read(&bytes).unwrap();
        overwritten(&mut bytes, at, &noise);
        if let Ok(rank) = Rank::read(&bytes) {
            prop_assert!(rank.doubt.is_some() || same(&rank, &whole));
        }
    }

    /// Other tables are checked too, but for what is counted only once: moments, and the shortest and the longest call
    /// within their class.
    #[test]
    fn damage_to_other_tables_is_refused_or_doubted(
        at in 0usize..1 << 30,
        noise in prop::collection::vec(any::<u8>(), 1..3000),
    ) {
        let mut bytes = unclosed().bytes();
        let whole = Rank::read(&bytes).unwrap();
        overwritten(&mut bytes, at, &noise);
        if let Ok(mut rank) = Rank::read(&bytes) {
            for (cell, known) in rank.rows.iter_mut().zip(&whole.rows).flat_map(|(a, b)| a.cells.iter_mut().zip(&b.cells)) {
                (cell.most, cell.least_from_top) = (known.most, known.least_from_top);
            }
            for ((_, site), (_, known)) in rank.sites.iter_mut().zip(&whole.sites) {
                site.most = known.most;
            }
            for (thread, known) in rank.threads.values_mut().zip(whole.threads.values()) {
                (thread.inside, thread.since, thread.traced) = (known.inside, known.since, known.traced);
            }
            for (peer, known) in rank.peers.iter_mut().zip(&whole.peers) {
                peer.operations = known.operations;
            }
            prop_assert!(rank.doubt.is_some() || same(&rank, &whole));
        }
    }

    #[test]
    fn no_region_panics(regions in prop::collection::vec(any::<[u64; 5]>(), 0..20), count in 0u64..9000, tail in 0usize..70_000) {
        let mut bytes = unclosed().bytes();
        bytes[offset_of!(Header, regions)..][..8].copy_from_slice(&count.to_le_bytes());
        for (place, words) in regions.into_iter().enumerate() {
            // The entry is close enough to a valid one to pass the first checks.
            let mut region = Region::read_from_bytes(words.as_bytes()).unwrap();
            region.kind %= 9;
            region.offset = region.offset % 300 * PAGE as u64;
            bytes[DIRECTORY + place * size_of::<Region>()..][..size_of::<Region>()].copy_from_slice(region.sealed().as_bytes());
        }
        bytes.truncate(FIRST_REGION + tail);
        if let Ok(rank) = Rank::read(&bytes) {
            prop_assert!(rank.rows.len() <= 8192);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(Rank::read(&bytes).is_err());
    }
}
