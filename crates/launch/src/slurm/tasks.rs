//! States of the tasks of job arrays, without accounting: `squeue` lists tasks that have not ended, `scontrol` those that
//! ended some minutes ago, and a task's log has Slurm's last message for all others.

use std::fmt;

use super::output::field;
use super::script::{NO_PROGRAM, NOT_SHARED};

/// A task of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The array's job number.
    pub job: u32,
    /// Index in the array: the chunk's number.
    pub index: u32,
    pub state: TaskState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// With Slurm's reason.
    Waits(String),
    /// With the node.
    Runs(String),
    Ended(Ending),
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub cause: Cause,
    /// Node on which the task ran, if known.
    pub node: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The task ran to its end.
    Completed,
    NodeFailed,
    /// The task exceeded its time.
    TimedOut,
    Preempted,
    OutOfMemory,
    /// A user or an administrator cancelled the task.
    Cancelled,
    /// Its node does not see the files of the submitting host.
    NotShared,
    /// Its node does not have the program.
    NoProgram,
    Exit(u8),
    Signal(u8),
    /// Slurm has forgotten the task, and its log has no message.
    NotKnown,
}

impl TaskState {
    /// Whether the task has yet to end.
    pub fn is_active(&self) -> bool {
        !matches!(self, TaskState::Ended(_))
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskState::Waits(reason) if reason.is_empty() || reason == "None" => f.write_str("waits"),
            TaskState::Waits(reason) => write!(f, "waits ({reason})"),
            TaskState::Runs(node) => write!(f, "runs on {node}"),
            TaskState::Ended(Ending { cause, node: Some(node) }) => write!(f, "{cause}, on {node}"),
            TaskState::Ended(Ending { cause, node: None }) => write!(f, "{cause}"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Completed => f.write_str("completed"),
            Cause::NodeFailed => f.write_str("node failed"),
            Cause::TimedOut => f.write_str("out of time"),
            Cause::Preempted => f.write_str("preempted"),
            Cause::OutOfMemory => f.write_str("out of memory"),
            Cause::Cancelled => f.write_str("cancelled"),
            Cause::NotShared => f.write_str("the node does not see the store's folder"),
            Cause::NoProgram => f.write_str("the node does not have the program"),
            // Exit codes of `plimsoll campaign run`.
            Cause::Exit(3) => f.write_str("its time was over before its points were done"),
            Cause::Exit(4) => f.write_str("points were left after failures, or cannot run there"),
            Cause::Exit(code) => write!(f, "exit status {code}"),
            Cause::Signal(signal) => write!(f, "ended by signal {signal}"),
            Cause::NotKnown => f.write_str("ended, Slurm no longer says how"),
        }
    }
}

/// Format for `squeue`: the reason last, since it may hold any character.
pub(super) const FORMAT: &str = "%F|%K|%T|%N|%r";

/// States of ended tasks, which `squeue` lists for a moment. A task in any other state may still write to its store.
const OVER: [&str; 12] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REVOKED",
    "TIMEOUT",
];

/// Tasks in the output of `squeue` in [`FORMAT`].
pub fn active(text: &str) -> Vec<Task> {
    text.lines().filter_map(active_line).collect()
}

fn active_line(line: &str) -> Option<Task> {
    let mut parts = line.splitn(5, '|');
    let mut next = || parts.next();
    let (job, index, state, node) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?, next()?);
    let reason = next().unwrap_or_default().to_owned();
    let state = match state {
        over if OVER.contains(&over) => return None,
        "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => {
            TaskState::Waits(reason)
        }
        _ => TaskState::Runs(node.to_owned()),
    };
    Some(Task { job, index, state })
}

/// Ended tasks in the output of `scontrol --oneliner show job`.
pub fn ended(text: &str) -> Vec<Task> {
    text.lines().filter_map(ended_line).collect()
}

fn ended_line(line: &str) -> Option<Task> {
    let job = field(line, "ArrayJobId")?.parse().ok()?;
    let index = field(line, "ArrayTaskId")?.parse().ok()?;
    let (code, signal) = field(line, "ExitCode")?.split_once(':')?;
    let (code, signal) = (code.parse().ok()?, signal.parse().ok()?);
    let cause = match field(line, "JobState")? {
        "COMPLETED" => Cause::Completed,
        "NODE_FAIL" | "BOOT_FAIL" => Cause::NodeFailed,
        "TIMEOUT" | "DEADLINE" => Cause::TimedOut,
        "PREEMPTED" => Cause::Preempted,
        "OUT_OF_MEMORY" => Cause::OutOfMemory,
        "CANCELLED" | "REVOKED" => Cause::Cancelled,
        "FAILED" | "LAUNCH_FAILED" => of_exit(code, signal),
        _ => return None,
    };
    let node = field(line, "NodeList").filter(|node| *node != "(null)").map(str::to_owned);
    Some(Task { job, index, state: TaskState::Ended(Ending { cause, node }) })
}

/// The signal that Slurm gives for a job whose log it could not open.
const NO_LOG: u8 = 53;

