/* Records that the generated wrappers share with src/call.rs and src/here.rs.

   Every argument is a word, so that one library serves all MPIs: the meaning of a word is in abi.rs alone. */
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

typedef uintptr_t W;

/* The first words of here.rs's Here. */
struct here {
    uint32_t depth;      /* 0: outside of all recorded calls, 1: inside of one, more: nothing is recorded */
    uint32_t clock;      /* 1: the processor's counter, 2: CLOCK_MONOTONIC */
    volatile struct thread *thread;
    void *frame;         /* of the outermost wrapper */
    uint64_t extra;      /* 1: a timeline is written, 2: there are delays, 4: computing is delayed */
};

/* The first words of layout::Thread. */
struct thread {
    uint32_t tid;
    uint32_t inside;
    uint64_t since;
};

/* MPI_ERR_COUNT of every MPI. */
#define COUNT_TOO_LARGE 2

enum language { C = 0, LARGE_C = 1, FORTRAN = 2, LARGE_FORTRAN = 3 };

/* call.rs's Call. */
struct call {
    uint32_t function;
    uint32_t language;
    W site;
    uint64_t entered;
    uint64_t left;
    W result;
    uint64_t kept;       /* set by plimsoll_before */
    uint64_t reserved;
    W arguments[16];
};

extern __thread struct here *plimsoll_here;
extern void *plimsoll_real[];
extern const char *const plimsoll_real_names[];
extern const W plimsoll_reals;

#define HIDDEN __attribute__((visibility("hidden")))
HIDDEN void *plimsoll_find(W index);
HIDDEN struct here *plimsoll_arrive(void);
HIDDEN int plimsoll_outermost(struct here *here, const void *frame);
HIDDEN void plimsoll_before(struct here *here, struct call *call);
HIDDEN void plimsoll_post(struct here *here, const struct call *call);
HIDDEN void plimsoll_after(struct here *here, struct call *call, uint64_t elapsed);
HIDDEN void plimsoll_forget(int what, uint32_t language, W address);
HIDDEN void plimsoll_phase(int level);
HIDDEN W plimsoll_narrow(uint32_t function, W *arguments, void **kept);
HIDDEN void plimsoll_narrowed(uint32_t function, void *kept);

static inline uint64_t now(const struct here *here)
{
    if (__builtin_expect(here->clock == 1, 1)) {
#if defined(__x86_64__)
        return __rdtsc();
#elif defined(__aarch64__)
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
#endif
    }
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#define REAL(index) \
    (__builtin_expect(plimsoll_real[index] != 0, 1) ? plimsoll_real[index] : plimsoll_find(index))
#define HERE() (__builtin_expect(plimsoll_here != 0, 1) ? plimsoll_here : plimsoll_arrive())

/* Whether the call comes from inside another call, not from the program. The end of the caller's frame decides, not the
   place of this wrapper's record: wrappers have frames of several sizes. */
#define NESTED() \
    (__builtin_expect(here->depth != 0, 0) && (here->depth == 2 || !plimsoll_outermost(here, __builtin_dwarf_cfa())))

#define BEGIN(id, of)                                   \
    here->depth = 1;                                    \
    here->frame = &call;                                \
    call.function = (id);                               \
    call.language = (of);                               \
    call.site = (W)__builtin_return_address(0);         \
    here->thread->inside = (id) + 1

#define ENTER()                                         \
    call.entered = now(here);                           \
    here->thread->since = call.entered

/* plimsoll_after marks the thread as outside again. The elapsed ticks are passed in a register: the next reading of the
   counter waits for all work that depends on this one. */
#define LEAVE()                                                                         \
    call.left = now(here);                                                              \
    plimsoll_after(here, &call, call.left > call.entered ? call.left - call.entered : 0)
