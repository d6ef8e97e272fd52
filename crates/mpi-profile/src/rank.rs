//! The state of recording that all threads of a process share.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use record::folder::{self, variable};
use record::layout::{self, Dropped, Phase, Region, kind};
use zerocopy::IntoBytes;

use crate::abi::Abi;
use crate::call::language;
use crate::clock;
use crate::communicators::{self, Communicator, Communicators};
use crate::complaint::Complaint;
use crate::cpu::Cpu;
use crate::delays::Asked;
use crate::fortran::Fortran;
use crate::heading::Heading;
use crate::log::Log;
use crate::models::{Model, Models};
use crate::past;
use crate::real::Mpi;
use crate::requests::Shared;
use crate::rules::{self, Rule};
use crate::sampler;
use crate::sites::{self, Modules, Where};
use crate::state::{self, STATE};
use crate::tables::{Room, Tables};
use crate::timeline::Timeline;
use crate::world;

/// Bytes that a rank's tables may take by default.
const MEMORY: u64 = 64 << 20;

/// A rank: one recorded process.
#[derive(Debug)]
pub struct Rank {
    pub mpi: Mpi,
    pub abi: Abi,
    pub clock: u32,
    pub rules: Vec<Rule>,
    pub communicators: Communicators,
    pub models: Models,
    pub requests: Shared,
    /// `None` where no timeline is requested.
    pub timeline: Option<Timeline>,
    /// `None` where no delays are requested.
    pub delays: Option<Asked>,
    fortran: OnceLock<Fortran>,
    /// The profile's folder.
    folder: PathBuf,
    pub pid: u32,
    pub heading: &'static Heading,
    /// When MPI was initialized.
    cpu: OnceLock<Cpu>,
    /// Ranks of MPI_COMM_WORLD; 0: not known yet.
    size: AtomicU32,
    /// The tables are sealed, since the process seemed to end.
    closed: AtomicBool,
    tables: Mutex<Tables>,
    modules: Mutex<Modules>,
    phases: Mutex<Log>,
    marks: Mutex<Log>,
}

