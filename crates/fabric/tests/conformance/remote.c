/* One-sided transfers and atomic operations: fi_rma(3), fi_atomic(3), fi_mr(3). */
#include "conform.h"

#include <sys/mman.h>

struct region {
    struct fid_mr *mr;
    char *bytes;
    uint64_t base, key; /* as the other side must name it */
};

/* Registers these bytes and exchanges keys with the other side, whose base and key come back in `theirs`. */
static struct region share_bytes(struct end *end, char *bytes, size_t length, uint64_t access, uint64_t key, struct region *theirs) {
    struct region mine = {.bytes = bytes};
    MUST(fi_mr_reg(end->domain, mine.bytes, length, access, 0, key, 0, &mine.mr, NULL));
    if (end->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        MUST(fi_mr_bind(mine.mr, &end->ep->fid, 0));
        MUST(fi_mr_enable(mine.mr));
    }
    mine.base = end->info->domain_attr->mr_mode & (FI_MR_VIRT_ADDR | FI_MR_BASIC) ? (uint64_t)(uintptr_t)mine.bytes : 0;
    mine.key = fi_mr_key(mine.mr);
    tell(&mine, sizeof mine);
    hear(theirs, sizeof *theirs);
    return mine;
}

static struct region share(struct end *end, size_t length, uint64_t access, uint64_t key, struct region *theirs) {
    char *bytes = memory(length);
    memset(bytes, 0, length);
    return share_bytes(end, bytes, length, access, key, theirs);
}

static void withdraw(struct region *mine) {
    CHECK_EQUAL(fi_close(&mine->mr->fid), 0);
    free(mine->bytes);
}

static struct end *open_remote(uint64_t caps) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | caps};
    return open_end(&wish);
}

enum { ROOM = 2 << 20 };
static const uint64_t ALL_ACCESS = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE | FI_SEND | FI_RECV;

static void write_and_read_as(int mr_mode) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_RMA, .mr_mode = mr_mode};
    struct end *end = open_end(&wish);
    if (!end) return;
    if (mr_mode) CHECK_EQUAL(end->info->domain_attr->mr_mode, mr_mode);
    struct region theirs, mine = share(end, ROOM, ALL_ACCESS, 100 + (uint64_t)side, &theirs);
    static const size_t lengths[] = {0, 1, 8, 1000, 4096, 100001, 1 << 20};
    char *local = memory(ROOM);
    for (int i = 0; i < 7; i++) {
        size_t length = lengths[i], at = 3 * (size_t)i;
        struct fi_cq_tagged_entry entry;
        fill(local, length, (unsigned)(i + side));
        memset(mine.bytes, 0x41, ROOM);
        meet(end);
        MUST(AGAIN(end, fi_write(end->ep, local, length, NULL, end->peer, theirs.base + at, theirs.key, local)));
        CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
        CHECK(entry.op_context == local);
        CHECK((entry.flags & FI_RMA) && (entry.flags & FI_WRITE));
        /* Written bytes are read back: a later read (of the same bytes, once the write is complete) sees them. */
        memset(local, 0, length);
        for (int turns = 0;; turns++) {
            MUST(AGAIN(end, fi_read(end->ep, local, length, NULL, end->peer, theirs.base + at, theirs.key, local)));
            CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
            CHECK((entry.flags & FI_RMA) && (entry.flags & FI_READ));
            char probe[1];
            fill(probe, 1, (unsigned)(i + side));
            if (length == 0 || local[0] == probe[0] || turns == 1000) break; /* completed here may not be placed there yet */
        }
        CHECK_BYTES(local, length, (unsigned)(i + side));
        meet(end);
        CHECK_BYTES(mine.bytes + at, length, (unsigned)(i + 1 - side));
        CHECK(mine.bytes[at + length] == 0x41 && (at == 0 || mine.bytes[at - 1] == 0x41));
        meet(end);
    }
    free(local);
    meet(end);
    withdraw(&mine);
    close_end(end);
}

static void write_and_read(void) { write_and_read_as(0); }

/* Keys are the provider's, and peers use virtual addresses. */
static void write_and_read_by_virtual_address(void) { write_and_read_as(FI_MR_BASIC); }

