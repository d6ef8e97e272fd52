//! Scripts of a study's jobs: an array with one chunk for each task, and the job that merges the chunks' stores afterwards.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use machine::{Fault, Hertz, Result};

/// Exit code of a task whose node does not see the files of the submitting host.
pub const NOT_SHARED: u8 = 71;

/// Exit code of a task whose node does not have the program.
pub const NO_PROGRAM: u8 = 72;

/// Seconds between SIGTERM and the end of a task's time. The task gives up its current run, which is repeated later.
const NOTICE: u32 = 60;

/// Properties that all jobs of a submission share.
#[derive(Debug, Clone, Copy)]
pub struct Submission<'a> {
    /// Name of the jobs, as `squeue` prints it.
    pub name: &'a str,
    pub partition: &'a str,
    /// Working directory of the study's commands: that of the submitting shell.
    pub work: &'a str,
    /// Folder of stores, lists of points, logs and these scripts.
    pub folder: &'a str,
    pub program: &'a str,
    /// Text of the file `probe` in the folder.
    pub probe: &'a str,
    /// The user's additional options of `sbatch`.
    pub options: &'a [String],
}

/// An array of chunks with the same needs.
#[derive(Debug, Clone)]
pub struct Array<'a> {
    /// The chunks' numbers, ascending.
    pub chunks: Vec<u32>,
    pub at_once: Option<u32>,
    /// Nodes of each chunk, exclusively.
    pub nodes: u32,
    pub clock: Option<Hertz>,
    pub time: Duration,
    /// Words after `plimsoll campaign run`: the file and its arguments.
    pub words: &'a [String],
}

/// File with the points of chunk `number`.
pub fn points(folder: &Path, number: u32) -> std::path::PathBuf {
    folder.join(format!("{number}.points"))
}

pub fn store(folder: &Path, number: u32) -> std::path::PathBuf {
    folder.join(format!("{number}.sqlite"))
}

pub fn log(folder: &Path, number: u32) -> std::path::PathBuf {
    folder.join(format!("{number}.log"))
}

pub fn probe(folder: &Path) -> std::path::PathBuf {
    folder.join("probe")
}

/// A path in the form that scripts can hold.
///
/// # Errors
/// The path is not UTF-8, or has a backslash or a control character.
pub fn path(path: &Path) -> Result<&str> {
    let refused = |cause: &str| {
        let next = "choose another place with --store, or move the study's file";
        Fault::new(format!("path {}", path.display()), cause, next)
    };
    let text = path.to_str().ok_or_else(|| refused("it is no UTF-8, which scripts are written in"))?;
    match text.chars().find(|c| c.is_control() || *c == '\\') {
        Some('\\') => Err(refused("Slurm expands no pattern in a path that has a backslash")),
        Some(_) => Err(refused("it has a line break or another control character")),
        None => Ok(text),
    }
}

/// An option of `sbatch` in the form that scripts can hold.
///
/// # Errors
/// A control character would end the option's line and make a command of the rest.
pub fn option(text: &str) -> Result<String> {
    match text.chars().any(char::is_control) {
        false => Ok(text.to_owned()),
        true => {
            let cause = "it has a line break or another control character";
            Err(Fault::new(format!("option '{}'", text.escape_debug()), cause, "leave that out"))
        }
    }
}

impl Array<'_> {
    /// Text of the array's script.
    pub fn text(&self, of: &Submission) -> String {
        let time = time(self.time);
        let array = match self.at_once {
            Some(most) => format!("{}%{most}", ranges(&self.chunks)),
            None => ranges(&self.chunks),
        };
        let mut options = vec![
            format!("--array={array}"),
            format!("--nodes={}", self.nodes),
            "--exclusive".to_owned(),
            format!("--time={time}"),
            format!("--signal=B:TERM@{NOTICE}"),
            "--requeue".to_owned(),
        ];
        options.extend(self.clock.map(|clock| format!("--cpu-freq={}", kilohertz(clock))));
        let mut text = head(of, &options, "%a.log");
        let _ = write!(
            text,
            "# Each task runs one chunk of the study into a store of its own. One that is started again goes on from there.\n\
             folder={folder}\n\
             program={program}\n\
             chunk=$SLURM_ARRAY_TASK_ID\n\
             if [ \"$(cat \"$folder/probe\" 2>&1)\" != {probe} ]; then\n    \
                 echo \"$SLURMD_NODENAME does not see the files of $folder\" >&2\n    \
                 exit {NOT_SHARED}\n\
             fi\n\
             if [ ! -x \"$program\" ]; then\n    \
                 echo \"$SLURMD_NODENAME has no $program\" >&2\n    \
                 exit {NO_PROGRAM}\n\
             fi\n",
            folder = word(of.folder),
            program = word(of.program),
            probe = word(of.probe),
        );
        // Slurm sets clocks for steps alone. This step has all cores of its node and shares them with steps inside it.
        let step = "srun --nodes=1 --ntasks=1 --overlap --cpu-bind=none --mpi=none --input=none \\\n    ";
        let _ = writeln!(
            text,
            "exec {}\"$program\" campaign run {} --points \"$folder/$chunk.points\" --store \"$folder/$chunk.sqlite\"",
            if self.clock.is_some() { step } else { "" },
            words(self.words),
        );
        text
    }
}

