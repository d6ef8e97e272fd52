//! What an object may be that runs at a driver hook of another host. Its programs have the rights of the agent that loads
//! them: the verifier keeps them from harming the kernel, and this keeps them to the frames of their interface and to memory
//! of their own.

use linux::xdp::{Kind, Outline, Reach};
use offcode::manifest::ProgramRole;

/// What a guest may call: what works on its own maps and on the frame at hand, or tells the time and the core. None of these
/// reads the kernel's memory, makes system calls (as `bpf_sys_bpf` does), or sends frames out of another interface.
#[rustfmt::skip]
const HELPERS: [(i32, &str); 29] = [
    (1, "map_lookup_elem"), (2, "map_update_elem"), (3, "map_delete_elem"), (5, "ktime_get_ns"), (7, "get_prandom_u32"),
    (8, "get_smp_processor_id"), (28, "csum_diff"), (42, "get_numa_node_id"), (44, "xdp_adjust_head"),
    (54, "xdp_adjust_meta"), (65, "xdp_adjust_tail"), (93, "spin_lock"), (94, "spin_unlock"), (118, "jiffies64"),
    (125, "ktime_get_boot_ns"), (130, "ringbuf_output"), (131, "ringbuf_reserve"), (132, "ringbuf_submit"),
    (133, "ringbuf_discard"), (134, "ringbuf_query"), (160, "ktime_get_coarse_ns"), (164, "for_each_map_elem"),
    (181, "loop"), (182, "strncmp"), (188, "xdp_get_buff_len"), (189, "xdp_load_bytes"), (190, "xdp_store_bytes"),
    (195, "map_lookup_percpu_elem"), (208, "ktime_get_tai_ns"),
];

/// Why no agent runs an object whose body has this role, and what to do; `None`: agents do.
pub(super) fn refusal(role: ProgramRole, outline: &Outline) -> Option<(String, &'static str)> {
    if role == ProgramRole::Producer {
        let why = "it makes frames by itself, and hooks of agents run on frames that arrive";
        return Some((why.into(), "place it at a driver hook of this host, or at a core"));
    }
    for name in outline.maps() {
        match outline.map(name).map(|map| map.kind) {
            Some(Kind::Sockets) => {
                let why =
                    format!("it hands frames on by its {name}, which only a process on the agent's host can read");
                return Some((why, "send what is needed of them over OUT, or place it at a driver hook of this host"));
            }
            Some(Kind::Other) => {
                let why = format!("its map {name} is of a kind that agents do not take from clients");
                return Some((why, "use arrays, hashes and ring buffers"));
            }
            _ => {}
        }
    }
    outline.reaches().iter().find_map(|reach| match reach {
        Reach::Helper(number) if HELPERS.iter().any(|(known, _)| known == number) => None,
        Reach::Helper(number) => {
            let why = format!("it calls the kernel's helper {number}, which reaches beyond its frames and its maps");
            Some((
                why,
                "leave it out, or place it at a driver hook of this host; docs/agent.md lists what may be called",
            ))
        }
        Reach::Foreign => {
            let why = "it takes a function, a variable or a map that is not its own".to_owned();
            Some((why, "leave it out, or place it at a driver hook of this host"))
        }
    })
}
