//! Names of instances. One offcode may be created several times, each time under another name; one without a name of its
//! own has the package's.

use machine::{Fault, Result};
use offcode::Guid;
use offcode::manifest::Package;

/// The instance with this name, or the only one with this package name or GUID.
///
/// # Errors
/// It fits several: which.
pub fn meant<'a, T>(wanted: &str, all: impl IntoIterator<Item = (T, &'a str, &'a Package)>) -> Result<Option<T>> {
    let guid: Option<Guid> = wanted.parse().ok();
    let mut fitting = Vec::new();
    for (one, name, package) in all {
        if name == wanted {
            return Ok(Some(one));
        }
        if package.name == wanted || Some(package.guid) == guid {
            fitting.push((one, name));
        }
    }
    if fitting.len() > 1 {
        let names: Vec<&str> = fitting.iter().map(|(_, name)| *name).collect();
        let cause = format!("it fits several instances: {}", listed(&names));
        return Err(Fault::new(format!("offcode {wanted}"), cause, "name one of these"));
    }
    Ok(fitting.pop().map(|(one, _)| one))
}

/// `a, b and c`.
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}
