//! Options, variables and files by which each launcher puts every rank in its seat.

use std::fs;
use std::path::{Path, PathBuf};

use machine::seat::{Seat, Seats};
use machine::topology::Topology;
use machine::{CoreId, CpuSet, Fault, Result};

use super::dialect::Dialect;

/// Options, variables and files of a launcher.
#[derive(Debug, Default)]
pub(crate) struct LauncherInput {
    /// Options once, before the first program.
    pub options: Vec<String>,
    /// Options before each program.
    pub of_each: Vec<String>,
    /// Command that starts each program.
    pub of_program: Vec<String>,
    pub variables: Vec<(String, String)>,
    pub files: Vec<(PathBuf, String)>,
}

impl LauncherInput {
    /// `with_hosts`: names the seats' hosts, since the launcher would otherwise use others.
    ///
    /// # Errors
    /// The launcher cannot place ranks at these seats.
    pub(crate) fn new(by: Dialect, seats: &Seats, with_hosts: bool, folder: &Path) -> Result<LauncherInput> {
        let mut told = LauncherInput::default();
        match by {
            Dialect::OpenMpi4 => {
                let path = told.file(folder, "rankfile", rankfile(seats, |seat| Ok(seat.cores.clone()))?);
                // The kernel's numbers, and threads of a core counted apart; several ranks may share one.
                told.option(&["--oversubscribe", "--use-hwthread-cpus", "--mca", "rmaps_rank_file_physical", "1"]);
                told.option(&["--rankfile", &path]);
            }
            Dialect::OpenMpi5 => {
                let path = told.file(folder, "rankfile", rankfile(seats, hwloc_numbers()?)?);
                if path.contains(':') {
                    let cause = "Open MPI 5 takes a colon for the end of a file's name";
                    return Err(Fault::new(format!("folder {}", folder.display()), cause, "choose another folder"));
                }
                told.option(&["--map-by", &format!("rankfile:file={path}:hwtcpus:oversubscribe")]);
                told.option(&["--bind-to", "hwthread:overload-allowed"]);
            }
            Dialect::Mpich => match of_local_ranks(by, seats) {
                Some(list) => told.option(&["-bind-to", &format!("user:{}", list.join(","))]),
                None => {
                    told.option(&["-bind-to", "none"]);
                    told.of_program = bound_by_itself("PMI_RANK", seats);
                }
            },
            Dialect::Slurm => {
                let form = if has_single_cores(seats) { "map_cpu" } else { "mask_cpu" };
                match of_local_ranks(by, seats) {
                    Some(list) => told.option(&[&format!("--cpu-bind={form}:{}", list.join(","))]),
                    None => {
                        told.option(&["--cpu-bind=none"]);
                        told.of_program = bound_by_itself("SLURM_PROCID", seats);
                    }
                }
                if seats.hosts().iter().any(|host| seats.of(host).count() > cores_of(seats, host).len()) {
                    told.option(&["--overcommit"]);
                }
            }
            Dialect::Plimsoll => {
                let path = told.file(folder, "seats", seats.to_string());
                told.option(&["--seats", &path]);
            }
        }
        if with_hosts {
            told.hosts(by, seats, folder)?;
        }
        Ok(told)
    }

    fn hosts(&mut self, by: Dialect, seats: &Seats, folder: &Path) -> Result<()> {
        match by {
            Dialect::OpenMpi4 | Dialect::OpenMpi5 => self.of_each = vec!["--host".to_owned(), by_host(seats)],
            Dialect::Mpich => {
                in_blocks(seats)?;
                self.option(&["-hosts", &by_host(seats)]);
            }
            Dialect::Slurm => {
                let hosts = seats.0.iter().map(|seat| format!("{}\n", seat.host)).collect();
                let path = self.file(folder, "hosts", hosts);
                self.variables.push(("SLURM_HOSTFILE".to_owned(), path));
                self.option(&["--distribution=arbitrary", &format!("--nodes={}", seats.hosts().len())]);
            }
            Dialect::Plimsoll => {}
        }
        Ok(())
    }

    fn option(&mut self, words: &[&str]) {
        self.options.extend(words.iter().map(|word| (*word).to_owned()));
    }

    fn file(&mut self, folder: &Path, name: &str, text: String) -> String {
        let path = folder.join(name);
        let named = path.display().to_string();
        self.files.push((path, text));
        named
    }
}

/// Writes files, and the folders for them.
pub(crate) fn write(files: &[(PathBuf, String)]) -> Result<()> {
    for (path, text) in files {
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
        written.map_err(|e| Fault::unwritable(format!("file {}", path.display()), e, "choose another folder"))?;
    }
    Ok(())
}

