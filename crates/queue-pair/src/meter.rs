//! Time in the adapter, which real hardware takes off the host.

/// Ticks of the given counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metered {
    /// Taking work requests and moving packets: the reliable transport and the port.
    pub adapter: u64,
    /// Polls of the adapter that found nothing.
    pub idle: u64,
}

pub(crate) struct Meter {
    ticks: fn() -> u64,
    pub counts: Metered,
}

impl Meter {
    pub fn new(ticks: fn() -> u64) -> Meter {
        Meter { ticks, counts: Metered::default() }
    }

    /// Counts the posting of a work request.
    #[inline]
    pub fn posts<T>(meter: &mut Option<Box<Meter>>, work: impl FnOnce() -> T) -> T {
        let Some(meter) = meter else { return work() };
        let since = (meter.ticks)();
        let done = work();
        meter.counts.adapter += (meter.ticks)().wrapping_sub(since);
        done
    }

    /// Counts a poll of the adapter; `poll` says whether a packet came.
    #[inline]
    pub fn polls<E>(meter: &mut Option<Box<Meter>>, poll: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        let Some(meter) = meter else { return poll() };
        let since = (meter.ticks)();
        let came = poll();
        let took = (meter.ticks)().wrapping_sub(since);
        let sum = if matches!(came, Ok(true)) { &mut meter.counts.adapter } else { &mut meter.counts.idle };
        *sum += took;
        came
    }
}
