//! The common page of reports: one file that needs nothing else, no network and no font.

use askama::Template;
use sha2::{Digest, Sha256};

/// A page. Its content security policy allows no script but its own, whatever text it holds.
#[derive(Default, Template)]
#[template(path = "page.html")]
pub struct Page<'a> {
    pub title: &'a str,
    /// The command that the page is about, shown as code beside our name, or empty.
    pub command: &'a str,
    /// Subject, time and duration, shown beside our name.
    pub head_line: Vec<String>,
    /// CSS of this page alone.
    pub style: &'a str,
    /// Escaped HTML between head and foot.
    pub body: String,
    pub script: Option<Script<'a>>,
}

pub struct Script<'a> {
    pub text: &'a str,
    /// The purpose of the script, for the foot: "its script only ...".
    pub does: &'a str,
}

impl Page<'_> {
    /// The page as HTML. Control characters, which HTML does not allow, become U+FFFD.
    pub fn render(&self) -> String {
        self.to_string().replace(|c: char| c.is_control() && c != '\n', "\u{FFFD}")
    }
}

/// The script's hash for a content security policy: `sha256-...`.
fn hash(script: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(script)))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            match place <= chunk.len() {
                true => text.push(LETTERS[(word >> (18 - 6 * place) & 63) as usize] as char),
                false => text.push('='),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_script_is_as_policies_write_it() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|t| base64(t.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
        // SHA-256 of the empty text (RFC 6234).
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    #[test]
    fn only_what_is_meant_as_html_is() {
        let script = Script { text: "1 < 2", does: "counts" };
        let head_line = vec!["</p>".into(), "\u{1b}".into()];
        let page =
            Page { title: "</title>", command: "<b>", head_line, body: "<i>".into(), script: Some(script), style: "" };
        let page = page.render();
        for text in ["<i>", "<script>1 < 2</script>", "its script only counts.", "<span>\u{FFFD}</span>"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("<b>") && page.matches("</title>").count() == 1 && page.matches("</p>").count() == 2);
        let bare = Page::default().render();
        assert!(!bare.contains("script-src") && bare.contains("runs no script."));
    }
}
