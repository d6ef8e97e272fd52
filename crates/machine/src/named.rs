//! Enumerations whose variants users see by name.

/// Declares an enumeration with `ALL` in order, `name()` and `Display`. A description in parentheses adds `FromStr`,
/// whose fault lists the choices.
///
/// ```
/// machine::named! {
///     /// Who comes first.
///     #[derive(Debug, Clone, Copy, PartialEq)]
///     pub enum Order ("order") {
///         /// One after the other.
///         RoundRobin = "round-robin",
///         Random = "random",
///     }
/// }
/// assert_eq!("random".parse::<Order>().unwrap(), Order::Random);
/// let fault = "last".parse::<Order>().unwrap_err();
/// assert_eq!(fault.to_string(), "order 'last': there is no such order. Next: choose round-robin or random");
/// ```
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $type:ident $(($what:literal))? {
        $($(#[$of:meta])* $variant:ident = $name:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        $vis enum $type {
            $($(#[$of])* $variant),+
        }

        #[allow(dead_code)]
        impl $type {
            /// All variants, in order.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            /// The name that users write and read.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        $(
            impl ::std::str::FromStr for $type {
                type Err = $crate::Fault;

                fn from_str(text: &str) -> $crate::Result<Self> {
                    let known = $type::ALL.into_iter().find(|one| one.name() == text);
                    known.ok_or_else(|| $crate::named::unknown($what, text, &$type::ALL.map($type::name)))
                }
            }
        )?
    };
}

/// The fault of a name that is none of `names`.
pub fn unknown(what: &str, text: &str, names: &[&str]) -> crate::Fault {
    let choices = match names {
        [most @ .., last] if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        _ => names.join(""),
    };
    crate::Fault::new(
        format!("{what} '{}'", text.escape_debug()),
        format!("there is no such {what}"),
        format!("choose {choices}"),
    )
}
