/* Load for the benchmarks: librdkafka in a tight loop, and many raw connections at once.
 *
 * In C because a client in Python would be the bound: confluent-kafka's produce() costs about a microsecond a record, as much
 * as a whole record of 100 B does end to end. The library is the very one inside the confluent-kafka package (path in LIBRDKAFKA),
 * opened at run time, so no header or development package is needed; the prototypes below are its public, stable ABI.
 *
 *   load produce  BOOTSTRAP TOPIC RECORDS SIZE [name=value ...]        all acknowledged: records/s
 *   load consume  BOOTSTRAP TOPIC PARTITIONS RECORDS [name=value ...]  assigned by hand, from the beginning
 *   load latency  BOOTSTRAP TOPIC RECORDS SIZE [name=value ...]        one record at a time, produce to delivery report
 *   load spread   BOOTSTRAP TOPIC PARTITIONS [name=value ...]          one record to each partition
 *   load requests PORT FRAMES COUNT CONNECTIONS SECONDS ERROR_OFFSET [COUNTER]
 *                                                                      COUNT equal-sized requests in the file FRAMES, one per
 *                                                                      connection at a time; the 2 bytes at ERROR_OFFSET of a
 *                                                                      response (after its length) must be 0; the file COUNTER
 *                                                                      of 8 bytes, mapped, has the number of answers all the time
 *
 * One JSON object on standard output; exit code 1 and a line on standard error when anything failed.
 * benchmarks/load_python.py takes the same arguments where there is no C compiler. Build: cc -O2 load.c -ldl
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif

#include "common.h"

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;
typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
} rd_kafka_topic_partition_t; /* the leading fields: all that is touched here */
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;

enum { PRODUCER = 0, CONSUMER = 1, COPY = 2, ANY_PARTITION = -1, QUEUE_FULL = -184, PARTITION_EOF = -191 };
#define OFFSET_BEGINNING ((int64_t)-2)

