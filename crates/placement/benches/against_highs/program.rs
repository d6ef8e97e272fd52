//! A layout as a mixed integer program, and HiGHS run on it.
//!
//! One binary a unit and site, one row a unit, capacities as rows, Pull as equal binaries. A pair of units that talk gets
//! a continuous variable for each pair of sites whose row sums are the binaries of its ends: the tightest linear form
//! (Adams and Johnson 1994), which serves HiGHS better than the compact one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use machine::Site;
use placement::layout::{Layout, Place, Tie};

pub struct Answer {
    pub cost: Option<f64>,
    pub bound: f64,
    /// Processor time used, which on a busy machine is less than the limit.
    pub seconds: f64,
}

const SCRIPT: &str = r#"
import sys, time, highspy
h = highspy.Highs()
h.setOptionValue("output_flag", False)
h.setOptionValue("time_limit", float(sys.argv[2]))
h.setOptionValue("threads", 1)
h.setOptionValue("mip_rel_gap", 0.0)
h.setOptionValue("mip_abs_gap", 1e-9)
h.readModel(sys.argv[1])
before = time.process_time()
h.run()
spent = time.process_time() - before
info = h.getInfo()
ok = info.primal_solution_status == 2
print(info.objective_function_value if ok else "none", info.mip_dual_bound, spent)
"#;

/// A Python that imports highspy.
pub fn python() -> Result<String, String> {
    let python = std::env::var("PLIMSOLL_PYTHON").unwrap_or("python3".into());
    let works = Command::new(&python).args(["-c", "import highspy"]).output().is_ok_and(|out| out.status.success());
    if works {
        Ok(python)
    } else {
        Err(format!(
            "{python} imports no highspy; pip install highspy into a venv and set PLIMSOLL_PYTHON to its python3"
        ))
    }
}

pub fn highs(python: &str, layout: &Layout, seconds: f64) -> Result<Answer, String> {
    let file = std::env::temp_dir().join(format!("plimsoll-against-highs-{}.mps", std::process::id()));
    std::fs::write(&file, mps(layout)).map_err(|e| e.to_string())?;
    let output = Command::new(python).args(["-c", SCRIPT]).arg(&file).arg(seconds.to_string()).output();
    let _ = std::fs::remove_file(&file);
    let output = output.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let cost = words.next().and_then(|w| w.parse().ok());
    let mut number = || words.next().and_then(|w| w.parse().ok());
    match (number(), number()) {
        (Some(bound), Some(seconds)) => Ok(Answer { cost, bound, seconds }),
        _ => Err(format!("failed: {}", String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or(""))),
    }
}

/// Rows and columns as they grow.
#[derive(Default)]
struct Program {
    rows: Vec<(char, f64)>,
    columns: Vec<Column>,
}

/// A column: objective, entries by row, whether it is binary.
type Column = (f64, Vec<(usize, f64)>, bool);

impl Program {
    fn row(&mut self, sense: char, right: f64) -> usize {
        self.rows.push((sense, right));
        self.rows.len() - 1
    }
    fn put(&mut self, row: usize, column: usize, value: f64) {
        self.columns[column].1.push((row, value));
    }
}

