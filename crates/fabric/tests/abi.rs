//! The declarations of `abi` against the installed headers: a C program prints the offsets of fields, the sizes of structures,
//! and the values of constants.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

use plimsoll_fi::abi::Iovec;
use plimsoll_fi::abi::atomic::*;
use plimsoll_fi::abi::completion::*;
use plimsoll_fi::abi::constants::*;
use plimsoll_fi::abi::fid::{Fid, Ops};
use plimsoll_fi::abi::info::*;
use plimsoll_fi::abi::object::*;
use plimsoll_fi::abi::provider::Provider;
use plimsoll_fi::abi::transfer::*;
use plimsoll_fi::abi::trigger::*;

/// An expression for the compiler, and Rust's value of it.
struct Question {
    c: String,
    rust: u64,
}

/// Offsets of fields, with the C name first if it differs, and the size if the structure is complete.
macro_rules! layout {
    ($list:ident, $c:literal, $rust:ty, whole: $whole:literal, $($c_field:literal = $field:ident),* $(,)?) => {
        $($list.push(Question {
            c: format!("offsetof({}, {})", $c, $c_field),
            rust: offset_of!($rust, $field) as u64,
        });)*
        if $whole {
            $list.push(Question { c: format!("sizeof({})", $c), rust: size_of::<$rust>() as u64 });
        }
    };
}

/// A table has as many entries as ours or more, at the same places.
macro_rules! table {
    ($list:ident, $c:literal, $rust:ty, $($field:ident),* $(,)?) => {
        $($list.push(Question {
            c: format!("offsetof({}, {})", $c, stringify!($field)),
            rust: offset_of!($rust, $field) as u64,
        });)*
    };
}

fn questions() -> Vec<Question> {
    let mut q = Vec::new();
    for list in [FLAGS, COUNTS, CLASSES, ENUMERATIONS, ERRORS] {
        q.extend(list.iter().map(|(name, value)| Question { c: name.to_string(), rust: *value }));
    }
    structures(&mut q);
    tables(&mut q);
    q
}

