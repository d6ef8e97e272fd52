/* What real programs ask for and the provider refuses: device memory, several contexts of one endpoint, and receives that no
 * shared context takes. Each refusal has its code, leaves the program's variables alone, and what is served works after it. */
#include "conform.h"

/* Since libfabric 1.20. */
#define MEMORY_BY_DMABUF (1ULL << 40)

static int ask(void (*change)(struct fi_info *), struct fi_info **info) {
    struct fi_info *hints = hints_for(FI_TAGGED | FI_MSG | FI_RMA);
    change(hints);
    *info = NULL;
    int code = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, info);
    fi_freeinfo(hints);
    return code;
}

static void all_may(struct fi_info *hints) { hints->caps |= FI_HMEM; }
static void sends_may(struct fi_info *hints) { hints->tx_attr->caps = FI_HMEM | FI_MSG; }
static void receives_may(struct fi_info *hints) { hints->rx_attr->caps = FI_HMEM | FI_MSG; }
static void would_register(struct fi_info *hints) { hints->domain_attr->mr_mode = FI_MR_HMEM | FI_MR_ENDPOINT; }

/* A message each way. */
static void talk(struct end *end) {
    int out = 40 + side, in = 0;
    struct fi_cq_tagged_entry entry;
    MUST(AGAIN(end, fi_trecv(end->ep, &in, sizeof in, NULL, FI_ADDR_UNSPEC, 3, 0, NULL)));
    MUST(AGAIN(end, fi_tsend(end->ep, &out, sizeof out, NULL, end->peer, 3, NULL)));
    CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
    CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
    CHECK_EQUAL(in, 41 - side);
}

static void device_memory_is_not_offered(void) {
    void (*const asked[])(struct fi_info *) = {all_may, sends_may, receives_may};
    struct fi_info *info;
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(ask(asked[i], &info), -FI_ENODATA);
        fi_freeinfo(info);
    }
    /* A program that would register device memory (mode bit) and does not ask for it (capability) need not. */
    MUST(ask(would_register, &info));
    CHECK_EQUAL(info->domain_attr->mr_mode & FI_MR_HMEM, 0);
    CHECK((info->caps & FI_HMEM) == 0);
    fi_freeinfo(info);
}

static void device_memory_is_not_registered(void) {
    struct wish wish = {.caps = FI_TAGGED | FI_MSG | FI_RMA};
    struct end *end = open_end(&wish);
    if (!end) return;
    static char bytes[4096];
    struct iovec piece = {bytes, sizeof bytes};
    struct fi_mr_attr attr = {.mr_iov = &piece, .iov_count = 1, .access = FI_REMOTE_WRITE, .requested_key = 5};
    struct fid_mr none, *region = &none;
    for (int iface = FI_HMEM_CUDA; iface <= FI_HMEM_SYNAPSEAI; iface++) {
        attr.iface = (enum fi_hmem_iface)iface;
        CHECK_EQUAL(fi_mr_regattr(end->domain, &attr, 0, &region), -FI_ENOSYS);
        CHECK_EQUAL(fi_mr_regattr(end->domain, &attr, FI_HMEM_DEVICE_ONLY, &region), -FI_ENOSYS);
    }
    attr.iface = FI_HMEM_SYSTEM;
    static const uint64_t flags[] = {FI_HMEM_DEVICE_ONLY, FI_HMEM_HOST_ALLOC, MEMORY_BY_DMABUF, FI_RMA_PMEM};
    for (int i = 0; i < 4; i++) {
        CHECK_EQUAL(fi_mr_regattr(end->domain, &attr, flags[i], &region), -FI_EBADFLAGS);
        CHECK_EQUAL(fi_mr_regv(end->domain, &piece, 1, FI_REMOTE_WRITE, 0, 5, flags[i], &region, NULL), -FI_EBADFLAGS);
        CHECK_EQUAL(fi_mr_reg(end->domain, bytes, sizeof bytes, FI_REMOTE_WRITE, 0, 5, flags[i], &region, NULL), -FI_EBADFLAGS);
    }
    CHECK(region == &none);
    /* None of these took the key. */
    CHECK_EQUAL(fi_mr_regattr(end->domain, &attr, FI_RMA_EVENT, &region), 0);
    CHECK_EQUAL(fi_mr_key(region), 5);
    CHECK_EQUAL(fi_close(&region->fid), 0);
    int wanted = FI_HMEM_P2P_REQUIRED;
    CHECK_EQUAL(fi_setopt(&end->ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &wanted, sizeof wanted), -FI_ENOPROTOOPT);
    CHECK_EQUAL(fi_set_ops(&end->domain->fid, FI_SET_OPS_HMEM_OVERRIDE, 0, &attr, NULL), -FI_ENOSYS);
    talk(end);
    close_end(end);
}

