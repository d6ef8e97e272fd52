//! A user's command that prints power or energy at each run.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use machine::Nanoseconds;
use machine::power::Sensor;

use super::reader::{Look, Reader};
use super::told::{Epoch, Format};
use super::{spawn, told};
use crate::clock::monotonic;

pub struct Run {
    sensor: [Sensor; 1],
    words: String,
    format: Format,
    limit: Duration,
    end: Arc<AtomicBool>,
}

impl Run {
    pub fn new(sensor: Sensor, words: &str, format: Format, limit: Duration, end: Arc<AtomicBool>) -> Run {
        Run { sensor: [sensor], words: words.to_owned(), format, limit, end }
    }
}

impl Reader for Run {
    fn sensors(&self) -> &[Sensor] {
        &self.sensor
    }

    fn look(&mut self, give: &mut dyn FnMut(usize, Look)) {
        let begun = monotonic();
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.words);
        let told = spawn::output(command, self.limit, &self.end).and_then(|text| told::output(&text, &self.format));
        let look = match told {
            Ok((Some(at), micro)) => match on_our_clock(at) {
                Some(at) => Look::Value { at, micro },
                None => Look::Stopped { at: begun, cause: "it tells a time before this host started".to_owned() },
            },
            // The value is of some moment between its start and its end.
            Ok((None, micro)) => Look::Value { at: Nanoseconds(begun.0 + (monotonic().0 - begun.0) / 2), micro },
            Err(cause) => Look::Stopped { at: begun, cause },
        };
        give(0, look);
    }
}

/// A calendar time of the sensor on this host's monotonic clock; `None` before the host's start.
pub fn on_our_clock(at: Epoch) -> Option<Nanoseconds> {
    let since = Epoch::from(realtime()) - Epoch::from(monotonic().0);
    u64::try_from(at - since).ok().map(Nanoseconds)
}

fn realtime() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