#define FUNCTION(result, name, ...) static result (*name)(__VA_ARGS__)
FUNCTION(const char *, rd_kafka_version_str, void);
FUNCTION(const char *, rd_kafka_err2str, int);
FUNCTION(rd_kafka_conf_t *, rd_kafka_conf_new, void);
FUNCTION(int, rd_kafka_conf_set, rd_kafka_conf_t *, const char *, const char *, char *, size_t);
FUNCTION(void, rd_kafka_conf_set_dr_msg_cb, rd_kafka_conf_t *,
         void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
FUNCTION(rd_kafka_t *, rd_kafka_new, int, rd_kafka_conf_t *, char *, size_t);
FUNCTION(rd_kafka_topic_t *, rd_kafka_topic_new, rd_kafka_t *, const char *, void *);
FUNCTION(int, rd_kafka_produce, rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
FUNCTION(int, rd_kafka_last_error, void);
FUNCTION(int, rd_kafka_poll, rd_kafka_t *, int);
FUNCTION(int, rd_kafka_flush, rd_kafka_t *, int);
FUNCTION(int, rd_kafka_assign, rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
FUNCTION(rd_kafka_topic_partition_list_t *, rd_kafka_topic_partition_list_new, int);
FUNCTION(rd_kafka_topic_partition_t *, rd_kafka_topic_partition_list_add, rd_kafka_topic_partition_list_t *,
         const char *, int32_t);
FUNCTION(rd_kafka_queue_t *, rd_kafka_queue_get_consumer, rd_kafka_t *);
FUNCTION(ssize_t, rd_kafka_consume_batch_queue, rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
FUNCTION(void, rd_kafka_message_destroy, rd_kafka_message_t *);

/* Nothing here may run for ever: a broker that stops answering ends the run. */
static double deadline;
static void check_deadline(void) {
    if (now() > deadline) fail("no end after the time limit");
}

static void open_library(void) {
    const char *path = getenv("LIBRDKAFKA");
    void *library = dlopen(path ? path : "librdkafka.so.1", RTLD_NOW);
    if (!library) fail("%s", dlerror());
#define FIND(name) \
    if (!(*(void **)(&name) = dlsym(library, #name))) fail("librdkafka has no " #name)
    FIND(rd_kafka_version_str); FIND(rd_kafka_err2str); FIND(rd_kafka_conf_new); FIND(rd_kafka_conf_set);
    FIND(rd_kafka_conf_set_dr_msg_cb); FIND(rd_kafka_new); FIND(rd_kafka_topic_new); FIND(rd_kafka_produce);
    FIND(rd_kafka_last_error); FIND(rd_kafka_poll); FIND(rd_kafka_flush); FIND(rd_kafka_assign);
    FIND(rd_kafka_topic_partition_list_new); FIND(rd_kafka_topic_partition_list_add);
    FIND(rd_kafka_queue_get_consumer); FIND(rd_kafka_consume_batch_queue); FIND(rd_kafka_message_destroy);
}

/* --- librdkafka */

static long delivered, failed;
static int last_failure;

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client; (void)opaque;
    if (message->err) { failed++; last_failure = message->err; } else delivered++;
}

static rd_kafka_t *client(int type, const char *bootstrap, char **settings, int count) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error);
    rd_kafka_conf_set(conf, "log_level", "3", error, sizeof error);
    if (type == CONSUMER) {
        rd_kafka_conf_set(conf, "group.id", "benchmark", error, sizeof error); /* named, never joined */
        rd_kafka_conf_set(conf, "enable.auto.commit", "false", error, sizeof error);
    } else
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    for (int i = 0; i < count; i++) {
        char *value = strchr(settings[i], '=');
        if (!value) fail("not name=value: %s", settings[i]);
        *value++ = 0;
        if (rd_kafka_conf_set(conf, settings[i], value, error, sizeof error)) fail("%s", error);
    }
    rd_kafka_t *handle = rd_kafka_new(type, conf, error, sizeof error);
    if (!handle) fail("%s", error);
    return handle;
}

static void send_one(rd_kafka_t *rk, rd_kafka_topic_t *topic, int32_t partition, char *value, size_t size) {
    while (rd_kafka_produce(topic, partition, COPY, value, size, NULL, 0, NULL)) {
        if (rd_kafka_last_error() != QUEUE_FULL) fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(rk, 10);
        check_deadline();
    }
}

static void await_delivered(rd_kafka_t *rk, long count) {
    while (delivered < count) {
        rd_kafka_poll(rk, 100);
        if (failed) fail("%ld records failed: %s", failed, rd_kafka_err2str(last_failure));
        check_deadline();
    }
}

static char *filler(size_t size) { /* bytes of no pattern, the same each time */
    char *value = malloc(size + 1);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13; state ^= state >> 7; state ^= state << 17;
        value[i] = (char)state;
    }
    return value;
}

static void produce(char **a, int n) {
    long records = atol(a[2]);
    size_t size = (size_t)atol(a[3]);
    char *value = filler(size);
    rd_kafka_t *rk = client(PRODUCER, a[0], a + 4, n - 4);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, a[1], NULL);
    send_one(rk, topic, ANY_PARTITION, value, size); /* connections and metadata are not what is measured */
    await_delivered(rk, 1);
    double start = now();
    for (long i = 1; i < records; i++) {
        send_one(rk, topic, ANY_PARTITION, value, size);
        if (!(i & 0x3ff)) rd_kafka_poll(rk, 0);
    }
    await_delivered(rk, records);
    double seconds = now() - start;
    printf("{\"records\": %ld, \"seconds\": %.6f, \"client\": \"librdkafka %s\"}\n", records - 1, seconds,
           rd_kafka_version_str());
}

static void consume(char **a, int n) {
    int partitions = atoi(a[2]);
    long records = atol(a[3]), seen = 0;
    int64_t bytes = 0;
    rd_kafka_t *rk = client(CONSUMER, a[0], a + 4, n - 4);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(partitions);
    for (int i = 0; i < partitions; i++)
        rd_kafka_topic_partition_list_add(list, a[1], i)->offset = OFFSET_BEGINNING;
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    rd_kafka_assign(rk, list);
    enum { BATCH = 10000 };
    static rd_kafka_message_t *messages[BATCH];
    double start = 0;
    while (seen < records) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 100, messages, BATCH);
        if (got > 0 && !start) start = now(); /* connecting is not what is measured */
        for (ssize_t i = 0; i < got; i++) {
            if (!messages[i]->err) { seen++; bytes += (int64_t)messages[i]->len; }
            else if (messages[i]->err != PARTITION_EOF) fail("consume: %s", rd_kafka_err2str(messages[i]->err));
            rd_kafka_message_destroy(messages[i]);
        }
        check_deadline();
    }
    double seconds = now() - start;
    printf("{\"records\": %ld, \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"client\": \"librdkafka %s\"}\n", seen,
           bytes, seconds, rd_kafka_version_str());
}

