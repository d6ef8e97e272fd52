//! The look-up of functions of the program's MPI.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::abi::Abi;
use crate::complaint::Complaint;
use crate::contained::{self, contained};

unsafe extern "C" {
    static plimsoll_real_names: [*const c_char; 0];
    static plimsoll_substitutes: [*mut c_void; 0];
    static plimsoll_reals: usize;
    static mut plimsoll_real: [*mut c_void; 0];
}

/// The function behind a wrapper, which is looked up at its first call.
///
/// # Safety
/// `index` is a place of the generated table.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_find(index: usize) -> *mut c_void {
    contained::tell_in_one_line();
    // SAFETY: by this function's contract.
    contained(absent as *mut c_void, || unsafe { find_behind(index) })
}

/// # Safety
/// The contract of [`plimsoll_find`].
unsafe fn find_behind(index: usize) -> *mut c_void {
    // SAFETY: the table has `plimsoll_reals` C strings that never change.
    let names = unsafe {
        debug_assert!(index < plimsoll_reals);
        CStr::from_ptr(*(&raw const plimsoll_real_names).cast::<*const c_char>().add(index))
    };
    let mut names = names.to_str().unwrap_or_default().split(' ');
    let first = names.clone().next().unwrap_or_default();
    // SAFETY: the table is as long as that of the names.
    let substitute = unsafe { *(&raw const plimsoll_substitutes).cast::<*mut c_void>().add(index) };
    let found = names.find_map(|name| find(&CString::new(name).ok()?));
    let found = found.or((!substitute.is_null()).then_some(substitute)).unwrap_or_else(|| {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Ordering::Relaxed) {
            let name = first;
            let fails = "the call fails; without plimsoll the program would not link or not start";
            crate::complaint::line(&format!("plimsoll: the MPI of this process has no {name}: {fails}\n"));
        }
        absent as *mut c_void
    });
    // SAFETY: the word of the table is aligned; all threads write the same value.
    unsafe { (&raw mut plimsoll_real).cast::<*mut c_void>().add(index).write_volatile(found) };
    found
}

/// The error code of a call to a function that the MPI lacks; the MPI's own code, once the MPI is known.
pub static UNSUPPORTED: AtomicUsize = AtomicUsize::new(16);

/// Stands for a function that the MPI does not have.
extern "C" fn absent() -> usize {
    UNSUPPORTED.load(Ordering::Relaxed)
}

/// The address of a function or variable of the MPI, which may also have been loaded outside the global scope.
pub fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym takes any C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return Some(next);
    }
    let library = library()?;
    // SAFETY: the handle is of a library that stays loaded, since it was opened once more.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The address of a variable of the MPI. Where the program has a copy of the variable, the MPI uses the copy too.
pub fn find_variable(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym takes any C string.
    let used = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if used.is_null() { find(name) } else { Some(used) }
}

/// The cached address of a variable of the MPI; 0 where there is none. Each variable has its own `place` in the cache.
pub fn variable(place: usize, name: &CStr) -> usize {
    static FOUND: [std::sync::OnceLock<usize>; 4] = [const { std::sync::OnceLock::new() }; 4];
    *FOUND[place].get_or_init(|| find(name).map_or(0, |found| found as usize))
}

/// A handle of the loaded object that has PMPI_Init, where the object is not in the global scope.
fn library() -> Option<*mut c_void> {
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback's vector, `names`, outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(note_name), (&raw mut names).cast()) };
    names.into_iter().find_map(|name| {
        // SAFETY: RTLD_NOLOAD loads nothing and runs no code.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        // SAFETY: the handle is valid where it is not null.
        let has = !handle.is_null() && !unsafe { libc::dlsym(handle, c"PMPI_Init".as_ptr()) }.is_null();
        has.then_some(handle)
    })
}

unsafe extern "C" fn note_name(info: *mut libc::dl_phdr_info, _size: usize, names: *mut c_void) -> c_int {
    // SAFETY: the loader gives a valid record; `names` is the vector of `library`.
    let (name, names) = unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<CString>>()) };
    contained(0, || {
        // SAFETY: the loader's names are C strings.
        let name = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
        if !name.is_empty() {
            names.push(name.to_owned());
        }
        0
    })
}

type Handle = usize;

/// Functions of the MPI that the library itself calls. All of them are local: none communicates.
#[derive(Debug, Clone, Copy)]
pub struct Mpi {
    pub comm_rank: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub comm_size: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub comm_test_inter: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub comm_group: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    pub comm_remote_group: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    pub win_get_group: unsafe extern "C" fn(Handle, *mut Handle) -> c_int,
    pub group_size: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub group_rank: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    /// Absent before MPI 4.
    pub group_of_session: Option<unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int>,
    pub group_translate: unsafe extern "C" fn(Handle, c_int, *const c_int, Handle, *mut c_int) -> c_int,
    pub group_free: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub type_size: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub type_size_x: Option<unsafe extern "C" fn(Handle, *mut i64) -> c_int>,
    pub topo_test: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub cartdim_get: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    pub graph_neighbors_count: unsafe extern "C" fn(Handle, c_int, *mut c_int) -> c_int,
    pub dist_graph_neighbors_count: unsafe extern "C" fn(Handle, *mut c_int, *mut c_int, *mut c_int) -> c_int,
    pub query_thread: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub library_version: Option<unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>,
    /// Conversions from Fortran's integers, where C handles are not the same integers.
    pub comm_of: Option<unsafe extern "C" fn(c_int) -> Handle>,
    pub type_of: Option<unsafe extern "C" fn(c_int) -> Handle>,
    pub win_of: Option<unsafe extern "C" fn(c_int) -> Handle>,
    pub session_of: Option<unsafe extern "C" fn(c_int) -> Handle>,
}

