//! Documentation pages, by their path in this program's installation.

use std::path::Path;

/// The path of a page in this program's installation, else its name in the source.
pub fn page(name: &str) -> String {
    crate::here::program().ok().and_then(|own| installed(&own, name)).unwrap_or_else(|| name.to_owned())
}

/// The page below the prefix of PREFIX/bin/plimsoll or of PREFIX/lib/plimsoll/plimsoll-offcode.
fn installed(program: &Path, name: &str) -> Option<String> {
    let above = program.ancestors().skip(2).take(2);
    let page = above.map(|prefix| prefix.join("share/doc/plimsoll").join(name)).find(|page| page.is_file())?;
    Some(page.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_program_names_installed_pages() {
        let prefix = tempfile::tempdir().unwrap();
        let pages = prefix.path().join("share/doc/plimsoll/docs");
        std::fs::create_dir_all(&pages).unwrap();
        std::fs::write(pages.join("whatif.md"), "").unwrap();
        let expected = pages.join("whatif.md").display().to_string();
        for program in ["bin/plimsoll", "lib/plimsoll/plimsoll-offcode"] {
            let program = prefix.path().join(program);
            assert_eq!(installed(&program, "docs/whatif.md").as_ref(), Some(&expected), "{}", program.display());
            assert_eq!(installed(&program, "docs/nowhere"), None);
        }
        assert_eq!(page("docs/whatif.md"), "docs/whatif.md");
    }
}
