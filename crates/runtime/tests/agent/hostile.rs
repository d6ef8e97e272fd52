//! Authenticated clients that ask for all there is: each gets its part and a fault, and the others are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use machine::bounds::{AGENT_CHANNEL_MEMORY, AGENT_ENTRIES, AGENT_OFFCODES};
use machine::{Bytes, Site};
use offcode::Specification;
use offcode::channel::{Buffers, Policy};
use runtime::agent::{Limits, Reason};
use runtime::code::Code;
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::residents::Residents;

use super::rig::*;

#[test]
fn one_client_does_not_take_all_offcodes() {
    let agent = Running::start(Limits::default());
    let mut hostile = agent.client();
    let most = AGENT_OFFCODES.total.count();
    let said = (0..=most).find_map(|n| hostile.deploy(deployment(&format!("n{n}"), native())).err()).unwrap();
    assert!(said.to_string().contains("offcodes, the most of one client"), "{said}");
    agent.serves();
    drop(hostile);
    assert!(refused(&agent.end(), Reason::Limit) > 0);
}

#[test]
fn channels_stay_within_the_memory_of_one_client_and_of_all() {
    let agent = Running::start(Limits::default());
    let buffers = Buffers { count: 256, size: Bytes(200 << 10), policy: Policy::Copy };
    let wish = Specification { buffers, ..specification() };
    // Messages both ways; the channel has more to keep than these.
    let least = 2 * u64::from(buffers.count) * buffers.size.0;
    let mut held = Vec::new();
    let said = loop {
        let mut client = agent.client();
        let slot = client.deploy(deployment("greedy", native())).unwrap();
        let mut ends = Vec::new();
        let said = loop {
            match client.connect(slot, &format!("c{}", ends.len()), wish) {
                Ok(end) => ends.push(end),
                Err(fault) => break fault.to_string(),
            }
            assert!(ends.len() as u64 * least <= AGENT_CHANNEL_MEMORY.each.bytes().0, "{} channels", ends.len());
        };
        held.push((client, ends));
        let all: usize = held.iter().map(|(_, ends)| ends.len()).sum();
        assert!(all as u64 * least <= AGENT_CHANNEL_MEMORY.total.bytes().0, "{all} channels");
        if !said.contains("what the client's channels may take") {
            break said;
        }
    };
    assert!(said.contains("beyond what all clients' channels may take"), "{said}");
    // One goes, and what it had is there for the next.
    held.truncate(1);
    let mut next = agent.client();
    let slot = next.deploy(deployment("next", native())).unwrap();
    comes("memory", || next.connect(slot, "c", wish).is_ok());
    agent.serves();
}

#[test]
fn a_body_that_others_push_out_of_the_cache_is_deployed() {
    let agent = Running::start(Limits { cache: Bytes(0), ..Limits::default() });
    let code: Arc<[u8]> = (0..100_000u32).map(|n| n as u8).collect();
    let mut site = agent.client();
    let slot = site.deploy(deployment("one", Code::Wasm(code))).unwrap();
    assert_eq!(site.evidence(slot).unwrap().counters[1].value, 100_000);
}

#[test]
fn a_manifest_of_endless_lists_is_refused() {
    let agent = Running::start(Limits::default());
    let mut site = agent.client();
    let mut long = deployment("long", native());
    let mut manifest = (*manifest()).clone();
    manifest.package.attributes = vec![(String::new(), String::new()); AGENT_ENTRIES.each.count() + 1];
    long.manifest = manifest.into();
    let said = site.deploy(long).unwrap_err().to_string();
    assert!(said.contains("1025 entries, of which 1024 are taken"), "{said}");
    agent.serves();
}

/// Valid, and of no use; a few seconds' work for the compiler that tests have.
fn slow_module() -> Arc<[u8]> {
    let line = "i32.const 77 i32.mul i32.const 1000 i32.add ".repeat(300);
    let heavy = format!("(func (param i32) (result i32) local.get 0 {line})").repeat(FUNCTIONS);
    let text = format!(
        "(module (memory (export \"memory\") 1)
           (func (export \"offcode_describe\") (result i32) i32.const 16)
           (func (export \"offcode_handle\") (param i32) (result i32) i32.const 0)
           {heavy})"
    );
    wat::parse_str(text).unwrap().into()
}

const FUNCTIONS: usize = 60;

#[test]
fn a_slow_compilation_does_not_hold_up_other_clients() {
    let residents = Residents::new(Site::App, Instant::now(), Arc::new(|_| {}));
    let agent = Running::with(Limits::default(), Box::new(AppSite::new(residents)));
    let mut honest = agent.client();
    let slot = launch(&mut honest, "echo");
    let mut end = honest.connect(slot, "fast", specification()).unwrap();
    let mut hostile = agent.client();
    let slow = deployment("slow", Code::Wasm(slow_module()));
    // The code is sent with the first, so that nothing but the compilation is to be done for the second.
    let said = hostile.deploy(slow.clone()).unwrap_err().to_string();
    assert!(said.contains("written for version 0"), "it was compiled: {said}");
    let compiling = AtomicBool::new(true);
    let mut echoes = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = hostile.deploy(slow);
            compiling.store(false, Ordering::Relaxed);
        });
        while compiling.load(Ordering::Relaxed) {
            echoed(&mut *end, b"meanwhile");
            echoes += 1;
        }
    });
    assert!(echoes >= 30, "{echoes} messages came back while another client's body was compiled");
}
