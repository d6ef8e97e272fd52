//! One running module: its memory, the entry into it, and the reason of its failure.

use std::ops::Range;
use std::time::Duration;

use offcode::abi::{self, Descriptor};
use wasmtime::{AsContext, Memory, ResourceLimiter, Store, Trap, TypedFunc, UpdateDeadline, WasmBacktrace};

use crate::limits::Limits;
use crate::ticker::TICK;

/// Bytes of the smallest input area that a guest may have.
const LEAST_INPUT: usize = abi::HEAD + 1024;

pub struct Instance {
    store: Store<Bounds>,
    handle: TypedFunc<u32, u32>,
    memory: Memory,
    input: Range<usize>,
    output: Range<usize>,
    /// Version of the ABI, as its descriptor states it.
    pub version: u32,
    last_words: Range<usize>,
}

/// The limits of the instance, and what it ran into.
struct Bounds {
    memory: usize,
    tables: usize,
    tables_used: usize,
    time: Duration,
    /// CPU time of the thread at the first tick of this entry.
    since: Option<Duration>,
    /// The last growth that was refused.
    refused: Option<String>,
}

impl ResourceLimiter for Bounds {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let fits = desired <= self.memory;
        if !fits {
            self.refused = Some(format!("it asked for {desired} bytes of memory, the limit is {}", self.memory));
        }
        Ok(fits)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let used = (self.tables_used - current.min(self.tables_used)).saturating_add(desired);
        let fits = used <= self.tables;
        if fits {
            self.tables_used = used;
        } else {
            self.refused = Some(format!("it asked for {used} elements of tables, the limit is {}", self.tables));
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        16
    }
}

impl Instance {
    /// Instantiates and reads the descriptor; the GUIDs that the guest says it serves come with it.
    ///
    /// # Errors
    /// A sentence about what the guest did.
    pub fn new(module: &wasmtime::Module, limits: &Limits) -> Result<(Self, Vec<[u8; 16]>), String> {
        let bounds = Bounds {
            memory: limits.memory.0 as usize,
            tables: limits.table_elements,
            tables_used: 0,
            time: Duration::from_nanos(limits.time.0),
            since: None,
            refused: None,
        };
        let mut store = Store::new(module.engine(), bounds);
        store.limiter(|bounds| bounds);
        store.epoch_deadline_callback(|mut store| {
            let now = cpu_time();
            let bounds = store.data_mut();
            let since = *bounds.since.get_or_insert(now);
            Ok(match now.saturating_sub(since) < bounds.time {
                true => UpdateDeadline::Continue(1),
                false => UpdateDeadline::Interrupt,
            })
        });
        store.set_epoch_deadline(1);
        let instance = wasmtime::Instance::new(&mut store, module, &[])
            .map_err(|error| explain(&error, &mut store, "its start function"))?;

        let missing = |_| "its exports are not those that were inspected".to_owned();
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| missing(()))?;
        let describe = instance.get_typed_func::<(), u32>(&mut store, abi::DESCRIBE).map_err(|_| missing(()))?;
        let handle = instance.get_typed_func::<u32, u32>(&mut store, abi::HANDLE).map_err(|_| missing(()))?;
        // Tools for C and C++ export this where there is something to be set up first.
        if let Ok(initialize) = instance.get_typed_func::<(), ()>(&mut store, "_initialize") {
            again(&mut store);
            initialize.call(&mut store, ()).map_err(|error| explain(&error, &mut store, "_initialize"))?;
        }
        again(&mut store);
        let at = describe.call(&mut store, ()).map_err(|error| explain(&error, &mut store, abi::DESCRIBE))?;