static void written_with_data(void) {
    struct end *end = open_remote(FI_RMA);
    if (!end) return;
    struct region theirs, mine = share(end, ROOM, ALL_ACCESS, 7 + (uint64_t)side, &theirs);
    char *local = memory(200000);
    for (int i = 0; i < 12; i++) {
        size_t length = i % 3 == 0 ? 16 : i % 3 == 1 ? 9000 : 200000;
        struct fi_cq_tagged_entry entry;
        fill(local, length, (unsigned)(i + side));
        if (i % 3 == 0) MUST(AGAIN(end, fi_inject_writedata(end->ep, local, length, 1000 + (uint64_t)i, end->peer, theirs.base, theirs.key)));
        else {
            MUST(AGAIN(end, fi_writedata(end->ep, local, length, NULL, 1000 + (uint64_t)i, end->peer, theirs.base, theirs.key, local)));
            EXPECT(end, end->sent, local);
        }
        CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
        CHECK((entry.flags & FI_REMOTE_CQ_DATA) && (entry.flags & FI_REMOTE_WRITE));
        CHECK_EQUAL(entry.data, 1000 + i);
        CHECK_BYTES(mine.bytes, length, (unsigned)(i + 1 - side));
        meet(end);
    }
    free(local);
    withdraw(&mine);
    close_end(end);
}

static void in_pieces(void) {
    struct end *end = open_remote(FI_RMA);
    if (!end) return;
    struct region theirs, mine = share(end, ROOM, ALL_ACCESS, 7 + (uint64_t)side, &theirs);
    char *local = memory(120000);
    struct iovec pieces[3] = {{local, 10}, {local + 100, 70000}, {local + 100000, 5}};
    struct fi_rma_iov target = {theirs.base + 9, 70015, theirs.key};
    struct fi_msg_rma message = {.msg_iov = pieces, .iov_count = 3, .addr = end->peer, .rma_iov = &target, .rma_iov_count = 1, .context = local};
    if (end->info->tx_attr->iov_limit < 3) message.iov_count = 1, pieces[0].iov_len = target.len;
    fill(local, 120000, (unsigned)side);
    MUST(AGAIN(end, fi_writemsg(end->ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION)));
    EXPECT(end, end->sent, local);
    meet(end);
    char *expected = memory(120000);
    fill(expected, 120000, (unsigned)(1 - side));
    if (message.iov_count == 3) {
        CHECK(memcmp(mine.bytes + 9, expected, 10) == 0);
        CHECK(memcmp(mine.bytes + 19, expected + 100, 70000) == 0);
        CHECK(memcmp(mine.bytes + 70019, expected + 100000, 5) == 0);
    } else CHECK(memcmp(mine.bytes + 9, expected, 70015) == 0);
    meet(end);
    free(expected);
    free(local);
    withdraw(&mine);
    close_end(end);
}

/* Accesses outside a region, without the right or with a wrong key: they fail, and memory is untouched. */
static void bounds_and_rights(void) {
    struct end *end = open_remote(FI_RMA);
    if (!end) return;
    struct region theirs, mine = share(end, 4096, FI_REMOTE_READ, 50 + (uint64_t)side, &theirs);
    struct region open_theirs, open_mine = share(end, 4096, ALL_ACCESS, 60 + (uint64_t)side, &open_theirs);
    static char local[8192];
    struct fi_cq_tagged_entry entry;
    memset(local, 0x7e, sizeof local);
    static const struct {
        int write, open;
        uint64_t at;
        size_t length;
        uint64_t key_change;
    } bad[] = {{1, 0, 0, 8, 0},        {1, 1, 4090, 7, 0},       {1, 1, 4096, 1, 0},    {1, 1, ~0ull - 3, 8, 0},
               {0, 1, 4000, 4096, 0},  {1, 1, 0, 8192, 0},       {1, 1, 0, 8, 999999},  {0, 1, 0, 8, 999999}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct region *to = bad[i].open ? &open_theirs : &theirs;
        ssize_t code = bad[i].write
                           ? AGAIN(end, fi_write(end->ep, local, bad[i].length, NULL, end->peer, to->base + bad[i].at, to->key + bad[i].key_change, local))
                           : AGAIN(end, fi_read(end->ep, local, bad[i].length, NULL, end->peer, to->base + bad[i].at, to->key + bad[i].key_change, local));
        if (code == 0) check(take(end, end->sent, &entry, NULL) != 0, __FILE__, __LINE__, "access %zu was not refused", i);
        else check(code < 0, __FILE__, __LINE__, "access %zu gave %zd", i, code);
    }
    meet(end);
    int touched = 0;
    for (int i = 0; i < 4096; i++) touched += mine.bytes[i] != 0 || open_mine.bytes[i] != 0;
    CHECK_EQUAL(touched, 0);
    meet(end); /* neither side goes on before the other has checked */
    /* Allowed accesses still work. */
    MUST(AGAIN(end, fi_write(end->ep, local, 4096, NULL, end->peer, open_theirs.base, open_theirs.key, local)));
    EXPECT(end, end->sent, local);
    MUST(AGAIN(end, fi_read(end->ep, local, 4096, NULL, end->peer, theirs.base, theirs.key, local)));
    EXPECT(end, end->sent, local);
    CHECK(local[0] == 0 && local[4095] == 0);
    meet(end);
    withdraw(&mine);
    withdraw(&open_mine);
    close_end(end);
}

