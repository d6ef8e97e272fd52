//! The two ends of a path: `--path` and `--key` of `study` and `bench`.

use std::path::Path as FilePath;
use std::str::FromStr;

use bench::key::Key;
use bench::second_host::SecondHost;
use launch::allocation::{self, Allocation};
use machine::{Fault, Result};
use rounds::point::Path;

/// The other end of a path, as `--path` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ends {
    Path(Path),
    /// This node and the next one of the job's allocation.
    Allocation,
}

impl FromStr for Ends {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Ends> {
        Ok(match text {
            "loopback" => Ends::Path(Path::Loopback),
            "lab" => Ends::Path(Path::Lab),
            "allocation" => Ends::Allocation,
            "" => {
                let next = "choose loopback, lab, allocation or HOST[:PORT]";
                return Err(Fault::new("path", "it is empty", next));
            }
            host => Ends::Path(Path::Remote(host.to_owned())),
        })
    }
}

/// The key in `file`, for the server that `asked` names.
///
/// # Errors
/// The key cannot be read, or no server is named.
pub fn key(file: Option<&FilePath>, asked: Option<&Ends>) -> Result<Option<Key>> {
    let Some(file) = file else { return Ok(None) };
    match asked {
        Some(Ends::Path(Path::Remote(_))) => Key::read(file).map(Some),
        _ => {
            let next = "name its host, --path HOST, or leave --key out";
            Err(Fault::new(format!("key {}", file.display()), "it is for a server, and --path names none", next))
        }
    }
}

/// The next node of the allocation around this process, served: where it is `asked` for, or nothing is and there is one.
/// `None` where there is none, or `--path` names another.
///
/// # Errors
/// The node cannot be served; or it is asked for and there is none.
pub fn second_host(asked: Option<&Ends>) -> Result<Option<SecondHost>> {
    if matches!(asked, Some(Ends::Path(_))) {
        return Ok(None);
    }
    let Some(allocation) = allocation::around() else {
        return match asked {
            None => Ok(None),
            Some(_) => {
                let next = "ask for two nodes (`salloc --nodes=2`, `qsub -I -l select=2`), or name a host: --path HOST";
                Err(Fault::new("path allocation", "this process is in no job of Slurm or PBS", next))
            }
        };
    };
    if asked.is_none() && allocation.hosts().len() < 2 {
        return Ok(None);
    }
    between_nodes(&allocation).map(Some).map_err(|fault| match asked {
        Some(_) => fault,
        None => {
            Fault::new(fault.subject(), fault.cause(), format!("{}; or choose --path lab or loopback", fault.next()))
        }
    })
}

fn between_nodes(allocation: &Allocation) -> Result<SecondHost> {
    let (here, next) = allocation.pair()?;
    let program = machine::here::program()?;
    let second = SecondHost::start(allocation, &next, &program)?;
    eprintln!("Between {here} and {next} of {}.", allocation.name);
    Ok(second)
}
