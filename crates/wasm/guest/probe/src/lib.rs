//! Uses all services, and refuses an attribute: linked in, as a library, and as a module of wasm.

use machine::{Fault, Nanoseconds, Result};
use offcode::{Context, Lifecycle, Map, Put, Refusal, Shape, State, Wake, interface, offcode};

/// Words that a [`Probe`] shares: the number of its wake-ups.
pub const WORDS: &str = "wakes";

/// The map of a [`Probe`], and how many entries it takes.
pub const MAP: &str = "squares";
pub const ENTRIES: u32 = 4;

#[interface(guid = "4d0b7c7e-6a2f-4c38-9d55-1f0e3b9a7c01", encoding = "fixed")]
pub trait Probing {
    /// Wakes after so many microseconds, and then each so many; `u32::MAX`: never.
    fn wake(&mut self, context: &mut dyn Context, after: u32, every: u32) -> Result<u64, Refusal>;
    /// How often it was woken.
    fn woken(&self) -> u64;
    /// How often before it was due.
    fn early(&self) -> u64;
    /// Shares so many more words.
    fn grow(&mut self, context: &mut dyn Context, words: u32) -> Result<u64, Refusal>;
    /// Puts a number with its square into a map: 0 where it is new, 1 where it was there, 2 where the map is full.
    fn put(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal>;
    /// The square of a number, or one more than what a number may have.
    fn square(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal>;
    /// Whether it took a number out.
    fn remove(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal>;
    /// The sum of all squares.
    fn squares(&mut self, context: &mut dyn Context) -> Result<u64, Refusal>;
    /// Opens another map of so many entries.
    fn open(&mut self, context: &mut dyn Context, entries: u32) -> Result<u64, Refusal>;
    /// Letters of its attribute `colour`.
    fn colour(&self, context: &mut dyn Context) -> u64;
}

/// Uses all services. An agent that is to pass the suite has it linked in.
#[offcode(
    guid = "4d0b7c7e-6a2f-4c38-9d55-1f0e3b9a7c02",
    name = "test.probe",
    version = "1.0.0",
    implements(Probing),
    environment(timers, memory, maps),
    sites(app(memory = 16_384), core(memory = 16_384), agent(memory = 16_384)),
    state = saved
)]
#[derive(Default)]
pub struct Probe {
    woken: u64,
    early: u64,
    due: Wake,
    squares: Map<u32, u64>,
}

fn refused(fault: machine::Fault) -> Refusal {
    Refusal(fault.to_string())
}

impl Probing for Probe {
    fn wake(&mut self, context: &mut dyn Context, after: u32, every: u32) -> Result<u64, Refusal> {
        let microseconds = |count: u32| Nanoseconds(u64::from(count) * 1000);
        self.due = match after {
            u32::MAX => Wake::NEVER,
            after => Wake::at(context.now() + microseconds(after)).every(microseconds(every)),
        };
        context.set_timer(3, self.due).map(|()| 0).map_err(refused)
    }

    fn woken(&self) -> u64 {
        self.woken
    }

    fn early(&self) -> u64 {
        self.early
    }

    fn grow(&mut self, context: &mut dyn Context, words: u32) -> Result<u64, Refusal> {
        context.share("more", words).map(|()| 0).map_err(refused)
    }

    fn put(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal> {
        let put = self.squares.put(context, &number, &u64::from(number).pow(2)).map_err(refused)?;
        Ok([Put::New, Put::Replaced, Put::Full].iter().position(|known| *known == put).map_or(3, |at| at as u64))
    }

    fn square(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal> {
        Ok(self.squares.get(context, &number).map_err(refused)?.unwrap_or(u64::MAX))
    }

    fn remove(&mut self, context: &mut dyn Context, number: u32) -> Result<u64, Refusal> {
        self.squares.remove(context, &number).map(u64::from).map_err(refused)
    }

    fn squares(&mut self, context: &mut dyn Context) -> Result<u64, Refusal> {
        let mut sum = 0;
        let add = |_, square| {
            sum += square;
            true
        };
        self.squares.visit(context, add).map_err(refused)?;
        Ok(sum)
    }

    fn open(&mut self, context: &mut dyn Context, entries: u32) -> Result<u64, Refusal> {
        context.open_map("other", Shape { entries, key: 8, value: 8 }).map(|map| map.0.into()).map_err(refused)
    }

    fn colour(&self, context: &mut dyn Context) -> u64 {
        context.attribute("colour").map_or(0, |colour| colour.len() as u64)
    }
}

impl Lifecycle for Probe {
    fn initialize(&mut self, context: &mut dyn Context) -> Result<()> {
        self.squares = Map::open(context, MAP, ENTRIES)?;
        context.share(WORDS, 1)
    }

    fn timer(&mut self, timer: u8, context: &mut dyn Context) {
        self.woken += 1;
        self.early += u64::from(timer != 3 || context.now() < self.due.at);
        self.due.at = self.due.at + self.due.every;
        if let Err(fault) = context.store(WORDS, 0, &[self.woken]) {
            context.log(&fault.to_string());
        }
    }

    fn attribute_set(&mut self, name: &str, value: &str, context: &mut dyn Context) -> Result<()> {
        assert_eq!(context.attribute(name), Some(value), "the new value is there already");
        match value {
            "beige" => Err(Fault::new("attribute colour", "beige is no colour", "set another")),
            _ => Ok(()),
        }
    }

    fn save(&mut self, state: &mut State, _: &mut dyn Context) -> Result<()> {
        state.keep("woken", &self.woken);
        Ok(())
    }

    fn restore(&mut self, state: &State, _: &mut dyn Context) -> Result<()> {
        self.woken = state.kept("woken")?;
        Ok(())
    }
}

offcode::export!(Probe);
