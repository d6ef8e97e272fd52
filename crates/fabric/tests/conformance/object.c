/* Offers, refusals, and rules of the objects themselves: fi_getinfo(3), fi_av(3), fi_endpoint(3), fi_eq(3). */
#include "conform.h"

#include <stdio.h>
#include <unistd.h>

static struct fi_info *offered(struct fi_info *hints, int *code) {
    struct fi_info *info = NULL;
    *code = fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info);
    return info;
}

static void offer(void) {
    int code;
    struct fi_info *hints = hints_for(FI_TAGGED | FI_MSG), *info = offered(hints, &code);
    CHECK_EQUAL(code, 0);
    if (code) return;
    CHECK(strcmp(info->fabric_attr->prov_name, provider) == 0);
    CHECK((info->caps & (FI_TAGGED | FI_MSG)) == (FI_TAGGED | FI_MSG));
    CHECK_EQUAL(info->ep_attr->type, FI_EP_RDM);
    CHECK(info->tx_attr->inject_size > 0);
    CHECK(info->tx_attr->iov_limit > 0 && info->rx_attr->iov_limit > 0);
    CHECK(info->ep_attr->max_msg_size > 1u << 30);
    CHECK(info->tx_attr->msg_order & FI_ORDER_SAS);
    CHECK(info->domain_attr->cq_data_size >= 4);
    CHECK(info->domain_attr->name && info->fabric_attr->name);
    CHECK(info->mode == 0 || (info->mode & ~(FI_CONTEXT | FI_CONTEXT2)) == 0);
    fi_freeinfo(info);
    /* Without hints it is listed too. */
    info = NULL;
    CHECK_EQUAL(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, NULL, &info), 0);
    int seen = 0;
    for (struct fi_info *i = info; i; i = i->next) seen |= strcmp(i->fabric_attr->prov_name, provider) == 0;
    CHECK(seen);
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

static void other_types_are_refused(void) {
    static const enum fi_ep_type types[] = {FI_EP_SOCK_STREAM, FI_EP_SOCK_DGRAM};
    for (int i = 0; i < 2; i++) {
        int code;
        struct fi_info *hints = hints_for(0);
        hints->ep_attr->type = types[i];
        struct fi_info *info = offered(hints, &code);
        /* Another provider of this name offers them; it is not tested here. */
        if (code == 0) leave_out("this provider offers endpoints of sockets");
        else CHECK_EQUAL(code, -FI_ENODATA);
        fi_freeinfo(info);
        fi_freeinfo(hints);
    }
}

static void too_much_is_refused(void) {
    for (int what = 0; what < 4; what++) {
        int code;
        struct fi_info *usual = hints_for(FI_TAGGED), *hints = hints_for(FI_TAGGED), *info = offered(usual, &code), *more;
        CHECK_EQUAL(code, 0);
        if (code) return;
        int possible = 1;
        switch (what) {
        case 0: possible = info->tx_attr->inject_size + 1 != 0, hints->tx_attr->inject_size = info->tx_attr->inject_size + 1; break;
        case 1: possible = info->tx_attr->iov_limit + 1 != 0, hints->tx_attr->iov_limit = info->tx_attr->iov_limit + 1; break;
        case 2: possible = info->ep_attr->max_msg_size + 1 != 0, hints->ep_attr->max_msg_size = info->ep_attr->max_msg_size + 1; break;
        default: hints->caps |= FI_COLLECTIVE | FI_VARIABLE_MSG; break;
        }
        if (possible) {
            more = offered(hints, &code);
            check(code == -FI_ENODATA, __FILE__, __LINE__, "more than offered (%d) gave %d", what, code);
            fi_freeinfo(more);
        }
        fi_freeinfo(info);
        fi_freeinfo(usual);
        fi_freeinfo(hints);
    }
}

