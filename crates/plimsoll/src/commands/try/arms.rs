//! The design of a trial, from the command line.

use experiment::axes::{Axes, Value};
use experiment::trial::aside::{Aside, Stage};
use experiment::trial::conditions::Conditions;
use experiment::trial::design::{Arm, Design};
use launch::trial::{Input, programs};
use machine::{Fault, Result};

use super::Arguments;
use super::varied::{Axis, Texts, Varied, filled};

/// The design that the arguments describe, on `nodes`, with `input` as the standard input of each run.
pub fn design(arguments: &Arguments, nodes: String, input: Option<&Input>) -> Result<Design> {
    let commands = commands(arguments);
    let varied = varied(arguments, &commands)?;
    let shell = arguments.shell.as_deref().map(|text| split("--shell", text)).transpose()?;
    let shell = shell.as_deref();
    let folder = std::env::current_dir().map_err(|e| Fault::because("this folder", e, "go to one that is there"))?;
    let (mut arms, mut aside, mut files) = (Vec::new(), Vec::new(), Vec::new());
    files.extend(input.map(|input| input.file.clone()));
    for command in &commands {
        let mut texts = own_texts(arguments);
        texts.extend(command.iter().map(String::as_str));
        texts.extend(asides(arguments).into_iter().filter_map(|(_, text)| text));
        let mut all: Vec<Vec<(&Varied, &str)>> = vec![Vec::new()];
        for varied in varied.iter().filter(|varied| varied.changes(&texts)) {
            let with = |others: &Vec<(_, _)>, value| [others.clone(), vec![(varied, value)]].concat();
            all = all.iter().flat_map(|of| varied.values.iter().map(|value| with(of, value.as_str()))).collect();
        }
        for settings in all {
            let arm = arm(command, &settings, shell, commands.len() > 1, arguments)?;
            files.extend(programs(&started(&arm, shell))?);
            aside.push(beside(arguments, &settings, shell)?);
            arms.push(arm);
        }
    }
    files.sort();
    files.dedup();
    if aside.iter().all(|of| *of == Aside::default()) {
        aside.clear();
    }
    let design = Design {
        arms,
        merit: arguments.judging.merit()?,
        check: arguments.judging.check()?,
        margin: arguments.margin / 100.0,
        warmup: arguments.warmup,
        folder: folder.display().to_string(),
        programs: files,
        nodes,
        conditions: Conditions {
            input: input.map(|input| input.file.0.clone()),
            shell: shell.map(machine::shell::words),
            ignored: arguments.ignore_failure.clone().unwrap_or_default(),
            proposed: false,
            aside,
        },
    };
    design.checked()
}

/// The words of each command.
fn commands(arguments: &Arguments) -> Vec<Vec<String>> {
    let commands = arguments.commands.split(|word| *word == arguments.sep);
    commands.filter(|command| !command.is_empty()).map(<[String]>::to_vec).collect()
}

/// The options of `plimsoll mpirun` that all arms have.
fn own_texts(arguments: &Arguments) -> Vec<&str> {
    arguments.mpirun.iter().flat_map(|options| options.0.iter().map(String::as_str)).collect()
}

fn asides(arguments: &Arguments) -> [(Stage, Option<&str>); 4] {
    let text = |stage| match stage {
        Stage::Setup => arguments.setup.as_deref(),
        Stage::Prepare => arguments.prepare.as_deref(),
        Stage::Conclude => arguments.conclude.as_deref(),
        Stage::Cleanup => arguments.cleanup.as_deref(),
    };
    Stage::ALL.map(|stage| (stage, text(stage)))
}

fn varied(arguments: &Arguments, commands: &[Vec<String>]) -> Result<Vec<Varied>> {
    let mut words = own_texts(arguments);
    words.extend(commands.iter().flatten().map(String::as_str));
    let aside = asides(arguments).into_iter().filter_map(|(_, text)| text).collect();
    let texts = Texts { commands: words, aside };
    let pairs = arguments.lists.chunks_exact(2).map(|pair| format!("{}={}", pair[0], pair[1]));
    let all = arguments.vary.iter().cloned().chain(pairs);
    all.map(|text| Varied::read(&text, arguments.ranks.is_some(), &texts)).collect()
}