/* A closed region is no target any more. */
static void closed_region(void) {
    struct end *end = open_remote(FI_RMA);
    if (!end) return;
    struct region theirs, mine = share(end, 4096, ALL_ACCESS, 5, &theirs);
    static char local[64];
    struct fi_cq_tagged_entry entry;
    meet(end);
    CHECK_EQUAL(fi_close(&mine.mr->fid), 0);
    meet(end);
    memset(local, 1, sizeof local);
    ssize_t code = AGAIN(end, fi_write(end->ep, local, sizeof local, NULL, end->peer, theirs.base, theirs.key, local));
    if (code == 0) CHECK(take(end, end->sent, &entry, NULL) != 0);
    meet(end);
    CHECK(mine.bytes[0] == 0);
    free(mine.bytes);
    close_end(end);
}

static size_t other_bytes(const char *bytes, size_t length, char expected) {
    size_t other = 0;
    for (size_t i = 0; i < length; i++) other += bytes[i] != expected;
    return other;
}

enum { LONG = 128 << 20 };

/* After the close of its region a peer's write goes no further, however many bytes are left. */
static void closed_while_written(void) {
    struct end *end = open_remote(FI_RMA);
    if (!end) return;
    struct region theirs, mine = share(end, side == 1 ? LONG : 8, ALL_ACCESS, 5, &theirs);
    if (side == 0) {
        struct fi_cq_tagged_entry entry;
        char *local = memory(LONG);
        memset(local, 1, LONG);
        MUST(AGAIN(end, fi_write(end->ep, local, LONG, NULL, end->peer, theirs.base, theirs.key, local)));
        CHECK(take(end, end->sent, &entry, NULL) != 0);
        meet(end);
        free(local);
        withdraw(&mine);
    } else {
        /* The bytes may come from both ends. */
        volatile char *first = mine.bytes, *middle = mine.bytes + LONG / 2;
        while (!*first) turn(end);
        CHECK(!*middle);
        CHECK_EQUAL(fi_close(&mine.mr->fid), 0);
        memset(mine.bytes, 0x5a, LONG);
        meet(end);
        CHECK_EQUAL(other_bytes(mine.bytes, LONG, 0x5a), 0);
        free(mine.bytes);
    }
    close_end(end);
}

/* A peer's read gets nothing that is written there after the close, unless it reads the memory by itself. */
static void closed_while_read(void) {
    struct end *end = open_remote(FI_RMA);
    if (!end) return;
    struct region theirs, mine = share(end, side == 1 ? LONG : 8, ALL_ACCESS, 5, &theirs);
    if (side == 0) {
        struct fi_cq_tagged_entry entry;
        char *local = memory(LONG);
        memset(local, 0, LONG);
        meet(end);
        MUST(AGAIN(end, fi_read(end->ep, local, LONG, NULL, end->peer, theirs.base, theirs.key, local)));
        while (!*(volatile char *)local) turn(end);
        meet(end);
        int code = take(end, end->sent, &entry, NULL);
        CHECK_EQUAL(memchr(local, 0x5a, LONG) != NULL, 0);
        if (code == 0) CHECK_EQUAL(other_bytes(local, LONG, 1), 0);
        meet(end);
        free(local);
        withdraw(&mine);
    } else {
        const char *shared = getenv("FI_PLIMSOLL_SHM");
        memset(mine.bytes, 1, LONG);
        meet(end);
        meet(end);
        CHECK_EQUAL(fi_close(&mine.mr->fid), 0);
        if (shared && strcmp(shared, "no") == 0) memset(mine.bytes, 0x5a, LONG);
        meet(end);
        free(mine.bytes);
    }
    close_end(end);
}

