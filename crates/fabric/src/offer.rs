//! The provider's offer, and its check against an application's hints; see fi_getinfo(3).

use std::ffi::c_int;

use machine::{Fault, Result};

use crate::abi::constants::*;
use crate::abi::info::{DomainAttr, EndpointAttr, Info, ReceiveAttr, TransmitAttr};
use crate::abi::version;
use crate::arguments::given;

/// Longest message; a greater length is a mistake.
pub const LONGEST: usize = 1 << 40;
/// Bytes of the longest datagram: with the engine's headers and those of UDP over IPv6 they fit a packet of Ethernet.
pub const LONGEST_DATAGRAM: usize = 1400;
/// Longest inject that is copied if it cannot leave at once.
pub const INJECT: usize = 8 << 10;
pub const PIECES: usize = 8;
/// Most operations in progress; the queues grow as needed.
pub const OPERATIONS: usize = 1 << 16;
/// `FI_PROTO` values with the highest bit set are the provider's own.
const PROTOCOL: u32 = 1 << 31 | 0x504c;
const OBJECTS: usize = 1 << 16;
/// `FI_TAG_GENERIC`: all 64 bits match, in any division.
const ANY_TAG_FORMAT: u64 = 0xaaaa_aaaa_aaaa_aaaa;

const SENDING: u64 = FI_MSG | FI_TAGGED | FI_SEND;
const RECEIVING: u64 = FI_MSG | FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
const REMOTE: u64 = FI_RMA | FI_ATOMIC;
const INITIATING: u64 = FI_READ | FI_WRITE;
const TARGETED: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;
/// Counters of peers' accesses.
const COUNTED: u64 = FI_RMA_EVENT;
/// Operations that wait for a counter, for applications that ask for them.
const TRIGGERED: u64 = FI_TRIGGER;
const ANYWHERE: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// Capabilities with addresses, of no use to an endpoint with one peer.
const ADDRESSED: u64 = FI_DIRECTED_RECV | FI_SOURCE;

/// All capabilities.
pub const CAPS: u64 = SENDING | RECEIVING | REMOTE | INITIATING | TARGETED | COUNTED | ANYWHERE;
const TRANSMIT_CAPS: u64 = SENDING | REMOTE | INITIATING | TRIGGERED;
const RECEIVE_CAPS: u64 = RECEIVING | REMOTE | TARGETED | COUNTED | TRIGGERED;
/// Capabilities of datagram endpoints.
const DATAGRAM_CAPS: u64 = (SENDING | RECEIVING) & !FI_TAGGED | ANYWHERE;

const TRANSMIT_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;
const ORDER: u64 = FI_ORDER_SAS;
/// Flags for which the receiver's acknowledgement is awaited before the send ends.
pub const CONFIRMED: u64 = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;

const NO_KEYS: &str = "jobs have no authorization keys";
const PIECED: &str = "a message has at most 8 pieces, a write or read one remote one";

/// Flags whose promise is not kept here: calls with them are refused, since callers rely on it.
pub const UNKEPT: u64 = FI_FENCE | FI_COMMIT_COMPLETE;

/// Refuses hints beyond the offer: `hint` is the field at fault, `cause` what it may hold.
fn must(held: bool, hint: &str, cause: &str) -> Result<()> {
    if held { Ok(()) } else { Err(Fault::new(hint, cause, "ask for what `fi_info -p plimsoll -v` lists")) }
}

/// As [`must`], of hints that count an endpoint's contexts.
fn must_be_one(count: usize, hint: &str) -> Result<()> {
    if count <= 1 { Ok(()) } else { Err(one_context(hint)) }
}

/// The refusal of several contexts of one endpoint.
pub fn one_context(subject: &str) -> Fault {
    let next = "open an endpoint for each thread, in a domain of its own";
    Fault::new(subject, "an endpoint is one engine, which has one context for sends and one for receives", next)
}

/// The refusal of memory that the processor cannot read and write.
pub fn no_device_memory(subject: impl Into<String>) -> Fault {
    let next = "copy between device and host memory in the program, or run the MPI without its support of devices";
    Fault::new(subject, "the engine copies by the processor, and knows no device's memory", next)
}