impl Rank {
    pub fn start(folder: PathBuf) -> Result<Rank, Complaint> {
        let (mpi, abi) = Mpi::find()?;
        let limit = match std::env::var(variable::MEMORY) {
            Ok(text) => text.trim().parse().map_err(|_| {
                let cause = format!("{} is no number of bytes: {text}", variable::MEMORY);
                Complaint::new(cause, "set it to the bytes that a rank's tables may take, or leave it out")
            })?,
            Err(_) => MEMORY,
        };
        let host = host();
        let timeline = Timeline::wanted(&folder, &host)?;
        let pid = std::process::id();
        let (tables, heading) = Tables::create(&folder::rank_file(&folder, &host, pid), limit)?;
        let heading = state::HEADING.get_or_init(|| heading);
        let clock = clock::kind();
        let (delays, perturbed) = Asked::read(&folder, &host, clock, heading);
        let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino() as u32);
        heading.change(|header| {
            header.pid = pid;
            header.pid_namespace = namespace;
            header.family = abi.family;
            header.clock = clock;
            header.perturbed = perturbed;
            header.traced = u32::from(timeline.is_some());
            header.started = clock::moment(clock);
            header.latest = header.started;
            header.host = layout::text(&host);
            header.boot = layout::text(boot.trim());
            header.program = layout::text(&program.to_string_lossy());
            header.library = layout::text(&mpi.version());
            header.world = layout::text(&world::name());
        });
        sampler::start(&folder, boot.trim());
        Ok(Rank {
            mpi,
            abi,
            clock,
            rules: rules::rules(),
            communicators: Communicators::default(),
            models: Models::default(),
            requests: Shared::new(),
            timeline,
            delays,
            fortran: OnceLock::new(),
            folder,
            pid,
            heading,
            cpu: OnceLock::new(),
            size: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            tables: Mutex::new(tables),
            modules: Mutex::default(),
            phases: Mutex::new(Log::new(kind::PHASES)),
            marks: Mutex::new(Log::new(kind::MARKS)),
        })
    }

    pub fn region(&self, entry: Region) -> Option<Room> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).region(entry)
    }

    /// Writes the members of a communicator or window at its first use.
    pub fn met(&self, group: &Arc<Communicator>) {
        let Some((kind, members)) = self.timeline.as_ref().and_then(|timeline| timeline.met(group)) else { return };
        let records = members.len() as u32;
        let room = self.region(Region {
            kind,
            thread: layout::WHOLE_RANK,
            group: group.number,
            record_bytes: size_of::<u32>() as u16,
            capacity: records,
            ..Region::default()
        });
        let Some(room) = room else { return self.dropped(|dropped| &raw mut dropped.communicators) };
        let to = room.start.as_ptr().cast::<u32>();
        for (place, member) in members.into_iter().enumerate() {
            // SAFETY: the region has room for all of them.
            unsafe { to.add(place).write(member) };
        }
        // SAFETY: the region's entry is mapped as long as the process runs.
        unsafe { (&raw mut (*room.entry.as_ptr()).used).write_volatile(records) };
    }

    pub fn locate(&self, address: usize) -> Where {
        let modules = || self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = modules().known(address) {
            return known;
        }
        let Some(found) = sites::find(address) else { return sites::nowhere(address) };
        modules().meet(address, found, &mut self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The identity of a module by its number in a site; `None` where it is not listed.
    #[cold]
    pub fn module_identity(&self, number: u32) -> Option<u64> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner).identity(number)
    }

    /// Counts one thing that is not recorded.
    #[cold]
    pub fn dropped(&self, which: impl FnOnce(&mut Dropped) -> *mut u64) {
        self.heading.dropped(which);
    }

    /// Ranks of MPI_COMM_WORLD; 0 where that is not known yet.
    pub fn world_size(&self) -> u32 {
        self.size.load(Ordering::Relaxed)
    }

    pub fn is_in_place(&self, word: usize, of: u32) -> bool {
        if of < language::FORTRAN { word == self.abi.in_place } else { self.fortran().is_in_place(word) }
    }

    fn fortran(&self) -> &Fortran {
        self.fortran.get_or_init(Fortran::find)
    }

    /// Writes the present moment to the header, from which the rate of ticks follows, and the CPU time of the run until now.
    #[cold]
    pub fn refresh(&self) {
        let latest = clock::moment(self.clock);
        let used = self.cpu.get().map(Cpu::used);
        self.heading.change(|header| {
            header.latest = latest;
            if let Some(used) = used.filter(|_| header.finalized == 0) {
                header.cpu = used;
            }
        });
    }

    /// Runs after MPI_Init or MPI_Session_init, which threads may call at the same time.
    #[cold]
    pub fn opened(&self, model: Model, ticks: u64) {
        self.models.opened(model);
        self.cpu.get_or_init(Cpu::now);
        self.heading.change(|header| {
            // The first opening counts.
            if header.initialized == 0 {
                header.initialized = ticks;
                (header.first, header.bound) = first_and_only_core();
            }
            header.finalized = 0;
        });
        let mut level = 0;
        // SAFETY: MPI is initialized.
        if model == Model::World && unsafe { (self.mpi.query_thread)(&mut level) } == 0 {
            let level = self.abi.thread_level(level);
            self.heading.change(|header| header.thread_level = level);
            if level == 3 {
                self.requests.set_locking();
            }
        }
        // SAFETY: the model stays open as long as `asking` lives.
        let place = unsafe {
            let asking = self.models.ask();
            asking.model.and_then(|model| communicators::place(model, &self.mpi, &self.abi))
        };
        if let Some((rank, size)) = place {
            self.size.store(size, Ordering::Relaxed);
            if let Some(asked) = &self.delays {
                asked.place(rank, size);
            }
            self.heading.change(|header| {
                (header.rank, header.size, header.placed) = (rank, size, 1);
                if size == 1 && header.world[0] == 0 {
                    header.world = layout::text(&format!("alone={}", self.pid));
                }
            });
        }
        // Queries that failed before MPI was open may succeed: their cached failures become stale.
        state::GENERATION.fetch_add(2, Ordering::Relaxed);
        self.refresh();
    }

    /// Runs before MPI_Finalize or MPI_Session_finalize.
    #[cold]
    pub fn closing(&self, model: Model) {
        let ticks = clock::ticks(self.clock);
        self.refresh();
        if self.models.closing(model) {
            self.heading.change(|header| {
                header.finalized = ticks;
                header.bound = if header.bound == first_and_only_core().1 { header.bound } else { 0 };
            });
            past::note_bound(&self.folder, &host());
        }
    }

    /// Runs after an MPI_Finalize or MPI_Session_finalize that failed.
    #[cold]
    pub fn reopened(&self, model: Model) {
        self.models.opened(model);
        self.heading.change(|header| header.finalized = 0);
    }

    #[cold]
    pub fn aborting(&self) {
        self.refresh();
        self.heading.change(|header| header.aborted = clock::ticks(self.clock));
    }

    /// Records the beginning of a phase, by a call of this thread.
    pub fn mark(&self, level: i32, thread: u16) {
        let phase = Phase { ticks: clock::ticks(self.clock), level, thread: thread.into(), seal: 0 }.sealed();
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        if !phases.add(phase.as_bytes(), |entry| self.region(entry)) {
            self.dropped(|dropped| &raw mut dropped.phases);
        }
    }

    /// Records the mark of a block. `false`: no room for it.
    pub fn add_mark(&self, mark: &[u8]) -> bool {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).add(mark, |entry| self.region(entry))
    }

    /// Whether a thread whose caches are stale still records. Otherwise its calls pass straight through afterwards.
    #[cold]
    pub fn goes_on(&self) -> bool {
        if STATE.load(Ordering::Acquire) != state::RECORDING {
            state::pass();
            return false;
        }
        // The process seemed to end, but calls MPI again.
        if self.closed.swap(false, Ordering::AcqRel) {
            self.heading.change(|header| header.closed = 0);
        }
        true
    }

    /// Seals the tables at an orderly exit. If the process goes on, its next call reverts this ([`Rank::goes_on`]).
    pub fn ended(&self) {
        self.refresh();
        let ticks = clock::ticks(self.clock);
        if clock::is_given_up(self.clock) {
            let cause = "the kernel has given up the processor's counter meanwhile, so that times may be wrong";
            Complaint::new(cause, "profile it again").say_lost();
        }
        // Sessions that were left open do not make the end an abnormal one.
        let is_over = self.models.world_is_over();
        self.heading.change(|header| {
            header.ended = ticks;
            header.finalized = if header.finalized == 0 && is_over { ticks } else { header.finalized };
        });
        // The exit of the process may have interrupted the holder of the tables.
        let Ok(mut tables) = self.tables.try_lock() else { return };
        self.closed.store(true, Ordering::Release);
        state::GENERATION.fetch_add(2, Ordering::Release);
        tables.close();
        self.heading.close(ticks);
    }
}

/// The first core, plus 1, on which this thread may run, and the only one; 0: not known, and several.
fn first_and_only_core() -> (u32, u32) {
    // SAFETY: all zeros is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the length is that of the set.
    let told = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } == 0;
    let mut cores = (0..libc::CPU_SETSIZE as usize).filter(|core| {
        // SAFETY: `core` is below the size of the set.
        told && unsafe { libc::CPU_ISSET(*core, &set) }
    });
    let first = cores.next().map_or(0, |core| core as u32 + 1);
    (first, if cores.next().is_none() { first } else { 0 })
}

pub fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the length is that of the buffer, less the 0 that ends the text.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    layout::words(&name)
}
