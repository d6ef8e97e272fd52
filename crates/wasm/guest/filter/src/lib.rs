//! Passes IPv4 UDP packets to one port on to its peer, drops the others, and counts both. Each millisecond the application
//! sees the counts in shared words. A map has the ports of those that were dropped.

use machine::{Fault, Nanoseconds};
use offcode::{Activity, ChannelId, Context, Lifecycle, Map, Put, Refusal, State, Wake, Written, interface, offcode};

#[interface(guid = "3e0f6a52-8f0d-4b8e-a6f7-5b1d9f0c2e41")]
pub trait Filter {
    /// The port that passes from now on.
    fn pass(&mut self, port: u16) -> Result<(), Refusal>;

    /// Packets passed, packets dropped, turns.
    fn counts(&self) -> (u64, u64, u64);

    /// A sentence about its settings.
    fn describe(&self, greeting: &str) -> String;

    /// As an author's mistake would.
    fn fall(&mut self, index: u32) -> u8;

    /// How often a port was dropped, after which it begins anew.
    fn forget(&mut self, context: &mut dyn Context, port: u16) -> Result<u64, Refusal>;
}

/// Passes packets to one UDP port on.
#[offcode(
    guid = "3e0f6a52-8f0d-4b8e-a6f7-5b1d9f0c2e42",
    name = "test.filter",
    version = "1.0.0",
    implements(Filter),
    requires(link(next: Filter, channel(messages, size = 2048))),
    environment(timers, memory, maps),
    sites(app(memory = 4_194_304), core(memory = 4_194_304), agent(memory = 4_194_304)),
    bodies(native(app, core), wasm("filter.wasm", app, core, agent)),
    attributes(port = 9000),
    state = saved
)]
#[derive(Default)]
pub struct PortFilter {
    port: u16,
    passed: u64,
    dropped: u64,
    turns: u64,
    next: Option<ChannelId>,
    /// By port; of the first few ports.
    ports: Map<u16, u64>,
}

impl PortFilter {
    fn count(&mut self, port: u16, context: &mut dyn Context) -> machine::Result<()> {
        let so_far = self.ports.get(context, &port)?.unwrap_or(0);
        if self.ports.put(context, &port, &(so_far + 1))? == Put::Full {
            context.log(&format!("port {port} is not counted"));
        }
        Ok(())
    }
}

impl Filter for PortFilter {
    fn pass(&mut self, port: u16) -> Result<(), Refusal> {
        if port == 0 {
            return Err(Refusal("port 0 is no port".into()));
        }
        self.port = port;
        Ok(())
    }

    fn counts(&self) -> (u64, u64, u64) {
        (self.passed, self.dropped, self.turns)
    }

    fn describe(&self, greeting: &str) -> String {
        format!("{greeting}: port {} to {:?}", self.port, self.next)
    }

    fn fall(&mut self, index: u32) -> u8 {
        [1, 2, 3][index as usize]
    }

    fn forget(&mut self, context: &mut dyn Context, port: u16) -> Result<u64, Refusal> {
        let refused = |fault: machine::Fault| Refusal(fault.to_string());
        let count = self.ports.get(context, &port).map_err(refused)?.unwrap_or(0);
        self.ports.remove(context, &port).map_err(refused)?;
        Ok(count)
    }
}

impl Lifecycle for PortFilter {
    fn initialize(&mut self, context: &mut dyn Context) -> machine::Result<()> {
        let port = context.attribute("port").unwrap_or_default().to_owned();
        self.port = port.parse().unwrap_or_default();
        self.ports = Map::open(context, "ports", 3)?;
        context.share("counts", 2)
    }

    fn start(&mut self, context: &mut dyn Context) -> machine::Result<()> {
        self.next = context.channel("next");
        let beat = Wake::at(context.now()).every(Nanoseconds(1_000_000));
        context.set_timer(0, beat)
    }

    fn timer(&mut self, _: u8, context: &mut dyn Context) {
        if let Err(fault) = context.store("counts", 0, &[self.passed, self.dropped]) {
            context.log(&fault.to_string());
        }
    }

    fn attached(&mut self, channel: ChannelId, name: &str, context: &mut dyn Context) {
        if name == "next" {
            self.next = Some(channel);
        }
        context.log(&format!("attached {name} at {}", context.now()));
    }

    fn message(&mut self, _: ChannelId, message: &[u8], context: &mut dyn Context) {
        // Ethernet 14, IPv4 without options 20, UDP's destination port at 2.
        let passes = message.len() >= 42
            && message[12..14] == [0x08, 0x00]
            && message[14] == 0x45
            && message[23] == 17
            && message[36..38] == self.port.to_be_bytes();
        match self.next {
            Some(next) if passes && context.write(next, message) == Written::Taken => self.passed += 1,
            _ => {
                self.dropped += 1;
                if let Some(port) = message.get(36..38)
                    && let Err(fault) = self.count(u16::from_be_bytes([port[0], port[1]]), context)
                {
                    context.log(&fault.to_string());
                }
            }
        }
    }

    fn turn(&mut self, _: &mut dyn Context) -> Activity {
        self.turns += 1;
        if self.turns.is_multiple_of(3) { Activity::Worked } else { Activity::Idle }
    }

    fn attribute_set(&mut self, name: &str, value: &str, _: &mut dyn Context) -> machine::Result<()> {
        if name == "port" {
            let no_port = |_| Fault::new(format!("port '{value}'"), "it is no port", "name one from 0 to 65535");
            self.port = value.parse().map_err(no_port)?;
        }
        Ok(())
    }

    fn save(&mut self, state: &mut State, _: &mut dyn Context) -> machine::Result<()> {
        state.set_version(1);
        state.keep("port", &self.port);
        state.keep("counts", &self.counts());
        if let Some(ChannelId(next)) = self.next {
            state.keep("next", &next);
        }
        Ok(())
    }

    fn restore(&mut self, state: &State, _: &mut dyn Context) -> machine::Result<()> {
        if state.version() != 1 {
            return Err(state.unfit("this filter knows version 1"));
        }
        self.port = state.kept("port")?;
        (self.passed, self.dropped, self.turns) = state.kept("counts")?;
        self.next = state.kept("next").ok().map(ChannelId);
        Ok(())
    }

    fn stop(&mut self, context: &mut dyn Context) {
        context.log(&format!("passed {}, dropped {}", self.passed, self.dropped));
    }
}

offcode::export!(PortFilter);
