//! What reads the sensors of a source.

use machine::Nanoseconds;
use machine::power::Sensor;

/// What a look at a sensor gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Look {
    /// Microjoules of a counter or microwatts of a gauge.
    Value { at: Nanoseconds, micro: u64 },
    /// It gave nothing, or nothing that can be believed.
    Stopped { at: Nanoseconds, cause: String },
}

/// Sensors that are looked at together.
pub trait Reader: Send {
    fn sensors(&self) -> &[Sensor];

    /// Looks once, and gives what each sensor, by its place, told. A sensor that has nothing new gives nothing.
    fn look(&mut self, give: &mut dyn FnMut(usize, Look));

    /// Whether what is true at this moment may be told later by another look.
    fn waits(&self) -> bool {
        false
    }

    /// What else was seen since the last time.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}
