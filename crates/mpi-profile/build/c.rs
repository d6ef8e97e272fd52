//! The wrappers that C programs call.

use record::functions::{Argument, Function, functions, named};

use crate::shim::{FREES, Shim, before, forgetting, held, parameters, post, types};

pub fn add(shim: &mut Shim) {
    for function in functions() {
        let small = wrapper(shim, function, false);
        if function.large_counts {
            let large = wrapper(shim, function, true);
            narrow(shim, function, small, large);
        }
    }
    for name in FREES.map(|(name, _)| name).into_iter().filter(|name| named(name).is_none()) {
        let real = real(shim, name);
        shim.source += &format!(
            "W plimsoll_shim_MPI_{name}(W a0)\n{{\n{}    return ((W (*)(W))REAL({real}))(a0);\n}}\n\n",
            forgetting(name, "C")
        );
        export(shim, name);
    }
    let real = real(shim, "Pcontrol");
    shim.source += &format!(
        "W plimsoll_shim_MPI_Pcontrol(W a0, W a1, W a2, W a3, W a4, W a5)\n{{\n    \
         if (HERE()->depth == 0)\n        plimsoll_phase((int)a0);\n    \
         return ((W (*)({}))REAL({real}))(a0, a1, a2, a3, a4, a5);\n}}\n\n",
        types(6)
    );
    export(shim, "Pcontrol");
}

/// The place of the MPI's function: by its `MPI_` name in stand-ins for MPI, which lack the profiling interface.
fn real(shim: &mut Shim, name: &str) -> usize {
    shim.real(format!("PMPI_{name} MPI_{name}"))
}

fn export(shim: &mut Shim, name: &str) {
    shim.exports.push((format!("MPI_{name}"), format!("MPI_{name}")));
}

fn wrapper(shim: &mut Shim, function: &Function, large: bool) -> usize {
    let name = format!("{}{}", function.name, if large { "_c" } else { "" });
    let count = function.arguments.len();
    let real = real(shim, &name);
    let (parameters, passed) = parameters(count);
    let before = before(function);
    shim.source += &format!(
        "W plimsoll_shim_MPI_{name}({parameters})\n{{\n{forgetting}    \
         W (*real)({types}) = (W (*)({types}))REAL({real});\n    \
         struct here *here = HERE();\n    \
         struct call call;\n    \
         if (NESTED())\n        \
         return real({passed});\n    \
         BEGIN({id}, {language});\n{stores}{post}{before}    \
         ENTER();\n    \
         call.result = real({kept});\n    \
         LEAVE();\n    \
         return call.result;\n}}\n\n",
        forgetting = forgetting(function.name, "C"),
        // plimsoll_before may have replaced addresses.
        kept = if before.is_empty() { passed.clone() } else { (0..count).map(held).collect::<Vec<_>>().join(", ") },
        post = post(function),
        types = types(count),
        id = function.id.0,
        language = if large { "LARGE_C" } else { "C" },
        stores = (0..count).map(|i| format!("    call.arguments[{i}] = a{i};\n")).collect::<String>(),
    );
    export(shim, &name);
    real
}

/// Programs that look up functions for large counts, such as mpi4py, find the library's. Where the MPI has none, counts that
/// fit into an int go to its function without large counts; src/narrow.rs converts arrays of counts.
fn narrow(shim: &mut Shim, function: &Function, small: usize, large: usize) {
    let is_count = |name: &str| match name {
        "size" => function.name == "Buffer_attach",
        _ => name.ends_with("count") || name == "disp_unit",
    };
    let of_counts = |argument: &Argument| {
        argument.array && (argument.name.ends_with("counts") || argument.name.ends_with("displs"))
    };
    if function.name == "Buffer_detach" {
        return;
    }
    if function.arguments.iter().any(of_counts) {
        let count = function.arguments.len();
        let (parameters, passed) = parameters(count);
        let converted = (0..count).map(|i| format!("a[{i}]")).collect::<Vec<_>>().join(", ");
        let (name, types, id) = (function.name, types(count), function.id.0);
        shim.source += &format!(
            "static W narrow_{name}({parameters})\n{{\n    W a[] = {{{passed}}};\n    void *kept = 0;\n    \
             W refused = plimsoll_narrow({id}, a, &kept);\n    if (refused)\n        return refused;\n    \
             W result = ((W (*)({types}))REAL({small}))({converted});\n    \
             plimsoll_narrowed({id}, kept);\n    return result;\n}}\n\n"
        );
        shim.substitutes.insert(large, format!("narrow_{name}"));
        return;
    }
    let counts = function.arguments.iter().enumerate().filter(|(_, argument)| is_count(argument.name));
    let too_large: String = counts
        .map(|(place, _)| format!("    if ((intptr_t)a{place} > INT32_MAX)\n        return COUNT_TOO_LARGE;\n"))
        .collect();
    let (parameters, passed) = parameters(function.arguments.len());
    let (name, types) = (function.name, types(function.arguments.len()));
    shim.source += &format!(
        "static W narrow_{name}({parameters})\n{{\n{too_large}    return ((W (*)({types}))REAL({small}))({passed});\n}}\n\n"
    );
    shim.substitutes.insert(large, format!("narrow_{name}"));
}
