//! The wrappers that C programs call.

use record::functions::{Class, Function, functions, named};

pub struct Shim {
    pub source: String,
    /// What is exported; `plimsoll_shim_NAME` is behind each.
    pub names: Vec<String>,
}

/// Functions after which a handle may mean something else, and what `plimsoll_forget` calls its kind. Also where the MPI
/// itself calls them, as it does for what hangs on a communicator that is freed.
pub const FREES: [(&str, u32); 4] = [("Type_free", 0), ("Comm_free", 1), ("Comm_disconnect", 1), ("Win_free", 2)];

pub fn shim() -> Shim {
    let mut shim = Shim { source: "#include \"shim.h\"\n\n".into(), names: Vec::new() };
    let all = functions();
    let mut real: Vec<String> = Vec::new();
    for function in all {
        wrapper(&mut shim, &mut real, function, false);
    }
    for function in all.iter().filter(|function| function.large_counts) {
        wrapper(&mut shim, &mut real, function, true);
    }
    for name in FREES.map(|(name, _)| name).into_iter().filter(|name| named(name).is_none()) {
        let index = real.len();
        shim.source += &format!(
            "W plimsoll_shim_MPI_{name}(W a0)\n{{\n{}    return ((W (*)(W))REAL({index}))(a0);\n}}\n\n",
            forgetting(name)
        );
        shim.names.push(format!("MPI_{name}"));
        real.push(format!("MPI_{name}"));
    }
    let index = real.len();
    shim.source += &format!(
        "W plimsoll_shim_MPI_Pcontrol(W a0, W a1, W a2, W a3, W a4, W a5)\n{{\n    plimsoll_phase((int)a0);\n    \
         return ((W (*)({}))REAL({index}))(a0, a1, a2, a3, a4, a5);\n}}\n\n",
        types(6)
    );
    shim.names.push("MPI_Pcontrol".into());
    real.push("MPI_Pcontrol".into());

    let table: String = real.iter().map(|name| format!("    \"P{name}\",\n")).collect();
    shim.source += &format!(
        "const char *const plimsoll_real_names[] = {{\n{table}}};\nconst W plimsoll_reals = {n};\nvoid *plimsoll_real[{n}];\n",
        n = real.len()
    );
    shim
}

fn wrapper(shim: &mut Shim, real: &mut Vec<String>, function: &Function, large: bool) {
    let name = format!("MPI_{}{}", function.name, if large { "_c" } else { "" });
    let count = function.arguments.len();
    let index = real.len();
    let (parameters, passed) = parameters(count);
    let before = if needs_before(function) {
        "    plimsoll_before(here, &call);\n"
    } else if tells_what_it_got(function) {
        "    if (__builtin_expect(here->traced != 0, 0))\n        plimsoll_before(here, &call);\n"
    } else {
        ""
    };
    shim.source += &format!(
        "W plimsoll_shim_{name}({parameters})\n{{\n{forgetting}    \
         W (*real)({types}) = (W (*)({types}))REAL({index});\n    \
         struct here *here = HERE();\n    \
         struct call call;\n    \
         if (NESTED())\n        \
         return real({passed});\n    \
         BEGIN({id}, {language});\n{stores}{before}    \
         ENTER();\n    \
         call.result = real({kept});\n    \
         LEAVE();\n    \
         return call.result;\n}}\n\n",
        forgetting = forgetting(function.name),
        // plimsoll_before may have put other addresses in.
        kept = if before.is_empty() { passed.clone() } else { held(count) },
        types = types(count),
        id = function.id.0,
        language = if large { "LARGE_C" } else { "C" },
        stores = (0..count).map(|i| format!("    call.arguments[{i}] = a{i};\n")).collect::<String>(),
    );
    shim.names.push(name.clone());
    real.push(name);
}

fn forgetting(name: &str) -> String {
    let kind = FREES.iter().find(|(frees, _)| *frees == name);
    kind.map(|(_, kind)| format!("    plimsoll_forget({kind}, C, a0);\n")).unwrap_or_default()
}

/// Whether something of its arguments is to be looked at before the call may overwrite it, or noted before it ends.
fn needs_before(function: &Function) -> bool {
    let arguments = ["request", "requests"];
    let consumes =
        matches!(function.class, Class::Completion) || ["Start", "Startall", "Request_free"].contains(&function.name);
    (consumes && arguments.iter().any(|name| function.argument(name).is_some()))
        || ["Finalize", "Abort"].contains(&function.name)
}

/// Whether it has a status that a timeline wants, which the program may ignore.
fn tells_what_it_got(function: &Function) -> bool {
    function.argument("source").is_some() && function.argument("status").is_some()
}

fn parameters(count: usize) -> (String, String) {
    let join = |prefix: &str| (0..count).map(|i| format!("{prefix}a{i}")).collect::<Vec<_>>().join(", ");
    (if count == 0 { "void".into() } else { join("W ") }, join(""))
}

fn held(count: usize) -> String {
    (0..count).map(|i| format!("call.arguments[{i}]")).collect::<Vec<_>>().join(", ")
}

fn types(count: usize) -> String {
    if count == 0 { "void".into() } else { vec!["W"; count].join(", ") }
}
