//! The wrappers that Fortran programs call, from `mpif.h`, `use mpi` and `use mpi_f08`.
//!
//! All arguments are addresses; the last is that of the error, which `mpi_f08` may leave out. The lengths of character
//! arguments follow, and are passed on unchanged, as are the characters.
//!
//! | procedures | in | behind them |
//! |---|---|---|
//! | `mpi_send_` and other compilers' spellings | all | `pmpi_send_` |
//! | `mpi_send_f08_` | Open MPI; MPICH where there is no buffer | `pmpi_send_f08_`, `pmpir_send_f08_` |
//! | `mpi_send_f08ts_` | MPICH, buffers as descriptors | `pmpir_send_f08ts_` |
//! | `mpi_send_f08ts_large_`, `mpi_win_allocate_f08_large_` | MPICH, large counts | `pmpir_send_f08ts_large_` .. |

use record::functions::{Argument, Function, functions};

use crate::shim::{Shim, before, forgetting, held, parameters, post, types};

/// Arguments that are buffers, which `mpi_f08` may pass as descriptors; a descriptor begins with the address.
const BUFFERS: [&str; 8] =
    ["buf", "buffer", "sendbuf", "recvbuf", "origin_addr", "result_addr", "compare_addr", "base"];

/// Character arguments.
const CHARACTERS: [&str; 5] = ["command", "commands", "argv", "port_name", "stringtag"];

/// A variant of a procedure: its name's suffix, the type of its counts, and whether buffers are descriptors.
struct Form {
    suffix: &'static str,
    language: &'static str,
    descriptors: bool,
}

const F08: [Form; 4] = [
    Form { suffix: "_f08", language: "FORTRAN", descriptors: false },
    Form { suffix: "_f08ts", language: "FORTRAN", descriptors: true },
    Form { suffix: "_f08_large", language: "LARGE_FORTRAN", descriptors: false },
    Form { suffix: "_f08ts_large", language: "LARGE_FORTRAN", descriptors: true },
];

pub fn add(shim: &mut Shim) {
    for function in functions() {
        let name = format!("mpi_{}", function.name.to_lowercase());
        let plain = Form { suffix: "", language: "FORTRAN", descriptors: false };
        wrapper(shim, function, &plain, &format!("{name}_"), &spellings(&name));
        let variants: &[Form] = if function.large_counts { &F08 } else { &F08[..2] };
        for form in variants {
            let has_buffer = function.arguments.iter().any(|argument| BUFFERS.contains(&argument.name));
            if form.descriptors && !has_buffer {
                continue;
            }
            let name = format!("{name}{}_", form.suffix);
            wrapper(shim, function, form, &name, std::slice::from_ref(&name));
        }
        // Variants with a C pointer for the memory's address.
        if ["Win_allocate", "Win_allocate_shared"].contains(&function.name) {
            for suffix in ["_cptr", "_cptr_f08"] {
                let name = format!("{name}{suffix}");
                let names = if suffix == "_cptr" { spellings(&name) } else { vec![format!("{name}_")] };
                wrapper(shim, function, &plain, &format!("{name}_"), &names);
            }
        }
    }
    for name in ["mpi_type_free", "mpi_type_free_f08_"] {
        let call = |real: &str| format!("{}    {real};\n", forgetting("Type_free", "FORTRAN"));
        noted(shim, name, call);
    }
    for name in ["mpi_pcontrol", "mpi_pcontrol_f08_"] {
        // MPICH's procedure calls the C function.
        let call = |real: &str| {
            format!(
                "    struct here *here = HERE();\n    \
                 uint32_t depth = here->depth;\n    \
                 if (depth != 0) {{\n        {real};\n        return;\n    }}\n    \
                 plimsoll_phase(*(const int *)a0);\n    \
                 here->depth = 1;\n    \
                 here->frame = &depth;\n    \
                 {real};\n    \
                 here->depth = 0;\n"
            )
        };
        noted(shim, name, call);
    }
}

/// A procedure's name as Fortran compilers mangle it; the first is the most usual.
fn spellings(name: &str) -> Vec<String> {
    vec![format!("{name}_"), name.to_owned(), format!("{name}__"), name.to_uppercase()]
}

