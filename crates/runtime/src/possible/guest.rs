//! What an object may be that runs at a driver hook of another host. Its programs have the rights of the agent that loads
//! them: the verifier keeps them from harming the kernel, and this keeps them to the frames of their interface and to memory
//! of their own.

use linux::xdp::{Kind, Outline, Reach};
use machine::bounds::AGENT_OBJECT;
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
pub(super) fn refusal(role: ProgramRole, outline: &Outline) -> Option<(String, String)> {
    if role == ProgramRole::Producer {
        let why = "it makes frames by itself, and hooks of agents run on frames that arrive";
        return Some((why.into(), "place it at a driver hook of this host, or at a core".into()));
    }
    // Each is a descriptor of the agent's, and the verifier takes its time for each program.
    let (has, most) = (outline.maps().count() + outline.programs().len(), AGENT_OBJECT.each.count());
    if has > most {
        let why = format!("it has {has} maps and programs, and agents take {most} from one object");
        return Some((why, "leave out what it does not need, or place it at a driver hook of this host".into()));
    }
    for name in outline.maps() {
        match outline.map(name).map(|map| map.kind) {
            Some(Kind::Sockets) => {
                let why =
                    format!("it hands frames on by its {name}, which only a process on the agent's host can read");
                let next = "send what is needed of them over OUT, or place it at a driver hook of this host";
                return Some((why, next.into()));
            }
            Some(Kind::Other) => {
                let why = format!("its map {name} is of a kind that agents do not take from clients");
                return Some((why, "use arrays, hashes and ring buffers".into()));
            }
            _ => {}
        }
    }
    outline.reaches().iter().find_map(|reach| match reach {
        Reach::Helper(number) if HELPERS.iter().any(|(known, _)| known == number) => None,
        Reach::Helper(number) => {
            let why = format!("it calls the kernel's helper {number}, which reaches beyond its frames and its maps");
            let page = machine::page("docs/agent.md");
            let next =
                format!("leave it out, or place it at a driver hook of this host; {page} lists what may be called");
            Some((why, next))
        }
        Reach::Foreign => {
            let why = "it takes a function, a variable or a map that is not its own".to_owned();
            Some((why, "leave it out, or place it at a driver hook of this host".into()))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The object with so many more sections of variables, which are maps.
    fn with_maps(object: &[u8], more: usize) -> Vec<u8> {
        const HEADER: usize = 64;
        let number = |at: usize, length: usize| {
            object[at..][..length].iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
        };
        let (table, count, names) = (number(40, 8), number(60, 2), number(62, 2));
        let mut headers = object[table..][..count * HEADER].to_vec();
        let own = table + names * HEADER;
        let mut text = object[number(own + 24, 8)..][..number(own + 32, 8)].to_vec();
        for n in 0..more {
            let mut header = [0; HEADER];
            header[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
            // SHT_NOBITS, to be written, of 8 aligned bytes.
            (header[4], header[8], header[32], header[48]) = (8, 3, 8, 8);
            headers.extend(header);
            text.extend(format!(".bss.{n}\0").bytes());
        }
        let mut all = object.to_vec();
        for (field, number) in [(24, all.len()), (32, text.len())] {
            headers[names * HEADER + field..][..8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        all.extend(text);
        all.resize(all.len().next_multiple_of(8), 0);
        let at = all.len() as u64;
        all.extend(headers);
        all[40..48].copy_from_slice(&at.to_le_bytes());
        all[60..62].copy_from_slice(&((count + more) as u16).to_le_bytes());
        all
    }

    #[test]
    fn an_object_of_more_parts_than_an_agent_takes_is_no_guest() {
        let Some(object) = bpf::ECHO else { return skip::test(bpf::MISSING.unwrap_or_default()) };
        let parts = |outline: &Outline| outline.maps().count() + outline.programs().len();
        let own = parts(&Outline::read("echo", object).unwrap());
        let left = AGENT_OBJECT.each.count() - own;
        for (more, fits) in [(0, true), (left, true), (left + 1, false)] {
            let outline = Outline::read("echo", &with_maps(object, more)).unwrap();
            assert_eq!(parts(&outline), own + more);
            let refusal = refusal(ProgramRole::Hook, &outline);
            assert_eq!(refusal.is_none(), fits, "{more} more: {refusal:?}");
        }
    }
}