/// Script of the job that merges the chunks' stores into the one at `output`, with time limit `most`.
pub fn merge(of: &Submission, output: &str, most: Duration) -> String {
    let options = ["--nodes=1".to_owned(), "--ntasks=1".to_owned(), format!("--time={}", time(most))];
    let mut text = head(of, &options, "merge.log");
    let _ = write!(
        text,
        "# Joins what the chunks have. A chunk without a store has not begun.\n\
         cd {folder} || exit {NOT_SHARED}\n\
         set -- ./*.sqlite\n\
         [ -e \"$1\" ] || {{ echo 'no chunk has begun' >&2; exit 1; }}\n\
         exec {program} campaign merge {output} \"$@\"\n",
        folder = word(of.folder),
        program = word(of.program),
        output = word(output),
    );
    text
}

fn head(of: &Submission, options: &[String], log: &str) -> String {
    // A percent sign begins a pattern of Slurm.
    let log = format!("{}/{log}", of.folder.replace('%', "%%"));
    let all = [format!("--job-name={}", of.name), format!("--partition={}", of.partition)];
    let places = [format!("--chdir={}", of.work), format!("--output={log}"), "--open-mode=append".to_owned()];
    let mut text = "#!/bin/sh\n".to_owned();
    for option in all.iter().chain(options).chain(&places).chain(of.options) {
        let _ = writeln!(text, "#SBATCH {}", sbatch_word(option));
    }
    text
}

/// Words that begin another component of a heterogeneous job wherever they are in an `#SBATCH` line, in any case.
const SEPARATORS: [&str; 2] = ["hetjob", "packjob"];

/// A word of an `#SBATCH` line.
fn sbatch_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:%@+[]".contains(c);
    let separates = SEPARATORS.iter().any(|of| word.to_ascii_lowercase().contains(of));
    if word.chars().all(plain) && !separates {
        return word.to_owned();
    }
    let escaped = |c: char| matches!(c, '\\' | '"') || separates && matches!(c, 'j' | 'J');
    let quoted: String = word.chars().flat_map(|c| escaped(c).then_some('\\').into_iter().chain([c])).collect();
    format!("\"{quoted}\"")
}

/// A word quoted for a shell.
fn word(text: &str) -> String {
    // NUL alone cannot be quoted, and no argument has one.
    shlex::try_quote(text).map_or_else(|_| String::new(), Into::into)
}

fn words(all: &[String]) -> String {
    all.iter().map(|text| word(text)).collect::<Vec<_>>().join(" ")
}

/// `0-3,7`, from ascending numbers.
pub fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let part = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