/// Names that may be behind the names of a wrapper: MPICH has its own for f08, and a library without the profiling
/// interface has those that the program is linked to.
fn candidates(names: &[String]) -> String {
    let prefixes = ["p", "P", "pmpir"];
    let of = |prefix: &str| {
        let mapped = names.iter().filter_map(move |name| match (prefix, name.starts_with("MPI")) {
            ("p", false) => Some(format!("p{name}")),
            ("P", true) => Some(format!("P{name}")),
            ("pmpir", false) => name.strip_prefix("mpi").map(|rest| format!("pmpir{rest}")),
            _ => None,
        });
        mapped.collect::<Vec<_>>()
    };
    let mut all: Vec<String> = prefixes.iter().flat_map(|prefix| of(prefix)).collect();
    all.extend(names.iter().cloned());
    all.join(" ")
}

/// The arguments in Fortran's order, each with its place in C's; `None`: only Fortran has the argument.
fn arguments(function: &Function) -> Vec<Option<usize>> {
    let has = |argument: &Argument| {
        // Only C's MPI_Init and MPI_Init_thread take the program's arguments.
        !(function.name.starts_with("Init") && ["argc", "argv"].contains(&argument.name))
    };
    let of_c =
        function.arguments.iter().enumerate().filter(|(_, argument)| has(argument)).map(|(place, _)| Some(place));
    let lengths = function.arguments.iter().filter(|a| has(a) && CHARACTERS.contains(&a.name)).map(|_| None);
    of_c.chain([None]).chain(lengths).collect()
}

fn wrapper(shim: &mut Shim, function: &Function, form: &Form, target: &str, names: &[String]) {
    let arguments = arguments(function);
    let (parameters, passed) = parameters(arguments.len());
    let real = shim.real(candidates(names));
    let error = arguments.iter().position(Option::is_none).expect("the error is an argument");
    let mut stores = String::new();
    for (place, of_c) in arguments.iter().enumerate() {
        let Some(of_c) = of_c else { continue };
        let is_buffer = BUFFERS.contains(&function.arguments[*of_c].name);
        let value = if form.descriptors && is_buffer { format!("*(const W *)a{place}") } else { format!("a{place}") };
        stores += &format!("    call.arguments[{of_c}] = {value};\n");
    }
    let before = before(function);
    // plimsoll_before may have replaced addresses; of a descriptor only the address is kept.
    let is_kept = |argument: &Argument| !before.is_empty() && !BUFFERS.contains(&argument.name);
    let passed_on = arguments.iter().enumerate().map(|(place, of_c)| match of_c {
        Some(of_c) if is_kept(&function.arguments[*of_c]) => held(*of_c),
        _ => format!("a{place}"),
    });
    let passed_on = passed_on.collect::<Vec<_>>().join(", ");
    shim.source += &format!(
        "void plimsoll_shim_{target}({parameters})\n{{\n{forgetting}    \
         void (*real)({types}) = (void (*)({types}))REAL({real});\n    \
         struct here *here = HERE();\n    \
         struct call call;\n    \
         if (NESTED()) {{\n        real({passed});\n        return;\n    }}\n    \
         BEGIN({id}, {language});\n{stores}{post}{before}    \
         ENTER();\n    \
         real({passed_on});\n    \
         call.result = a{error} ? (W)*(const int *)a{error} : 0;\n    \
         LEAVE();\n}}\n\n",
        forgetting = forgetting(function.name, "FORTRAN"),
        post = post(function),
        types = types(arguments.len()),
        id = function.id.0,
        language = form.language,
    );
    shim.exports.extend(names.iter().map(|name| (name.clone(), target.to_owned())));
}

/// A procedure of two arguments at most that is noted, not recorded; `body` gets the call of the real procedure.
fn noted(shim: &mut Shim, name: &str, body: impl Fn(&str) -> String) {
    let names = if name.ends_with('_') { vec![name.to_owned()] } else { spellings(name) };
    let (parameters, passed) = parameters(2);
    let target = &names[0];
    let real = shim.real(candidates(&names));
    let body = body(&format!("((void (*)({}))REAL({real}))({passed})", types(2)));
    shim.source += &format!("void plimsoll_shim_{target}({parameters})\n{{\n{body}}}\n\n");
    shim.exports.extend(names.iter().map(|name| (name.clone(), target.clone())));
}