fn structures(q: &mut Vec<Question>) {
    layout!(q, "struct iovec", Iovec, whole: true, "iov_base" = base, "iov_len" = length);
    layout!(q, "struct fi_provider", Provider, whole: true, "version" = version, "fi_version" = fi_version,
        "context" = context, "name" = name, "getinfo" = getinfo, "fabric" = fabric, "cleanup" = cleanup);
    layout!(q, "struct fi_info", Info, whole: false, "next" = next, "caps" = caps, "mode" = mode,
        "addr_format" = addr_format, "src_addrlen" = src_addrlen, "dest_addrlen" = dest_addrlen,
        "src_addr" = src_addr, "dest_addr" = dest_addr, "handle" = handle, "tx_attr" = tx_attr,
        "rx_attr" = rx_attr, "ep_attr" = ep_attr, "domain_attr" = domain_attr, "fabric_attr" = fabric_attr,
        "nic" = nic);
    layout!(q, "struct fi_tx_attr", TransmitAttr, whole: false, "caps" = caps, "mode" = mode, "op_flags" = op_flags,
        "msg_order" = msg_order, "comp_order" = comp_order, "inject_size" = inject_size, "size" = size,
        "iov_limit" = iov_limit, "rma_iov_limit" = rma_iov_limit, "tclass" = tclass);
    layout!(q, "struct fi_rx_attr", ReceiveAttr, whole: false, "caps" = caps, "mode" = mode, "op_flags" = op_flags,
        "msg_order" = msg_order, "comp_order" = comp_order, "total_buffered_recv" = total_buffered_recv,
        "size" = size, "iov_limit" = iov_limit);
    layout!(q, "struct fi_ep_attr", EndpointAttr, whole: false, "type" = kind, "protocol" = protocol,
        "protocol_version" = protocol_version, "max_msg_size" = max_msg_size, "msg_prefix_size" = msg_prefix_size,
        "max_order_raw_size" = max_order_raw_size, "max_order_war_size" = max_order_war_size,
        "max_order_waw_size" = max_order_waw_size, "mem_tag_format" = mem_tag_format, "tx_ctx_cnt" = tx_ctx_cnt,
        "rx_ctx_cnt" = rx_ctx_cnt, "auth_key_size" = auth_key_size, "auth_key" = auth_key);
    layout!(q, "struct fi_domain_attr", DomainAttr, whole: false, "domain" = domain, "name" = name,
        "threading" = threading, "control_progress" = control_progress, "data_progress" = data_progress,
        "resource_mgmt" = resource_mgmt, "av_type" = av_type, "mr_mode" = mr_mode, "mr_key_size" = mr_key_size,
        "cq_data_size" = cq_data_size, "cq_cnt" = cq_cnt, "ep_cnt" = ep_cnt, "tx_ctx_cnt" = tx_ctx_cnt,
        "rx_ctx_cnt" = rx_ctx_cnt, "max_ep_tx_ctx" = max_ep_tx_ctx, "max_ep_rx_ctx" = max_ep_rx_ctx,
        "max_ep_stx_ctx" = max_ep_stx_ctx, "max_ep_srx_ctx" = max_ep_srx_ctx, "cntr_cnt" = cntr_cnt,
        "mr_iov_limit" = mr_iov_limit, "caps" = caps, "mode" = mode, "auth_key" = auth_key,
        "auth_key_size" = auth_key_size, "max_err_data" = max_err_data, "mr_cnt" = mr_cnt, "tclass" = tclass);
    layout!(q, "struct fi_fabric_attr", FabricAttr, whole: false, "fabric" = fabric, "name" = name,
        "prov_name" = prov_name, "prov_version" = prov_version, "api_version" = api_version);
    layout!(q, "struct fi_av_attr", AddressVectorAttr, whole: false, "type" = kind, "rx_ctx_bits" = rx_ctx_bits,
        "count" = count, "ep_per_node" = ep_per_node, "name" = name, "map_addr" = map_addr, "flags" = flags);
    layout!(q, "struct fi_cq_attr", CompletionQueueAttr, whole: false, "size" = size, "flags" = flags,
        "format" = format, "wait_obj" = wait_obj, "signaling_vector" = signaling_vector, "wait_cond" = wait_cond,
        "wait_set" = wait_set);
    layout!(q, "struct fi_eq_attr", EventQueueAttr, whole: false, "size" = size, "flags" = flags,
        "wait_obj" = wait_obj, "signaling_vector" = signaling_vector, "wait_set" = wait_set);
    layout!(q, "struct fi_cntr_attr", CounterAttr, whole: false, "events" = events, "wait_obj" = wait_obj,
        "wait_set" = wait_set, "flags" = flags);
    layout!(q, "struct fi_mr_attr", MemoryRegionAttr, whole: false, "mr_iov" = mr_iov, "iov_count" = iov_count,
        "access" = access, "offset" = offset, "requested_key" = requested_key, "context" = context,
        "auth_key_size" = auth_key_size, "auth_key" = auth_key, "iface" = iface, "device" = device);

    layout!(q, "struct fi_cq_tagged_entry", Entry, whole: true, "op_context" = op_context, "flags" = flags,
        "len" = length, "buf" = buffer, "data" = data, "tag" = tag);
    for (c, size) in [
        ("fi_cq_entry", CONTEXT_ENTRY),
        ("fi_cq_msg_entry", MSG_ENTRY),
        ("fi_cq_data_entry", DATA_ENTRY),
        ("fi_cq_tagged_entry", TAGGED_ENTRY),
    ] {
        q.push(Question { c: format!("sizeof(struct {c})"), rust: size as u64 });
    }
    layout!(q, "struct fi_cq_err_entry", ErrorEntry, whole: false, "op_context" = op_context, "flags" = flags,
        "len" = length, "buf" = buffer, "data" = data, "tag" = tag, "olen" = lost, "err" = error,
        "prov_errno" = provider_error, "err_data" = error_data, "err_data_size" = error_data_size);
    layout!(q, "struct fi_eq_entry", EventEntry, whole: true, "fid" = fid, "context" = context, "data" = data);
    layout!(q, "struct fi_eq_cm_entry", ConnectionEntry, whole: true, "fid" = fid, "info" = info);
    layout!(q, "struct fi_eq_err_entry", EventErrorEntry, whole: false, "fid" = fid, "context" = context,
        "data" = data, "err" = error, "prov_errno" = provider_error, "err_data" = error_data,
        "err_data_size" = error_data_size);

    layout!(q, "struct fi_msg", Message, whole: true, "msg_iov" = iov, "desc" = desc, "iov_count" = iov_count,
        "addr" = addr, "context" = context, "data" = data);
    layout!(q, "struct fi_msg_tagged", TaggedMessage, whole: true, "msg_iov" = iov, "desc" = desc,
        "iov_count" = iov_count, "addr" = addr, "tag" = tag, "ignore" = ignore, "context" = context, "data" = data);
    layout!(q, "struct fi_rma_iov", RemoteIovec, whole: true, "addr" = addr, "len" = length, "key" = key);
    layout!(q, "struct fi_msg_rma", RemoteMessage, whole: true, "msg_iov" = iov, "desc" = desc,
        "iov_count" = iov_count, "addr" = addr, "rma_iov" = remote_iov, "rma_iov_count" = remote_iov_count,
        "context" = context, "data" = data);
    layout!(q, "struct fi_ioc", Elements, whole: true, "addr" = base, "count" = count);
    layout!(q, "struct fi_rma_ioc", RemoteElements, whole: true, "addr" = addr, "count" = count, "key" = key);
    layout!(q, "struct fi_msg_atomic", AtomicMessage, whole: true, "msg_iov" = iov, "desc" = desc,
        "iov_count" = iov_count, "addr" = addr, "rma_iov" = remote_iov, "rma_iov_count" = remote_iov_count,
        "datatype" = datatype, "op" = op, "context" = context, "data" = data);
    layout!(q, "struct fi_atomic_attr", AtomicAttr, whole: true, "count" = count, "size" = size);

    layout!(q, "struct fi_alias", AliasAttr, whole: true, "fid" = fid, "flags" = flags);
    layout!(q, "struct fi_triggered_context", TriggeredContext, whole: false, "event_type" = event_type,
        "trigger.threshold.cntr" = counter, "trigger.threshold.threshold" = threshold);
    layout!(q, "struct fi_triggered_context2", TriggeredContext, whole: false, "event_type" = event_type,
        "trigger.threshold.cntr" = counter, "trigger.threshold.threshold" = threshold);
    layout!(q, "struct fi_msg_fetch", ElementList, whole: true, "msg_iov" = iov, "desc" = desc,
        "iov_count" = iov_count);
    layout!(q, "struct fi_msg_compare", ElementList, whole: true, "msg_iov" = iov, "desc" = desc,
        "iov_count" = iov_count);
    layout!(q, "struct fi_op_msg", Operation<Message>, whole: true, "ep" = ep, "msg" = message, "flags" = flags);
    layout!(q, "struct fi_op_tagged", Operation<TaggedMessage>, whole: true, "ep" = ep, "msg" = message,
        "flags" = flags);
    layout!(q, "struct fi_op_rma", Operation<RemoteMessage>, whole: true, "ep" = ep, "msg" = message,
        "flags" = flags);
    layout!(q, "struct fi_op_atomic", Operation<AtomicMessage>, whole: true, "ep" = ep, "msg" = message,
        "flags" = flags);
    layout!(q, "struct fi_op_fetch_atomic", FetchOperation, whole: true, "ep" = ep, "msg" = message,
        "fetch" = fetch, "flags" = flags);
    layout!(q, "struct fi_op_compare_atomic", CompareOperation, whole: true, "ep" = ep, "msg" = message,
        "fetch" = fetch, "compare" = compare, "flags" = flags);
    layout!(q, "struct fi_op_cntr", CounterOperation, whole: true, "cntr" = counter, "value" = value);
    layout!(q, "struct fi_deferred_work", DeferredWork, whole: true, "context" = context, "threshold" = threshold,
        "triggering_cntr" = triggering, "completion_cntr" = completion, "op_type" = op_type, "op" = op);

    layout!(q, "struct fid", Fid, whole: true, "fclass" = class, "context" = context, "ops" = ops);
    layout!(q, "struct fid_fabric", FidFabric, whole: true, "ops" = ops, "api_version" = api_version);
    layout!(q, "struct fid_domain", FidDomain, whole: true, "ops" = ops, "mr" = mr);
    layout!(q, "struct fid_mr", FidMemoryRegion, whole: true, "mem_desc" = mem_desc, "key" = key);
    layout!(q, "struct fid_av", FidAddressVector, whole: true, "ops" = ops);
    layout!(q, "struct fid_eq", FidEventQueue, whole: true, "ops" = ops);
    layout!(q, "struct fid_cq", FidCompletionQueue, whole: true, "ops" = ops);
    layout!(q, "struct fid_cntr", FidCounter, whole: true, "ops" = ops);
    layout!(q, "struct fid_stx", FidTransmitContext, whole: true, "ops" = ops);
    layout!(q, "struct fid_poll", FidPoll, whole: true, "ops" = ops);
    layout!(q, "struct fid_pep", FidPassive, whole: true, "ops" = ops, "cm" = cm);
    layout!(q, "struct fi_poll_attr", PollAttr, whole: true, "flags" = flags);
    layout!(q, "struct fid_ep", FidEndpoint, whole: true, "ops" = ops, "cm" = cm, "msg" = msg, "rma" = rma,
        "tagged" = tagged, "atomic" = atomic, "collective" = collective);
}

