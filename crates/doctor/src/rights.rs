//! Checks of what this user is permitted to do.

use linux::accounting::SoftirqSensor;
use linux::lab::{Lab, Options};
use linux::{remote, shield};
use machine::availability::Availability;
use machine::privileges::{Capability, Limit, Privileges};
use machine::{Bytes, Machine, Reading, Source};

use crate::check::{Check, Worth};

const ROOT: Worth =
    Worth { name: "root", gives: "labs, BPF programs, shields, real time", cost: "what is not permitted below" };
const BPF: Worth = Worth {
    name: "BPF",
    gives: "softirq times by core, programs at driver hooks",
    cost: "no softirq times, nothing runs at driver hooks",
};
const LAB: Worth = Worth {
    name: "lab",
    gives: "two hosts on this machine, for what goes between hosts",
    cost: "the study uses loopback; between hosts only with a second one",
};
const SHIELD: Worth = Worth {
    name: "shield",
    gives: "keeps other work off a dedicated core",
    cost: "a thread on a core of its own may be disturbed",
};
const SINGLE_COPY: Worth = Worth {
    name: "single copy",
    gives: "one copy of large messages",
    cost: "large messages within a host go in packets",
};
const LIMITS: Worth = Worth { name: "limits", gives: "AF_XDP, many ranks", cost: "no AF_XDP socket can be opened" };

/// The least locked memory for an AF_XDP socket, as `machine` judges it.
const FRAMES: Bytes = Bytes(16 << 20);

pub fn checks(source: &Source, machine: &Machine) -> Vec<Check> {
    let (rights, live) = (&machine.privileges, source.is_live());
    let bpf_feature = machine.sensors.iter().find(|sensor| sensor.name == "bpf").map(|sensor| &sensor.availability);
    vec![
        root(rights),
        if live {
            bpf()
        } else {
            bpf_feature.map_or_else(|| BPF.unknown("not archived", "capture it again"), |b| BPF.of(b))
        },
        if live { lab(rights) } else { LAB.unknown("an archive cannot tell", "run `plimsoll doctor` there") },
        if live { shield(rights) } else { SHIELD.unknown("an archive cannot tell", "run `plimsoll doctor` there") },
        single_copy(source, rights),
        limits(rights),
    ]
}

fn root(rights: &Privileges) -> Check {
    let next = "run as root: `sudo plimsoll ...`";
    match rights.effective_user {
        Some(0) if rights.user_namespace => {
            ROOT.not_permitted("root of a user namespace, whose rights end at it", "run outside of this container")
        }
        Some(0) if rights.has(Capability::SysAdmin) && rights.has(Capability::NetAdmin) => ROOT.yes("this user"),
        Some(0) => ROOT.not_permitted(
            "root without CAP_SYS_ADMIN or CAP_NET_ADMIN",
            "start the container with these capabilities",
        ),
        Some(user) => ROOT.not_permitted(format!("this is user {user}"), next),
        None => ROOT.unknown("/proc/self/status cannot be read", "mount /proc"),
    }
}

/// Loads and attaches the programs of the softirq sensor for a moment.
fn bpf() -> Check {
    if let Some(why) = bpf::MISSING {
        return BPF.no(format!("plimsoll was built without BPF programs: {why}"), "install clang and build again");
    }
    let reason = |reason: String| reason.trim_start_matches("softirq time: ").to_owned();
    match SoftirqSensor::open() {
        Reading::Measured(_) | Reading::Modelled(_) => BPF.yes("tried"),
        Reading::Absent { reason: why } => BPF.no(reason(why), "use a kernel with BPF and its raw tracepoints"),
        Reading::NotPermitted { reason: why, next } => BPF.not_permitted(reason(why), next),
    }
}

fn lab(rights: &Privileges) -> Check {
    match Lab::owned(&Options::default()) {
        Ok(_) => LAB.yes("tried"),
        Err(fault) if rights.has(Capability::SysAdmin) => LAB.failed(&fault),
        Err(fault) => LAB.not_permitted(fault.cause(), fault.next()),
    }
}

fn shield(rights: &Privileges) -> Check {
    let deadline = rights.has_on_host(Capability::SysNice);
    match shield::cpusets_usable() {
        Ok(()) => SHIELD.yes("by cpusets"),
        Err(_) if deadline => SHIELD.yes("by deadline scheduling: others keep a tenth of the core"),
        Err(fault) => SHIELD.not_permitted(format!("{}; no CAP_SYS_NICE for deadlines", fault.cause()), "run as root"),
    }
}

fn single_copy(source: &Source, rights: &Privileges) -> Check {
    let availability = machine::single_copy(source, rights);
    match availability {
        Availability::Present { .. } if source.is_live() => match remote::check_allowed() {
            Err(error) => SINGLE_COPY
                .not_permitted(format!("process_vm_readv: {error}"), "let the container's seccomp profile allow it"),
            Ok(()) => SINGLE_COPY.of(&availability),
        },
        _ => SINGLE_COPY.of(&availability),
    }
}

fn limits(rights: &Privileges) -> Check {
    let shown = |limit: Option<Limit>, unit: fn(u64) -> String| match limit {
        Some(Limit::Unlimited) => "unlimited".to_owned(),
        Some(Limit::At(most)) => unit(most),
        None => "unknown".to_owned(),
    };
    let locked = match rights.has_on_host(Capability::IpcLock) {
        true => "unlimited".to_owned(),
        false => shown(rights.locked_memory, |most| Bytes(most).to_string()),
    };
    let found = format!("locked memory {locked}, open files {}", shown(rights.open_files, |most| most.to_string()));
    match rights.may_lock(FRAMES) {
        true => LIMITS.yes(found),
        false => LIMITS.not_permitted(format!("{found}; AF_XDP wants {FRAMES} locked"), "raise `ulimit -l`"),
    }
}