/* Regions of programs written for an interface before 1.9 name no device: what stands there is not looked at. */
static void older_programs_name_no_device(void) {
    struct fi_info *hints = hints_for(FI_MSG | FI_RMA), *info = NULL;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_mr *region;
    static char bytes[64];
    struct iovec piece = {bytes, sizeof bytes};
    struct fi_mr_attr attr = {.mr_iov = &piece, .iov_count = 1, .access = FI_REMOTE_WRITE, .iface = FI_HMEM_ZE};
    MUST(fi_getinfo(FI_VERSION(1, 8), NULL, NULL, 0, hints, &info));
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    MUST(fi_domain(fabric, info, &domain, NULL));
    CHECK_EQUAL(fi_mr_regattr(domain, &attr, 0, &region), 0);
    CHECK_EQUAL(fi_close(&region->fid), 0);
    CHECK_EQUAL(fi_close(&domain->fid), 0);
    CHECK_EQUAL(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

static void two_of_sends(struct fi_info *hints) { hints->ep_attr->tx_ctx_cnt = 2; }
static void two_of_receives(struct fi_info *hints) { hints->ep_attr->rx_ctx_cnt = 2; }
static void up_to_two_of_sends(struct fi_info *hints) { hints->domain_attr->max_ep_tx_ctx = 2; }
static void up_to_two_of_receives(struct fi_info *hints) { hints->domain_attr->max_ep_rx_ctx = 2; }

static void endpoints_have_one_context(void) {
    void (*const asked[])(struct fi_info *) = {two_of_sends, two_of_receives, up_to_two_of_sends, up_to_two_of_receives};
    struct fi_info *info;
    for (int i = 0; i < 4; i++) {
        CHECK_EQUAL(ask(asked[i], &info), -FI_ENODATA);
        fi_freeinfo(info);
    }
    struct end *end = open_end(NULL);
    if (!end) return;
    CHECK_EQUAL(end->info->domain_attr->max_ep_tx_ctx, 1);
    CHECK_EQUAL(end->info->domain_attr->max_ep_rx_ctx, 1);
    CHECK_EQUAL(end->info->ep_attr->tx_ctx_cnt, 1);
    CHECK_EQUAL(end->info->ep_attr->rx_ctx_cnt, 1);
    struct fid_ep none, *opened = &none;
    CHECK_EQUAL(fi_scalable_ep(end->domain, end->info, &opened, NULL), -FI_ENOSYS);
    CHECK_EQUAL(fi_tx_context(end->ep, 0, end->info->tx_attr, &opened, NULL), -FI_ENOSYS);
    CHECK_EQUAL(fi_rx_context(end->ep, 0, end->info->rx_attr, &opened, NULL), -FI_ENOSYS);
    CHECK(opened == &none);
    talk(end);
    close_end(end);
}

static void shared_contexts_take_plain_receives(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    struct fi_rx_attr attr = *end->info->rx_attr;
    struct fid_ep none, *receives = &none;
    attr.caps = FI_MSG | FI_RECV | FI_DIRECTED_RECV;
    CHECK_EQUAL(fi_srx_context(end->domain, &attr, &receives, NULL), -FI_ENOSYS);
    CHECK(receives == &none);
    attr.caps = FI_MSG | FI_RECV;
    CHECK_EQUAL(fi_srx_context(end->domain, &attr, &receives, NULL), 0);
    static char bytes[4096];
    struct iovec piece = {bytes, sizeof bytes};
    struct fi_msg several = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    CHECK_EQUAL(fi_recvmsg(receives, &several, FI_MULTI_RECV), -FI_EOPNOTSUPP);
    CHECK_EQUAL(fi_close(&receives->fid), 0);
    talk(end);
    close_end(end);
}

const struct test_case refusal_cases[] = {
    {"device_memory_is_not_offered", device_memory_is_not_offered},
    {"device_memory_is_not_registered", device_memory_is_not_registered},
    {"older_programs_name_no_device", older_programs_name_no_device},
    {"endpoints_have_one_context", endpoints_have_one_context},
    {"shared_contexts_take_plain_receives", shared_contexts_take_plain_receives},
    {NULL, NULL},
};
