/* The little of the kernel's BPF interface that these programs use; needs no header of the build machine. */
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))

/* Fields of a map definition, read from BTF by the loader. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name

enum { MAP_TYPE_PERCPU_ARRAY = 6 };

/* Helpers by their numbers in linux/bpf.h, which are ABI. */
static void *(*map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*ktime_get_ns)(void) = (void *)5;

struct raw_tracepoint_args {
	u64 args[0];
};
