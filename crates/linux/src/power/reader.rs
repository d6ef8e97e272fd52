//! Readers of a source's sensors.

use machine::Nanoseconds;
use machine::power::Sensor;

/// The result of a look at a sensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Look {
    /// A value: microjoules of a counter or microwatts of a gauge.
    Value { at: Nanoseconds, micro: u64 },
    /// No value, or an implausible one.
    Stopped { at: Nanoseconds, cause: String },
}

/// Sensors that are read together.
pub trait Reader: Send {
    fn sensors(&self) -> &[Sensor];

    /// Looks once, and passes each sensor's result, by its index, to `give`. A sensor without news passes nothing.
    fn look(&mut self, give: &mut dyn FnMut(usize, Look));

    /// Whether a later look may still give values of this moment.
    fn waits(&self) -> bool {
        false
    }

    /// Other observations since the last call.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}
