//! A word that both ends know. Each proves this to the other, and eavesdroppers learn neither the word nor anything of later
//! use: proofs are of random bytes that both ends made for this connection (HMAC-SHA-256, RFC 2104).

use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use machine::{Fault, Result};
use sha2::{Digest, Sha256};

use crate::control::{Connection, Reply, Request, ask, unexpected};
use crate::secret::random;

/// Block length of the hash, bytes.
const BLOCK: usize = 64;

/// Length of a word, bytes: too long for guessing, and shorter than files of other kinds.
const WORD: RangeInclusive<usize> = 16..=4096;

/// Marks of the two ends' proofs, so that one end's is of no use to the other.
const CLIENT: &[u8] = b"plimsoll bench";
const SERVER: &[u8] = b"plimsoll serve";

const MAKE: &str = "make one, `(umask 077; head -c 24 /dev/urandom | base64 > FILE)`, and give both ends the same";

/// The word, padded to a block.
#[derive(Clone)]
pub struct Key([u8; BLOCK]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Reads the word in `file`, without surrounding white space.
    ///
    /// # Errors
    /// The file cannot be read, others than its owner have rights to it, or it holds no word.
    pub fn read(file: &Path) -> Result<Key> {
        let subject = || format!("key {}", file.display());
        let unreadable = |e: io::Error| Fault::because(subject(), e, MAKE);
        let opened = File::open(file).map_err(unreadable)?;
        let mode = opened.metadata().map_err(unreadable)?.mode();
        if mode & 0o077 != 0 {
            let cause = format!("others than its owner have rights to it (mode {:o})", mode & 0o777);
            let next = format!("chmod 600 {}; if others may have read it, make a new one", file.display());
            return Err(Fault::new(subject(), cause, next));
        }
        let mut text = Vec::new();
        opened.take(*WORD.end() as u64 + 1).read_to_end(&mut text).map_err(unreadable)?;
        let word = text.trim_ascii();
        if WORD.contains(&word.len()) {
            return Ok(Key::of(word));
        }
        let cause = format!("a word of {} to {} bytes is needed, and it does not hold one", WORD.start(), WORD.end());
        Err(Fault::new(subject(), cause, MAKE))
    }

    fn of(word: &[u8]) -> Key {
        let mut block = [0; BLOCK];
        if word.len() > BLOCK {
            block[..32].copy_from_slice(&Sha256::digest(word));
        } else {
            block[..word.len()].copy_from_slice(word);
        }
        Key(block)
    }

    fn proof(&self, of: &[&[u8]]) -> [u8; 32] {
        let begun = |with: u8| Sha256::new_with_prefix(self.0.map(|byte| byte ^ with));
        let inner = of.iter().fold(begun(0x36), |hash, part| hash.chain_update(part));
        begun(0x5c).chain_update(inner.finalize()).finalize().into()
    }

    /// Proves to a server that this end knows the word, and checks the server's proof.
    ///
    /// # Errors
    /// One of the ends does not know the word, or the server has no key.
    pub fn present(&self, control: &mut Connection) -> Result<()> {
        let ours = random()?;
        let theirs = match ask(control, &Request::Challenge(ours))? {
            Reply::Challenge(theirs) => theirs,
            reply => return Err(unexpected(control, &reply)),
        };
        match ask(control, &Request::Proof(self.proof(&[CLIENT, &ours, &theirs])))? {
            Reply::Proof(proof) if same(&proof, &self.proof(&[SERVER, &ours, &theirs])) => Ok(()),
            Reply::Proof(_) => Err(Fault::new(
                control.peer(),
                "it does not know the word of this key",
                "see whether another program answers there",
            )),
            reply => Err(unexpected(control, &reply)),
        }
    }

    /// The server's side of [`Key::present`]; `theirs` is the client's challenge.
    pub(crate) fn check(&self, theirs: [u8; 32], control: &mut Connection, within: Duration) -> Result<()> {
        let ours = random()?;
        control.send(&Reply::Challenge(ours), within)?;
        match control.receive(within)? {
            Request::Proof(proof) if same(&proof, &self.proof(&[CLIENT, &theirs, &ours])) => {}
            _ => {
                let next = "name a file with the same word: --key FILE";
                return Err(Fault::new("plimsoll serve", "its key is another", next));
            }
        }
        control.send(&Reply::Proof(self.proof(&[SERVER, &theirs, &ours])), within)
    }
}

