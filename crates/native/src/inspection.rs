//! Checks of a library before anything of it runs: its bytes alone are read.

use machine::{Fault, Result};
use object::{Architecture, Object, ObjectKind, ObjectSection, ObjectSymbol};
use offcode::{Guid, Manifest};

use crate::functions::LEAST;
use crate::{OLDEST, SYMBOL, VERSION};

/// The kind of machine whose libraries this program can load.
pub const TARGET: &str = match (cfg!(target_arch = "x86_64"), cfg!(target_arch = "aarch64"), cfg!(target_env = "musl"))
{
    (true, _, false) => "x86_64-unknown-linux-gnu",
    (true, _, true) => "x86_64-unknown-linux-musl",
    (_, true, false) => "aarch64-unknown-linux-gnu",
    (_, true, true) => "aarch64-unknown-linux-musl",
    _ => "another machine",
};

const BUILD: &str = "build it anew: plimsoll offcode build";

/// A fault unless `bytes` are a library for `target` with a table of `manifest`'s offcode.
///
/// # Errors
/// The first thing that is wrong.
pub fn inspect(bytes: &[u8], target: &str, manifest: &Manifest) -> Result<()> {
    let refuse = |cause: String| Err(Fault::new("native body", cause, "build body and manifest from the same source"));
    let Head { guid, signature } = examine(bytes, target)?;
    let package = &manifest.package;
    if guid != package.guid {
        return refuse(format!("it holds the offcode {guid}, and its manifest is that of {}", package.guid));
    }
    if signature != manifest.signature() {
        return refuse("its interfaces or their methods are not those of its manifest".into());
    }
    Ok(())
}

/// The head of a library's table: which offcode it is for.
pub(crate) struct Head {
    guid: Guid,
    signature: u64,
}

/// A fault unless `bytes` are a library for `target` with a table that this program understands.
pub(crate) fn examine(bytes: &[u8], target: &str) -> Result<Head> {
    let refuse = |cause: String, next: &str| Err(Fault::new("native body", cause, next));
    let file = match object::File::parse(bytes) {
        Ok(file) if matches!(file, object::File::Elf64(_)) => file,
        Ok(_) => return refuse("it is no 64-bit ELF file".into(), BUILD),
        Err(error) => return refuse(format!("it is no ELF file: {error}"), BUILD),
    };
    let machine = file.architecture();
    let wanted = match target.split('-').next() {
        Some("x86_64") => Architecture::X86_64,
        Some("aarch64") => Architecture::Aarch64,
        _ => return refuse(format!("libraries for {target} are not known here"), "leave it out of the package"),
    };
    if machine != wanted {
        let cause = format!("its code is for {machine:?}, and its manifest says {target}").to_lowercase();
        return refuse(cause, "name its own machine in <file target=...>");
    }
    if file.kind() != ObjectKind::Dynamic {
        return refuse("it is no shared library".into(), BUILD);
    }
    let symbol = file.dynamic_symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(SYMBOL));
    let Some(symbol) = symbol else {
        return refuse(
            format!("it exports no {SYMBOL}"),
            "write offcode::export!(TYPE), and build it by plimsoll offcode build",
        );
    };
    let section = symbol.section_index().and_then(|section| file.section_by_index(section).ok());
    let data = section.and_then(|section| section.data_range(symbol.address(), HEAD as u64).ok().flatten());
    let Some(head) = data.and_then(|data| data.first_chunk::<HEAD>()) else {
        return refuse(format!("its {SYMBOL} is no table"), BUILD);
    };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (size, version) = (word(0), word(4));
    if !(OLDEST..=VERSION).contains(&version) {
        let cause = format!("it is of version {version} of the border, and this plimsoll has {OLDEST} to {VERSION}");
        return refuse(cause, "build it with the sources that come with this plimsoll: plimsoll offcode build");
    }
    if (size as usize) < LEAST {
        return refuse(format!("its table has {size} bytes, of which at least {LEAST} are needed"), BUILD);
    }
    let signature = head[24..].iter().rev().fold(0, |so_far, byte| so_far << 8 | u64::from(*byte));
    Ok(Head { guid: Guid::from_bytes(std::array::from_fn(|byte| head[8 + byte])), signature })
}

/// Size, version, GUID and signature.
const HEAD: usize = 32;

#[cfg(test)]
mod tests {
    use crate::Table;

    #[test]
    fn the_head_is_where_it_is_read() {
        let at = [
            std::mem::offset_of!(Table, size),
            std::mem::offset_of!(Table, version),
            std::mem::offset_of!(Table, guid),
            std::mem::offset_of!(Table, signature),
            std::mem::offset_of!(Table, manifest),
        ];
        assert_eq!(at, [0, 4, 8, 24, super::HEAD]);
    }
}