/// The agreement with an application.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settled {
    /// FI_EP_RDM by default, FI_EP_DGRAM or FI_EP_MSG if asked for.
    kind: c_int,
    caps: u64,
    transmit_flags: u64,
    receive_flags: u64,
    order: u64,
    threading: c_int,
    control_progress: c_int,
    data_progress: c_int,
    av_type: c_int,
    mr_mode: c_int,
    tag_format: u64,
    /// Contexts of an endpoint for sends and for receives: one each, or FI_SHARED_CONTEXT.
    contexts: (usize, usize),
}

impl Settled {
    pub fn is_reliable_datagram(&self) -> bool {
        self.kind == FI_EP_RDM
    }
}

/// Whether the engine progresses without the application's calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress {
    Manual,
    Automatic,
}

/// Checks `hints` against the offer.
///
/// # Safety
/// The pointers in `hints` are NULL or good.
pub unsafe fn settle(api: u32, hints: Option<&Info>, progress: Progress) -> Result<Settled> {
    let turns = match progress {
        Progress::Manual => FI_PROGRESS_MANUAL,
        Progress::Automatic => FI_PROGRESS_AUTO,
    };
    let mut settled = Settled {
        kind: FI_EP_RDM,
        caps: CAPS,
        transmit_flags: 0,
        receive_flags: 0,
        order: ORDER,
        threading: FI_THREAD_SAFE,
        control_progress: turns,
        data_progress: turns,
        // Both types are served: without a hint an application may open either.
        av_type: FI_AV_UNSPEC,
        // Keys are the application's and addresses count from the region's start: scalable in old terms.
        mr_mode: if api < version(1, 5) { FI_MR_SCALABLE } else { 0 },
        tag_format: ANY_TAG_FORMAT,
        contexts: (1, 1),
    };
    let Some(hints) = hints else { return Ok(settled) };
    must(hints.addr_format == 0, "addr_format", "names have a format of the provider's own, FI_FORMAT_UNSPEC")?;
    // SAFETY: the caller's promise, four times.
    unsafe {
        let (sends, receives) = (given(hints.tx_attr), given(hints.rx_attr));
        let caps = hints.caps | sends.map_or(0, |attr| attr.caps) | receives.map_or(0, |attr| attr.caps);
        if caps & FI_HMEM != 0 {
            return Err(no_device_memory("caps FI_HMEM"));
        }
        if let Some(attr) = given(hints.ep_attr) {
            settled.tag_format = check_endpoint(attr)?;
            settled.kind = if attr.kind == FI_EP_UNSPEC { FI_EP_RDM } else { attr.kind };
            must(attr.max_msg_size <= settled.longest(), "ep_attr->max_msg_size", "messages may be that long nowhere")?;
            settled.contexts = (attr.tx_ctx_cnt.max(1), attr.rx_ctx_cnt.max(1));
        }
        if let Some(attr) = given(hints.domain_attr) {
            settled.check_domain(attr, progress)?;
        }
        if let Some(attr) = sends {
            settled.check_transmit(attr)?;
        }
        if let Some(attr) = receives {
            settled.check_receive(attr)?;
        }
    }
    settled.caps = settled.grant_caps(hints.caps)?;
    Ok(settled)
}

/// A set without directions means all of them.
pub fn implied(asked: u64) -> u64 {
    let mut granted = asked;
    if asked & (FI_MSG | FI_TAGGED) != 0 && asked & (FI_SEND | FI_RECV) == 0 {
        granted |= FI_SEND | FI_RECV;
    }
    if asked & REMOTE != 0 && asked & (INITIATING | TARGETED) == 0 {
        granted |= INITIATING | TARGETED;
    }
    granted
}

fn ordered(attr: &str, messages: u64, completions: u64) -> Result<()> {
    let beyond = messages & !ORDER;
    let hint = format!("{attr}->msg_order {beyond:#x}, comp_order {completions:#x}");
    must(beyond | completions == 0, &hint, "sends are received in order (FI_ORDER_SAS), and nothing else has one")
}

