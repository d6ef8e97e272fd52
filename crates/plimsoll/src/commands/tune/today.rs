//! The command to tune, and variants of it with other settings.

use std::ffi::OsString;

use experiment::axes::{Axes, Value};
use experiment::trial::design::Arm;
use launch::Variables;
use launch::command_line::{CommandLine, Launcher, LauncherOption};
use launch::installation::Installation;
use machine::{Fault, Result, shell};

/// The command as it is used today.
pub struct Today {
    pub words: Vec<String>,
    line: CommandLine,
    /// The MPI that starts it or that it is linked with.
    pub installation: Result<Installation>,
}

/// Prefix of environment variables for Open MPI's parameters.
const PARAMETER: &str = "OMPI_MCA_";

impl Today {
    /// # Errors
    /// Its launcher gives no answer.
    pub fn of(words: Vec<String>) -> Result<Today> {
        let line = CommandLine::read(&os(&words)).answered()?;
        let installation = match (&line.launcher, line.programs.first()) {
            (Some((_, Launcher::Mpi(installation))), _) => Ok(installation.clone()),
            (_, Some(program)) => Installation::of_program(&program.path),
            (_, None) => Err(Fault::new(shell::words(&words), "no program was found in it", "name one that is there")),
        };
        Ok(Today { words, line, installation })
    }

    /// The place of the program among the words, where it is started by a launcher and is the only one.
    pub fn program(&self) -> Option<usize> {
        match (&self.line.launcher, &self.line.programs[..]) {
            (Some(_), [program]) => Some(program.at),
            _ => None,
        }
    }

    /// Whether `plimsoll mpirun` starts it.
    pub fn is_by_plimsoll(&self) -> bool {
        matches!(self.line.launcher, Some((_, Launcher::Plimsoll)))
    }

    /// The command as an arm of a trial.
    pub fn arm(&self) -> Arm {
        arm("today", self.words.clone(), Vec::new(), None)
    }

    /// An arm with variables in the command's environment, which the command's own options of the same name override.
    pub fn with(&self, name: &str, variables: &Variables) -> Arm {
        let named = |name: &str| variables.iter().any(|(variable, _)| variable == name);
        let gives_way = |setting: &&LauncherOption| match (setting.name.as_str(), setting.value.as_deref()) {
            ("mca" | "gmca" | "omca", Some(parameter)) => named(&format!("{PARAMETER}{parameter}")),
            ("x" | "env" | "genv", Some(value)) => named(value.split('=').next().unwrap_or_default()),
            _ => false,
        };
        let dropped: Vec<&LauncherOption> = self.line.settings.iter().filter(gives_way).collect();
        // Open MPI exports its own parameters to ranks by itself.
        let told: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        let told: Vec<&str> = told.into_iter().filter(|name| !name.starts_with(PARAMETER)).collect();
        let kept = |at: usize| !dropped.iter().any(|setting| setting.at.contains(&at));
        let words: Vec<OsString> = match dropped.is_empty() {
            true => self.line.exporting(&os(&self.words), &told),
            false => {
                let words: Vec<String> =
                    self.words.iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, word)| word.clone()).collect();
                CommandLine::read(&os(&words)).exporting(&os(&words), &told)
            }
        };
        let words = words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let text = |(name, value): &(String, OsString)| (name.clone(), value.to_string_lossy().into_owned());
        arm(name, words, variables.iter().map(text).collect(), None)
    }
}

fn os(words: &[String]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// A command as an arm of a trial. `own` is this program, which `plimsoll` stands for where the words begin with it: such an arm must
/// prove that plimsoll carried its messages.
pub fn arm(name: &str, mut words: Vec<String>, variables: Vec<(String, String)>, own: Option<&str>) -> Arm {
    let mut axes = Axes::default().with("command", Value::List(words.clone()));
    for (name, value) in &variables {
        axes = axes.with(&format!("env.{name}"), Value::Text(value.clone()));
    }
    let set = variables.iter().map(|(name, value)| format!("{name}={}", shell::word(value)));
    let line = set.chain([shell::words(&words)]).collect::<Vec<_>>().join(" ");
    if let Some(own) = own {
        words[0] = own.to_owned();
    }
    Arm { name: name.to_owned(), axes, command: words, variables, proven: own.is_some(), line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(command: &str, variables: &[(&str, &str)]) -> Arm {
        let today = Today::of(command.split(' ').map(str::to_owned).collect()).unwrap();
        let variables: Variables = variables.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
        today.with("other", &variables)
    }

    #[test]
    fn what_the_command_sets_itself_gives_way() {
        if Installation::in_path(launch::family::Family::OpenMpi).is_err() {
            return skip::test("no Open MPI (package openmpi-bin)");
        }
        let command = "mpirun.openmpi -n 2 --mca btl self,tcp --mca pml ob1 -x UCX_TLS=tcp true 5";
        let arm = with(command, &[("OMPI_MCA_btl", "self,vader"), ("UCX_TLS", "sm")]);
        assert_eq!(arm.command.join(" "), "mpirun.openmpi -x UCX_TLS -n 2 --mca pml ob1 true 5");
        let line = "OMPI_MCA_btl=self,vader UCX_TLS=sm mpirun.openmpi -x UCX_TLS -n 2 --mca pml ob1 true 5";
        assert_eq!(arm.line, line);
        let arm = with("mpirun.openmpi -n 2 true", &[("OMPI_MCA_pml", "ucx")]);
        assert_eq!(arm.command.join(" "), "mpirun.openmpi -n 2 true");
    }

    #[test]
    fn a_line_that_is_pasted_names_the_command_and_a_trial_runs_this_program() {
        let words = ["plimsoll", "mpirun", "-n", "2", "./a b"].map(str::to_owned).to_vec();
        let arm = arm("app", words, Vec::new(), Some("/opt/bin/plimsoll"));
        assert_eq!(arm.line, "plimsoll mpirun -n 2 './a b'");
        assert_eq!((arm.command[0].as_str(), arm.proven), ("/opt/bin/plimsoll", true));
    }
}