/// One arm: a command under some settings. Where there are `several` commands, its line names it.
fn arm(
    command: &[String],
    settings: &[(&Varied, &str)],
    shell: Option<&[String]>,
    several: bool,
    arguments: &Arguments,
) -> Result<Arm> {
    let ranks = arguments.ranks;
    let is_word = |(varied, _): &&(&Varied, &str)| varied.axis == Axis::Word;
    let values: Vec<(&str, &str)> =
        settings.iter().filter(is_word).map(|(varied, value)| (varied.name.as_str(), *value)).collect();
    let fill = |words: &[String]| words.iter().map(|word| filled(word, &values)).collect::<Vec<_>>();
    let mut axes = Axes::default();
    let mut variables = Vec::new();
    let mut options = arguments.mpirun.as_ref().map_or(Vec::new(), |options| fill(&options.0));
    let own_options = options.clone();
    let mut proven = ranks.is_some();
    for (varied, value) in settings {
        let text = Value::Text((*value).to_owned());
        match varied.axis {
            Axis::Placement | Axis::Network | Axis::Semantics | Axis::Dilation => {
                options.extend([format!("--{}", varied.name), (*value).to_owned()])
            }
            Axis::Carrier if *value == "plimsoll" => {}
            Axis::Carrier => {
                proven = false;
                options.extend(["--carrier".to_owned(), (*value).to_owned()]);
            }
            Axis::Variable => variables.push((varied.name.clone(), (*value).to_owned())),
            Axis::Word => {}
        }
        axes = match varied.axis {
            Axis::Variable => axes.with(&format!("env.{}", varied.name), text),
            _ => axes.with(&varied.name, text),
        };
    }
    let command = fill(command);
    // Added last: a varied word may have one of these names.
    axes = axes.with("command", Value::List(command.clone()));
    if !own_options.is_empty() {
        axes = axes.with("mpirun", Value::List(own_options));
    }
    let mut words = Vec::new();
    let mut shown =
        variables.iter().map(|(name, value)| Ok(format!("{name}={}", quoted(value)?))).collect::<Result<Vec<_>>>()?;
    let mut name = shown.clone();
    if let Some(ranks) = ranks {
        axes = axes.with("ranks", Value::Number(ranks.into()));
        let own = machine::here::program()?;
        let start = ["mpirun".to_owned(), "--quiet".to_owned(), "-n".to_owned(), ranks.to_string()];
        words.push(own.display().to_string());
        words.extend(start.iter().chain(&options).cloned());
        words.push("--".to_owned());
        shown.push("plimsoll mpirun".to_owned());
        shown.extend(["-n".to_owned(), ranks.to_string()]);
        shown.extend(options.iter().map(|option| quoted(option)).collect::<Result<Vec<_>>>()?);
        shown.push("--".to_owned());
    }
    match shell {
        Some(shell) => words.extend(within(shell, &command.join(" "))),
        None => words.extend(command.iter().cloned()),
    }
    let last = if shell.is_some() { &words } else { &command };
    for word in last {
        shown.push(quoted(word)?);
    }
    let line = shown.join(" ");
    let named: Vec<String> = settings.iter().map(|(varied, value)| format!("{} {value}", varied.name)).collect();
    let name = match shell {
        _ if !named.is_empty() && !several => named.join(", "),
        Some(_) => {
            name.push(command.join(" "));
            name.join(" ")
        }
        None => line.clone(),
    };
    Ok(Arm { name, axes, command: words, variables, proven, line })
}

/// The words of an arm and, if a shell reads its line, of that: programs that are run are found among them.
fn started(arm: &Arm, shell: Option<&[String]>) -> Vec<String> {
    let line = arm.command.last().filter(|_| shell.is_some());
    let read = line.and_then(|line| shlex::split(line)).unwrap_or_default();
    [arm.command.clone(), read].concat()
}

/// The commands that are run beside an arm's runs.
fn beside(arguments: &Arguments, settings: &[(&Varied, &str)], shell: Option<&[String]>) -> Result<Aside> {
    let values: Vec<(&str, &str)> = settings.iter().map(|(varied, value)| (varied.name.as_str(), *value)).collect();
    let words = |(stage, text): (Stage, Option<&str>)| -> Result<Vec<String>> {
        match (text, shell) {
            (None, _) => Ok(Vec::new()),
            (Some(text), Some(shell)) => Ok(within(shell, &filled(text, &values))),
            (Some(text), None) => {
                let words = split(&format!("--{}", stage.name()), text)?;
                Ok(words.iter().map(|word| filled(word, &values)).collect())
            }
        }
    };
    let [setup, prepare, conclude, cleanup] = asides(arguments).map(words);
    Ok(Aside { setup: setup?, prepare: prepare?, conclude: conclude?, cleanup: cleanup? })
}

/// The words by which a shell runs a line.
fn within(shell: &[String], line: &str) -> Vec<String> {
    shell.iter().cloned().chain(["-c".to_owned(), line.to_owned()]).collect()
}

fn split(option: &str, text: &str) -> Result<Vec<String>> {
    shlex::split(text).filter(|words| !words.is_empty()).ok_or_else(|| {
        let cause = "it has no words, or a quote or a backslash is not finished";
        Fault::new(format!("{option} '{text}'"), cause, "write it as for a shell, like 'make clean'")
    })
}

fn quoted(word: &str) -> Result<String> {
    shlex::try_quote(word)
        .map(|word| word.into_owned())
        .map_err(|error| Fault::because(format!("word '{}'", word.escape_debug()), error, "leave the character 0 out"))
}