/// Compares in a time that does not depend on how many bytes are equal.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0u8, |differs, (one, other)| black_box(differs | (one ^ other))) == 0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use machine::Bytes;

    use super::*;
    use crate::control::ANSWER;

    fn pair() -> [Connection; 2] {
        let (near, far) = UnixStream::pair().unwrap();
        [(near, "server"), (far, "bench")].map(|(end, peer)| Connection::new(end, peer, Bytes(1 << 14)).unwrap())
    }

    /// The verdict of a server with the key `of` on a client that acts as `says`.
    fn checked(of: &Key, says: impl FnOnce(&mut Connection)) -> Result<()> {
        let [mut near, mut far] = pair();
        let of = of.clone();
        let server = std::thread::spawn(move || match far.receive(ANSWER)? {
            Request::Challenge(theirs) => of.check(theirs, &mut far, ANSWER),
            other => panic!("{other:?}"),
        });
        says(&mut near);
        drop(near);
        server.join().unwrap()
    }

    #[test]
    fn proofs_are_those_of_the_standard() {
        // RFC 4231, test cases 1, 2 and 6.
        for (key, text, expected) in [
            (&[0x0b; 20][..], "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                &b"Jefe"[..],
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131][..],
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            let (head, tail) = text.as_bytes().split_at(5);
            let proof = Key::of(key).proof(&[head, tail]);
            assert_eq!(proof.map(|byte| format!("{byte:02x}")).concat(), expected, "{text}");
        }
    }

    #[test]
    fn who_knows_the_word_is_let_in_and_nobody_else() {
        let (key, other) = (Key::of(b"the word of both ends"), Key::of(b"the word of neither end"));
        checked(&key, |near| key.present(near).unwrap()).unwrap();
        let said = checked(&key, |near| drop(other.present(near).unwrap_err())).unwrap_err().to_string();
        assert!(said.contains("its key is another"), "{said}");
        // A server that accepts any proof is refused too.
        let [mut near, mut far] = pair();
        let takes_all = std::thread::spawn(move || {
            far.receive::<Request>(ANSWER).unwrap();
            far.send(&Reply::Challenge([7; 32]), ANSWER).unwrap();
            let Request::Proof(proof) = far.receive(ANSWER).unwrap() else { panic!("no proof") };
            far.send(&Reply::Proof(proof), ANSWER).unwrap();
        });
        let said = key.present(&mut near).unwrap_err().to_string();
        assert!(said.contains("does not know the word"), "{said}");
        takes_all.join().unwrap();
    }

    #[test]
    fn what_was_heard_once_opens_nothing_later() {
        let key = Key::of(b"the word of both ends");
        let mut heard = None;
        checked(&key, |near| {
            near.send(&Request::Challenge([1; 32]), ANSWER).unwrap();
            let Reply::Challenge(theirs) = near.receive(ANSWER).unwrap() else { panic!("no challenge") };
            let proof = key.proof(&[CLIENT, &[1; 32], &theirs]);
            near.send(&Request::Proof(proof), ANSWER).unwrap();
            heard = Some(proof);
            assert!(matches!(near.receive(ANSWER).unwrap(), Reply::Proof(_)));
        })
        .unwrap();
        let again = checked(&key, |near| {
            near.send(&Request::Challenge([1; 32]), ANSWER).unwrap();
            near.receive::<Reply>(ANSWER).unwrap();
            near.send(&Request::Proof(heard.unwrap()), ANSWER).unwrap();
            // The client stays until the server has looked.
            near.receive::<Reply>(ANSWER).unwrap_err();
        });
        assert!(again.unwrap_err().to_string().contains("its key is another"));
    }

    #[test]
    fn a_word_that_others_read_or_guess_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |text: &str| {
            fs::write(file.path(), text).unwrap();
            Key::read(file.path())
        };
        assert_eq!(read(" sixteen letters.\n").unwrap().0, Key::of(b"sixteen letters.").0);
        for text in ["", "fifteen letters", "x".repeat(4097).as_str()] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains("a word of 16 to 4096 bytes is needed"), "{said}");
        }
        for mode in [0o640, 0o602, 0o601] {
            fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            let said = Key::read(file.path()).unwrap_err().to_string();
            assert!(said.contains(&format!("mode {mode:o}")) && said.contains("Next: chmod 600"), "{said}");
        }
        let none = Key::read(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(none.contains("key /nonexistent: ") && none.contains("umask 077"), "{none}");
    }
}
