//! What a conformance program says of its cases: one that it leaves out counts as failed, unless what it needs is said to
//! be not served.

const DOCUMENTED: &str = include_str!("../../../docs/fabric.md");

/// The lines of `docs/fabric.md` that tell users what the provider does not serve.
fn not_served() -> Vec<String> {
    let paragraph = DOCUMENTED.split("\n\n").find(|paragraph| paragraph.starts_with("Not served, with "));
    let (_, list) = paragraph.and_then(|paragraph| paragraph.split_once(": ")).expect("docs/fabric.md has the list");
    let (mut plain, mut depth) = (String::new(), 0);
    for c in list.replace('\n', " ").chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 && !"()`".contains(c) {
            plain.push(c);
        }
    }
    plain.trim_end_matches('.').split(',').map(|item| item.trim().to_owned()).collect()
}

/// Fails unless `said`, a conformance program's output, has all its cases passed or rightly left out: for a reason that
/// names what `docs/fabric.md` lists as not served.
pub fn judge(said: &str, told: &str) {
    assert!(said.contains(" 0 failed"), "{told}");
    let items = not_served();
    let mut left_out = said.lines().filter_map(|line| line.strip_prefix("SKIPPED "));
    let served = left_out.find(|line| !items.iter().any(|item| line.contains(item)));
    assert_eq!(served, None, "counts as failed: docs/fabric.md does not say that this is not served; {told}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_said_to_be_not_served_may_be_left_out() {
        let items = not_served();
        assert!(items.len() >= 8 && items.contains(&"device memory".to_owned()), "{items:?}");
        assert!(items.contains(&"complex and long double atomics".to_owned()), "{items:?}");
        judge("ok a/b\nSKIPPED c/d: no device memory\n1 passed, 0 failed, 1 skipped", "");
        for bad in ["SKIPPED c/d: no tagged messages\n1 passed, 0 failed, 1 skipped", "1 passed, 1 failed, 0 skipped"] {
            assert!(std::panic::catch_unwind(|| judge(bad, "")).is_err(), "{bad}");
        }
    }
}
