//! Transports that an MPI was built with, and those that its configuration switches off.

use std::collections::HashMap;
use std::process::Command;

use linux::answer;

use crate::family::Family;
use crate::installation::Installation;

/// A transport under the MPI's own name: `vader`, `tcp`, `ucx`, `ofi` (libfabric).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transport {
    pub name: String,
    /// A configuration file or the environment leaves the transport out, unless a job requests it.
    pub switched_off: bool,
}

/// The transports in the MPI's own order; `None` where the MPI does not list them.
pub fn of(installation: &Installation) -> Option<Vec<Transport>> {
    let on = |name: &str| Transport { name: name.to_owned(), switched_off: false };
    match installation.family {
        Family::OpenMpi => {
            let information = installation.launcher.parent()?.join("ompi_info");
            let mut command = Command::new(information);
            let output = answer::of(command.args(["--parsable", "--all"]), answer::TIMEOUT);
            let output = output.ok().filter(|output| output.status.success())?;
            Some(of_open_mpi(&String::from_utf8_lossy(&output.stdout)))
        }
        // `ch4:ucx,ofi`
        Family::Mpich => Some(installation.device.as_deref()?.split_once(':')?.1.split(',').map(on).collect()),
        Family::IntelMpi => Some(vec![on("ofi")]),
    }
}

/// The reason why programs of this MPI cannot use libfabric; `None` where there is no such reason.
pub fn without_libfabric(installation: &Installation) -> Option<String> {
    match installation.family {
        Family::Mpich => {
            let device = installation.device.as_deref().filter(|device| !device.contains("ofi"))?;
            Some(format!("this {installation} was built without libfabric (--with-device={device})"))
        }
        Family::OpenMpi => (!of(installation)?.iter().any(|transport| transport.name == "ofi"))
            .then(|| format!("this {installation} was built without libfabric (ompi_info lists no 'mtl ofi')")),
        Family::IntelMpi => None,
    }
}

/// Reads `ompi_info --parsable --all`. Components of the frameworks pml, mtl and btl move messages, except those that
/// only hand them to another (`cm`, `ob1`), loop back, or serve one-sided calls alone (`btl ofi`, `btl uct`).
fn of_open_mpi(text: &str) -> Vec<Transport> {
    let mut components: Vec<(&str, &str)> = Vec::new();
    let mut selections: HashMap<&str, &str> = HashMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("mca:") else { continue };
        let mut words = rest.splitn(5, ':');
        let mut next = || words.next().unwrap_or_default();
        match [next(), next(), next(), next(), next()] {
            [framework, component, "version", _, _] if moves(framework, component) => {
                components.push((framework, component));
            }
            [framework, "base", "param", name, value] if name == framework => {
                selections.extend(value.strip_prefix("value:").map(|selection| (framework, selection)));
            }
            _ => {}
        }
    }
    // A component is listed once for each of its versions: its own and those of its interfaces.
    components.dedup();
    let transport = |(framework, component): (&str, &str)| {
        let switched_off = selections.get(framework).is_some_and(|selection| !selects(selection, component));
        Transport { name: component.to_owned(), switched_off }
    };
    components.into_iter().map(transport).collect()
}

fn moves(framework: &str, component: &str) -> bool {
    match framework {
        "pml" => matches!(component, "ucx" | "yalla"),
        "mtl" => true,
        "btl" => !matches!(component, "self" | "ofi" | "uct"),
        _ => false,
    }
}

/// Open MPI's rule: `a,b` selects these alone, `^a,b` all but these, an empty list all.
fn selects(selection: &str, component: &str) -> bool {
    match selection.strip_prefix('^') {
        Some(without) => !without.split(',').any(|name| name == component),
        None => selection.is_empty() || selection.split(',').any(|name| name == component),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn an_mpich_without_libfabric_says_so() {
        let installation = |device: &str| Installation {
            family: Family::Mpich,
            version: "4.0.2".to_owned(),
            launcher: PathBuf::from("/nowhere/mpiexec.hydra"),
            device: Some(device.to_owned()),
            libraries: None,
        };
        let why = without_libfabric(&installation("ch4:ucx")).unwrap();
        assert_eq!(why, "this MPICH 4.0.2 was built without libfabric (--with-device=ch4:ucx)");
        assert_eq!(without_libfabric(&installation("ch4:ucx,ofi")), None);
    }

    #[test]
    fn what_a_configuration_switches_off_is_told() {
        let text = "mca:btl:ofi:version:\"mca:2.1.0\"\nmca:btl:vader:version:\"mca:2.1.0\"\n\
                    mca:btl:vader:version:\"component:4.1.4\"\nmca:btl:openib:version:\"component:4.1.4\"\n\
                    mca:btl:base:param:btl:value:^uct,openib,ofi\nmca:btl:self:version:\"component:4.1.4\"\n\
                    mca:mtl:ofi:version:\"component:4.1.4\"\nmca:mtl:base:param:mtl:value:^ofi\n\
                    mca:pml:base:param:pml:value:\nmca:pml:cm:version:\"component:4.1.4\"\n\
                    mca:pml:ucx:version:\"component:4.1.4\"\nbindings:c:yes\n";
        let told: Vec<(String, bool)> =
            of_open_mpi(text).into_iter().map(|transport| (transport.name, transport.switched_off)).collect();
        let told: Vec<(&str, bool)> = told.iter().map(|(name, off)| (name.as_str(), *off)).collect();
        assert_eq!(told, [("vader", false), ("openib", true), ("ofi", true), ("ucx", false)]);
        assert!(!selects("cm", "ucx") && selects("cm,ucx", "ucx"));
    }
}