fn mps(layout: &Layout) -> String {
    let mut program = Program::default();
    let sites = layout.sites.len();
    let mut x = vec![vec![None; sites]; layout.units.len()];
    let rooms: Vec<[usize; 3]> = layout
        .sites
        .iter()
        .map(|s| [s.capacity.0, s.memory.0 as f64 * 1e-6, s.slots as f64].map(|room| program.row('L', room)))
        .collect();
    let barred = |unit: usize, site: usize| {
        layout.constraints.iter().any(|tie| match *tie {
            Tie::Gang(a, b) => (a.0 == unit || b.0 == unit) && layout.sites[site].site == Site::App,
            Tie::Pin(a, there) => a.0 == unit && there.0 != site,
            Tie::Pull(..) => false,
        })
    };
    for (u, unit) in layout.units.iter().enumerate() {
        let one = program.row('E', 1.0);
        for site in 0..sites {
            if let Place::Possible(load) = unit.places[site]
                && !barred(u, site)
            {
                let need = [load.0, unit.memory.0 as f64 * 1e-6, 1.0];
                let mut entries = vec![(one, 1.0)];
                entries.extend(rooms[site].into_iter().zip(need));
                let price = layout.sites[site].price;
                program.columns.push((f64::from(unit.priority) / 100.0 * price * load.0, entries, true));
                x[u][site] = Some(program.columns.len() - 1);
            }
        }
    }
    // A site is open where any unit is at it.
    for (site, candidate) in layout.sites.iter().enumerate().filter(|(_, candidate)| candidate.opening > 0.0) {
        program.columns.push((candidate.opening, Vec::new(), true));
        let open = program.columns.len() - 1;
        for column in x.iter().filter_map(|of_unit| of_unit[site]) {
            let row = program.row('L', 0.0);
            program.put(row, column, 1.0);
            program.put(row, open, -1.0);
        }
    }
    for tie in &layout.constraints {
        if let Tie::Pull(a, b) = *tie {
            for (&near, &far) in x[a.0].iter().zip(&x[b.0]) {
                let equal = program.row('E', 0.0);
                for (column, sign) in [(near, 1.0), (far, -1.0)] {
                    if let Some(column) = column {
                        program.put(equal, column, sign);
                    }
                }
            }
        }
    }
    let mut pairs = BTreeMap::<(usize, usize), Vec<f64>>::new();
    for c in &layout.channels {
        let (from, to) = (c.from.0, c.to.0);
        let weight = f64::from(layout.units[from].priority.max(layout.units[to].priority)) / 100.0 * c.rate * 1e-9;
        let cost = pairs.entry((from.min(to), from.max(to))).or_insert_with(|| vec![0.0; sites * sites]);
        for s in 0..sites {
            for t in 0..sites {
                let (a, b) = if from < to { (s, t) } else { (t, s) };
                cost[a * sites + b] += weight * layout.crossing_ns[s][t];
            }
        }
    }
    for ((a, b), cost) in pairs {
        let mut ends = Vec::new();
        for unit in [a, b] {
            let row = |site: usize, program: &mut Program| {
                x[unit][site].map(|column| {
                    let row = program.row('E', 0.0);
                    program.put(row, column, -1.0);
                    row
                })
            };
            ends.push((0..sites).map(|site| row(site, &mut program)).collect::<Vec<_>>());
        }
        for s in 0..sites {
            for t in 0..sites {
                if let (Some(near), Some(far)) = (ends[0][s], ends[1][t]) {
                    program.columns.push((cost[s * sites + t], vec![(near, 1.0), (far, 1.0)], false));
                }
            }
        }
    }
    let mut text = String::from("NAME layout\nROWS\n N cost\n");
    for (row, (sense, _)) in program.rows.iter().enumerate() {
        let _ = writeln!(text, " {sense} r{row}");
    }
    text += "COLUMNS\n    M1 'MARKER' 'INTORG'\n";
    let mut integers = true;
    for (column, (objective, entries, binary)) in program.columns.iter().enumerate() {
        if integers && !binary {
            text += "    M2 'MARKER' 'INTEND'\n";
            integers = false;
        }
        let _ = writeln!(text, "    c{column} cost {objective:?}");
        for (row, value) in entries {
            let _ = writeln!(text, "    c{column} r{row} {value:?}");
        }
    }
    if integers {
        text += "    M2 'MARKER' 'INTEND'\n";
    }
    text += "RHS\n";
    for (row, (_, right)) in program.rows.iter().enumerate() {
        let _ = writeln!(text, "    rhs r{row} {right:?}");
    }
    text += "BOUNDS\n";
    for (column, (_, _, binary)) in program.columns.iter().enumerate() {
        let _ = if *binary { writeln!(text, " UP b c{column} 1") } else { writeln!(text, " PL b c{column}") };
    }
    text + "ENDATA\n"
}
