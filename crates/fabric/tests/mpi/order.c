/* Messages of one sender do not overtake each other, receives match in the order in which they were posted, and
 * communicators are worlds of their own. */
#include "conform.h"

/* Short messages must not overtake long ones that go by rendezvous. */
static void lengths_do_not_overtake(void) {
    if (apart()) return;
    enum { COUNT = 200 };
    static const int lengths[] = {4, 500000, 4, 70000, 4, 8192, 4000, 1000000, 64, 20000};
    char **bytes = memory(sizeof *bytes * COUNT);
    MPI_Request *requests = memory(sizeof *requests * COUNT);
    for (int i = 0; i < COUNT; i++) bytes[i] = memory((size_t)lengths[i % 10]);
    for (int round = 0; round < 3; round++) {
        if (test.rank == 0) {
            if (round == 1) meet(1); /* posted before the messages come */
            for (int i = 0; i < COUNT; i++) {
                fill(bytes[i], (size_t)lengths[i % 10], (unsigned)i);
                MPI_Isend(bytes[i], lengths[i % 10], MPI_BYTE, 1, 2, test.comm, &requests[i]);
            }
        } else {
            if (round == 2) rest(20); /* all unexpected */
            for (int i = 0; i < COUNT; i++)
                MPI_Irecv(bytes[i], lengths[i % 10], MPI_BYTE, round == 2 ? MPI_ANY_SOURCE : 0, round == 0 ? MPI_ANY_TAG : 2, test.comm,
                          &requests[i]);
            if (round == 1) meet(0);
        }
        MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
        if (test.rank == 1)
            for (int i = 0; i < COUNT; i++) CHECK_BYTES(bytes[i], (size_t)lengths[i % 10], (unsigned)i);
        meet(other());
    }
    for (int i = 0; i < COUNT; i++) free(bytes[i]);
    free(bytes);
    free(requests);
}

static void any_tag_takes_the_oldest(void) {
    if (apart()) return;
    uint64_t state = test.seed;
    for (int i = 0; i < 500; i++) {
        int tag = (int)below(&state, 1000);
        if (test.rank == 0) {
            MPI_Send(&i, 1, MPI_INT, 1, tag, test.comm);
        } else {
            int value = -1;
            MPI_Status status;
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, &status);
            CHECK_EQUAL(value, i);
            CHECK_EQUAL(status.MPI_TAG, tag);
        }
    }
}

static void any_source_keeps_each_sender_s_order(void) {
    enum { EACH = 300 };
    if (test.rank != 0) {
        for (int i = 0; i < EACH; i++) MPI_Send(&i, 1, MPI_INT, 0, i % 7, test.comm);
        return;
    }
    int *next = calloc((size_t)test.size, sizeof *next);
    for (int i = 0; i < EACH * (test.size - 1); i++) {
        int value = -1;
        MPI_Status status;
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, &status);
        CHECK(status.MPI_SOURCE > 0 && status.MPI_SOURCE < test.size);
        CHECK_EQUAL(value, next[status.MPI_SOURCE]);
        CHECK_EQUAL(status.MPI_TAG, value % 7);
        next[status.MPI_SOURCE]++;
    }
    free(next);
}

/* The receive posted first gets the message, be it exact or a wildcard. */
static void posted_first_matches_first(void) {
    if (apart()) return;
    static const int tags[6] = {5, 5, 5, 6, 6, 5};
    if (test.rank == 0) {
        meet(1);
        for (int i = 0; i < 6; i++) MPI_Send(&i, 1, MPI_INT, 1, tags[i], test.comm);
        return;
    }
    int values[6];
    MPI_Request requests[6];
    int sources[6] = {0, MPI_ANY_SOURCE, 0, MPI_ANY_SOURCE, 0, MPI_ANY_SOURCE};
    int wanted[6] = {MPI_ANY_TAG, 5, 6, 5, MPI_ANY_TAG, MPI_ANY_TAG};
    int expected[6] = {0, 1, 3, 2, 4, 5};
    for (int i = 0; i < 6; i++) MPI_Irecv(&values[i], 1, MPI_INT, sources[i], wanted[i], test.comm, &requests[i]);
    meet(0);
    MPI_Waitall(6, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 6; i++) CHECK_EQUAL(values[i], expected[i]);
}

