//! Channels between sites that share memory (Weinsberg et al., "HYDRA: A Novel Framework for Making High-Performance
//! Computing Offload Capable", section 1.3): between threads, and between processes of one user.
//!
//! | | a message is | no buffer free |
//! |---|---|---|
//! | unicast, reliable | written and read in place | [`Written::Full`] |
//! | unicast, unreliable | written and read in place | [`Written::Dropped`], counted at the writer |
//! | multicast, reliable | written once, read in place by each reader | [`Written::Full`] until the slowest living reader has read |
//! | multicast, unreliable | copied in once, and out once by each reader, which knows thereby that it is whole | never: a reader that was lapped counts what it lost |
//!
//! Messages of up to 48 bytes, so calls with up to 32 bytes of arguments, travel in one cache line together with the
//! word that announces them; larger ones lie in a buffer beside it.
//!
//! An end is used by one thread at a time and can be handed to another process. The ends of one that is dropped or killed
//! are told: at once inside a process, else within a tick of the kernel's coarse clock when they look, or 50 ms when
//! they sleep.

mod lapping;
mod layout;
mod multicast;
mod passing;
mod refusals;
mod seat;
mod sleep;
mod track;
mod unicast;
mod word;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use machine::{Fault, Result};
use offcode::Specification;
#[cfg(doc)]
use offcode::channel::Written;
use offcode::channel::{Cast, Channel};

use self::layout::Layout;
pub use self::layout::MOST_READERS;
pub use self::multicast::{Reader, Writer};
use self::passing::State;
use self::seat::Seat;
pub use self::unicast::Memory;
use crate::region::Region;

fn region(specification: &Specification, cast: Cast) -> Result<(Arc<Region>, Layout)> {
    if specification.cast != cast {
        let cause = format!("its specification says {:?}", specification.cast);
        return Err(Fault::new(format!("{cast:?} channel"), cause, "make it by the function of that name"));
    }
    let layout = Layout::of(specification)?;
    Ok((Arc::new(Region::create("plimsoll-channel", layout.length())?), layout))
}

/// A channel with two ends, both ways.
///
/// A fault where the specification is out of range (4 to 65536 buffers, a power of two; 1 GiB in all), asks for copies,
/// or where there is no memory.
pub fn unicast(specification: &Specification) -> Result<(Memory, Memory)> {
    let (region, layout) = region(specification, Cast::Unicast)?;
    let one = Seat::take(region.clone(), layout, 0)?;
    let other = Seat::take(region, layout, 1)?;
    // SAFETY: the two ends of a region that was made here, one for each seat.
    Ok(unsafe {
        (Memory::at(one, *specification, &State::default()), Memory::at(other, *specification, &State::default()))
    })
}

/// A channel with one writer and `readers` readers, to which [`Writer::attach`] adds more.
///
/// A fault as for [`unicast`], or where there are more than [`MOST_READERS`].
pub fn multicast(specification: &Specification, readers: usize) -> Result<(Writer, Vec<Reader>)> {
    let (region, layout) = region(specification, Cast::Multicast)?;
    let seat = Seat::take(region, layout, 0)?;
    // SAFETY: the only writer of a region that was made here.
    let mut writer = unsafe { Writer::at(seat, *specification, &State::default()) };
    let readers = (0..readers).map(|_| writer.attach()).collect::<Result<_>>()?;
    Ok((writer, readers))
}

/// An end that came from another process.
pub enum Endpoint {
    Unicast(Memory),
    Writer(Writer),
    Reader(Reader),
}

impl Endpoint {
    pub fn into_channel(self) -> Box<dyn Channel> {
        match self {
            Endpoint::Unicast(end) => Box::new(end),
            Endpoint::Writer(end) => Box::new(end),
            Endpoint::Reader(end) => Box::new(end),
        }
    }
}

/// Takes the end that the process at the other side of `stream` hands over. Waits for it 5 s at most.
///
/// A fault where it runs as another user, is of another version, or passes what is no channel.
pub fn accept(stream: &UnixStream) -> Result<Endpoint> {
    let (seat, specification, state) = passing::accept(stream)?;
    // SAFETY: the seat's holder handed it over, and has let go of the tracks; one that has not garbles them.
    Ok(unsafe {
        match (specification.cast, seat.index()) {
            (Cast::Unicast, _) => Endpoint::Unicast(Memory::at(seat, specification, &state)),
            (Cast::Multicast, 0) => Endpoint::Writer(Writer::at(seat, specification, &state)),
            (Cast::Multicast, _) => Endpoint::Reader(Reader::at(seat, specification, &state)),
        }
    })
}

#[cfg(test)]
mod tests;