/// `a:2,b:1`: number of ranks of each host.
pub(crate) fn by_host(seats: &Seats) -> String {
    let hosts = seats.hosts().into_iter().map(|host| format!("{host}:{}", seats.of(host).count()));
    hosts.collect::<Vec<_>>().join(",")
}

fn rankfile(seats: &Seats, numbers: impl Fn(&Seat) -> Result<CpuSet>) -> Result<String> {
    let line = |(rank, seat): (usize, &Seat)| Ok(format!("rank {rank}={} slot={}\n", seat.host, numbers(seat)?));
    seats.0.iter().enumerate().map(line).collect()
}

/// Open MPI 5 numbers the CPUs of a job as hwloc does. Other hosts are assumed to be like this one; `verify` checks it.
fn hwloc_numbers() -> Result<impl Fn(&Seat) -> Result<CpuSet>> {
    let of_cpuset = linux::affinity::reachable()?;
    let order: Vec<CoreId> =
        Topology::live()?.in_hwloc_order().into_iter().filter(|core| of_cpuset.contains(*core)).collect();
    Ok(move |seat: &Seat| {
        let number = |core: CoreId| {
            let at = order.iter().position(|other| *other == core).ok_or_else(|| {
                let cause = format!(
                    "Open MPI 5 takes hwloc's numbers, and this host has no {core} to tell that of {}",
                    seat.host
                );
                let next = "make the line on a host that is built like it, or start it with Open MPI 4 or srun";
                Fault::new(format!("{core} of {}", seat.host), cause, next)
            })?;
            Ok(CoreId(at as u32))
        };
        seat.cores.iter().map(number).collect()
    })
}

fn has_single_cores(seats: &Seats) -> bool {
    seats.0.iter().all(|seat| seat.cores.len() == 1)
}

fn cores_of(seats: &Seats, host: &str) -> CpuSet {
    seats.of(host).flat_map(CpuSet::iter).collect()
}

/// The seats of a host's ranks in rank order, in the form of a launcher that takes one list for all hosts; `None` where
/// hosts differ.
fn of_local_ranks(by: Dialect, seats: &Seats) -> Option<Vec<String>> {
    let lists: Vec<Vec<&CpuSet>> = seats.hosts().iter().map(|host| seats.of(host).collect()).collect();
    let longest = lists.iter().max_by_key(|list| list.len())?;
    if lists.iter().any(|list| !longest.starts_with(list)) {
        return None;
    }
    let single = has_single_cores(seats);
    let word = |cores: &&CpuSet| match by {
        Dialect::Slurm if !single => mask(cores),
        _ => cores.iter().map(|core| core.0.to_string()).collect::<Vec<_>>().join("+"),
    };
    Some(longest.iter().map(word).collect())
}

/// A shell that binds itself to the cores of its rank, given by the variable `rank`, before it becomes the program.
fn bound_by_itself(rank: &str, seats: &Seats) -> Vec<String> {
    let cores: Vec<String> = seats.0.iter().map(|seat| seat.cores.to_string()).collect();
    let cores = cores.join(":");
    let script = format!("exec taskset -c $(echo {cores} | cut -d: -f$(({rank} + 1))) \"$@\"");
    ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
}

/// Checks that each host's ranks are consecutive: hydra fills one host after the other.
fn in_blocks(seats: &Seats) -> Result<()> {
    let blocks = seats.0.chunk_by(|one, other| one.host == other.host).count();
    if blocks == seats.hosts().len() {
        return Ok(());
    }
    let cause = "MPICH fills one host after the other, and ranks of one are apart";
    Err(Fault::new("seats", cause, "give each host ranks that follow one another, or start it with Open MPI or srun"))
}

/// Hexadecimal mask, without leading zeros.
fn mask(cores: &CpuSet) -> String {
    let mut digits = vec![0u32; cores.iter().next_back().map_or(0, |last| last.0 as usize / 4) + 1];
    cores.iter().for_each(|core| digits[core.0 as usize / 4] |= 1 << (core.0 % 4));
    let text: String = digits.iter().rev().map(|digit| char::from_digit(*digit, 16).unwrap_or('0')).collect();
    format!("0x{text}")
}

