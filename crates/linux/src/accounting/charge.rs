//! Whether the kernel charges interruptions to the interrupted thread: softirqs, and time that a hypervisor took.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::sync::OnceLock;

/// Interruptions that a thread's CPU time includes; `None`: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Charges {
    /// Softirqs that interrupted the thread: true without IRQ_TIME_ACCOUNTING.
    pub softirqs: Option<bool>,
    /// Time that a hypervisor gave to others: true without PARAVIRT_TIME_ACCOUNTING.
    pub stolen: Option<bool>,
}

impl Charges {
    /// The charges of this kernel, determined once.
    pub fn here() -> Charges {
        static HERE: OnceLock<Charges> = OnceLock::new();
        *HERE.get_or_init(|| {
            let release = rustix::system::uname().release().to_string_lossy().into_owned();
            let configured = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
            let configured = configured.iter().find_map(|path| fs::read_to_string(path).ok());
            let symbols = || File::open("/proc/kallsyms").ok().map(BufReader::new);
            configured.map_or_else(|| symbols().map(of_symbols).unwrap_or_default(), |text| of_config(&text))
        })
    }
}

/// The charges by the kernel's build configuration.
fn of_config(text: &str) -> Charges {
    // A file without any option is no configuration.
    let is_config = text.contains("CONFIG_");
    let charged = |option: &str| is_config.then(|| !text.lines().any(|line| line.trim() == format!("{option}=y")));
    Charges { softirqs: charged("CONFIG_IRQ_TIME_ACCOUNTING"), stolen: charged("CONFIG_PARAVIRT_TIME_ACCOUNTING") }
}

/// The charges by the kernel's symbols, which every user may list: one function exists with IRQ_TIME_ACCOUNTING alone.
fn of_symbols(list: impl BufRead) -> Charges {
    let mut names = list.lines().map_while(Result::ok).peekable();
    let is_list = names.peek().is_some();
    let is_apart = names.any(|line| line.split_whitespace().nth(2) == Some("irqtime_account_irq"));
    Charges { softirqs: is_list.then_some(!is_apart), stolen: None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_configuration_tells_both() {
        let text = "# CONFIG_IRQ_TIME_ACCOUNTING is not set\nCONFIG_PARAVIRT_TIME_ACCOUNTING=y\n";
        assert_eq!(of_config(text), Charges { softirqs: Some(true), stolen: Some(false) });
        let text = "CONFIG_HAVE_IRQ_TIME_ACCOUNTING=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n";
        assert_eq!(of_config(text), Charges { softirqs: Some(false), stolen: Some(true) });
        assert_eq!(of_config("nothing of the kind"), Charges::default());
    }

    #[test]
    fn the_list_of_functions_tells_one() {
        let with = "0000000000000000 T schedule\n0000000000000000 T irqtime_account_irq\n";
        assert_eq!(of_symbols(with.as_bytes()).softirqs, Some(false));
        assert_eq!(of_symbols("0000000000000000 T schedule\n".as_bytes()).softirqs, Some(true));
        assert_eq!(of_symbols("".as_bytes()), Charges::default());
    }

    proptest! {
        #[test]
        fn any_text_reads_without_panic(text in "[ -~\n]{0,300}") {
            let _ = (of_config(&text), of_symbols(text.as_bytes()));
        }
    }
}