fn of_exit(code: u8, signal: u8) -> Cause {
    match (code, signal) {
        (NOT_SHARED, 0) | (0, NO_LOG) => Cause::NotShared,
        (NO_PROGRAM, 0) => Cause::NoProgram,
        (code, 0) => Cause::Exit(code),
        (_, signal) => Cause::Signal(signal),
    }
}

/// Ending of a task by Slurm's last message in its log.
pub fn of_log(text: &str) -> Ending {
    let said = text.lines().rev().find_map(|line| {
        let rest = line.split_once("*** ").map(|(_, rest)| rest).filter(|_| line.contains("error: "));
        let has = |sign: &str| rest.is_some_and(|rest| rest.contains(sign));
        let cause = match () {
            () if has("DUE TO TIME LIMIT") => Cause::TimedOut,
            () if has("DUE TO NODE FAILURE") => Cause::NodeFailed,
            () if has("DUE TO PREEMPTION") => Cause::Preempted,
            () if has("CANCELLED AT") => Cause::Cancelled,
            () if line.contains("oom-kill event") || line.contains("oom_kill event") => Cause::OutOfMemory,
            () if line.ends_with(" does not see the files of") || line.contains(" does not see the files of ") => {
                Cause::NotShared
            }
            () => return None,
        };
        let node = rest.and_then(|rest| rest.split_once(" ON ")).and_then(|(_, rest)| rest.split(' ').next());
        Some(Ending { cause, node: node.map(str::to_owned) })
    });
    said.unwrap_or(Ending { cause: Cause::NotKnown, node: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_to_come_are_read_from_squeue() {
        let text = "17|0|RUNNING|n1|None\n17|1|PENDING||Resources\n17|2|COMPLETED|n1|None\n17|3|PENDING||Nodes | odd\n18|N/A|RUNNING|n1|None\n\
            17|4|RESIZING|n2|None\n17|5|OF_A_LATER_SLURM|n2|None\n17|6|TIMEOUT|n2|None\n";
        let told: Vec<String> = active(text).iter().map(|task| format!("{} {}", task.index, task.state)).collect();
        let expected = ["0 runs on n1", "1 waits (Resources)", "3 waits (Nodes | odd)", "4 runs on n2", "5 runs on n2"];
        assert_eq!(told, expected);
        assert!(active(text).iter().all(|task| task.job == 17 && task.state.is_active()));
    }

    #[test]
    fn endings_are_told_apart() {
        let of = |state: &str, code: &str| {
            let line = format!(
                "JobId=4 ArrayJobId=17 ArrayTaskId=2 JobName=plimsoll-x JobState={state} Reason=None Requeue=1 \
                 ExitCode={code} NodeList=n2 BatchHost=n2 Command=/a JobState=b/x"
            );
            ended(&line).pop().map(|task| task.state.to_string())
        };
        for (state, code, told) in [
            ("COMPLETED", "0:0", "completed, on n2"),
            ("NODE_FAIL", "0:0", "node failed, on n2"),
            ("TIMEOUT", "0:15", "out of time, on n2"),
            ("PREEMPTED", "0:15", "preempted, on n2"),
            ("OUT_OF_MEMORY", "0:125", "out of memory, on n2"),
            ("CANCELLED", "0:0", "cancelled, on n2"),
            ("FAILED", "71:0", "the node does not see the store's folder, on n2"),
            ("FAILED", "0:53", "the node does not see the store's folder, on n2"),
            ("FAILED", "72:0", "the node does not have the program, on n2"),
            ("FAILED", "4:0", "points were left after failures, or cannot run there, on n2"),
            ("FAILED", "1:0", "exit status 1, on n2"),
            ("FAILED", "0:9", "ended by signal 9, on n2"),
        ] {
            assert_eq!(of(state, code).as_deref(), Some(told));
        }
        assert_eq!(of("RUNNING", "0:0"), None);
        // Tasks that have not started share a line.
        assert!(ended("JobId=17 ArrayJobId=17 ArrayTaskId=3-7%2 JobState=PENDING ExitCode=0:0").is_empty());
    }

    #[test]
    fn logs_tell_what_slurm_has_forgotten() {
        let of = |text: &str| TaskState::Ended(of_log(text)).to_string();
        let line = |why: &str| {
            format!("a run\nslurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-24T17:00:00{why} ***\nmore\n")
        };
        assert_eq!(of(&line(" DUE TO TIME LIMIT")), "out of time, on n1");
        assert_eq!(of(&line(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")), "node failed, on n1");
        assert_eq!(of(&line(" DUE TO PREEMPTION")), "preempted, on n1");
        assert_eq!(of(&line("")), "cancelled, on n1");
        assert_eq!(of("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch.\n"), "out of memory");
        assert_eq!(of("the program prints *** DUE TO TIME LIMIT ***\n"), "ended, Slurm no longer says how");
        assert_eq!(of("n2 does not see the files of /a\n"), "the node does not see the store's folder");
    }
}
