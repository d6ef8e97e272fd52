//! The BPF system call, with a structure for each command. Layouts are those of `union bpf_attr` in `linux/bpf.h`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(super) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNext = 4,
    ProgramLoad = 5,
    ProgramRun = 10,
    ProgramOfId = 13,
    Information = 15,
    ProgramQuery = 16,
    TracepointOpen = 17,
    DebugLoad = 18,
    MapFreeze = 22,
    LinkCreate = 28,
    LinkUpdate = 29,
    EnableStatistics = 32,
    LinkDetach = 34,
}

/// Marks structures that are arguments of a command.
///
/// # Safety
/// `repr(C)`, no padding, plain integers, and every pointer in it is valid for what the command does with it.
pub(super) unsafe trait Attributes {}

macro_rules! attributes {
    ($($(#[$about:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$about])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default)]
        pub(super) struct $name { $(pub $field: $type),* }
        // SAFETY: integers in the kernel's order, laid out without padding; the callers below fill in pointers to
        // buffers that they hold for the length of the call.
        unsafe impl Attributes for $name {}
    )* };
}

attributes! {
    MapCreate {
        kind: u32, key_size: u32, value_size: u32, entries: u32, flags: u32, inner: u32, node: u32, name: [u8; 16],
        interface: u32, debug: u32, debug_key: u32, debug_value: u32, debug_vmlinux: u32, extra: u64,
    }
    MapElement { map: u32, padding: u32, key: u64, value: u64, flags: u64 }
    ProgramLoad {
        kind: u32, instructions: u32, code: u64, license: u64, log_level: u32, log_size: u32, log: u64, kernel: u32,
        flags: u32, name: [u8; 16], interface: u32, attach: u32, debug: u32, functions_size: u32, functions: u64,
        functions_count: u32, lines_size: u32, lines: u64, lines_count: u32, attach_debug: u32,
    }
    ProgramRun {
        program: u32, returned: u32, data_in_size: u32, data_out_size: u32, data_in: u64, data_out: u64, repeat: u32,
        duration: u32, context_in_size: u32, context_out_size: u32, context_in: u64, context_out: u64, flags: u32,
        cpu: u32, batch: u32, padding: u32,
    }
    TracepointOpen { name: u64, program: u32, padding: u32 }
    OfId { id: u32, next: u32, flags: u32 }
    Information { of: u32, size: u32, into: u64 }
    DebugLoad { code: u64, log: u64, size: u32, log_size: u32, log_level: u32, padding: u32 }
    Descriptor { descriptor: u32 }
    LinkCreate { program: u32, target: u32, attach: u32, flags: u32 }
    TcxLinkCreate {
        program: u32, target: u32, attach: u32, flags: u32, relative: u32, padding: u32, revision: u64,
    }
    ProgramQuery {
        target: u32, attach: u32, query_flags: u32, attach_flags: u32, ids: u64, count: u32, padding: u32,
        program_flags: u64, links: u64, link_flags: u64, revision: u64,
    }
    LinkUpdate { link: u32, program: u32, flags: u32, before: u32 }
    ProgramInformation {
        kind: u32, id: u32, tag: u64, jited_size: u32, translated_size: u32, jited: u64, translated: u64, load_time: u64,
        user: u32, maps: u32, map_ids: u64, name: [u8; 16], interface: u32, gpl: u32, device: u64, namespace: u64,
        symbols: u32, lengths: u32, symbols_at: u64, lengths_at: u64, debug: u32, functions_size: u32, functions: u64,
        functions_count: u32, lines_count: u32, lines: u64, jited_lines: u64, jited_lines_count: u32, lines_size: u32,
        jited_lines_size: u32, tags: u32, tags_at: u64, run_time_ns: u64, run_count: u64,
    }
}

const _: () = assert!(std::mem::offset_of!(ProgramLoad, name) == 48 && std::mem::offset_of!(MapCreate, extra) == 64);
const _: () = assert!(std::mem::offset_of!(ProgramRun, flags) == 64 && std::mem::size_of::<ProgramRun>() == 80);
const _: () = assert!(std::mem::offset_of!(ProgramInformation, run_time_ns) == 192);
const _: () = assert!(std::mem::offset_of!(TcxLinkCreate, revision) == 24);
const _: () = assert!(std::mem::offset_of!(ProgramQuery, revision) == 56);

/// Calls the kernel; the result is 0 or a descriptor.
fn call<A: Attributes>(command: Command, attributes: &mut A) -> io::Result<i64> {
    // SAFETY: by the contract of `Attributes` the structure is what the command expects and its pointers are valid; the
    // kernel takes a shorter structure than its own as one that ends in zeros.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command as i32, std::ptr::from_mut(attributes), std::mem::size_of::<A>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn run<A: Attributes>(command: Command, attributes: &mut A) -> io::Result<()> {
    call(command, attributes).map(drop)
}

/// Runs a command that creates an object; returns its descriptor.
pub(super) fn make<A: Attributes>(command: Command, attributes: &mut A) -> io::Result<OwnedFd> {
    // `Self::Information`, run and update return 0, which would be taken for a descriptor.
    debug_assert!(!matches!(
        command,
        Command::Information
            | Command::ProgramQuery
            | Command::ProgramRun
            | Command::MapLookup
            | Command::MapUpdate
            | Command::MapDelete
            | Command::MapNext
            | Command::MapFreeze
            | Command::LinkUpdate
            | Command::LinkDetach
    ));
    let descriptor = call(command, attributes)?;
    // SAFETY: these commands return a new descriptor, close-on-exec, that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Replaces `before` by `program`, if the link has `before` attached (BPF_F_REPLACE).
pub(super) fn replace(link: BorrowedFd<'_>, before: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (link, before, program) = (number(link), number(before), number(program));
    run(Command::LinkUpdate, &mut LinkUpdate { link, program, flags: 1 << 2, before })
}

pub(super) fn number(descriptor: BorrowedFd<'_>) -> u32 {
    descriptor.as_raw_fd() as u32
}

/// A name in the kernel's form: letters, digits, `_` and `.`, at most 15.
pub(super) fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    let fine = |byte: u8| if byte.is_ascii_alphanumeric() || byte == b'.' { byte } else { b'_' };
    name[..15].iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = fine(from));
    name
}

pub(super) fn program_information(program: BorrowedFd<'_>) -> io::Result<ProgramInformation> {
    let mut information = ProgramInformation::default();
    let into = std::ptr::from_mut(&mut information) as u64;
    let size = std::mem::size_of::<ProgramInformation>() as u32;
    run(Command::Information, &mut Information { of: number(program), size, into })?;
    Ok(information)
}

pub(super) fn name_of(information: &ProgramInformation) -> String {
    let end = information.name.iter().position(|&byte| byte == 0).unwrap_or(information.name.len());
    String::from_utf8_lossy(&information.name[..end]).into_owned()
}