/// The seats under the launcher's names for the hosts. Fails where `name` has none for a host.
pub(crate) fn renamed(seats: &Seats, name: impl Fn(&str) -> Option<String>) -> Result<Seats> {
    let seat = |seat: &Seat| {
        let host = name(&seat.host).ok_or_else(|| {
            Fault::new(format!("host {}", seat.host), "the job has none of that name", "name hosts as its profile does")
        })?;
        Ok(Seat { host, cores: seat.cores.clone() })
    };
    seats.0.iter().map(seat).collect::<Result<_>>().map(Seats)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(by: Dialect, seats: &str, with_hosts: bool) -> Result<LauncherInput> {
        LauncherInput::new(by, &seats.parse().unwrap(), with_hosts, Path::new("/f"))
    }

    #[test]
    fn each_launcher_is_told_in_its_own_words() {
        let seats = "0 a 1\n1 a 0\n2 b 1\n";
        let said = |by, seats, with_hosts| {
            let told = told(by, seats, with_hosts).unwrap();
            [told.options, told.of_each].concat().join(" ")
        };
        let open_mpi = told(Dialect::OpenMpi4, seats, true).unwrap();
        assert_eq!(open_mpi.of_each, ["--host", "a:2,b:1"]);
        assert_eq!(open_mpi.files[0].1, "rank 0=a slot=1\nrank 1=a slot=0\nrank 2=b slot=1\n");
        assert_eq!(said(Dialect::Mpich, seats, true), "-bind-to user:1,0 -hosts a:2,b:1");
        assert_eq!(said(Dialect::Mpich, "0 a 1,3\n1 a 0", false), "-bind-to user:1+3,0");
        assert_eq!(said(Dialect::Slurm, seats, false), "--cpu-bind=map_cpu:1,0");
        assert_eq!(said(Dialect::Slurm, "0 a 1,9-10\n1 a 1\n", false), "--cpu-bind=mask_cpu:0x602,0x2");
        assert_eq!(said(Dialect::Slurm, "0 a 1\n1 a 1\n", false), "--cpu-bind=map_cpu:1,1 --overcommit");
        let slurm = told(Dialect::Slurm, "0 a 1\n1 b 1\n2 a 0\n", true).unwrap();
        assert_eq!((slurm.variables[0].0.as_str(), slurm.files[0].1.as_str()), ("SLURM_HOSTFILE", "a\nb\na\n"));
        assert_eq!(slurm.options, ["--cpu-bind=map_cpu:1,0", "--distribution=arbitrary", "--nodes=2"]);
    }

    #[test]
    fn ranks_bind_themselves_where_one_list_does_not_suffice() {
        let seats = "0 a 1\n1 a 0\n2 b 0,2-3\n";
        let slurm = told(Dialect::Slurm, seats, true).unwrap();
        assert_eq!(slurm.options[0], "--cpu-bind=none");
        let mpich = told(Dialect::Mpich, seats, true).unwrap();
        assert_eq!(mpich.options.join(" "), "-bind-to none -hosts a:2,b:1");
        let script = "exec taskset -c $(echo 1:0:0,2-3 | cut -d: -f$((PMI_RANK + 1))) \"$@\"";
        assert_eq!(mpich.of_program, ["sh", "-c", script, "sh"]);
    }

    #[test]
    fn what_a_launcher_cannot_do_is_refused_with_what_can() {
        let fault = |by, seats| told(by, seats, true).unwrap_err().to_string();
        let fault = fault(Dialect::Mpich, "0 a 1\n1 b 1\n2 a 0\n");
        assert!(fault.contains("fills one host after the other"), "{fault}");
        let beyond = told(Dialect::OpenMpi5, "0 elsewhere 60000", true).unwrap_err().to_string();
        assert!(beyond.contains("hwloc's numbers"), "{beyond}");
        let colon = LauncherInput::new(
            Dialect::OpenMpi5,
            &format!("0 a {}", here().0).parse().unwrap(),
            false,
            Path::new("/a:b"),
        );
        assert!(colon.unwrap_err().to_string().contains("a colon"));
    }

    fn here() -> CoreId {
        linux::affinity::reachable().unwrap().first().unwrap()
    }

    proptest! {
        #[test]
        fn a_mask_is_read_back_as_the_cores(numbers in prop::collection::btree_set(0u32..500, 1..20)) {
            let cores: CpuSet = numbers.into_iter().map(CoreId).collect();
            let text = mask(&cores);
            let digits = text.strip_prefix("0x").unwrap();
            // The kernel's form has a comma before every eighth digit from the end.
            let words: Vec<&str> = digits.as_bytes().rchunks(8).rev().map(|word| std::str::from_utf8(word).unwrap()).collect();
            prop_assert_eq!(CpuSet::from_mask(&words.join(",")), Some(cores));
        }
    }
}