static void requests_are_granted(void) {
    /* Requested capabilities are granted; the granted ones include all requested. */
    static const uint64_t asked[] = {FI_MSG, FI_TAGGED, FI_TAGGED | FI_SEND, FI_MSG | FI_MULTI_RECV, FI_TAGGED | FI_DIRECTED_RECV,
                                     FI_TAGGED | FI_MSG | FI_LOCAL_COMM | FI_REMOTE_COMM};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        int code;
        struct fi_info *hints = hints_for(asked[i]), *info = offered(hints, &code);
        check(code == 0, __FILE__, __LINE__, "caps 0x%llx: %s", (unsigned long long)asked[i], fi_strerror(-code));
        if (code == 0) CHECK((info->caps & asked[i]) == asked[i]);
        fi_freeinfo(info);
        fi_freeinfo(hints);
    }
}

/* A provider of both types leaves the choice to applications that ask for none: fi_domain(3). */
static void type_of_address_vector_is_asked_for(void) {
    static const enum fi_av_type types[] = {FI_AV_MAP, FI_AV_TABLE, FI_AV_UNSPEC};
    int granted = 0;
    for (int i = 0; i < 3; i++) {
        int code;
        struct fi_info *hints = hints_for(FI_TAGGED | FI_MSG);
        hints->domain_attr->av_type = types[i];
        struct fi_info *info = offered(hints, &code);
        if (code == 0 && (types[i] || granted == 2)) {
            CHECK_EQUAL(info->domain_attr->av_type, types[i]);
            granted++;
        }
        fi_freeinfo(info);
        fi_freeinfo(hints);
    }
    if (granted < 2) leave_out("the provider has one type of address vector only");
    else CHECK_EQUAL(granted, 3);
}

static void enable_needs_its_parts(void) {
    struct fi_info *hints = hints_for(FI_TAGGED | FI_MSG), *info = NULL;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
    MUST(fi_getinfo(FI_VERSION(1, 15), NULL, NULL, 0, hints, &info));
    MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
    MUST(fi_domain(fabric, info, &domain, NULL));
    MUST(fi_endpoint(domain, info, &ep, NULL));
    CHECK(fi_enable(ep) < 0);
    MUST(fi_cq_open(domain, &cq_attr, &cq, NULL));
    MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    CHECK_EQUAL(fi_enable(ep), -FI_ENOAV);
    MUST(fi_av_open(domain, &av_attr, &av, NULL));
    MUST(fi_ep_bind(ep, &av->fid, 0));
    CHECK_EQUAL(fi_enable(ep), 0);
    /* An object in use cannot be closed. */
    CHECK_EQUAL(fi_close(&domain->fid), -FI_EBUSY);
    CHECK_EQUAL(fi_close(&cq->fid), -FI_EBUSY);
    CHECK_EQUAL(fi_close(&av->fid), -FI_EBUSY);
    CHECK_EQUAL(fi_close(&fabric->fid), -FI_EBUSY);
    CHECK_EQUAL(fi_close(&ep->fid), 0);
    CHECK_EQUAL(fi_close(&cq->fid), 0);
    CHECK_EQUAL(fi_close(&av->fid), 0);
    CHECK_EQUAL(fi_close(&domain->fid), 0);
    CHECK_EQUAL(fi_close(&fabric->fid), 0);
    fi_freeinfo(info);
    fi_freeinfo(hints);
}

static void named_av_is_refused(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    struct fi_av_attr attr = {.type = FI_AV_MAP, .name = "shared by name", .count = 4, .flags = FI_READ};
    struct fid_av *av = NULL;
    int code = fi_av_open(end->domain, &attr, &av, NULL);
    if (code == 0) {
        leave_out("this provider has named AVs");
        fi_close(&av->fid);
    }
    close_end(end);
}

static void name_of_endpoint(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    char name[256], again[256];
    size_t length = 0, full;
    memset(name, 0x5a, sizeof name);
    CHECK_EQUAL(fi_getname(&end->ep->fid, name, &length), -FI_ETOOSMALL);
    CHECK(length > 0 && length < sizeof name);
    CHECK(name[0] == 0x5a);
    full = length;
    length = full - 1;
    CHECK_EQUAL(fi_getname(&end->ep->fid, name, &length), -FI_ETOOSMALL);
    CHECK_EQUAL(length, full);
    CHECK(name[full - 1] == 0x5a && name[full] == 0x5a);
    length = sizeof name;
    CHECK_EQUAL(fi_getname(&end->ep->fid, name, &length), 0);
    CHECK_EQUAL(length, full);
    CHECK(name[full] == 0x5a);
    fi_getname(&end->ep->fid, again, &length);
    CHECK(memcmp(name, again, full) == 0);
    close_end(end);
}

