//! A clock that Slurm has set for this job step (`--cpu-freq`).

use std::env;

use experiment::axes::{Axes, Value};
use experiment::cause::Failure;
use machine::Hertz;
use rounds::clocks::as_fast;

use crate::campaign::{Instruments, Readings};

/// Instruments that set no clock where a point requests the step's own; all other axes are for those `within`.
pub struct SetByStep<I> {
    within: I,
    kilohertz: Option<u64>,
    /// Whether the point under way requests the step's clock.
    is_asked: bool,
}

impl<I: Instruments> SetByStep<I> {
    /// The clock of this step, as Slurm's variables give it.
    pub fn around(within: I) -> SetByStep<I> {
        // The job's script has the variable too, but Slurm sets no clock of its cores.
        let in_step = env::var("SLURM_STEP_ID").is_ok();
        let asked = env::var("SLURM_CPU_FREQ_REQ").ok().filter(|_| in_step);
        SetByStep { within, kilohertz: asked.and_then(|asked| asked.parse().ok()), is_asked: false }
    }

    /// Axes that remain for the instruments within.
    fn others(&self, axes: &Axes) -> Axes {
        let is_set = |name: &str, value: &Value| {
            // A clock without a unit, such as 1.4, becomes 0 kHz, which is no clock of a step.
            let asked = value.magnitude().map(|hertz| hertz as u64 / 1000).filter(|kilohertz| *kilohertz > 0);
            name == "clock" && asked.is_some() && asked == self.kilohertz
        };
        let left = axes.iter().filter(|(name, value)| !is_set(name, value));
        left.fold(Axes::default(), |axes, (name, value)| axes.with(name, value.clone()))
    }
}

impl<I: Instruments> Instruments for SetByStep<I> {
    fn cannot(&self, axes: &Axes) -> Option<String> {
        self.within.cannot(&self.others(axes))
    }

    fn starts_by(&self, axes: &Axes) -> Vec<String> {
        self.within.starts_by(&self.others(axes))
    }

    fn before(&mut self, axes: &Axes) -> Result<(), Failure> {
        let others = self.others(axes);
        self.is_asked = axes.get("clock").is_some() && others.get("clock").is_none();
        self.within.before(&others)
    }

    fn after(&mut self) -> Result<Readings, Failure> {
        let mut readings = self.within.after()?;
        let asked = self.kilohertz.filter(|_| self.is_asked).map(|kilohertz| Hertz(kilohertz * 1000));
        if let (Some(asked), [_, Some(effective)]) = (asked, readings.clocks)
            && !as_fast(asked, effective)
        {
            let note = format!("Slurm was asked for {asked}, the effective clock is {effective}");
            readings.note = Some(readings.note.map_or(note.clone(), |other| format!("{other}; {note}")));
        }
        Ok(readings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::Here;

    #[test]
    fn only_the_clock_of_the_step_is_set() {
        // Without cpufreq.
        let root = tempfile::tempdir().unwrap();
        let clock = |clock: &str| Axes::default().with("clock", Value::Text(clock.to_owned()));
        let set = SetByStep { within: Here::new(&[], root.path()), kilohertz: Some(1_400_000), is_asked: false };
        assert_eq!(set.cannot(&clock("1.4GHz")), None);
        assert_eq!(set.cannot(&clock("1400MHz")), None);
        for other in ["1.9GHz", "fast"] {
            assert!(set.cannot(&clock(other)).is_some(), "{other}");
        }
        let zero = SetByStep { within: Here::new(&[], root.path()), kilohertz: Some(0), is_asked: false };
        assert!(zero.cannot(&clock("1.4")).is_some());
        let none = SetByStep { within: Here::new(&[], root.path()), kilohertz: None, is_asked: false };
        assert!(none.cannot(&clock("1.4GHz")).is_some());
    }
}
