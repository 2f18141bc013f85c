/* verbs_control DEVICE FILE: one end of a reliable connection over DEVICE, by libibverbs alone. Its memory is a shared
 * mapping of FILE, so that whoever started it sees the bytes without its help. It prints who it is:
 *     QPN PSN RKEY ADDRESS GID                          (hexadecimal)
 * and then does what the lines of its input say, answering each with "done" or the word of what failed:
 *     connect QPN PSN GID                               to another one
 *     read ADDRESS RKEY AT LENGTH                       from there into the own memory at AT
 *     write ADDRESS RKEY AT LENGTH                      from the own memory at AT to there
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PORT = 1, DEPTH = 4, PIECE = 1 << 20, TRIES = 5, TIMEOUT = 17 /* 4.096 us << 14 */ };
enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };

struct end {
    struct ibv_context *device;
    struct ibv_mr *region;
    struct ibv_cq *done;
    struct ibv_qp *pair;
    struct ibv_gid_entry gid;
    uint32_t psn;
};

static void *must(void *result, const char *what)
{
    if (!result)
        err(1, "%s", what);
    return result;
}

static struct ibv_context *open_device(const char *name)
{
    struct ibv_device **all = must(ibv_get_device_list(NULL), "ibv_get_device_list");
    for (; *all; all++)
        if (!strcmp(ibv_get_device_name(*all), name))
            return must(ibv_open_device(*all), name);
    errx(1, "no device %s", name);
}

/* The device's IPv4 address, as it is named in RoCE version 2. */
static struct ibv_gid_entry find_gid(struct ibv_context *device)
{
    struct ibv_gid_entry entry;
    for (uint32_t at = 0; !ibv_query_gid_ex(device, PORT, at, &entry, 0); at++)
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && IN6_IS_ADDR_V4MAPPED((struct in6_addr *)entry.gid.raw))
            return entry;
    errx(1, "the device has no IPv4 address");
}

static void *map(const char *path, size_t *size)
{
    struct stat status;
    int file = open(path, O_RDWR);
    if (file < 0 || fstat(file, &status))
        err(1, "%s", path);
    *size = status.st_size;
    void *memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? must(NULL, "mmap") : memory;
}

static struct end open_end(const char *device, const char *path)
{
    size_t size;
    void *memory = map(path, &size);
    struct end end = {.device = open_device(device), .psn = getpid() & 0xffffff};
    struct ibv_pd *domain = must(ibv_alloc_pd(end.device), "ibv_alloc_pd");
    end.gid = find_gid(end.device);
    end.region = must(ibv_reg_mr(domain, memory, size, RIGHTS), "ibv_reg_mr");
    end.done = must(ibv_create_cq(end.device, DEPTH, NULL, NULL, 0), "ibv_create_cq");
    struct ibv_qp_init_attr wanted = {
        .send_cq = end.done,
        .recv_cq = end.done,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    end.pair = must(ibv_create_qp(domain, &wanted), "ibv_create_qp");
    struct ibv_qp_attr first = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = RIGHTS};
    if (ibv_modify_qp(end.pair, &first, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        err(1, "init");
    return end;
}

static const char *connect_to(struct end *end, uint32_t number, uint32_t psn, const char *gid)
{
    struct ibv_qp_attr receive = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = number,
        .rq_psn = psn,
        .max_dest_rd_atomic = DEPTH,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = PORT, .grh = {.sgid_index = end->gid.gid_index, .hop_limit = 64}},
    };
    struct ibv_qp_attr send = {
        .qp_state = IBV_QPS_RTS,
        .timeout = TIMEOUT,
        .retry_cnt = TRIES,
        .rnr_retry = TRIES,
        .sq_psn = end->psn,
        .max_rd_atomic = DEPTH,
    };
    inet_pton(AF_INET6, gid, &receive.ah_attr.grh.dgid);
    if (ibv_modify_qp(end->pair, &receive,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        return "cannot receive";
    if (ibv_modify_qp(end->pair, &send,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC))
        return "cannot send";
    return "done";
}

static const char *move(struct end *end, int reads, uint64_t there, uint32_t key, size_t at, size_t length)
{
    size_t begun = 0, under_way = 0;
    struct ibv_wc done = {0};
    while (begun < length || under_way) {
        for (; begun < length && under_way < DEPTH; under_way++) {
            size_t size = length - begun < PIECE ? length - begun : PIECE;
            struct ibv_sge here = {(uintptr_t)end->region->addr + at + begun, size, end->region->lkey};
            struct ibv_send_wr *refused, request = {
                .sg_list = &here,
                .num_sge = 1,
                .opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                .wr.rdma = {.remote_addr = there + begun, .rkey = key},
            };
            if (ibv_post_send(end->pair, &request, &refused))
                return "cannot post";
            begun += size;
        }
        int count = ibv_poll_cq(end->done, 1, &done);
        if (count < 0 || done.status)
            return ibv_wc_status_str(done.status);
        under_way -= count;
    }
    return "done";
}

int main(int count, char **arguments)
{
    if (count != 3)
        errx(2, "usage: verbs_control DEVICE FILE");
    struct end end = open_end(arguments[1], arguments[2]);
    char line[256], gid[INET6_ADDRSTRLEN], verb[8];
    inet_ntop(AF_INET6, &end.gid.gid, gid, sizeof gid);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%x %x %x %" PRIxPTR " %s\n", end.pair->qp_num, end.psn, end.region->rkey, (uintptr_t)end.region->addr, gid);
    while (fgets(line, sizeof line, stdin)) {
        uint32_t number, psn, key;
        uint64_t there;
        size_t at, length;
        const char *answer = "not understood";
        if (sscanf(line, "connect %x %x %45s", &number, &psn, gid) == 3)
            answer = connect_to(&end, number, psn, gid);
        else if (sscanf(line, "%7s %" SCNx64 " %x %zx %zx", verb, &there, &key, &at, &length) == 5)
            answer = move(&end, !strcmp(verb, "read"), there, key, at, length);
        puts(answer);
    }
    return 0;
}