/* Random receives and messages against a model of MPI's matching. */
static void against_a_model(void) {
    if (apart()) return;
    enum { ROUNDS = 60, COUNT = 64, TAGS = 5 };
    static char out[COUNT][20000], in[COUNT][20000];
    uint64_t state = test.seed;
    for (int round = 0; round < ROUNDS; round++) {
        int tags[COUNT], lengths[COUNT], wanted[COUNT], match[COUNT], taken[COUNT] = {0};
        for (int i = 0; i < COUNT; i++) {
            tags[i] = (int)below(&state, TAGS);
            lengths[i] = (int)below(&state, below(&state, 4) ? 300 : 20000);
        }
        /* Wildcards and exact tags such that every receive finds a message: each receive copies a message's tag. */
        int permutation[COUNT];
        for (int i = 0; i < COUNT; i++) permutation[i] = i;
        for (int i = COUNT - 1; i > 0; i--) {
            int j = (int)below(&state, (unsigned)i + 1), swap = permutation[i];
            permutation[i] = permutation[j];
            permutation[j] = swap;
        }
        int wildcards = (int)below(&state, 3), posted_first = (int)below(&state, 2);
        for (int i = 0; i < COUNT; i++) wanted[i] = tags[permutation[i]];
        /* A wildcard may take what an exact receive needs; only the last receives are wildcards. */
        for (int i = COUNT - wildcards * 10; i < COUNT; i++) wanted[i] = MPI_ANY_TAG;
        for (int i = 0; i < COUNT; i++) match[i] = -1;
        if (posted_first) { /* each message in turn looks for the first receive */
            int used[COUNT] = {0};
            for (int m = 0; m < COUNT; m++)
                for (int r = 0; r < COUNT; r++)
                    if (!used[r] && (wanted[r] == tags[m] || wanted[r] == MPI_ANY_TAG)) {
                        used[r] = 1;
                        match[r] = m;
                        break;
                    }
        } else { /* each receive in turn looks for the first message */
            for (int r = 0; r < COUNT; r++)
                for (int m = 0; m < COUNT; m++)
                    if (!taken[m] && (wanted[r] == tags[m] || wanted[r] == MPI_ANY_TAG)) {
                        taken[m] = 1;
                        match[r] = m;
                        break;
                    }
        }
        MPI_Request requests[COUNT];
        MPI_Status statuses[COUNT];
        if (test.rank == 0) {
            if (posted_first) meet(1);
            for (int m = 0; m < COUNT; m++) {
                fill(out[m], (size_t)lengths[m], (unsigned)m);
                MPI_Isend(out[m], lengths[m], MPI_BYTE, 1, tags[m], test.comm, &requests[m]);
            }
            /* Ordered behind all messages: when this has come, they have too. */
            MPI_Send(NULL, 0, MPI_BYTE, 1, TAGS + 1, test.comm);
            MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
        } else {
            if (!posted_first) MPI_Probe(0, TAGS + 1, test.comm, MPI_STATUS_IGNORE);
            for (int r = 0; r < COUNT; r++)
                MPI_Irecv(in[r], 20000, MPI_BYTE, below(&state, 2) ? 0 : MPI_ANY_SOURCE, wanted[r], test.comm, &requests[r]);
            if (posted_first) meet(0);
            MPI_Waitall(COUNT, requests, statuses);
            MPI_Recv(NULL, 0, MPI_BYTE, 0, TAGS + 1, test.comm, MPI_STATUS_IGNORE);
            for (int r = 0; r < COUNT; r++) {
                int count, m = match[r];
                MPI_Get_count(&statuses[r], MPI_BYTE, &count);
                CHECK(m >= 0);
                if (m < 0) continue;
                CHECK_EQUAL(statuses[r].MPI_TAG, tags[m]);
                CHECK_EQUAL(count, lengths[m]);
                if (count == lengths[m]) CHECK_BYTES(in[r], (size_t)count, (unsigned)m);
            }
        }
        meet(other());
        state = test.seed + (uint64_t)round * 7919 + 1; /* the receiver drew more numbers */
    }
}

static void communicators_are_apart(void) {
    if (apart()) return;
    MPI_Comm pair, third;
    MPI_Comm_split(MPI_COMM_SELF, 0, 0, &pair); /* a communicator of one rank beside that of two */
    MPI_Comm_free(&pair);
    MPI_Group world, two;
    int members[2] = {0, 1};
    MPI_Comm_group(test.comm, &world);
    MPI_Group_incl(world, 2, members, &two);
    MPI_Comm_create_group(test.comm, two, 1, &pair);
    MPI_Comm_dup(pair, &third);
    if (test.rank == 0) {
        int values[3] = {1, 2, 3};
        MPI_Send(&values[0], 1, MPI_INT, 1, 9, test.comm);
        MPI_Send(&values[1], 1, MPI_INT, 1, 9, pair);
        MPI_Send(&values[2], 1, MPI_INT, 1, 9, third);
    } else {
        int values[3] = {0};
        MPI_Recv(&values[2], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, third, MPI_STATUS_IGNORE);
        MPI_Recv(&values[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, pair, MPI_STATUS_IGNORE);
        MPI_Recv(&values[0], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, MPI_STATUS_IGNORE);
        for (int i = 0; i < 3; i++) CHECK_EQUAL(values[i], i + 1);
    }
    MPI_Group_free(&two);
    MPI_Group_free(&world);
    MPI_Comm_free(&pair);
    MPI_Comm_free(&third);
}

/* A wildcard receive of one communicator is posted while another's messages pass. */
static void wildcard_leaves_collectives_alone(void) {
    int value = -1, sum = 0;
    MPI_Request request;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, test.comm, &request);
    for (int i = 0; i < 30; i++) {
        int one = 1;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, test.comm);
        CHECK_EQUAL(sum, test.size);
        CHECK_EQUAL(value, -1);
        MPI_Barrier(test.comm);
    }
    int next = (test.rank + 1) % test.size, sent = 40 + test.rank;
    MPI_Send(&sent, 1, MPI_INT, next, 3, test.comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_EQUAL(value, 40 + (test.rank + test.size - 1) % test.size);
}

const struct test_case order_cases[] = {
    {"lengths_do_not_overtake", lengths_do_not_overtake, 0},
    {"any_tag_takes_the_oldest", any_tag_takes_the_oldest, 0},
    {"any_source_keeps_each_senders_order", any_source_keeps_each_sender_s_order, 0},
    {"posted_first_matches_first", posted_first_matches_first, 0},
    {"against_a_model", against_a_model, 0},
    {"communicators_are_apart", communicators_are_apart, 0},
    {"wildcard_leaves_collectives_alone", wildcard_leaves_collectives_alone, 0},
    {NULL, NULL, 0},
};
