//! Creates channels, and accepts ends from other processes.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use machine::channel::{Cast, Channel, Specification};
use machine::{Fault, Result};

use super::bells::{Bells, Both};
use super::held_end::HeldEnd;
use super::layout::Layout;
#[cfg(doc)]
use super::layout::MOST_READERS;
use super::multicast::{Reader, Writer};
use super::passing::State;
use super::unicast::Memory;
use linux::region::Region;

fn region(specification: &Specification, cast: Cast) -> Result<(Arc<Region>, Layout)> {
    if specification.cast != cast {
        let cause = format!("its specification says {:?}", specification.cast);
        return Err(Fault::new(format!("{cast:?} channel"), cause, "make it by the function of that name"));
    }
    let layout = Layout::of(specification)?;
    Ok((Arc::new(Region::create("plimsoll-channel", layout.length())?), layout))
}

/// Whether a channel of this specification can be created, given the memory.
///
/// # Errors
/// The buffers are out of range: 4 to 65536, a power of two; 1 B to 128 MiB each; 1 GiB in all.
pub fn check(specification: &Specification) -> Result<()> {
    Layout::of(specification).map(drop)
}

/// A channel with two ends that both read and write.
///
/// A fault where [`check`] has one, or where there is no memory.
pub fn unicast(specification: &Specification) -> Result<(Memory, Memory)> {
    let (region, layout) = region(specification, Cast::Unicast)?;
    let one = HeldEnd::take(region.clone(), layout, 0)?;
    one.sleep_from_the_first(specification);
    let other = HeldEnd::take(region, layout, 1)?;
    let (state, bells) = (State::default(), Both::default());
    // SAFETY: the two ends of a region that was made here, one for each end.
    Ok(unsafe {
        (Memory::at(one, *specification, &state, bells.clone()), Memory::at(other, *specification, &state, bells))
    })
}

/// A channel with one writer and `readers` readers, to which [`Writer::attach`] adds more.
///
/// A fault as for [`unicast`], or where there are more than [`MOST_READERS`].
pub fn multicast(specification: &Specification, readers: usize) -> Result<(Writer, Vec<Reader>)> {
    let (region, layout) = region(specification, Cast::Multicast)?;
    let end = HeldEnd::take(region, layout, 0)?;
    end.sleep_from_the_first(specification);
    // SAFETY: the only writer of a region that was made here.
    let mut writer = unsafe { Writer::at(end, *specification, &State::default(), Both::default()) };
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

/// Accepts the end that the process at the other side of `stream` hands over, waiting 5 s at most. Writes to this end while the
/// other end's thread sleeps (see [`Channel::arm`]) send a byte over `stream`, which the other process has to watch.
///
/// A fault where that process runs as another user, is of another version, or passes no valid channel.
pub fn accept(stream: &UnixStream) -> Result<Endpoint> {
    let (end, specification, state) = super::passing::accept(stream)?;
    let bells = Bells::over(stream)?;
    // SAFETY: the end's holder handed it over, and has let go of the tracks; one that has not garbles them.
    Ok(unsafe {
        match (specification.cast, end.index()) {
            (Cast::Unicast, _) => Endpoint::Unicast(Memory::at(end, specification, &state, bells)),
            (Cast::Multicast, 0) => Endpoint::Writer(Writer::at(end, specification, &state, bells)),
            (Cast::Multicast, _) => Endpoint::Reader(Reader::at(end, specification, &state, bells)),
        }
    })
}
