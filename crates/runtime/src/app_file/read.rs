//! From the text to an application file, with the place of whatever is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use machine::fault::line_and_column;
use machine::spelling::meant;
use machine::{Bytes, Fault, Nanoseconds, Result, Site, SiteInMode, nesting};
use offcode::channel::{Buffers, Cast};
use offcode::{Attributes, Specification};
use toml::Spanned;

use super::super::closure;
use super::super::layout::APPLICATION;
use super::super::objective::Objective;
use super::super::wanted::Wanted;
use super::{Agent, AppFile, Capacity, LARGEST, NamedChannel, Party, Sites, written};

/// Sites of a list at most: more than a machine and its agents have.
const MOST_SITES: usize = 4096;

pub(super) fn open(path: &Path) -> Result<AppFile> {
    let failed = |error| {
        Fault::because(
            format!("application file {}", path.display()),
            error,
            "name a file that can be read, such as APP.toml",
        )
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(LARGEST.0 + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LARGEST.0 {
        let cause = format!("it has more than {LARGEST}");
        return Err(Fault::new(format!("application file {}", path.display()), cause, "split the application"));
    }
    parse(&text, path)
}

pub(super) fn parse(text: &str, path: &Path) -> Result<AppFile> {
    let reader = Reader { text, path };
    nesting::read(|| {
        let file: written::File = toml::from_str(text).map_err(|error| {
            let next = format!("{} shows what can stand there", machine::page("docs/applications.md"));
            let next = meant(error.message(), &next);
            reader.fault(error.span().unwrap_or(0..0), error.message().replace('\n', " "), next)
        })?;
        reader.file(file)
    })
}

struct Reader<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Reader<'_> {
    fn fault(&self, at: Range<usize>, cause: impl Into<String>, next: impl Into<String>) -> Fault {
        let (line, column) = line_and_column(self.text, at.start);
        Fault::new(format!("application file {}:{line}:{column}", self.path.display()), cause, next)
    }

    /// As 'APP.toml:12:1'.
    fn place(&self, at: Range<usize>) -> String {
        let (line, column) = line_and_column(self.text, at.start);
        let file = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy();
        format!("{file}:{line}:{column}")
    }

    /// A fault of one value, at its place.
    fn at<T>(&self, span: Range<usize>, result: Result<T>) -> Result<T> {
        result.map_err(|fault| self.fault(span, format!("{}: {}", fault.subject(), fault.cause()), fault.next()))
    }

    fn file(&self, file: written::File) -> Result<AppFile> {
        let name = file.name.get_ref();
        if !is_name(name) {
            let next = "write up to 64 letters, digits, -, _ and dots";
            return Err(self.fault(file.name.span(), format!("'{name}' will not do as a name"), next));
        }
        if file.offcode.is_empty() {
            let next = "add [[offcode]] with create = \"NAME\"";
            return Err(self.fault(file.name.span(), "the application creates no offcode", next));
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let agents: BTreeMap<String, Agent> = file
            .agents
            .iter()
            .map(|(host, agent)| {
                let address = agent.address.get_ref();
                if !is_address(address) {
                    let cause = format!("'{address}' is no address of an agent");
                    return Err(self.fault(agent.address.span(), cause, "write HOST:PORT"));
                }
                let keys = agent.keys.as_ref().map(|keys| folder.join(keys));
                Ok((host.get_ref().clone(), Agent { address: address.clone(), keys }))
            })
            .collect::<Result<_>>()?;
        let sites = self.sites(&file.sites, &agents)?;
        let offcodes = file.offcode.iter().map(|offcode| self.creation(offcode, &sites)).collect::<Result<Vec<_>>>()?;
        let mut names = BTreeSet::new();
        for (offcode, creation) in file.offcode.iter().zip(&offcodes) {
            let name = creation.name();
            if !names.insert(name) {
                let at = offcode.instance.as_ref().unwrap_or(&offcode.create).span();
                let next = "leave one of them out, or give it a name of its own: as = \"...\"";
                return Err(self.fault(at, format!("'{name}' is created twice"), next));
            }
        }
        let channels = file.channel.iter().map(|channel| self.channel(channel)).collect::<Result<Vec<_>>>()?;
        let mut names = BTreeSet::new();
        for channel in &file.channel {
            if !names.insert(channel.name.get_ref()) {
                let cause = format!("channel '{}' stands here twice", channel.name.get_ref());
                return Err(self.fault(channel.name.span(), cause, "give each channel a name of its own"));
            }
        }
        let mut capacities = BTreeMap::new();
        for (site, capacity) in &file.capacities {
            let parsed: Site = self.at(site.span(), site.get_ref().parse())?;
            if !sites.may_hold(&parsed.clone().into()) {
                let cause = format!("{parsed} is none of the sites that may be used");
                return Err(self.fault(site.span(), cause, "add it to sites, or leave its capacity out"));
            }
            capacities.insert(parsed, self.capacity(capacity)?);
        }
        let count = match &file.count {
            Some(count) if *count.get_ref() == 0 => {
                return Err(self.fault(
                    count.span(),
                    "a count of 0 ends the application at once",
                    "leave it out, or write 1 or more",
                ));
            }
            count => count.as_ref().map(|count| *count.get_ref()),
        };
        let objective = match &file.objective {
            Some(objective) => self.at(objective.span(), objective.get_ref().parse())?,
            None => Objective::default(),
        };
        Ok(AppFile {
            name: name.clone(),
            depots: file.depots.iter().map(|depot| folder.join(depot)).collect(),
            sites,
            offcodes,
            channels,
            agents,
            capacities,
            duration: file.duration.as_ref().map(|duration| self.duration(duration)).transpose()?,
            count,
            objective,
        })
    }

    fn sites(&self, sites: &Spanned<written::Sites>, agents: &BTreeMap<String, Agent>) -> Result<Sites> {
        let list = match sites.get_ref() {
            written::Sites::Word(word) if word == "all" => return Ok(Sites::All),
            written::Sites::Word(word) => {
                let next = "write \"all\", or a list such as [\"app\", \"core:1\"]";
                return Err(self.fault(sites.span(), format!("'{word}' is no choice of sites"), next));
            }
            written::Sites::List(list) => list,
        };
        if list.len() > MOST_SITES {
            let cause = format!("there are {} sites, at most {MOST_SITES} are looked at", list.len());
            return Err(self.fault(sites.span(), cause, "leave some out, or write \"all\""));
        }
        let mut chosen: Vec<SiteInMode> = Vec::new();
        for site in list {
            let one: SiteInMode = self.at(site.span(), site.get_ref().parse())?;
            if let Some((host, _)) = one.site.agent()
                && !agents.contains_key(host)
            {
                let next = format!("add [agents.{host}] with its address");
                return Err(self.fault(site.span(), format!("nothing says where agent:{host} is"), next));
            }
            // Also one hook in two modes: a driver runs one program.
            if chosen.iter().any(|other| other.site == one.site) {
                return Err(self.fault(
                    site.span(),
                    format!("{} stands here twice", one.site),
                    "leave one of them out",
                ));
            }
            chosen.push(one);
        }
        if chosen.is_empty() {
            return Err(self.fault(sites.span(), "no site may be used", "name one at least, such as \"app\""));
        }
        Ok(Sites::Named(chosen))
    }

    fn creation(&self, offcode: &written::Offcode, sites: &Sites) -> Result<Wanted> {
        let mut attributes = Attributes::default();
        for (name, value) in &offcode.attributes {
            self.at(value.span(), attributes.set(name, &value.get_ref().text()))?;
        }
        let pin = match &offcode.at {
            None => None,
            Some(at) => {
                let chosen: SiteInMode = self.at(at.span(), at.get_ref().parse())?;
                if !sites.may_hold(&chosen) {
                    let cause = format!("{chosen} is none of the sites that may be used");
                    return Err(self.fault(at.span(), cause, "add it to sites, or choose one of these"));
                }
                Some(chosen.site)
            }
        };
        if let Some(name) = &offcode.instance
            && (!is_name(name.get_ref()) || name.get_ref() == APPLICATION)
        {
            let next = "write up to 64 letters, digits, -, _ and dots, and not \"application\"";
            let cause = format!("'{}' will not do as an instance's name", name.get_ref());
            return Err(self.fault(name.span(), cause, next));
        }
        let versions = |text: &Spanned<String>| self.at(text.span(), closure::versions(text.get_ref()));
        let peers = offcode.peers.iter().map(|(peer, instance)| Ok((peer.clone(), self.offcode(instance)?)));
        Ok(Wanted {
            offcode: self.offcode(&offcode.create)?,
            instance: offcode.instance.as_ref().map(|name| name.get_ref().clone()),
            version: offcode.version.as_ref().map(versions).transpose()?,
            peers: peers.collect::<Result<_>>()?,
            attributes: attributes.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            places: offcode.attributes.iter().map(|(name, value)| (name.clone(), self.place(value.span()))).collect(),
            pin,
            rate: offcode.rate,
        })
    }

    fn offcode(&self, name: &Spanned<String>) -> Result<String> {
        match name.get_ref().trim() {
            "" => Err(self.fault(name.span(), "the offcode has no name", "write its package's name or its GUID")),
            _ => Ok(name.get_ref().clone()),
        }
    }

    fn channel(&self, channel: &written::Channel) -> Result<NamedChannel> {
        let usual = Specification::default();
        let name = channel.name.get_ref();
        if !is_name(name) {
            let next = "write up to 64 letters, digits, -, _ and dots";
            return Err(self.fault(channel.name.span(), format!("'{name}' will not do as a channel's name"), next));
        }
        let party = |name: &Spanned<String>| match name.get_ref().as_str() {
            APPLICATION => Ok(Party::Application),
            _ => self.offcode(name).map(Party::Offcode),
        };
        let from = party(&channel.from)?;
        let to = channel.to.get_ref().iter().map(party).collect::<Result<Vec<_>>>()?;
        let cast = channel.cast.unwrap_or(usual.cast);
        match (cast, to.len()) {
            (_, 0) => return Err(self.fault(channel.to.span(), "the channel leads nowhere", "name who is attached")),
            (Cast::Unicast, 2..) => {
                let next = "name one, or write cast = \"multicast\"";
                return Err(self.fault(channel.to.span(), "a unicast channel joins two ends", next));
            }
            _ => {}
        }
        let mut ends = BTreeSet::from([channel.from.get_ref()]);
        for end in channel.to.get_ref() {
            if !ends.insert(end.get_ref()) {
                return Err(self.fault(end.span(), "the channel has this end twice", "name each end once"));
            }
        }
        let count = match &channel.buffers {
            Some(count) if !(count.get_ref().is_power_of_two() && (4..=65_536).contains(count.get_ref())) => {
                let cause = format!("{} is no number of buffers", count.get_ref());
                return Err(self.fault(count.span(), cause, "write a power of two from 4 to 65536"));
            }
            count => count.as_ref().map_or(usual.buffers.count, |count| *count.get_ref()),
        };
        let size = match &channel.buffer_size {
            Some(size) => self.size(size)?,
            None => usual.buffers.size,
        };
        let buffers = Buffers { count, size, policy: channel.policy.unwrap_or(usual.buffers.policy) };
        let specification = Specification {
            cast,
            delivery: channel.delivery.unwrap_or(usual.delivery),
            synchronization: channel.synchronization.unwrap_or(usual.synchronization),
            content: channel.content.unwrap_or(usual.content),
            buffers,
        };
        let place = self.place(channel.name.span());
        Ok(NamedChannel { name: name.clone(), from, to, specification, place, rate: channel.rate })
    }

    fn capacity(&self, capacity: &written::Capacity) -> Result<Capacity> {
        let load = match &capacity.load {
            Some(load) if !(load.get_ref().is_finite() && (0.0..=1024.0).contains(load.get_ref())) => {
                let cause = format!("{} is no load", load.get_ref());
                return Err(self.fault(load.span(), cause, "write how many cores' time may be used, such as 0.8"));
            }
            load => load.as_ref().map(|load| *load.get_ref()),
        };
        let memory = capacity.memory.as_ref().map(|memory| self.size(memory)).transpose()?;
        Ok(Capacity { load, memory, offcodes: capacity.offcodes })
    }

    fn size(&self, size: &Spanned<String>) -> Result<Bytes> {
        match self.at(size.span(), size.get_ref().parse())? {
            Bytes(0) => Err(self.fault(size.span(), "a size of 0 holds nothing", "write one like 4 KiB")),
            size => Ok(size),
        }
    }

    fn duration(&self, text: &Spanned<String>) -> Result<Duration> {
        self.at(text.span(), text.get_ref().parse().map(Nanoseconds::duration))
    }
}

impl Sites {
    /// Whether a site is among them, as far as the file tells.
    fn may_hold(&self, wanted: &SiteInMode) -> bool {
        let fits =
            |one: &SiteInMode| one.site == wanted.site && (wanted.mode.is_none() || one.runs_in() == wanted.mode);
        match self {
            Sites::All => !wanted.site.kind().is_hook(),
            Sites::Named(sites) => sites.iter().any(fits),
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// HOST:PORT, with an IPv6 address in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let well = if host.contains(':') { host.starts_with('[') && host.ends_with(']') } else { !host.is_empty() };
    well && port.parse::<u16>().is_ok_and(|port| port > 0)
}