/* FI_RMA_EVENT: counters at the target, of an endpoint and of one of two regions. */
static void counted_at_the_target(void) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_RMA | FI_ATOMIC | FI_RMA_EVENT, .remote_counters = 1};
    struct end *end = open_end(&wish);
    if (!end) return;
    static const size_t lengths[] = {8, 5000, 200000};
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *written, *read;
    struct region theirs[2], mine[2];
    struct fi_cq_tagged_entry entry;
    int64_t one = 1, before;
    for (int i = 0; i < 2; i++) mine[i] = share(end, ROOM, ALL_ACCESS, 8 + (uint64_t)i, &theirs[i]);
    MUST(fi_cntr_open(end->domain, &attr, &written, NULL));
    attr.wait_obj = FI_WAIT_NONE; /* the counter has no wait object */
    MUST(fi_cntr_open(end->domain, &attr, &read, NULL));
    CHECK_EQUAL(fi_mr_bind(mine[0].mr, &written->fid, FI_REMOTE_WRITE), 0);
    CHECK_EQUAL(fi_mr_bind(mine[0].mr, &read->fid, FI_REMOTE_READ), 0);
    CHECK(fi_mr_bind(mine[0].mr, &read->fid, FI_SEND) < 0);
    meet(end);
    char *local = memory(ROOM);
    memset(local, 1, ROOM);
    for (int which = 0; which < 2; which++)
        for (int i = 0; i < 3; i++) {
            if (side == 0) {
                MUST(AGAIN(end, fi_write(end->ep, local, lengths[i], NULL, end->peer, theirs[which].base, theirs[which].key, local)));
                EXPECT(end, end->sent, local);
                MUST(AGAIN(end, fi_read(end->ep, local, lengths[i], NULL, end->peer, theirs[which].base, theirs[which].key, local)));
                EXPECT(end, end->sent, local);
            } else if (which == 0) { /* the target progresses in its own calls only */
                CHECK_EQUAL(fi_cntr_wait(written, (uint64_t)i + 1, 20000), 0);
                CHECK_EQUAL(fi_cntr_wait(read, (uint64_t)i + 1, 20000), 0);
            } else {
                CHECK_EQUAL(fi_cntr_wait(end->written, (uint64_t)i + 4, 20000), 0);
                CHECK_EQUAL(fi_cntr_wait(end->read, (uint64_t)i + 4, 20000), 0);
            }
            meet(end);
        }
    if (side == 0) {
        MUST(AGAIN(end, fi_atomic(end->ep, &one, 1, NULL, end->peer, theirs[0].base, theirs[0].key, FI_INT64, FI_SUM, &one)));
        EXPECT(end, end->sent, &one);
        MUST(AGAIN(end, fi_fetch_atomic(end->ep, &one, 1, NULL, &before, NULL, end->peer, theirs[0].base, theirs[0].key, FI_INT64, FI_SUM, &one)));
        EXPECT(end, end->sent, &one);
        /* Refused accesses are not counted. */
        MUST(AGAIN(end, fi_write(end->ep, local, 8, NULL, end->peer, theirs[0].base + ROOM, theirs[0].key, local)));
        CHECK(take(end, end->sent, &entry, NULL) != 0);
    }
    meet(end);
    uint64_t there = side == 1;
    CHECK_EQUAL(fi_cntr_read(written), 4 * there);
    CHECK_EQUAL(fi_cntr_read(read), 4 * there);
    CHECK_EQUAL(fi_cntr_read(end->written), 7 * there);
    CHECK_EQUAL(fi_cntr_read(end->read), 7 * there);
    CHECK_EQUAL(fi_cntr_readerr(written), 0);
    meet(end);
    CHECK_EQUAL(fi_close(&written->fid), -FI_EBUSY);
    for (int i = 0; i < 2; i++) withdraw(&mine[i]);
    CHECK_EQUAL(fi_close(&written->fid), 0);
    CHECK_EQUAL(fi_close(&read->fid), 0);
    free(local);
    close_end(end);
}