static void address_vector(enum fi_av_type type) {
    struct wish wish = {.av_type = type};
    struct end *end = open_end(&wish);
    if (!end) return;
    char name[256], found[256], text[300];
    size_t length = sizeof name;
    MUST(fi_getname(&end->ep->fid, name, &length));
    if (type == FI_AV_TABLE) { /* indices in the order of insertion */
        CHECK_EQUAL(end->peer, 0);
        CHECK_EQUAL(end->self, 1);
    }
    CHECK(end->peer != end->self);
    memset(found, 0, sizeof found);
    size_t room = sizeof found;
    CHECK_EQUAL(fi_av_lookup(end->av, end->self, found, &room), 0);
    CHECK_EQUAL(room, length);
    CHECK(memcmp(found, name, length) == 0);
    room = 1; /* filled as far as there is room; the length needed is returned */
    memset(found, 0x5a, sizeof found);
    fi_av_lookup(end->av, end->self, found, &room);
    CHECK_EQUAL(room, length);
    CHECK(found[1] == 0x5a);
    room = sizeof text;
    memset(text, 0, sizeof text);
    CHECK(fi_av_straddr(end->av, name, text, &room) != NULL);
    CHECK(text[0] != 0 && strlen(text) < sizeof text);
    fi_addr_t removed = end->self;
    CHECK_EQUAL(fi_av_remove(end->av, &removed, 1, 0), 0);
    /* The remaining addresses work. */
    int value = 5 + side, got = 0;
    struct fi_cq_tagged_entry entry;
    MUST(AGAIN(end, fi_trecv(end->ep, &got, sizeof got, NULL, FI_ADDR_UNSPEC, 1, 0, NULL)));
    MUST(AGAIN(end, fi_tsend(end->ep, &value, sizeof value, NULL, end->peer, 1, NULL)));
    CHECK_EQUAL(take(end, end->received, &entry, NULL), 0);
    CHECK_EQUAL(take(end, end->sent, &entry, NULL), 0);
    CHECK_EQUAL(got, 6 - side);
    close_end(end);
}

static void address_map(void) { address_vector(FI_AV_MAP); }
static void address_table(void) { address_vector(FI_AV_TABLE); }

/* Many insertions at once, one of them invalid. */
static void addresses_at_once(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    char name[256], *many;
    size_t length = sizeof name;
    MUST(fi_getname(&end->ep->fid, name, &length));
    many = memory(length * 5);
    for (int i = 0; i < 5; i++) memcpy(many + (size_t)i * length, name, length);
    fi_addr_t addresses[5];
    CHECK_EQUAL(fi_av_insert(end->av, many, 5, addresses, 0, NULL), 5);
    for (int i = 0; i < 5; i++) CHECK(addresses[i] != FI_ADDR_NOTAVAIL);
    memset(many + 2 * length, 0xff, length); /* an invalid address */
    int inserted = fi_av_insert(end->av, many, 5, addresses, 0, NULL);
    if (inserted != 5) { /* a provider may accept any bytes of the right length */
        CHECK_EQUAL(inserted, 4);
        CHECK(addresses[2] == FI_ADDR_NOTAVAIL);
        CHECK(addresses[1] != FI_ADDR_NOTAVAIL && addresses[3] != FI_ADDR_NOTAVAIL);
    }
    free(many);
    close_end(end);
}

