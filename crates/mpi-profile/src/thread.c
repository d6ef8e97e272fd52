/* The thread-local variable and the destructor of the process, for which Rust has no stable syntax. */
#include "shim.h"

__thread struct here *plimsoll_here;

/* Stand-in records of a thread that records nothing, and of a thread whose calls are only counted. */
const struct here plimsoll_passing = {2, 0, 0, 0, 0};
const struct here plimsoll_counting = {3, 0, 0, 0, 0};

HIDDEN void plimsoll_ended(void);

void plimsoll_set_here(struct here *here)
{
    plimsoll_here = here;
}

struct here *plimsoll_get_here(void)
{
    return plimsoll_here;
}

uint64_t plimsoll_now(const struct here *here)
{
    return now(here);
}

__attribute__((destructor)) static void end(void)
{
    plimsoll_ended();
}