/* The provider's own requests cannot be cancelled by the application. */
static void cancelled_is_only_what_was_posted(void) {
    struct end *end = open_remote(FI_RMA);
    if (!end) return;
    struct region theirs, mine = share(end, 4096, ALL_ACCESS, 5, &theirs);
    char local[8] = "written";
    for (int i = 0; i < 64; i++) CHECK_EQUAL(fi_cancel(&end->ep->fid, NULL), -FI_ENOENT);
    meet(end);
    MUST(AGAIN(end, fi_write(end->ep, local, sizeof local, NULL, end->peer, theirs.base, theirs.key, local)));
    EXPECT(end, end->sent, local);
    meet(end);
    CHECK(memcmp(mine.bytes, local, sizeof local) == 0);
    meet(end);
    withdraw(&mine);
    close_end(end);
}

/* An atomic needs the right to write if it changes memory, and the right to read if it fetches. */
static void atomic_rights(void) {
    struct end *end = open_remote(FI_ATOMIC);
    if (!end) return;
    static const uint64_t accesses[] = {FI_REMOTE_READ, FI_REMOTE_WRITE, FI_REMOTE_READ | FI_REMOTE_WRITE};
    static const char *const names[] = {"sum", "fetched sum", "atomic read", "compare and swap"};
    static const uint64_t needs[] = {FI_REMOTE_WRITE, FI_REMOTE_READ | FI_REMOTE_WRITE, FI_REMOTE_READ, FI_REMOTE_READ | FI_REMOTE_WRITE};
    struct region theirs[3], mine[3];
    size_t count = 0;
    for (int i = 0; i < 3; i++) mine[i] = share(end, 4096, accesses[i], 70 + (uint64_t)i, &theirs[i]);
    if (fi_atomicvalid(end->ep, FI_INT64, FI_SUM, &count) || fi_fetch_atomicvalid(end->ep, FI_INT64, FI_ATOMIC_READ, &count) ||
        fi_compare_atomicvalid(end->ep, FI_INT64, FI_CSWAP, &count))
        leave_out("the provider lacks one of these atomics");
    else
        for (int i = 0; i < 3; i++)
            for (int form = 0; form < 4; form++) {
                volatile int64_t *value = (int64_t *)mine[i].bytes;
                int64_t operand = 100, compare = 5, fetched = -1;
                struct fi_cq_tagged_entry entry;
                uint64_t base = theirs[i].base, key = theirs[i].key;
                *value = 5;
                meet(end);
                ssize_t code;
                switch (form) {
                case 0: code = AGAIN(end, fi_atomic(end->ep, &operand, 1, NULL, end->peer, base, key, FI_INT64, FI_SUM, NULL)); break;
                case 1:
                    code = AGAIN(end, fi_fetch_atomic(end->ep, &operand, 1, NULL, &fetched, NULL, end->peer, base, key, FI_INT64, FI_SUM, NULL));
                    break;
                case 2:
                    code = AGAIN(end, fi_fetch_atomic(end->ep, NULL, 1, NULL, &fetched, NULL, end->peer, base, key, FI_INT64, FI_ATOMIC_READ, NULL));
                    break;
                default:
                    code = AGAIN(end, fi_compare_atomic(end->ep, &operand, 1, NULL, &compare, NULL, &fetched, NULL, end->peer, base, key,
                                                        FI_INT64, FI_CSWAP, NULL));
                }
                if (code == 0) code = take(end, end->sent, &entry, NULL);
                int granted = (accesses[i] & needs[form]) == needs[form];
                check((code == 0) == granted, __FILE__, __LINE__, "%s with access 0x%llx gave %zd", names[form],
                      (unsigned long long)accesses[i], code);
                if (granted && form > 0) CHECK_EQUAL(fetched, 5);
                if (!granted) CHECK_EQUAL(fetched, -1);
                meet(end);
                CHECK_EQUAL(*value, !granted || form == 2 ? 5 : form == 3 ? 100 : 105);
                meet(end);
            }
    for (int i = 0; i < 3; i++) withdraw(&mine[i]);
    close_end(end);
}

/* An atomic read writes nothing, so that read-only memory may be shared. */
static void atomic_read_of_constants(void) {
    struct end *end = open_remote(FI_ATOMIC);
    if (!end) return;
    char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(bytes == MAP_FAILED ? -FI_ENOMEM : 0);
    *(int64_t *)bytes = 42 + side;
    MUST(mprotect(bytes, 4096, PROT_READ) ? -FI_EINVAL : 0);
    struct region theirs, mine = share_bytes(end, bytes, 4096, FI_REMOTE_READ, 5, &theirs);
    size_t count = 0;
    if (fi_fetch_atomicvalid(end->ep, FI_INT64, FI_ATOMIC_READ, &count)) leave_out("the provider has no atomic read");
    else {
        int64_t fetched = -1;
        meet(end);
        MUST(AGAIN(end, fi_fetch_atomic(end->ep, NULL, 1, NULL, &fetched, NULL, end->peer, theirs.base, theirs.key, FI_INT64, FI_ATOMIC_READ,
                                        &fetched)));
        EXPECT(end, end->sent, &fetched);
        CHECK_EQUAL(fetched, 43 - side);
        meet(end);
    }
    CHECK_EQUAL(fi_close(&mine.mr->fid), 0);
    munmap(bytes, 4096);
    close_end(end);
}

