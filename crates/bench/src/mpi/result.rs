//! Lines that the ranks write into the control pipe.

use machine::{Fault, Result};
use serde::{Deserialize, Serialize};

/// Figures of one rank for the timed part; times in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    pub rounds: u64,
    pub elapsed: u64,
    /// CPU time of the whole process (`CLOCK_PROCESS_CPUTIME_ID`).
    pub cpu: u64,
    /// CPU time of the process as the kernel divides it by its clock ticks.
    pub user: u64,
    pub system: u64,
    /// Number of MPI calls and the time inside them, if they were timed.
    pub calls: u64,
    pub in_calls: u64,
    /// Time inside MPI calls since the start, calibration included.
    pub in_all_calls: u64,
    pub switches: u64,
    /// Time of a round of `overlap` without the computing, and without the transfer; else 0.
    pub transfer: u64,
    pub computing: u64,
    /// Time of a cache line from rank to rank, before and after, ps; 0 without a probe.
    pub near: [u64; 2],
}

/// One line of the pipe.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// The timed part of a task is about to begin, or has ended; rank 0 waits for an answer.
    Begin(usize),
    End(usize),
    Result {
        task: usize,
        rank: usize,
        figures: Figures,
    },
}

impl Line {
    pub fn read(line: &str) -> Result<Line> {
        let bad = || {
            Fault::new(
                "ranks of the bench",
                format!("they told '{line}', which is no result"),
                "report it with the output",
            )
        };
        let mut words = line.split_whitespace();
        let kind = words.next().ok_or_else(bad)?;
        let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        match (kind, &numbers[..]) {
            ("begin", [task]) => Ok(Line::Begin(*task as usize)),
            ("end", [task]) => Ok(Line::End(*task as usize)),
            (
                "result",
                &[
                    task,
                    rank @ 0..=1,
                    rounds,
                    elapsed,
                    cpu,
                    user,
                    system,
                    calls,
                    in_calls,
                    in_all_calls,
                    switches,
                    transfer,
                    computing,
                    before,
                    after,
                ],
            ) => {
                let figures = Figures {
                    rounds,
                    elapsed,
                    cpu,
                    user,
                    system,
                    calls,
                    in_calls,
                    in_all_calls,
                    switches,
                    transfer,
                    computing,
                    near: [before, after],
                };
                Ok(Line::Result { task: task as usize, rank: rank as usize, figures })
            }
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_pipe() {
        assert_eq!(Line::read("begin 2").unwrap(), Line::Begin(2));
        let Line::Result { task: 1, rank: 0, figures } =
            Line::read("result 1 0 10 20 30 40 50 60 70 80 90 0 0 50000 51000").unwrap()
        else {
            panic!("another line")
        };
        assert_eq!((figures.rounds, figures.in_all_calls, figures.near), (10, 80, [50_000, 51_000]));
        let third = "result 1 2 10 20 30 40 50 60 70 80 90 0 0 50000 51000";
        for bad in ["", "result", third, "result 1 0 1", "begin -1", "end x", "go 1"] {
            assert!(Line::read(bad).is_err(), "{bad}");
        }
    }
}