/// A function of the MPI, as one of type `F`.
fn typed<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: `F` is the type of a function pointer, and the caller names the function that has it.
    find(name).map(|found| unsafe { transmute_copy(&found) })
}

impl Mpi {
    /// The MPI of this process, or the reason why it cannot be profiled.
    pub fn find() -> Result<(Mpi, Abi), Complaint> {
        let abi = abi()?;
        let standard = abi.family == record::layout::family::STANDARD;
        let needed = |found: Option<()>, name: &CStr| {
            found.ok_or_else(|| {
                let cause = format!("its MPI has no {}", name.to_string_lossy());
                Complaint::new(cause, "use a version of it that has MPI 3.0 or later")
            })
        };
        macro_rules! function {
            ($name:literal) => {{
                let found = typed($name);
                needed(found.is_some().then_some(()), $name)?;
                found.expect("it was just seen")
            }};
        }
        let by_integer = |functions: [&CStr; 2]| typed(functions[usize::from(standard)]);
        let mpi = Mpi {
            comm_rank: function!(c"PMPI_Comm_rank"),
            comm_size: function!(c"PMPI_Comm_size"),
            comm_test_inter: function!(c"PMPI_Comm_test_inter"),
            comm_group: function!(c"PMPI_Comm_group"),
            comm_remote_group: function!(c"PMPI_Comm_remote_group"),
            win_get_group: function!(c"PMPI_Win_get_group"),
            group_size: function!(c"PMPI_Group_size"),
            group_rank: function!(c"PMPI_Group_rank"),
            group_of_session: typed(c"PMPI_Group_from_session_pset"),
            group_translate: function!(c"PMPI_Group_translate_ranks"),
            group_free: function!(c"PMPI_Group_free"),
            type_size: function!(c"PMPI_Type_size"),
            type_size_x: typed(c"PMPI_Type_size_x"),
            topo_test: function!(c"PMPI_Topo_test"),
            cartdim_get: function!(c"PMPI_Cartdim_get"),
            graph_neighbors_count: function!(c"PMPI_Graph_neighbors_count"),
            dist_graph_neighbors_count: function!(c"PMPI_Dist_graph_neighbors_count"),
            query_thread: function!(c"PMPI_Query_thread"),
            library_version: typed(c"PMPI_Get_library_version"),
            comm_of: by_integer([c"PMPI_Comm_f2c", c"PMPI_Comm_fromint"]),
            type_of: by_integer([c"PMPI_Type_f2c", c"PMPI_Type_fromint"]),
            win_of: by_integer([c"PMPI_Win_f2c", c"PMPI_Win_fromint"]),
            session_of: by_integer([c"PMPI_Session_f2c", c"PMPI_Session_fromint"]),
        };
        Ok((mpi, abi))
    }

    /// The first line of the MPI's version string.
    pub fn version(&self) -> String {
        let told = self.library_version.map(told).unwrap_or_default();
        told.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().into()
    }
}

fn abi() -> Result<Abi, Complaint> {
    let none = || Complaint::new("its MPI library was not found", "preload the library only into MPI programs");
    let names = [c"ompi_mpi_comm_world", c"ompi_mpi_comm_self", c"ompi_mpi_comm_null", c"ompi_request_null"];
    if let [Some(world), Some(own), Some(none), Some(null)] = names.map(find_variable) {
        return Ok(Abi::open_mpi(world as usize, own as usize, none as usize, null as usize));
    }
    let init = find(c"PMPI_Init").ok_or_else(none)?;
    let file = file_of(init as usize);
    // MPICH builds both interfaces from one source: only the file's name tells them apart.
    if file.contains("libmpi_abi") {
        return Ok(Abi::standard());
    }
    let version = typed::<unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(c"PMPI_Get_library_version");
    let told = version.map(told).unwrap_or_default();
    if ["MPICH", "Intel(R) MPI", "MVAPICH", "CRAY"].iter().any(|name| told.contains(name)) {
        return Ok(Abi::mpich());
    }
    let told = told.lines().next().unwrap_or_default().to_owned();
    let cause = format!("its MPI is none that is known ({file}: {told})");
    Err(Complaint::new(cause, "use Open MPI, MPICH or one with MPICH's or the standard's binary interface"))
}

fn told(ask: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int) -> String {
    // The largest MPI_MAX_LIBRARY_VERSION_STRING is 8192.
    let mut text = vec![0u8; 16384];
    let mut length = 0;
    // SAFETY: the text has room for the longest answer; the function may be called at any time.
    unsafe { ask(text.as_mut_ptr().cast(), &mut length) };
    CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
}

/// The file of the object that has this address.
pub fn file_of(address: usize) -> String {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: dladdr takes any address; the name that it gives is a C string that stays.
    unsafe {
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return String::new();
        }
        CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    }
}