static void atomic_results(void) {
    struct end *end = open_remote(FI_ATOMIC);
    if (!end) return;
    struct region theirs, mine = share(end, 4096, ALL_ACCESS, 5 + (uint64_t)side, &theirs);
    size_t count = 0;
    if (fi_atomicvalid(end->ep, FI_INT64, FI_SUM, &count) || count == 0) {
        leave_out("the provider has no atomic sum of 64-bit integers");
        meet(end);
        withdraw(&mine);
        close_end(end);
        return;
    }
    static const struct {
        enum fi_op op;
        int64_t operand, result; /* applied to 12 */
    } integers[] = {{FI_SUM, 30, 42},      {FI_PROD, -3, -36}, {FI_MIN, -5, -5}, {FI_MIN, 50, 12}, {FI_MAX, 99, 99},
                    {FI_BOR, 3, 15},       {FI_BAND, 10, 8},   {FI_BXOR, 5, 9},  {FI_LOR, 0, 1},   {FI_LAND, 0, 0},
                    {FI_LXOR, 7, 0},       {FI_ATOMIC_WRITE, 77, 77}};
    volatile int64_t *value = (int64_t *)mine.bytes;
    int64_t operand, fetched;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        for (int fetch = 0; fetch < 2; fetch++) {
            int missing = fetch ? fi_fetch_atomicvalid(end->ep, FI_INT64, integers[i].op, &count)
                                : fi_atomicvalid(end->ep, FI_INT64, integers[i].op, &count);
            if (missing) continue;
            *value = 12;
            meet(end);
            operand = integers[i].operand;
            fetched = -1;
            if (fetch)
                MUST(AGAIN(end, fi_fetch_atomic(end->ep, &operand, 1, NULL, &fetched, NULL, end->peer, theirs.base, theirs.key, FI_INT64,
                                                integers[i].op, &operand)));
            else
                MUST(AGAIN(end, fi_atomic(end->ep, &operand, 1, NULL, end->peer, theirs.base, theirs.key, FI_INT64, integers[i].op, &operand)));
            EXPECT(end, end->sent, &operand);
            if (fetch) CHECK_EQUAL(fetched, 12);
            int64_t seen = -1, none = 0;
            if (!fetch && fi_fetch_atomicvalid(end->ep, FI_INT64, FI_ATOMIC_READ, &count) == 0) { /* ordered behind it */
                for (int turns = 0; turns < 1000 && seen != integers[i].result; turns++) {
                    MUST(AGAIN(end, fi_fetch_atomic(end->ep, &none, 1, NULL, &seen, NULL, end->peer, theirs.base, theirs.key, FI_INT64,
                                                    FI_ATOMIC_READ, &seen)));
                    EXPECT(end, end->sent, &seen);
                }
                CHECK_EQUAL(seen, integers[i].result);
            }
            meet(end);
            check(*value == integers[i].result, __FILE__, __LINE__, "operation %d of 12 and %lld gave %lld, not %lld", integers[i].op,
                  (long long)integers[i].operand, (long long)*value, (long long)integers[i].result);
            meet(end);
        }
    }
    /* Compare and swap: once with a different value in memory, once with the same. */
    if (fi_compare_atomicvalid(end->ep, FI_INT64, FI_CSWAP, &count) == 0)
        for (int equal = 0; equal < 2; equal++) {
            *value = 5;
            meet(end);
            int64_t compare = equal ? 5 : 6, swap = 100;
            fetched = -1;
            MUST(AGAIN(end, fi_compare_atomic(end->ep, &swap, 1, NULL, &compare, NULL, &fetched, NULL, end->peer, theirs.base, theirs.key,
                                              FI_INT64, FI_CSWAP, &swap)));
            EXPECT(end, end->sent, &swap);
            CHECK_EQUAL(fetched, 5);
            meet(end);
            CHECK_EQUAL(*value, equal ? 100 : 5);
            meet(end);
        }
    withdraw(&mine);
    close_end(end);
}

