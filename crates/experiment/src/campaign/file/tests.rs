use super::*;
use crate::campaign::definition::{Campaign, Shard, Work, known, words};

fn read(text: &str) -> Result<Campaign> {
    parse(Source { name: "study.toml", text }, "study", &[])
}

fn given(text: &str, set: &[(&str, &str)]) -> Result<Campaign> {
    let set: Vec<_> = set.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    parse(Source { name: "study.toml", text }, "study", &set)
}

const PROGRAM: &str = "[[program]]\nname = \"p\"\ncommand = \"prog {size}\"\n";

#[test]
fn a_grid_is_all_values_less_what_is_skipped() {
    let text = "block = [\"card\"]\n[axes]\nsize = [64, 0x1000]\ncard = [\"a\", \"b\"]\nclock = [1.4, \"2GHz\"]\n\
        [[skip]]\ncard = \"a\"\nclock = [1.4]\n[[skip]]\nsize = 4096\nclock = \"2GHz\"\n\
        [[program]]\nname = \"p\"\ncommand = 'prog \"{size} {card}\" {{x}}'\n";
    let campaign = read(text).unwrap();
    let points: Vec<String> = campaign.points.iter().map(|point| words(&point.axes, false)).collect();
    let expected = [
        "card a, clock 2GHz, size 64",
        "card b, clock 1.4, size 64",
        "card b, clock 2GHz, size 64",
        "card b, clock 1.4, size 4096",
    ];
    assert_eq!(points, expected);
    assert_eq!(campaign.blocks, [vec![0, 2], vec![1], vec![3]]);
    let Work::Command { words, .. } = &campaign.program(0).work else { panic!() };
    let filled = |point: usize| {
        let value = |name: &str| known(&campaign.identity, &campaign.points[point], name);
        words.iter().flat_map(|word| word.words(&value).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(filled(3), ["prog", "4096 b", "{x}"]);
    assert_eq!((campaign.stop.repetitions, campaign.retries, campaign.identity.name.as_str()), (5, 1, "study"));
    assert_eq!(campaign.identity.figures[0].name, "time");
}

#[test]
fn only_keeps_what_matches_any_of_its_rules() {
    let axes = "[axes]\nsize = [1, 2, 3]\n[[only]]\nsize = 1\n[[only]]\nsize = [2, 3]\nprogram = \"p\"\n";
    assert_eq!(read(&format!("{axes}{PROGRAM}")).unwrap().points.len(), 3);
}

#[test]
fn programs_have_axes_and_figures_of_their_own() {
    let text = "[axes]\nclock = [1.4, 1.9]\n[[figure]]\nname = \"time\"\n[power]\nsources = [\"all\"]\n\
        [[program]]\nname = \"net\"\ncommand = \"np {size}\"\naxes = { size = [1, 2] }\nfigure = [{ name = \"rate\", pattern = 'R (\\d+)', unit = \"MB/s\", more = true }]\n\
        [[program]]\nname = \"milc\"\ncommand = \"milc\"\nranks_a_node = 4\naxes = { nodes = [1, 2] }\n";
    let campaign = read(text).unwrap();
    assert_eq!(campaign.points.len(), 8);
    let names: Vec<&str> = campaign.identity.figures.iter().map(|figure| figure.name.as_str()).collect();
    assert_eq!(names, ["time", "watts", "joules", "rate"]);
    let figures =
        |program: usize| campaign.identity.programs[program].figures.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!((figures(0), figures(1)), (vec![3, 0, 1, 2], vec![0, 1, 2]));
    let last = &campaign.points[7];
    assert_eq!(known(&campaign.identity, last, "ranks"), Some(Value::Number(8)));
}

#[test]
fn words_of_set_are_given_or_have_a_default() {
    let text = "[set]\nprog = \"\"\nsteps = 100\n[[program]]\nname = \"p\"\ncommand = \"{prog} {steps}\"\n";
    let fault = given(text, &[]).unwrap_err().to_string();
    assert!(fault.contains("study.toml:2:8: 'prog' is not given. Next: give it: --set prog=.."), "{fault}");
    let named = given("[set]\nprogram = \"./a\"\n[[program]]\nname = \"p\"\ncommand = \"{program}\"\n", &[]).unwrap();
    assert_eq!(known(&named.identity, &named.points[0], "program"), Some(Value::Text("./a".into())));
    let campaign = given(text, &[("prog", "./a b")]).unwrap();
    assert_eq!(campaign.identity.set["prog"], "./a b");
    let fault = given(text, &[("prgo", "x"), ("prog", "y")]).unwrap_err().to_string();
    assert!(fault.contains("--set prgo=x") && fault.contains("did you mean 'prog'?"), "{fault}");
}

#[test]
fn what_cannot_be_is_refused_with_line_and_column() {
    let axes = |rest: &str| format!("[axes]\nsize = [64, 128]\n{rest}{PROGRAM}");
    let program = |rest: &str| format!("[axes]\nsize = [64]\n{PROGRAM}{rest}\n");
    let stop = |rest: &str| axes(&format!("[stop]\n{rest}\n"));
    for (text, said) in [
        ("x".to_owned(), "study.toml:1:2: "),
        (String::new(), "study.toml:1:1: it names no program"),
        (
            format!("repetitons = 3\n{}", axes("")),
            "study.toml:1:1: there is no key 'repetitons' here. Next: did you mean 'repetitions'?",
        ),
        (format!("repetitions = \"3\"\n{}", axes("")), "study.toml:1:15: \"3\" is no whole number from 1"),
        (format!("repetitions = 0\n{}", axes("")), "study.toml:1:15: 0 is no whole number"),
        (
            format!("block = [\"siz\"]\n{}", axes("")),
            "study.toml:1:10: there is no axis 'siz'. Next: did you mean 'size'?",
        ),
        (axes("colour = [1]\n"), "study.toml:3:1: nothing of program p uses axis 'colour'"),
        (axes("placment = [\"app\"]\n"), "did you mean 'placement'?"),
        (axes("placement = [\"app\"]\n"), "study.toml:3:1: plimsoll does not start the ranks of program p"),
        (axes("nodes = [1, 2]\n"), "nothing of program p uses axis 'nodes'"),
        ("[axes]\nsize = [64, 64]\n".to_owned() + PROGRAM, "study.toml:2:13: it stands there twice"),
        ("[axes]\nsize = []\n".to_owned() + PROGRAM, "study.toml:2:8: it has no values"),
        ("[axes]\nsize = 64\n".to_owned() + PROGRAM, "study.toml:2:8: an axis has a list of values"),
        ("[axes]\nsize = [[[1]]]\n".to_owned() + PROGRAM, "study.toml:2:10: that is no word"),
        ("[axes]\nprogram = [\"x\"]\n".to_owned() + PROGRAM, "programs are no axis here"),
        (axes("[[skip]]\nsize = 65\n"), "study.toml:4:8: axis size has no value 65. Next: choose one of 64, 128"),
        (axes("[[skip]]\nsizes = 64\n"), "study.toml:4:1: there is no axis 'sizes'. Next: did you mean 'size'?"),
        (axes("[[skip]]\nsize = 64\n"), "study.toml:2:9: no point has size 64: skip or only leave them all out"),
        (axes("[[skip]]\nsize = [64, 128]\n"), "no point is left"),
        (program("comand = \"x\""), "study.toml:6:1: there is no key 'comand' here. Next: did you mean 'command'?"),
        (
            "[[program]]\nname = \"p\"\ncommand = \"prog {sise}\"\n[axes]\nsize = [1]".to_owned(),
            "study.toml:3:11: there is no {sise}. Next: did you mean 'size'?",
        ),
        ("[[program]]\nname = \"p\"\ncommand = \"prog {\"\n".to_owned(), "study.toml:3:11: 'prog' has"),
        ("[[program]]\nname = \"p\"\ncommand = \"'\"\n".to_owned(), "study.toml:3:11: a quote is open"),
        ("[[program]]\ncommand = \"a\"\n".to_owned(), "study.toml:1:1: it has no name"),
        ("[[program]]\nname = \"p\"\n".to_owned(), "it has no command"),
        (
            "[[program]]\nname = \"p\"\ncomand = \"q\"\n".to_owned(),
            "study.toml:3:1: there is no key 'comand' here. Next: did you mean 'command'?",
        ),
        (
            "[[program]]\nname = \"p\"\nkind = \"simulated\"\n".to_owned(),
            "there is no kind 'simulated'. Next: did you mean 'simulate'?",
        ),
        (program("[[program]]\nname = \"p\"\ncommand = \"q {size}\""), "study.toml:7:8: there is another program 'p'"),
        (program("[[program.figure]]\nname = \"rate\""), "study.toml:7:8: figure 'rate' has no pattern"),
        (program("[[program.figure]]\nname = \"rate\"\npattern = 'a('"), "study.toml:8:11: "),
        (stop("half_width = 2"), "study.toml:4:14: 2 is no share"),
        (stop("figure = \"time\""), "study.toml:4:10: figure needs an interval"),
        (stop("half_width = 0.1\nfigure = \"tme\""), "there is no figure 'tme'. Next: did you mean 'time'?"),
        (stop("half_width = 0.1\nagainst = { size = 1 }"), "axis size has no value 1"),
        (stop("budget = \"soon\""), "study.toml:4:10: time 'soon'"),
        (axes("[set]\nsize = 3\n"), "study.toml:2:1: 'size' is a word of [set] too"),
        (format!("power = 3\n{}", axes("")), "study.toml:1:9: 3 is no table"),
        ("name = \"\\u001b[2J\"\n".to_owned() + PROGRAM, "study.toml:1:8: it has a control character"),
        ("[axes]\n\"a\\u0007\" = [1]\n".to_owned() + PROGRAM, "will not do as a name"),
        ("[axes]\nsize = [\"\\u009b31m\"]\n".to_owned() + PROGRAM, "study.toml:2:9: it has a control character"),
        ("[[program]]\nname = \"\\t\"\ncommand = \"a\"\n".to_owned(), "study.toml:2:8: it has a control character"),
    ] {
        let fault = match read(&text) {
            Err(fault) => fault.to_string(),
            Ok(_) => panic!("it was read:\n{text}"),
        };
        let said = said.replace("'prog' has", "'{' has a brace that stands alone");
        assert!(fault.contains(&said) && fault.contains("Next: "), "{text}\n{fault}\n{said}");
    }
}

#[test]
fn a_small_file_takes_no_more_memory_than_a_study_may() {
    let refused = |text: &str| read(text).unwrap_err().to_string();
    let thousand = (0..1000).map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
    let both = PROGRAM.replace("{size}", "{size} {other}");
    let (one, other) = (both.clone(), both.replace("\"p\"", "\"q\""));
    // A million points of either program.
    let said = refused(&format!("[axes]\nsize = [{thousand}]\nother = [{thousand}]\n{one}{other}"));
    assert!(said.contains("study.toml:2:1: its axes span more than 1000000 points"), "{said}");
    // Each with a long value.
    let text = format!("[axes]\nother = [\"{}\"]\nsize = [{thousand}]\n{one}", "x".repeat(2 << 20));
    assert!(refused(&text).contains("its points would take more than 1 GiB"));
    // The edit distance of these words would take 300 GB.
    let (one, other) = ("x".repeat(200_000), "y".repeat(200_000));
    let text = format!("[axes]\nsize = [\"{one}\", 1]\n[[skip]]\nsize = \"{other}\"\n{PROGRAM}");
    assert!(refused(&text).contains("has no value yyy"));
}

#[test]
fn no_nesting_ends_the_process() {
    // As deep as TOML may be: tables in one another, each at a key of many parts.
    let key = ["a"; 70].join(".");
    let deep = format!("{key} = {{").repeat(70) + "b = 1" + &"}".repeat(70);
    for text in [deep.clone(), format!("[{key}]\n{deep}\n{deep}"), format!("{deep}\n= "), "a = [".repeat(100_000)] {
        assert!(read(&text).is_err());
    }
}

#[test]
fn an_axis_of_many_values_is_read_in_bounded_steps() {
    let values: Vec<String> = (0..20_000).map(|value| value.to_string()).collect();
    let campaign = read(&format!("[axes]\nsize = [{}]\n{PROGRAM}", values.join(",\n"))).unwrap();
    assert_eq!(campaign.points.len(), values.len());
}

#[test]
fn more_ranks_than_there_are_numbers_are_none() {
    let text = "[axes]\nnodes = [9223372036854775807]\n[[program]]\nname = \"p\"\ncommand = \"a\"\nranks_a_node = 4\n";
    let campaign = read(text).unwrap();
    assert_eq!(known(&campaign.identity, &campaign.points[0], "ranks"), None);
}

#[test]
fn a_baseline_is_beside_what_is_held_against_it() {
    let text = "[stop]\nhalf_width = 0.1\nagainst = { card = \"a\" }\n[axes]\nsize = [1, 2]\ncard = [\"a\", \"b\"]\n\
        [[program]]\nname = \"p\"\ncommand = \"prog {size} {card}\"\n";
    let campaign = read(text).unwrap();
    assert_eq!(campaign.blocks, [vec![0, 1], vec![2, 3]]);
    assert_eq!((campaign.baseline(0), campaign.baseline(1)), (Some(0), Some(2)));
    let fault = read(&format!("{text}\n[[skip]]\ncard = \"a\"\nsize = 2\n")).unwrap_err().to_string();
    assert!(fault.contains("no point with card a is beside card b, size 2"), "{fault}");
}

#[test]
fn shards_are_whole_blocks_and_each_point_is_in_one_of_them() {
    let sizes: Vec<String> = (0..50).map(|size| size.to_string()).collect();
    let text = format!(
        "block = [\"card\"]\n[axes]\nsize = [{}]\ncard = [\"a\", \"b\"]\n[[program]]\nname = \"p\"\ncommand = \"prog {{size}} {{card}}\"\n",
        sizes.join(", ")
    );
    let campaign = read(&text).unwrap();
    for of in [1, 2, 7, 60] {
        let mut times = vec![0; campaign.points.len()];
        for part in 1..=of {
            let mine = campaign.of_shard(Shard { part, of });
            mine.iter().zip(&mut times).for_each(|(mine, times)| *times += u32::from(*mine));
            assert!(campaign.blocks.iter().all(|block| block.iter().all(|&point| mine[point] == mine[block[0]])));
        }
        assert!(times.iter().all(|&times| times == 1), "{of}: {times:?}");
    }
    for wrong in ["0/4", "5/4", "1", "a/b", "1/0"] {
        assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
    }
}

#[test]
fn an_interval_is_asked_of_a_figure_that_all_programs_have() {
    let text = "[stop]\nhalf_width = 0.02\nfigure = \"loop\"\n[[figure]]\nname = \"time\"\n\
        [[program]]\nname = \"a\"\ncommand = \"a\"\n[[program.figure]]\nname = \"loop\"\npattern = '([0-9]+)'\n\
        [[program]]\nname = \"b\"\ncommand = \"b\"\n";
    let told = read(text).unwrap_err().to_string();
    assert!(told.contains("program b has no figure 'loop', whose interval is to end its runs"), "{told}");
    read(&text.replace("\"loop\"\n[[figure]]", "\"time\"\n[[figure]]")).unwrap();
}

#[test]
fn a_file_of_release_0_1_is_read() {
    let campaign = read(include_str!("release-0.1.toml")).unwrap();
    assert_eq!((campaign.identity.name.as_str(), campaign.seed, campaign.retries), ("clocks", 7, 2));
    // Sizes by threads less one that is skipped, by networks and inputs.
    assert_eq!(campaign.points.len(), 3 * 2 * 2);
    // With sensors there are also watts and joules.
    assert_eq!((campaign.identity.figures.len(), campaign.power.len()), (4, 1));
    let program = campaign.program(0);
    assert_eq!([&program.setup, &program.check, &program.cleanup].map(Vec::len), [3, 3, 3]);
}
