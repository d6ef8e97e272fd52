//! The example of offcodes in a program of one's own works, and the page that explains it shows lines that there are.

use std::sync::Mutex;

#[allow(dead_code)]
#[path = "../examples/first_offcode/main.rs"]
mod example;

#[test]
fn the_example_counts_every_packet_away_from_the_applications_thread() {
    let said = Mutex::new(Vec::new());
    let (totals, refused) = example::run(&|line| said.lock().unwrap().push(line.to_owned())).unwrap();
    assert_eq!((totals.packets, totals.bytes, refused), (7_500, 7_500 * 256, 2_500));
    let said = said.into_inner().unwrap();
    assert_eq!(said.len(), 3, "{said:?}");
    for line in &said {
        assert!(line.starts_with("first.") && line.contains("core:") && line.contains("turns of the loop"), "{line}");
    }
}

#[test]
fn the_page_shows_lines_of_the_example_and_of_new_projects() {
    let page = include_str!("../../../docs/first-offcode.md");
    let source = concat!(
        include_str!("../examples/first_offcode/main.rs"),
        include_str!("../examples/first_offcode/offcodes.rs"),
        include_str!("../../plimsoll-offcode/src/commands/offcode/template/lib.rs.in")
    );
    let blocks: Vec<&str> = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() >= 5);
    for line in blocks.iter().flat_map(|block| block.lines()).filter(|line| !line.trim().is_empty()) {
        assert!(
            source.lines().any(|ours| ours.trim() == line.trim()),
            "docs/first-offcode.md shows a line of its own: {line}"
        );
    }
}
