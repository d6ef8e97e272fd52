//! Which processes are of this one's user.
//!
//! The kernel says the numbers that users have in this process's user namespace, and for all without one there the same
//! number. Where this process's own user has that number (`unshare --user`), it proves nothing. A peer is then taken for the
//! same user's if it is in the same user namespace and the kernel lets this process look at it, as it lets the same user alone.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::process::{Uid, geteuid};

use crate::credentials::{Credentials, UNKNOWN_USER};
use crate::identity::Identity;

/// A map in which every user of the host has a number.
const EVERYBODY: [u32; 3] = [0, 0, u32::MAX];

/// The word by which processes of this user that can know each other do: the user's number where that is proof, else the user
/// namespace's.
pub fn word() -> u32 {
    let user = geteuid().as_raw();
    match is_proof(user) {
        true => user,
        false => namespace("self").map_or(user, |(_, inode)| inode as u32),
    }
}

/// Whether the process `peer`, which the kernel has named at `socket`, is of user `own`, this process's.
///
/// # Errors
/// No descriptor is left.
pub fn is(own: Uid, peer: &Credentials, socket: impl AsFd) -> io::Result<bool> {
    if peer.user != own.as_raw() {
        return Ok(false);
    }
    if is_proof(peer.user) {
        return Ok(true);
    }
    let Some(held) = Identity::of(peer, socket)? else { return Ok(false) };
    // What is read is of the process that is held, which had the number before and has it afterwards.
    Ok(held.is_own() || shares_namespace(&held) && !held.has_ended())
}

fn shares_namespace(other: &Identity) -> bool {
    let theirs = namespace(&other.number().as_raw_nonzero().to_string());
    theirs.is_some() && theirs == namespace("self")
}

/// Device and inode of a process's user namespace; `None` where this process may not look at it.
fn namespace(process: &str) -> Option<(u64, u64)> {
    fs::metadata(format!("/proc/{process}/ns/user")).ok().map(|found| (found.dev(), found.ino()))
}

/// Whether no user but that one has this number here.
fn is_proof(user: u32) -> bool {
    let number = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
    user != number("/proc/sys/kernel/overflowuid").unwrap_or(UNKNOWN_USER)
        || fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| has_everybody(&map))
}

fn has_everybody(map: &str) -> bool {
    map.split_whitespace().map(str::parse).eq(EVERYBODY.map(Ok))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Child, Command, Stdio};

    use machine::FaultKind;

    use super::*;
    use crate::passing::{hear, patiently, say};
    use crate::rendezvous::{self, Meeting};

    const NAME: &str = "LINUX_TEST_NAME";

    #[test]
    fn only_a_map_of_all_users_has_everybody() {
        assert!(has_everybody("         0          0 4294967295\n"));
        for map in
            ["", "0 0 65536", "0 100000 65536", "0 1 4294967294", "0 0 1\n1 1 4294967294", "0 0 4294967295 0", "x"]
        {
            assert!(!has_everybody(map), "{map}");
        }
    }

    /// This test's process in a user namespace without users.
    fn inside(test: &str, name: &str) -> Command {
        let mut command = Command::new("unshare");
        command.arg("--user").arg(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("user::tests::{test}"), "--nocapture"]).env(NAME, name);
        command
    }

    fn possible() -> bool {
        let Some(unshare) = skip::tool("unshare") else { return false };
        let possible = Command::new(unshare).args(["--user", "true"]).status().is_ok_and(|status| status.success());
        if !possible {
            skip::test("no user namespace may be made here");
        }
        possible
    }

    /// A process in a user namespace of its own, which the tests below start: it holds a name, calls it, and has a child call
    /// it. Not a test by itself.
    #[test]
    fn a_holder() {
        let Ok(name) = std::env::var(NAME) else { return };
        let meeting = Meeting::open(&name).unwrap();
        let called = rendezvous::call(&name).unwrap();
        let heard = meeting.accept().unwrap();
        say(&called, &[7; 8], None).unwrap();
        assert_eq!(patiently(&heard, || hear(&heard)).unwrap().words, [7; 8]);
        assert_ne!(word(), geteuid().as_raw(), "the number of all unmapped users");
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", "user::tests::a_caller", "--nocapture"]).spawn().unwrap();
        assert!(meeting.accept().is_some());
        assert!({ child }.wait().unwrap().success());
        println!("\nheld");
        // Whoever is accepted from here on is another user's process.
        let other = std::thread::spawn(move || meeting.accept().is_some());
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        assert!(!other.is_finished(), "another user's process was accepted");
    }

    /// Calls the name that it is given. Not a test by itself.
    #[test]
    fn a_caller() {
        let Ok(name) = std::env::var(NAME) else { return };
        let stream = rendezvous::call(&name);
        let said = stream.map(|_| "called".to_owned()).unwrap_or_else(|fault| format!("{:?}", fault.kind()));
        println!("\ncall={said}");
    }

    fn told(child: &mut Child, key: &str) -> String {
        let from = BufReader::new(child.stdout.as_mut().unwrap());
        let line = from.lines().map_while(Result::ok).find(|line| line.starts_with(key));
        line.unwrap_or_else(|| panic!("it ended before it said '{key}'"))[key.len()..].to_owned()
    }

    #[test]
    fn without_users_of_its_own_a_namespaces_processes_alone_know_each_other() {
        if !possible() {
            return;
        }
        let name = format!("plimsoll-nobodys/{}", std::process::id());
        let mut holder = inside("a_holder", &name);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        told(&mut holder, "held");
        // Processes of other namespaces without users have the same number in theirs, and it proves nothing there.
        let other = inside("a_caller", &name).output().unwrap();
        let said = String::from_utf8_lossy(&other.stdout).into_owned();
        assert!(said.contains(&format!("call={:?}", FaultKind::NotPermitted)), "{said}");
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
    }

    #[test]
    fn without_users_of_its_own_a_namespace_takes_no_other_user_for_its_own() {
        if !possible() {
            return;
        }
        let name = format!("plimsoll-foreign/{}", std::process::id());
        let Some(_theirs) = skip::another_user(|| Meeting::open(&name).unwrap()) else { return };
        let caller = inside("a_caller", &name).output().unwrap();
        let said = String::from_utf8_lossy(&caller.stdout).into_owned();
        assert!(said.contains(&format!("call={:?}", FaultKind::NotPermitted)), "{said}");
    }
}
