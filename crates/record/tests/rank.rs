//! The reader of a rank's tables, with files that are as they should be and with all others.

use proptest::prelude::*;
use record::functions::named;
use record::image::Image;
use record::layout::{DIRECTORY, FIRST_REGION, Module, PAGE, Peer, Phase, Region, Site, Thread, kind, text};
use record::rank::Rank;
use record::scale::size_class;
use zerocopy::{FromZeros, IntoBytes};

fn image() -> Image {
    let mut image = Image::default();
    image.header.rank = 3;
    image.header.host = text("node-a");
    image.region(kind::THREAD, 0, (0, 0), &[Thread { calls: 5, ..Thread::default() }]);
    image.row(0, named("Send").unwrap().id, 0, [(100, 8), (90, 9), (4000, 65536)]);
    image.row(0, named("Allreduce").unwrap().id, 4, [(100, 8), (300, 8)]);
    image.region(kind::SITES, 0, (0, 0), &[Site { offset: 0x1234, calls: 3, ..Site::default() }]);
    image.region(kind::PEERS, 0, (0, 0), &[Peer { messages: 1, bytes: 8, ..Peer::default() }; 2]);
    image.region(kind::PEERS, 1, (0, 0), &[Peer { messages: 2, bytes: 3, ..Peer::default() }; 4]);
    image.of_rank(kind::MODULES, &[Module { path: text("/bin/x"), ..Module::new_zeroed() }]);
    image.of_rank(kind::PHASES, &[Phase { ticks: 7, level: -1, thread: 0 }]);
    image.region(kind::MEMBERS, u16::MAX, (0, 9), &[2u32, 0]);
    image
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
    assert_eq!(rank.sites[0].offset, 0x1234);
    let peers: Vec<_> = rank.peers.iter().map(|peer| (peer.messages, peer.bytes)).collect();
    assert_eq!(peers, [(3, 11), (3, 11), (2, 3), (2, 3)]);
    assert_eq!((rank.phases[0].level, rank.members[&9].as_slice(), rank.modules.len()), (-1, &[2, 0][..], 1));
}

#[test]
fn a_file_is_read_like_its_bytes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    image().write(file.path()).unwrap();
    let (opened, read) = (Rank::open(file.path()).unwrap(), Rank::read(&image().bytes()).unwrap());
    assert_eq!(format!("{opened:?}"), format!("{read:?}"));
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
fn regions_that_all_point_to_one_place_do_not_fill_the_memory() {
    let mut bytes = image().bytes();
    let first = bytes[DIRECTORY + size_of::<Region>()..][..size_of::<Region>()].to_vec();
    for place in 0..8192 {
        bytes[DIRECTORY + place * first.len()..][..first.len()].copy_from_slice(&first);
    }
    bytes[12..16].copy_from_slice(&8192u32.to_le_bytes());
    assert!(Rank::read(&bytes).unwrap_err().to_string().contains("overlap"));
}

proptest! {
    #[test]
    fn no_garbage_in_the_header_or_directory_panics(changes in prop::collection::vec((0usize..2048, any::<u8>()), 1..40)) {
        let mut bytes = image().bytes();
        for (place, value) in changes {
            // The first half falls on the header past its version, the other on the first entries of the directory.
            let at = if place < 1024 { 24 + place } else { DIRECTORY + (place - 1024) % 320 };
            bytes[at] = value;
        }
        let _ = Rank::read(&bytes);
    }

    #[test]
    fn no_region_panics(regions in prop::collection::vec(any::<[u64; 4]>(), 0..20), count in 0u32..9000, tail in 0usize..70_000) {
        let mut bytes = image().bytes();
        bytes[12..16].copy_from_slice(&count.to_le_bytes());
        for (place, mut words) in regions.into_iter().enumerate() {
            // Near enough to what passes the first checks.
            words[0] = (words[0] & !0xffff) | (words[0] % 9);
            words[3] = words[3] % 300 * PAGE as u64;
            bytes[DIRECTORY + place * 32..][..32].copy_from_slice(words.as_bytes());
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