        let data = memory.data(&store);
        let descriptor = data
            .get(at as usize..)
            .and_then(|rest| rest.first_chunk())
            .map(Descriptor::read)
            .ok_or_else(|| format!("its descriptor at {at:#x} is not within its memory of {} bytes", data.len()))?;
        let version = descriptor.version;
        if !(abi::OLDEST..=abi::VERSION).contains(&version) {
            let known = format!("{} to {}", abi::OLDEST, abi::VERSION);
            return Err(format!("it is written for version {version} of the interface, not {known}"));
        }
        let area = |what: &str, [at, size]: [u32; 2]| {
            let range = at as usize..at as usize + size as usize;
            match range.end <= data.len() {
                true => Ok(range),
                false => Err(format!(
                    "its {what} at {at:#x} of {size} bytes is not within its memory of {} bytes",
                    data.len()
                )),
            }
        };
        let input = area("input area", descriptor.input)?;
        let output = area("output area", descriptor.output)?;
        let last_words = area("place for last words", descriptor.last_words)?;
        if input.len() < LEAST_INPUT {
            return Err(format!("its input area of {} bytes is smaller than {LEAST_INPUT}", input.len()));
        }
        if output.len() as u64 > limits.output.0 {
            return Err(format!("its output area is {} bytes, the limit is {}", output.len(), limits.output));
        }
        if input.start % 8 != 0 || output.start % 8 != 0 {
            return Err("its input and output areas are not aligned to 8 bytes".into());
        }
        if input.start < output.end && output.start < input.end {
            return Err("its input and output areas overlap".into());
        }
        let [at, count] = descriptor.interfaces;
        let bytes =
            (count <= 256).then(|| data.get(at as usize..)?.get(..16 * count as usize)).flatten().ok_or_else(|| {
                format!("its list of {count} interfaces at {at:#x} is not within its memory, or too long")
            })?;
        let interfaces = bytes.as_chunks().0.to_vec();
        Ok((Instance { store, handle, memory, input, output, version, last_words }, interfaces))
    }

    /// The whole memory of the guest.
    pub fn memory(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    /// Takes `bytes` off what its memory may grow to.
    ///
    /// # Errors
    /// It has grown too far for that.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), String> {
        if bytes == 0 {
            return Ok(());
        }
        let used = self.memory.data_size(&self.store);
        let bounds = self.store.data_mut();
        if used.saturating_add(bytes) > bounds.memory {
            let limit = bounds.memory;
            return Err(format!(
                "it asked for {bytes} bytes of shared words beside {used} of memory, the limit is {limit}"
            ));
        }
        bounds.memory -= bytes;
        Ok(())
    }

    /// The area that events are written to.
    #[inline]
    pub fn input(&mut self) -> &mut [u8] {
        // Memory never shrinks, so the checked range stays within it.
        &mut self.memory.data_mut(&mut self.store)[self.input.clone()]
    }

    /// Gives the guest `length` bytes of records to handle, and returns what it put out.
    ///
    /// # Errors
    /// A sentence about what the guest did. It must not be entered again.
    #[inline]
    pub fn enter(&mut self, length: usize) -> Result<&[u8], String> {
        again(&mut self.store);
        let written = match self.handle.call(&mut self.store, length as u32) {
            Ok(written) => written as usize,
            Err(error) => return Err(self.death(&error)),
        };
        match self.memory.data(&self.store)[self.output.clone()].get(..written) {
            Some(output) => Ok(output),
            None => Err(format!(
                "{} returned {written} as the length of its output, whose area has {} bytes",
                abi::HANDLE,
                self.output.len()
            )),
        }
    }

    #[cold]
    fn death(&mut self, error: &wasmtime::Error) -> String {
        let mut cause = explain(error, &mut self.store, abi::HANDLE);
        let words = &self.memory.data(&self.store)[self.last_words.clone()];
        if let Some((length, words)) = words.split_first_chunk() {
            let length = u32::from_le_bytes(*length) as usize;
            if let Some(words) = words.get(..length.min(1024)).filter(|words| !words.is_empty()) {
                cause.push_str(&format!("; its last words: {}", printable(words)));
            }
        }
        cause
    }
}

/// Begins a new entry with its full time.
#[inline]
fn again(store: &mut Store<Bounds>) {
    store.set_epoch_deadline(1);
    store.data_mut().since = None;
}

/// The CPU time that the calling thread has used.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A guest's text as one line that cannot pass for another.
pub fn printable(text: &[u8]) -> String {
    let mut line = String::new();
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '\n' | '\t' => line.push(' '),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

fn explain(error: &wasmtime::Error, store: &mut Store<Bounds>, entry: &str) -> String {
    let mut sentence = match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => {
            format!("it was ended after more than {:?} of CPU time", store.as_context().data().time)
        }
        Some(Trap::StackOverflow) => format!("its calls nested deeper than {} bytes of stack", crate::engine::STACK),
        Some(trap) => trap.to_string(),
        None => error.root_cause().to_string(),
    };
    let names: Vec<String> = error
        .downcast_ref::<WasmBacktrace>()
        .map(|backtrace| backtrace.frames().iter().take(4).map(function).collect())
        .unwrap_or_default();
    match names.split_first() {
        Some((inner, [])) => sentence.push_str(&format!(" in {inner}")),
        Some((inner, outer)) => sentence.push_str(&format!(" in {inner}, called from {}", outer.join(", "))),
        None => sentence.push_str(&format!(" in {entry}")),
    }
    if let Some(refused) = store.data_mut().refused.take() {
        sentence.push_str(&format!("; before that {refused}"));
    }
    sentence
}

fn function(frame: &wasmtime::FrameInfo) -> String {
    match frame.func_name() {
        Some(name) => printable(name.as_bytes()).chars().take(80).collect(),
        None => format!("function {}", frame.func_index()),
    }
}

/// The time between two looks at a running guest bounds by how much its limit may be passed.
const _: () = assert!(TICK.as_millis() * 3 <= 12, "the documentation of Limits::time states 12 ms");
