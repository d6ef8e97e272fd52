//! A key-value server over UDP, as small as one can be: 32-byte keys, values of up to 64 bytes, one datagram each way.
//!
//! ```text
//! cargo run -p attach --example cache-server -- 0.0.0.0:7400          # alone
//! cargo run -p attach --example cache-server -- 0.0.0.0:7400 cache    # behind the application 'cache'
//! ```

use std::collections::HashMap;
use std::net::UdpSocket;
use std::time::Duration;

use machine::{Fault, Result};
use offcode::interface;

pub const MAGIC: [u8; 4] = *b"PKV1";
pub const GET: u8 = 1;
pub const SET: u8 = 2;
pub const DELETE: u8 = 3;
pub const ANSWER: u8 = 0x80;
/// Bytes of a message; the same in C: `cache.c`.
pub const MESSAGE: usize = 112;
/// Values that it keeps; a set beyond is refused.
const MOST: usize = 1 << 20;

const STATUS: usize = 5;
const LENGTH: usize = 6;
const KEY: std::ops::Range<usize> = 16..48;
const VALUE: std::ops::Range<usize> = 48..112;

/// The offcode in front of it.
#[interface(guid = "3b2f7c16-5d0a-4f0e-8a41-7a3d5be70012", encoding = "fixed")]
pub trait Cache {
    /// The value that gets of a key are answered with from now on.
    #[acknowledged]
    fn fill(&mut self, key: [u8; 32], length: u64, value: [u8; 64]);
    /// Gets of the key go to the server.
    #[acknowledged]
    fn forget(&mut self, key: [u8; 32]);
    /// All gets go to the server.
    #[acknowledged]
    fn clear(&mut self);
    /// Gets answered, gets passed, sets and deletes seen, fills.
    fn counts(&self) -> (u64, u64, u64, u64);
}

pub type Client = attach::Client<dyn Cache>;

/// Serves until `stop`. The cache, where there is one, is filled before a set is acknowledged.
pub fn serve(socket: &UdpSocket, mut cache: Option<Client>, stop: impl Fn() -> bool) -> Result<()> {
    let broken = |e: std::io::Error| Fault::because("the server's socket", e, "look at the address and its port");
    socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(broken)?;
    if let Some(cache) = &mut cache {
        cache.call(|cache| cache.clear())?;
    }
    let mut values: HashMap<[u8; 32], ([u8; 64], u8)> = HashMap::new();
    let mut message = [0; 2048];
    while !stop() {
        let Ok((MESSAGE, from)) = socket.recv_from(&mut message) else { continue };
        let message = &mut message[..MESSAGE];
        let key: [u8; 32] = message[KEY].try_into().unwrap_or_default();
        if message[..4] != MAGIC {
            continue;
        }
        message[STATUS] = match message[4] {
            GET => match values.get(&key) {
                Some((value, length)) => {
                    message[VALUE].copy_from_slice(value);
                    message[LENGTH] = *length;
                    if let Some(cache) = &mut cache {
                        cache.call(|cache| cache.fill(key, u64::from(*length), *value))?;
                    }
                    0
                }
                None => 1,
            },
            SET if message[LENGTH] <= 64 && (values.len() < MOST || values.contains_key(&key)) => {
                let value: [u8; 64] = message[VALUE].try_into().unwrap_or([0; 64]);
                let length = message[LENGTH];
                values.insert(key, (value, length));
                if let Some(cache) = &mut cache {
                    cache.call(|cache| cache.fill(key, u64::from(length), value))?;
                }
                0
            }
            DELETE => {
                let had = values.remove(&key).is_some();
                if let Some(cache) = &mut cache {
                    cache.call(|cache| cache.forget(key))?;
                }
                u8::from(!had)
            }
            _ => 2,
        };
        message[4] |= ANSWER;
        // A client that has left wants no answer.
        let _ = socket.send_to(message, from);
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    let run = || -> Result<()> {
        let mut arguments = std::env::args().skip(1);
        let address = arguments.next().unwrap_or_else(|| "0.0.0.0:7400".into());
        let socket = UdpSocket::bind(&address);
        let socket =
            socket.map_err(|e| Fault::because(address.as_str(), e, "name an address of this host and a free port"))?;
        let cache = arguments.next().map(|name| attach::application(&name)?.caller("plimsoll.cache")).transpose()?;
        println!("serving {address}{}", if cache.is_some() { ", behind the cache" } else { "" });
        serve(&socket, cache, || false)
    };
    run().map_or_else(
        |fault| {
            eprintln!("cache-server: {fault}");
            std::process::ExitCode::FAILURE
        },
        |()| std::process::ExitCode::SUCCESS,
    )
}