fn check_endpoint(attr: &EndpointAttr) -> Result<u64> {
    let known = matches!(attr.kind, FI_EP_UNSPEC | FI_EP_RDM | FI_EP_DGRAM | FI_EP_MSG);
    must(known, "ep_attr->type", "endpoints are FI_EP_RDM, FI_EP_DGRAM or FI_EP_MSG")?;
    let ours = matches!(attr.protocol, 0 | PROTOCOL) && attr.protocol_version <= 1;
    must(ours, "ep_attr->protocol", "the provider has one of its own")?;
    let ordered = attr.max_order_raw_size | attr.max_order_war_size | attr.max_order_waw_size;
    must(ordered == 0, "ep_attr->max_order_*_size", "reads and writes are in no order")?;
    for (count, hint) in [(attr.tx_ctx_cnt, "ep_attr->tx_ctx_cnt"), (attr.rx_ctx_cnt, "ep_attr->rx_ctx_cnt")] {
        must_be_one(if count == FI_SHARED_CONTEXT { 1 } else { count }, hint)?;
    }
    must(attr.auth_key_size == 0, "ep_attr->auth_key", NO_KEYS)?;
    Ok(if attr.mem_tag_format == 0 { ANY_TAG_FORMAT } else { attr.mem_tag_format })
}

impl Settled {
    fn longest(&self) -> usize {
        if self.kind == FI_EP_DGRAM { LONGEST_DATAGRAM } else { LONGEST }
    }

    /// The capabilities of the hints, and those implied.
    fn grant_caps(&self, asked: u64) -> Result<u64> {
        let all = match self.kind {
            FI_EP_DGRAM => DATAGRAM_CAPS,
            FI_EP_MSG => CAPS & !ADDRESSED,
            _ => CAPS,
        };
        let triggered = if self.kind == FI_EP_DGRAM { 0 } else { TRIGGERED };
        let beyond = asked & !(all | triggered);
        must(beyond == 0, "caps", &format!("{beyond:#x} is not served by endpoints of this type"))?;
        if asked == 0 {
            return Ok(all);
        }
        Ok(implied(asked) | ANYWHERE)
    }

    fn check_domain(&mut self, attr: &DomainAttr, progress: Progress) -> Result<()> {
        let known = (FI_THREAD_UNSPEC..=FI_THREAD_ENDPOINT).contains(&attr.threading);
        must(known, "domain_attr->threading", "the model is unknown")?;
        if attr.threading != FI_THREAD_UNSPEC {
            self.threading = attr.threading;
        }
        let turns = |asked| match asked {
            FI_PROGRESS_UNSPEC => Ok(None),
            FI_PROGRESS_MANUAL | FI_PROGRESS_CONTROL_UNIFIED => Ok(Some(asked)),
            FI_PROGRESS_AUTO if progress == Progress::Automatic => Ok(Some(asked)),
            FI_PROGRESS_AUTO => Err(Fault::new(
                "domain_attr->data_progress and control_progress",
                "at placement app messages move in the caller's calls",
                "ask for FI_PROGRESS_MANUAL, or set FI_PLIMSOLL_PLACEMENT=core:N",
            )),
            _ => must(false, "domain_attr->data_progress and control_progress", "the kind is unknown").map(|()| None),
        };
        self.control_progress = turns(attr.control_progress)?.unwrap_or(self.control_progress);
        self.data_progress = turns(attr.data_progress)?.unwrap_or(self.data_progress);
        let known = (FI_AV_UNSPEC..=FI_AV_TABLE).contains(&attr.av_type);
        must(known, "domain_attr->av_type", "address vectors are FI_AV_MAP or FI_AV_TABLE")?;
        self.av_type = attr.av_type;
        // FI_MR_BASIC and FI_MR_SCALABLE are answered as asked; none of the mode bits since 1.5 is required.
        match attr.mr_mode {
            asked if asked & FI_MR_BASIC != 0 => self.mr_mode = FI_MR_BASIC,
            FI_MR_SCALABLE => self.mr_mode = FI_MR_SCALABLE,
            _ => {}
        }
        must(attr.mr_key_size <= 8, "domain_attr->mr_key_size", "keys of regions have 8 B")?;
        must(attr.cq_data_size <= 8, "domain_attr->cq_data_size", "remote data have 8 B")?;
        let contexts = [attr.tx_ctx_cnt, attr.rx_ctx_cnt, attr.max_ep_stx_ctx, attr.max_ep_srx_ctx];
        let most = [attr.cq_cnt, attr.ep_cnt, attr.cntr_cnt, attr.mr_cnt].into_iter().chain(contexts).max();
        must(most <= Some(OBJECTS), "domain_attr", "a domain has at most 65,536 objects of a kind")?;
        must_be_one(attr.max_ep_tx_ctx, "domain_attr->max_ep_tx_ctx")?;
        must_be_one(attr.max_ep_rx_ctx, "domain_attr->max_ep_rx_ctx")?;
        must(attr.mr_iov_limit <= 1, "domain_attr->mr_iov_limit", "a region is one piece")?;
        must(attr.caps & !ANYWHERE == 0, "domain_attr->caps", "of these there are FI_LOCAL_COMM and FI_REMOTE_COMM")?;
        must(attr.auth_key_size == 0, "domain_attr->auth_key", NO_KEYS)
    }

