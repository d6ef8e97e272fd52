//! An offcode at a driver hook that moves: its variables, arrays and hash maps as a state.

use std::sync::atomic::Ordering;

use linux::xdp;
use machine::{Fault, Result};
use offcode::State;
use offcode::channel::{Counted, Loss};
use offcode::manifest::StateKind;

use super::{Body, Phase, Wired};
use crate::possible::map_name;
use crate::site::EndAt;
use crate::site::residents::timers;

/// The attribute that is the version of its state.
const STATE_VERSION: &str = "STATE_VERSION";
/// Whether an array is a part of its channels, or of what it sends.
pub(super) fn is_no_state(array: &str) -> bool {
    array == "FRAME" || array == "IN" || array.starts_with("IN_")
}

impl Body {
    /// The state of a body that the kernel runs no more.
    pub(super) fn suspend(&mut self) -> Result<State> {
        self.phase = Phase::Suspended;
        xdp::grace()?;
        let mut state = State::new(self.version());
        if self.manifest.package.state != StateKind::Saved {
            return Ok(state);
        }
        let object = &self.inner.object;
        for name in object.changeable().filter(|name| self.attribute(name).is_none()) {
            state.keep(name, &object.value(name)?);
        }
        for name in object.arrays().filter(|name| !is_no_state(name)) {
            let (words, size) = (object.shared(name)?, object.map(name)?.value_size());
            for entry in 0..words.entries() {
                let bytes = words.value(entry).iter().flat_map(|word| word.load(Ordering::Acquire).to_ne_bytes());
                let value: Vec<u8> = bytes.take(size).collect();
                // What an array of the new body has anyway is not carried.
                if words.entries() == 1 {
                    state.put(name, &[], &value);
                } else if value.iter().any(|byte| *byte != 0) {
                    state.put(name, &(entry as u32).to_le_bytes(), &value);
                }
            }
        }
        for name in object.hashes() {
            let map = object.map(name)?;
            let failed = |e| Fault::because(format!("map {name}"), e, "leave the offcode where it is");
            let mut key = None;
            // Nobody changes it: the programs are out, and calls wait.
            while let Some(next) = map.key_after(key.as_deref()).map_err(failed)? {
                if let Some(value) = map.look_up(&next).map_err(failed)? {
                    state.put(name, &next, &value);
                }
                key = Some(next);
            }
        }
        Ok(state)
    }

    pub(super) fn restore(&mut self, state: &State) -> Result<()> {
        self.expect(Phase::Initialized)?;
        if self.manifest.package.state != StateKind::Saved {
            self.run("start")?;
            self.phase = Phase::Suspended;
            return Ok(());
        }
        if state.version() != self.version() {
            return Err(state.unfit(format!("its attribute {STATE_VERSION} is {}", self.version())));
        }
        let mut state = state.clone();
        timers::taken_out(&mut state);
        let object = &self.inner.object;
        for (name, key, value) in state.records() {
            let unfit = |why: &str| state.unfit(format!("its record '{name}' {why}"));
            if object.changeable().any(|of| of == name) {
                let value = value.try_into().map_err(|_| unfit("is no u64, as the object's variable is"))?;
                object.set_variable(name, u64::from_le_bytes(value))?;
            } else if object.arrays().any(|of| of == name) && !is_no_state(name) {
                let words = object.shared(name)?;
                let entry = key.try_into().map_or(0, |key| u32::from_le_bytes(key) as usize);
                if value.len() != object.map(name)?.value_size() || entry >= words.entries() {
                    return Err(unfit("does not fit the object's array"));
                }
                for (to, from) in words.value(entry).iter().zip(value.chunks(8)) {
                    let mut word = [0; 8];
                    word[..from.len()].copy_from_slice(from);
                    to.store(u64::from_ne_bytes(word), Ordering::Release);
                }
            } else if object.hashes().any(|of| of == name) {
                let map = object.map(name)?;
                if (key.len(), value.len()) != (map.key_size(), map.value_size()) {
                    return Err(unfit("does not fit the object's hash map"));
                }
                map.put_at(key, value).map_err(|e| unfit(&format!("is not taken by the object's hash map: {e}")))?;
            } else {
                return Err(unfit("has no variable, no shared array and no hash map of this name in the object"));
            }
        }
        self.phase = Phase::Suspended;
        Ok(())
    }

    /// Calls are carried out as they are written; what is in `IN` is read by the program.
    pub(super) fn ends(&self) -> Result<Vec<EndAt>> {
        let taken = |channel: &Wired| -> Result<u64> {
            let maps = self.inner.hook.pairs.get(&channel.pair).filter(|_| !channel.name.is_empty());
            if maps.is_none_or(|maps| maps.input.is_none()) {
                return Ok(u64::MAX);
            }
            let words = self.inner.object.shared(&map_name("IN", &channel.pair))?;
            Ok(words.value(0)[super::channel::READ].load(Ordering::Acquire))
        };
        let end = |channel: &Wired| {
            let counted = Counted { read: taken(channel)?, ..Counted::default() };
            let (name, specification) = (channel.name.clone(), channel.specification);
            Ok(EndAt { name, specification, counted, unsent: 0, refused: 0, loses: Loss::Hook })
        };
        self.channels.iter().map(end).collect()
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        let own = self.attributes.get(name);
        own.or_else(|| {
            let mut all = self.manifest.package.attributes.iter();
            all.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        })
    }

    fn version(&self) -> u32 {
        self.attribute(STATE_VERSION).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}
