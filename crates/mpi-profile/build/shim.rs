//! The common part of the wrappers of all languages.

use std::collections::BTreeMap;

use record::functions::{Class, Function};

#[derive(Default)]
pub struct Shim {
    pub source: String,
    /// Each exported name, and the X of the `plimsoll_shim_X` behind it.
    pub exports: Vec<(String, String)>,
    /// The MPI's functions behind the wrappers: each text has alternative names, of which the first present one is used.
    reals: Vec<String>,
    /// Functions of the source that stand for the MPI's functions at these places, where the MPI lacks them.
    pub substitutes: BTreeMap<usize, String>,
}

/// Functions after which a handle may be reused, and the number of its kind for `plimsoll_forget`. Calls by the MPI itself
/// count too, such as those for objects attached to a communicator that is freed.
pub const FREES: [(&str, u32); 4] = [("Type_free", 0), ("Comm_free", 1), ("Comm_disconnect", 1), ("Win_free", 2)];

impl Shim {
    /// Adds a function of the MPI and returns its place in the table.
    pub fn real(&mut self, names: String) -> usize {
        self.reals.push(names);
        self.reals.len() - 1
    }

    /// The source, with the table of the MPI's functions.
    pub fn finish(&self) -> String {
        let substitute = |place| self.substitutes.get(&place).map_or("0".into(), |name| format!("(void *){name}"));
        let substitutes: String = (0..self.reals.len()).map(|place| format!("    {},\n", substitute(place))).collect();
        let names: String = self.reals.iter().map(|names| format!("    \"{names}\",\n")).collect();
        format!(
            "#include \"shim.h\"\n\n{}const char *const plimsoll_real_names[] = {{\n{names}}};\n\
             void *const plimsoll_substitutes[] = {{\n{substitutes}}};\n\
             const W plimsoll_reals = {count};\nvoid *plimsoll_real[{count}];\n",
            self.source,
            count = self.reals.len()
        )
    }
}

pub fn forgetting(name: &str, language: &str) -> String {
    let kind = FREES.iter().find(|(frees, _)| *frees == name);
    kind.map(|(_, kind)| format!("    plimsoll_forget({kind}, {language}, a0);\n")).unwrap_or_default()
}

/// Whether the call may overwrite arguments that recording reads, or ends MPI or the process.
fn needs_before(function: &Function) -> bool {
    let arguments = ["request", "requests"];
    let consumes =
        matches!(function.class, Class::Completion) || ["Start", "Startall", "Request_free"].contains(&function.name);
    (consumes && arguments.iter().any(|name| function.argument(name).is_some()))
        || ["Finalize", "Session_finalize", "Abort"].contains(&function.name)
}

/// Whether the function has a status that a timeline needs and that the program may ignore.
fn tells_what_it_got(function: &Function) -> bool {
    function.argument("source").is_some() && function.argument("status").is_some()
}

/// Source that runs before the call.
pub fn before(function: &Function) -> &'static str {
    if needs_before(function) {
        "    plimsoll_before(here, &call);\n"
    } else if tells_what_it_got(function) {
        "    if (__builtin_expect(here->extra & 1, 0))\n        plimsoll_before(here, &call);\n"
    } else {
        ""
    }
}

/// Source that runs first of all before a call that begins messages, where there are delays, and before any other where computing
/// is delayed.
pub fn post(function: &Function) -> &'static str {
    let begins = function.argument("dest").is_some() && !function.name.ends_with("_init");
    if begins || ["Start", "Startall"].contains(&function.name) {
        "    if (__builtin_expect(here->extra & 2, 0))\n        plimsoll_post(here, &call);\n"
    } else {
        "    if (__builtin_expect(here->extra & 4, 0))\n        plimsoll_post(here, &call);\n"
    }
}

/// An argument in the wrapper's record.
pub fn held(place: usize) -> String {
    format!("call.arguments[{place}]")
}

/// Parameters of a wrapper, and the arguments that it passes to the function behind it.
pub fn parameters(count: usize) -> (String, String) {
    let join = |prefix: &str| (0..count).map(|i| format!("{prefix}a{i}")).collect::<Vec<_>>().join(", ");
    (if count == 0 { "void".into() } else { join("W ") }, join(""))
}

pub fn types(count: usize) -> String {
    if count == 0 { "void".into() } else { vec!["W"; count].join(", ") }
}
