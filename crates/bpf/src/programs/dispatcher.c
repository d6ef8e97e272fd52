/* The dispatcher of a driver hook: the last stage's verdict is carried out. */
#define HOOK "xdp"
#define CONTEXT struct xdp_md
#define FAILED XDP_ABORTED
#define IN_BOUNDS(v) ((u32)(v) > XDP_REDIRECT ? XDP_ABORTED : (v))
#define PLACE_OF(v) (u64)(v)
#define GONE_THROUGH(v) (v)
#include "dispatcher.h"
