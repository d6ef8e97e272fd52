//! Three offcodes in a program of one's own: `cargo run -p runtime --example first_offcode`. `docs/first-offcode.md`
//! goes through it.
//!
//! A filter drops short packets, an aggregator sums up the others, a reporter keeps the totals. Filter and aggregator
//! exchange a message for each packet, so they are pulled together; aggregator and reporter are a gang, so all three
//! leave the application's thread or none does.

mod offcodes;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use machine::{Fault, Nanoseconds, Result, Site};
use offcode::{Caller, Described, Registry, Specification};
use runtime::site::app::AppSite;
use runtime::site::core::CoreSite;
use runtime::site::residents::{Log, Residents};
use runtime::{Catalogue, Runtime, Wanted};

use offcodes::{Aggregator, FilterProxy, LengthFilter, ReportProxy, Reporter, Totals};

const PACKETS: u64 = 10_000;
const LIMIT: Nanoseconds = Nanoseconds(5_000_000_000);

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("odf") {
        print!("{}", offcode::odf::write(&LengthFilter::manifest())?);
        return Ok(());
    }
    let (totals, refused) = run(&|line| println!("{line}"))?;
    println!("{} packets of {} bytes in {} reports, {refused} refused", totals.packets, totals.bytes, totals.intervals);
    Ok(())
}

/// Creates the three, sends packets through them, and returns the totals and how many were refused.
pub fn run(say: &dyn Fn(&str)) -> Result<(Totals, u64)> {
    let log: Log = Arc::new(|line| eprintln!("{line}"));
    let origin = Instant::now();

    // Which offcodes there are, and where they may go: this thread, and a core near the one where it may begin.
    let registry = Registry::new().with::<LengthFilter>().with::<Aggregator>().with::<Reporter>();
    let cores = machine::choice::for_polling_here(&linux::affinity::allowed()?)?;
    let core =
        *cores.get(1).or(cores.first()).ok_or_else(|| Fault::new("this process", "has no core", "run it elsewhere"))?;
    let app = AppSite::new(Residents::new(Site::App, origin, log.clone()));
    let (core, _excluded) = CoreSite::open(core, origin, log.clone())?;
    let mut runtime = Runtime::new(Catalogue::new(registry, Vec::new())?, vec![Box::new(app), Box::new(core)], log)?;

    // One is asked for; what it requires comes with it.
    let filter = runtime.create_offcode(&Wanted::new("first.filter").with("least", 128))?;
    let reporter =
        runtime.find("first.reporter").ok_or_else(|| Fault::new("reporter", "was not created", "report this"))?;

    // A channel of the filter's own, in two steps: what it is, then who is at its other end.
    let mut channel = runtime.create_channel(Specification::default())?;
    runtime.attach(&mut channel, filter, "packets")?;
    let mut caller = Caller::new(channel);

    // Proxies make calls; a call goes over whichever channel it is given.
    let mut turn = || drop(runtime.turn());
    for number in 0..PACKETS {
        let length = if number % 4 == 0 { 64 } else { 256 };
        let call = FilterProxy.packet(&[0; 256][..length]);
        let sent = caller.send(&call, LIMIT, &mut turn)?;
        caller.wait(sent, LIMIT, &mut turn)?;
    }
    let refused = caller.call(&FilterProxy.refused(), LIMIT, &mut turn)?;

    // What the reporter shares is read in place, without a call.
    let patience = Instant::now() + Duration::from_nanos(LIMIT.0);
    let shown = runtime.shared(reporter, "shown")?;
    while shown.words()[0].load(Ordering::Acquire) + refused < PACKETS && Instant::now() < patience {
        runtime.turn()?;
    }

    // It has no channel of its own to us: out of band does for a question now and then.
    let totals = runtime.invoke(reporter, &ReportProxy.totals())?;

    // Where each of them is, and what proves it.
    for line in runtime.status() {
        let proof = line.evidence.map_or_else(
            |why| why,
            |evidence| {
                let counters: Vec<_> = evidence.counters.iter().map(|c| format!("{} {}", c.value, c.name)).collect();
                format!("{}: {}", evidence.whereabouts, counters.join(", "))
            },
        );
        say(&format!("{:<17}{:<8}{proof}", line.offcode, line.site));
    }
    Ok((totals, refused))
}