static int by_value(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static void latency(char **a, int n) {
    enum { WARM_UP = 300 };
    long records = atol(a[2]);
    size_t size = (size_t)atol(a[3]);
    char *value = filler(size);
    double *took = calloc((size_t)records, sizeof *took);
    rd_kafka_t *rk = client(PRODUCER, a[0], a + 4, n - 4);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, a[1], NULL);
    for (long i = 0; i < records + WARM_UP; i++) {
        double start = now();
        send_one(rk, topic, 0, value, size);
        await_delivered(rk, i + 1);
        if (i >= WARM_UP) took[i - WARM_UP] = now() - start;
    }
    qsort(took, (size_t)records, sizeof *took, by_value);
    printf("{\"records\": %ld, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f}\n", records,
           took[records / 2] * 1e3, took[records * 99 / 100] * 1e3, took[records - 1] * 1e3);
}

static void spread(char **a, int n) {
    int partitions = atoi(a[2]);
    char *value = filler(100);
    rd_kafka_t *rk = client(PRODUCER, a[0], a + 3, n - 3);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, a[1], NULL);
    double start = now();
    for (int i = 0; i < partitions; i++) send_one(rk, topic, i, value, 100);
    await_delivered(rk, partitions);
    printf("{\"records\": %d, \"seconds\": %.6f}\n", partitions, now() - start);
}

/* --- raw connections */

enum { RESPONSE_MAX = 4096 };
struct connection {
    int fd;
    char *frame;
    size_t have;
    unsigned char response[RESPONSE_MAX];
};

/* Fills `ready` with the connections that can be read from. poll() would walk all of them for each response, and
 * that client would be the bound on two processors; elsewhere than on Linux it must do. */
static int await_readable(struct connection *all, int count, struct connection **ready) {
    int found = 0;
#ifdef __linux__
    static int epoll = -1;
    static struct epoll_event events[256];
    if (epoll < 0) {
        epoll = epoll_create1(0);
        for (int i = 0; i < count; i++) {
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
            if (epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event)) fail("epoll_ctl: %s", strerror(errno));
        }
    }
    found = epoll_wait(epoll, events, 256, 1000);
    for (int i = 0; i < found; i++) ready[i] = events[i].data.ptr;
#else
    static struct pollfd *polled;
    if (!polled) {
        polled = calloc((size_t)count, sizeof *polled);
        for (int i = 0; i < count; i++) polled[i] = (struct pollfd){.fd = all[i].fd, .events = POLLIN};
    }
    if (poll(polled, (nfds_t)count, 1000) > 0)
        for (int i = 0; i < count && found < 256; i++)
            if (polled[i].revents) ready[found++] = &all[i];
#endif
    return found;
}

