/* The dispatcher of a tc hook: where all stages pass a packet, the programs of others see it. */
#define HOOK "classifier"
#define CONTEXT struct __sk_buff
#define FAILED TC_NEXT
#define IN_BOUNDS(v) ((v) == TC_PASS || (v) == TC_DROP || (v) == TC_REDIRECT ? (v) : TC_NEXT)
/* By their order in `linux::xdp::Point::verdicts`. */
#define PLACE_OF(v) (u64)((v) == TC_NEXT ? 0 : (v) == TC_PASS ? 1 : (v) == TC_DROP ? 2 : 3)
#define GONE_THROUGH(v) ((v) == TC_PASS ? TC_NEXT : (v))
#include "dispatcher.h"