    fn check_transmit(&mut self, attr: &TransmitAttr) -> Result<()> {
        must(attr.caps & !TRANSMIT_CAPS & !ANYWHERE == 0, "tx_attr->caps", "some are not those of sends")?;
        // Arrival of a datagram is never confirmed.
        let flags = if self.kind == FI_EP_DGRAM { TRANSMIT_FLAGS & !CONFIRMED } else { TRANSMIT_FLAGS };
        must(attr.op_flags & !flags == 0, "tx_attr->op_flags", "some are not served")?;
        ordered("tx_attr", attr.msg_order, attr.comp_order)?;
        let short = attr.inject_size <= INJECT.min(self.longest());
        must(short, "tx_attr->inject_size", "an inject has at most 8 KiB, of a datagram 1,400 B")?;
        must(attr.size <= OPERATIONS, "tx_attr->size", "at most 65,536 operations are in progress")?;
        must(attr.iov_limit <= PIECES && attr.rma_iov_limit <= 1, "tx_attr", PIECED)?;
        self.transmit_flags = attr.op_flags;
        Ok(())
    }

    fn check_receive(&mut self, attr: &ReceiveAttr) -> Result<()> {
        must(attr.caps & !RECEIVE_CAPS & !ANYWHERE == 0, "rx_attr->caps", "some are not those of receives")?;
        must(attr.op_flags & !RECEIVE_FLAGS == 0, "rx_attr->op_flags", "some are not served")?;
        ordered("rx_attr", attr.msg_order, attr.comp_order)?;
        must(attr.size <= OPERATIONS, "rx_attr->size", "at most 65,536 operations are in progress")?;
        must(attr.iov_limit <= PIECES, "rx_attr->iov_limit", PIECED)?;
        self.receive_flags = attr.op_flags;
        Ok(())
    }

    /// Writes everything but names and addresses.
    ///
    /// # Safety
    /// `info` has all its parts.
    pub unsafe fn write(&self, info: &mut Info) {
        info.caps = self.caps;
        info.mode = 0;
        info.addr_format = 0;
        // SAFETY: the caller's promise.
        unsafe {
            let attr = &mut *info.ep_attr;
            attr.kind = self.kind;
            attr.protocol = PROTOCOL;
            attr.protocol_version = 1;
            attr.max_msg_size = self.longest();
            attr.mem_tag_format = self.tag_format;
            (attr.tx_ctx_cnt, attr.rx_ctx_cnt) = self.contexts;

            let attr = &mut *info.domain_attr;
            attr.threading = self.threading;
            (attr.control_progress, attr.data_progress) = (self.control_progress, self.data_progress);
            attr.resource_mgmt = FI_RM_ENABLED;
            attr.av_type = self.av_type;
            attr.mr_mode = self.mr_mode;
            (attr.mr_key_size, attr.cq_data_size) = (8, 8);
            (attr.cq_cnt, attr.ep_cnt, attr.cntr_cnt, attr.mr_cnt) = (OBJECTS, OBJECTS, OBJECTS, OBJECTS);
            (attr.tx_ctx_cnt, attr.rx_ctx_cnt) = (OBJECTS, OBJECTS);
            (attr.max_ep_tx_ctx, attr.max_ep_rx_ctx) = (1, 1);
            (attr.max_ep_stx_ctx, attr.max_ep_srx_ctx) = (OBJECTS, OBJECTS);
            attr.mr_iov_limit = 1;
            attr.caps = ANYWHERE;

            let attr = &mut *info.tx_attr;
            attr.caps = self.caps & TRANSMIT_CAPS;
            attr.op_flags = self.transmit_flags;
            attr.msg_order = self.order;
            attr.inject_size = INJECT.min(self.longest());
            attr.size = OPERATIONS;
            (attr.iov_limit, attr.rma_iov_limit) = (PIECES, 1);

            let attr = &mut *info.rx_attr;
            attr.caps = self.caps & RECEIVE_CAPS;
            attr.op_flags = self.receive_flags;
            attr.msg_order = self.order;
            attr.size = OPERATIONS;
            attr.iov_limit = PIECES;
        }
    }
}