static void send_frame(struct connection *c, size_t size) {
    /* A request of some hundred bytes on a connection with nothing under way always fits the socket's buffer. */
    if (write(c->fd, c->frame, size) != (ssize_t)size) fail("write: %s", strerror(errno));
}

static volatile int64_t *counter_in(const char *path) {
    int fd = open(path, O_RDWR);
    if (fd < 0) fail("%s: %s", path, strerror(errno));
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) fail("%s: %s", path, strerror(errno));
    close(fd);
    return mapped;
}

static void requests(char **a, int n) {
    static volatile int64_t unseen;
    volatile int64_t *counter = n > 6 ? counter_in(a[6]) : &unseen;
    int port = atoi(a[0]), count = atoi(a[2]), connections = atoi(a[3]), error_offset = atoi(a[5]);
    double seconds = atof(a[4]);
    FILE *file = fopen(a[1], "rb");
    if (!file) fail("%s: %s", a[1], strerror(errno));
    fseek(file, 0, SEEK_END);
    size_t total = (size_t)ftell(file), size = total / (size_t)count;
    rewind(file);
    char *frames = malloc(total);
    if (fread(frames, 1, total, file) != total) fail("%s: short read", a[1]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    struct connection *states = calloc((size_t)connections, sizeof *states), *ready[256];
    for (int i = 0; i < connections; i++) {
        struct connection *c = &states[i];
        int on = 1;
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        c->frame = malloc(size);
        memcpy(c->frame, frames + (size_t)(i % count) * size, size);
    }
    long done = 0;
    double start = now(), end = start + seconds;
    for (int i = 0; i < connections; i++) send_frame(&states[i], size);
    while (now() < end || done < connections) { /* a peer that got no turn in that time has still to answer */
        if (now() >= end) check_deadline();
        int found = await_readable(states, connections, ready);
        for (int i = 0; i < found; i++) {
            struct connection *c = ready[i];
            ssize_t got = read(c->fd, c->response + c->have, RESPONSE_MAX - c->have);
            if (got < 0 && errno == EAGAIN) continue;
            if (got <= 0) fail("connection %d: %s", c->fd, got ? strerror(errno) : "closed by the broker");
            c->have += (size_t)got;
            if (c->have < 4) continue;
            size_t length = (size_t)c->response[0] << 24 | (size_t)c->response[1] << 16 |
                            (size_t)c->response[2] << 8 | c->response[3];
            if (length + 4 > RESPONSE_MAX) fail("a response of %zu bytes", length);
            if (c->have < length + 4) continue;
            if (memcmp(c->response + 4, c->frame + 8, 4)) fail("response with another correlation id");
            if (c->response[4 + error_offset] || c->response[5 + error_offset])
                fail("error code %d", c->response[4 + error_offset] << 8 | c->response[5 + error_offset]);
            *counter = ++done;
            c->have = 0;
            for (int k = 11; k >= 8 && !++c->frame[k]; k--) {} /* the next correlation id */
            send_frame(c, size);
        }
    }
    printf("{\"requests\": %ld, \"seconds\": %.6f}\n", done, now() - start);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    char **a = argv + 2;
    int n = argc - 2;
    const char *limit = getenv("LOAD_SECONDS");
    deadline = now() + (limit ? atof(limit) : 120);
    if (!strcmp(mode, "requests") && (n == 6 || n == 7))
        requests(a, n);
    else {
        open_library();
        if (!strcmp(mode, "produce") && n >= 4) produce(a, n);
        else if (!strcmp(mode, "consume") && n >= 4) consume(a, n);
        else if (!strcmp(mode, "latency") && n >= 4) latency(a, n);
        else if (!strcmp(mode, "spread") && n >= 3) spread(a, n);
        else fail("usage: see the head of load.c");
    }
    fflush(stdout);
    _exit(0); /* without taking the client apart: that would wait for its threads */
}
