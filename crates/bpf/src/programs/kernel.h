/* The little of the kernel's BPF interface that these programs use; needs no header of the build machine. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* Fields of a map definition, read from BTF by the loader. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name

enum { MAP_TYPE_ARRAY = 2, MAP_TYPE_PERCPU_ARRAY = 6, MAP_TYPE_XSKMAP = 17, MAP_TYPE_RINGBUF = 27 };
enum { MAP_MMAPABLE = 1 << 10 };

/* Helpers by their numbers in linux/bpf.h, which are ABI. */
static void *(*map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*ktime_get_ns)(void) = (void *)5;
static long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*xdp_adjust_tail)(void *ctx, int delta) = (void *)65;
static long (*ringbuf_output)(void *map, void *data, u64 size, u64 flags) = (void *)130;
static long (*bpf_loop)(u32 iterations, void *callback, void *ctx, u64 flags) = (void *)181;

enum { XDP_ABORTED = 0, XDP_DROP = 1, XDP_PASS = 2, XDP_TX = 3, XDP_REDIRECT = 4 };

/* The context of an XDP program. */
struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

/* What a program at a tc hook returns; the kernel takes others for TC_NEXT. */
enum { TC_NEXT = -1, TC_PASS = 0, TC_DROP = 2, TC_REDIRECT = 7 };

/* The context of a program at a tc hook, as far as these programs use it. */
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 tc_index;
	u32 cb[5];
	u32 hash;
	u32 tc_classid;
	u32 data;
	u32 data_end;
};

struct raw_tracepoint_args {
	u64 args[0];
};