static void atomic_types(void) {
    struct end *end = open_remote(FI_ATOMIC);
    if (!end) return;
    struct region theirs, mine = share(end, 4096, ALL_ACCESS, 5 + (uint64_t)side, &theirs);
    size_t count = 0;
    int tried = 0;
#define TYPE(name, type)                                                                                               \
    if (fi_fetch_atomicvalid(end->ep, name, FI_SUM, &count) == 0 && count >= 3) {                                      \
        type operands[3] = {1, 2, 3}, before[3] = {0}, *at = (type *)(mine.bytes + 64);                                \
        for (int i = 0; i < 3; i++) at[i] = (type)(10 * (i + 1));                                                      \
        meet(end);                                                                                                     \
        MUST(AGAIN(end, fi_fetch_atomic(end->ep, operands, 3, NULL, before, NULL, end->peer, theirs.base + 64, theirs.key, name, FI_SUM, operands))); \
        EXPECT(end, end->sent, operands);                                                                              \
        meet(end);                                                                                                     \
        for (int i = 0; i < 3; i++) {                                                                                  \
            CHECK(before[i] == (type)(10 * (i + 1)));                                                                  \
            CHECK(at[i] == (type)(11 * (i + 1)));                                                                      \
        }                                                                                                              \
        meet(end);                                                                                                     \
        tried++;                                                                                                       \
    }
    TYPE(FI_INT8, int8_t)
    TYPE(FI_UINT8, uint8_t)
    TYPE(FI_INT16, int16_t)
    TYPE(FI_UINT16, uint16_t)
    TYPE(FI_INT32, int32_t)
    TYPE(FI_UINT32, uint32_t)
    TYPE(FI_INT64, int64_t)
    TYPE(FI_UINT64, uint64_t)
    TYPE(FI_FLOAT, float)
    TYPE(FI_DOUBLE, double)
#undef TYPE
    if (tried == 0) leave_out("the provider has no atomic fetch of a sum");
    withdraw(&mine);
    close_end(end);
}

/* Both sides add to the same word, at once, thousands of times: no addition is lost. */
static void atomic_contention(void) {
    struct end *end = open_remote(FI_ATOMIC);
    if (!end) return;
    struct region theirs, mine = share(end, 4096, ALL_ACCESS, 5 + (uint64_t)side, &theirs);
    enum { TIMES = 2000 };
    size_t count = 0;
    if (fi_fetch_atomicvalid(end->ep, FI_UINT64, FI_SUM, &count)) leave_out("the provider has no atomic fetch of a sum");
    else {
        /* The memory is side 0's, which reaches it through its own address. */
        fi_addr_t to = side == 0 ? end->self : end->peer;
        uint64_t base = side == 0 ? mine.base : theirs.base, key = side == 0 ? mine.key : theirs.key, one = 1, found = 0, last = 0;
        meet(end);
        for (int i = 0; i < TIMES; i++) {
            MUST(AGAIN(end, fi_fetch_atomic(end->ep, &one, 1, NULL, &found, NULL, to, base, key, FI_UINT64, FI_SUM, &one)));
            EXPECT(end, end->sent, &one);
            if (i) CHECK(found > last);
            last = found;
        }
        meet(end);
        if (side == 0) CHECK_EQUAL(*(uint64_t *)mine.bytes, 2 * TIMES);
        meet(end);
    }
    withdraw(&mine);
    close_end(end);
}

const struct test_case remote_cases[] = {
    {"write_and_read", write_and_read},
    {"write_and_read_by_virtual_address", write_and_read_by_virtual_address},
    {"written_with_data", written_with_data},
    {"in_pieces", in_pieces},
    {"counted_at_the_target", counted_at_the_target},
    {"bounds_and_rights", bounds_and_rights},
    {"closed_region", closed_region},
    {"closed_while_written", closed_while_written},
    {"closed_while_read", closed_while_read},
    {"cancelled_is_only_what_was_posted", cancelled_is_only_what_was_posted},
    {"atomic_results", atomic_results},
    {"atomic_types", atomic_types},
    {"atomic_contention", atomic_contention},
    {"atomic_rights", atomic_rights},
    {"atomic_read_of_constants", atomic_read_of_constants},
    {NULL, NULL},
};