fn tables(q: &mut Vec<Question>) {
    table!(q, "struct fi_ops", Ops, close, bind, control, ops_open, tostr, ops_set);
    table!(q, "struct fi_ops_fabric", FabricOps, domain, passive_ep, eq_open, wait_open, trywait, domain2);
    table!(
        q,
        "struct fi_ops_domain",
        DomainOps,
        av_open,
        cq_open,
        endpoint,
        scalable_ep,
        cntr_open,
        poll_open,
        stx_ctx,
        srx_ctx,
        query_atomic,
        query_collective,
        endpoint2
    );
    table!(q, "struct fi_ops_mr", MemoryRegionOps, reg, regv, regattr);
    table!(q, "struct fi_ops_av", AddressVectorOps, insert, insertsvc, insertsym, remove, lookup, straddr, av_set);
    table!(q, "struct fi_ops_eq", EventQueueOps, read, readerr, write, sread, strerror);
    table!(q, "struct fi_ops_cq", CompletionQueueOps, read, readfrom, readerr, sread, sreadfrom, signal, strerror);
    table!(q, "struct fi_ops_cntr", CounterOps, read, readerr, add, set, wait, adderr, seterr);
    table!(q, "struct fi_ops_poll", PollOps, poll, poll_add, poll_del);
    table!(q, "struct fi_ops_ep", EndpointOps, cancel, getopt, setopt, tx_ctx, rx_ctx, rx_size_left, tx_size_left);
    table!(
        q,
        "struct fi_ops_cm",
        ConnectionOps,
        setname,
        getname,
        getpeer,
        connect,
        listen,
        accept,
        reject,
        shutdown,
        join
    );
    table!(
        q,
        "struct fi_ops_msg",
        MessageOps,
        recv,
        recvv,
        recvmsg,
        send,
        sendv,
        sendmsg,
        inject,
        senddata,
        injectdata
    );
    table!(
        q,
        "struct fi_ops_tagged",
        TaggedOps,
        recv,
        recvv,
        recvmsg,
        send,
        sendv,
        sendmsg,
        inject,
        senddata,
        injectdata
    );
    table!(
        q,
        "struct fi_ops_rma",
        RemoteOps,
        read,
        readv,
        readmsg,
        write,
        writev,
        writemsg,
        inject,
        writedata,
        injectdata
    );
    table!(
        q,
        "struct fi_ops_atomic",
        AtomicOps,
        write,
        writev,
        writemsg,
        inject,
        readwrite,
        readwritev,
        readwritemsg,
        compwrite,
        compwritev,
        compwritemsg,
        writevalid,
        readwritevalid,
        compwritevalid
    );
}

