//! The program that `plimsoll` starts for the commands that deal with offcodes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    plimsoll_offcode::main()
}