static void event_queue(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    struct fi_eq_attr attr = {.size = 8, .wait_obj = FI_WAIT_UNSPEC, .flags = FI_WRITE};
    struct fid_eq *eq;
    struct fi_eq_entry entry, in = {.fid = &end->ep->fid, .context = &attr, .data = 99};
    uint32_t event;
    MUST(fi_eq_open(end->fabric, &attr, &eq, NULL));
    CHECK_EQUAL(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
    CHECK_EQUAL(fi_eq_sread(eq, &event, &entry, sizeof entry, 5, 0), -FI_EAGAIN);
    ssize_t written = fi_eq_write(eq, FI_NOTIFY, &in, sizeof in, 0);
    if (written != -FI_ENOSYS) {
        CHECK_EQUAL(written, sizeof in);
        CHECK_EQUAL(fi_eq_read(eq, &event, &entry, sizeof entry, FI_PEEK), sizeof entry);
        CHECK_EQUAL(fi_eq_sread(eq, &event, &entry, sizeof entry, 1000, 0), sizeof entry);
        CHECK_EQUAL(event, FI_NOTIFY);
        CHECK_EQUAL(entry.data, 99);
        CHECK_EQUAL(fi_eq_read(eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
    }
    CHECK_EQUAL(fi_close(&eq->fid), 0);
    close_end(end);
}

/* Closing cancels posted receives and drops messages that have arrived. */
static void closed_while_busy(void) {
    struct end *end = open_end(NULL);
    if (!end) return;
    static char bytes[8][100000];
    for (int i = 0; i < 4; i++) MUST(AGAIN(end, fi_trecv(end->ep, bytes[i], sizeof bytes[i], NULL, FI_ADDR_UNSPEC, 77, 0, bytes[i])));
    for (int i = 4; i < 8; i++)
        MUST(AGAIN(end, fi_tsend(end->ep, bytes[i], i % 2 ? 10 : sizeof bytes[i], NULL, end->peer, 88, bytes[i])));
    for (int i = 0; i < 100; i++) turn(end);
    close_end(end);
    /* Another endpoint opens in its place. */
    end = open_end(NULL);
    close_end(end);
}

/* Side 1 finds side 0 by host and service; then both know each other as by their names. */
static void found_by_service(void) {
    char service[16], named[256], found[256];
    snprintf(service, sizeof service, "%d", 20000 + getppid() % 40000);
    struct wish wish = {.service = service};
    struct end *end = open_end(&wish);
    if (!end) return;
    CHECK(end->info->src_addr != NULL && end->info->src_addrlen > 0);
    if (side == 1) {
        struct fi_info *hints = hints_for(FI_TAGGED | FI_MSG), *info = NULL;
        MUST(fi_getinfo(FI_VERSION(1, 15), "localhost", service, 0, hints, &info));
        fi_addr_t addresses[2];
        CHECK_EQUAL(fi_av_insert(end->av, info->dest_addr, 1, &addresses[0], 0, NULL), 1);
        CHECK_EQUAL(fi_av_insertsvc(end->av, "localhost", service, &addresses[1], 0, NULL), 1);
        size_t length = sizeof named;
        MUST(fi_av_lookup(end->av, end->peer, named, &length));
        for (int i = 0; i < 2; i++) {
            size_t room = sizeof found;
            CHECK_EQUAL(fi_av_lookup(end->av, addresses[i], found, &room), 0);
            CHECK(room == length && memcmp(found, named, length) == 0);
        }
        CHECK_EQUAL(fi_av_insertsvc(end->av, "192.0.2.1", service, &addresses[0], 0, NULL), 0); /* a host that does not exist */
        CHECK(addresses[0] == FI_ADDR_NOTAVAIL);
        fi_freeinfo(info);
        fi_freeinfo(hints);
    }
    close_end(end);
}

const struct test_case object_cases[] = {
    {"offer", offer},
    {"other_types_are_refused", other_types_are_refused},
    {"too_much_is_refused", too_much_is_refused},
    {"requests_are_granted", requests_are_granted},
    {"type_of_address_vector_is_asked_for", type_of_address_vector_is_asked_for},
    {"enable_needs_its_parts", enable_needs_its_parts},
    {"named_av_is_refused", named_av_is_refused},
    {"name_of_endpoint", name_of_endpoint},
    {"address_map", address_map},
    {"address_table", address_table},
    {"addresses_at_once", addresses_at_once},
    {"found_by_service", found_by_service},
    {"event_queue", event_queue},
    {"closed_while_busy", closed_while_busy},
    {NULL, NULL},
};