/// `2-03:04:05` or `03:04:05`.
pub fn time(of: Duration) -> String {
    let seconds = of.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let days = if days > 0 { format!("{days}-") } else { String::new() };
    format!("{days}{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

/// Unit of `--cpu-freq`.
fn kilohertz(clock: Hertz) -> u64 {
    clock.0 / 1000
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    fn submission<'a>(folder: &'a str, options: &'a [String]) -> Submission<'a> {
        let program = "/opt/plimsoll/bin/plimsoll";
        Submission {
            name: "plimsoll-waves",
            partition: "short",
            work: "/home/u",
            folder,
            program,
            probe: "5f3a",
            options,
        }
    }

    fn golden(name: &str, text: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/slurm/golden").join(name);
        if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
            return std::fs::write(file, text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{}", file.display());
    }

    #[test]
    fn scripts_are_as_they_were_looked_at() {
        let words = ["/home/u/my waves.toml".to_owned(), "--set".to_owned(), "program=./it's".to_owned()];
        let options = ["--account=phys".to_owned(), "--comment=two words, \"quoted\"".to_owned()];
        let submission = submission("/home/u/50% of it/.plimsoll/waves.chunks", &options);
        let array = Array {
            chunks: vec![0, 1, 2, 5],
            at_once: Some(2),
            nodes: 2,
            clock: Some(Hertz(1_400_000_000)),
            time: Duration::from_secs(2 * 86_400 + 60),
            words: &words,
        };
        golden("array.sh", &array.text(&submission));
        let plain = Array { chunks: vec![7], at_once: None, nodes: 1, clock: None, ..array };
        golden("chunk.sh", &plain.text(&submission));
        golden("merge.sh", &merge(&submission, "/home/u/.plimsoll/waves.sqlite", Duration::from_secs(1800)));
    }

    #[test]
    fn paths_that_a_script_cannot_hold_are_refused() {
        let refused = |path_of: &OsStr| path(Path::new(path_of)).unwrap_err().to_string();
        assert!(refused("/a\\b".as_ref()).contains("backslash"));
        assert!(refused("/a\nb".as_ref()).contains("line break"));
        assert!(refused(OsStr::from_bytes(b"/a\xff")).contains("UTF-8"));
        assert_eq!(path(Path::new("/a b/%j'\"$x")).unwrap(), "/a b/%j'\"$x");
    }

    #[test]
    fn options_that_would_end_their_line_are_refused() {
        assert_eq!(option("--comment=two words, \"quoted\"").unwrap(), "--comment=two words, \"quoted\"");
        for text in ["--comment=x\nrm -rf ~", "--comment=x\r", "\u{85}"] {
            assert!(option(text).unwrap_err().to_string().contains("line break"), "{text:?}");
        }
    }

    #[test]
    fn times_are_written_as_slurm_reads_them() {
        for (seconds, text) in [(59, "00:00:59"), (3661, "01:01:01"), (86_400, "1-00:00:00")] {
            assert_eq!(time(Duration::from_secs(seconds)), text);
            assert_eq!(super::super::output::time(text), Some(Duration::from_secs(seconds)));
        }
    }

    /// The words of a line as `sbatch` splits them.
    fn sbatch_reads(line: &str) -> Vec<String> {
        let line = SEPARATORS.iter().fold(line.to_owned(), |line, of| {
            let at = line.to_ascii_lowercase().find(of);
            at.map_or(line.clone(), |at| line[..at].to_owned() + &line[at + of.len()..])
        });
        let mut words = Vec::new();
        let mut word: Option<String> = None;
        let (mut quote, mut letters) = (None, line.chars());
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => word.get_or_insert_default().extend(letters.next()),
                _ if quote == Some(letter) => quote = None,
                _ if quote.is_some() => word.get_or_insert_default().push(letter),
                '"' | '\'' => (quote, _) = (Some(letter), word.get_or_insert_default()),
                '#' if word.is_none() => break,
                _ if letter.is_whitespace() => words.extend(word.take()),
                _ => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        words
    }

    proptest! {
        #[test]
        fn ranges_hold_all_numbers_and_no_other(numbers in proptest::collection::btree_set(0u32..60, 1..40)) {
            let all: Vec<u32> = numbers.iter().copied().collect();
            let back: Vec<u32> = ranges(&all)
                .split(',')
                .flat_map(|part| {
                    let (first, last) = part.split_once('-').unwrap_or((part, part));
                    first.parse::<u32>().unwrap()..=last.parse().unwrap()
                })
                .collect();
            prop_assert_eq!(back, all);
        }

        #[test]
        fn words_come_back_from_sbatch_and_from_a_shell(text in "([ -~äß]|hetjob|HetJob|packjob){1,24}") {
            prop_assert_eq!(sbatch_reads(&sbatch_word(&text)), [text.clone()]);
            let line = words(&[text.clone(), "b".to_owned()]);
            prop_assert_eq!(shlex::split(&line), Some(vec![text, "b".to_owned()]));
        }
    }
}