#[test]
fn declarations_agree_with_the_headers() {
    if let Err(why) = skip::package::file("/usr/include/rdma/fabric.h") {
        return skip::test(why);
    }
    let Some(compiler) = skip::tool("cc") else { return };
    let folder = tempfile::tempdir().unwrap();
    let questions = questions();
    let mut program = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <sys/uio.h>\n#include <rdma/fabric.h>\n\
         #include <rdma/fi_atomic.h>\n#include <rdma/fi_cm.h>\n#include <rdma/fi_domain.h>\n\
         #include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_tagged.h>\n\
         #include <rdma/fi_trigger.h>\n\
         #include <rdma/providers/fi_log.h>\n#include <rdma/providers/fi_prov.h>\nint main(void) {\n",
    );
    for question in &questions {
        writeln!(program, "printf(\"%llu\\n\", (unsigned long long)({}));", question.c).unwrap();
    }
    program.push_str("return 0; }\n");
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, program).unwrap();
    let built = Command::new(compiler).arg("-o").arg(&binary).arg(&source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let answers = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    let answers: Vec<u64> = answers.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(answers.len(), questions.len());
    let wrong: Vec<String> = questions
        .iter()
        .zip(&answers)
        .filter(|(question, answer)| question.rust != **answer)
        .map(|(question, answer)| format!("{} is {answer}, here {}", question.c, question.rust))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
