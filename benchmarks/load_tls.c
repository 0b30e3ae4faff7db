/* Load for the benchmarks of security: raw connections over TLS with client certificates and SCRAM-SHA-256.
 *
 * Beside load.c, as it needs OpenSSL's headers. The salted password is computed once: it is the client's work alone.
 *
 *   load_tls requests   PORTS CA CERT USER PASSWORD FRAMES COUNT CONNECTIONS SECONDS ERROR_OFFSET
 *       as in load.c, but it says "connected" when all are, and begins at a line, or the end, of standard input; PORTS
 *       may be one port, or one for each frame with a comma between them
 *   load_tls handshakes PORT CA CERT USER PASSWORD THREADS SECONDS RATE   connect, authenticate, close: so many a second
 *                                                                         (0: as many as go)
 *
 * CERT is a PEM file with key and certificates. If USER is empty, a connection has neither SCRAM nor a certificate of
 * the client: it asks for the API versions, so that the broker has let it in. One JSON object on standard output; exit code 1 and a line on standard
 * error when anything failed. Build: cc -O2 load_tls.c -lssl -lcrypto -lpthread
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

enum { DIGEST = 32, TEXT = 512, RESPONSE_MAX = 4096 };
static const char *user, *password;
static SSL_CTX *context;

static void open_context(const char *ca, const char *certificate) {
    context = SSL_CTX_new(TLS_client_method());
    if (SSL_CTX_load_verify_locations(context, ca, NULL) != 1) fail("%s: no certificates", ca);
    if (*user && (SSL_CTX_use_certificate_chain_file(context, certificate) != 1 ||
                  SSL_CTX_use_PrivateKey_file(context, certificate, SSL_FILETYPE_PEM) != 1))
        fail("%s: no key and certificate", certificate);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

/* --- requests of a connection that blocks */

static void write_all(SSL *tls, const void *data, int size) {
    if (SSL_write(tls, data, size) != size) fail("write: the broker has closed the connection");
}

static void read_all(SSL *tls, unsigned char *data, int size) {
    for (int have = 0, got; have < size; have += got)
        if ((got = SSL_read(tls, data + have, size - have)) <= 0) fail("read: the broker has closed the connection");
}

/* A request of header version 1 with one string (if prefix is 2) or byte array (4); the response's length. */
static int ask(SSL *tls, int key, const char *body, size_t size, int prefix, unsigned char *response) {
    unsigned char frame[TEXT * 2];
    size_t length = 8 + 2 + 5 + (size_t)prefix + size, at = 0;
    if (length > sizeof frame - 4) fail("a request too long");
    unsigned char head[] = {0, 0, (unsigned char)(length >> 8), (unsigned char)length, 0, (unsigned char)key, 0, 1,
                            0, 0, 0, 7, 0, 5, 'b', 'e', 'n', 'c', 'h'};
    memcpy(frame, head, sizeof head);
    at = sizeof head;
    for (int shift = (prefix - 1) * 8; shift >= 0; shift -= 8) frame[at++] = (unsigned char)(size >> shift);
    memcpy(frame + at, body, size);
    write_all(tls, frame, (int)(at + size));
    unsigned char four[4];
    read_all(tls, four, 4);
    int got = four[0] << 24 | four[1] << 16 | four[2] << 8 | four[3];
    if (got < 6 || got > RESPONSE_MAX) fail("a response of %d bytes", got);
    read_all(tls, response, got);
    if (response[4] || response[5]) fail("error code %d of API key %d", response[4] << 8 | response[5], key);
    return got;
}

/* SaslAuthenticate v1; the server's message as text. */
static void exchange(SSL *tls, const char *message, char *answer) {
    unsigned char response[RESPONSE_MAX + 1];
    int size = ask(tls, 36, message, strlen(message), 4, response);
    int at = 6, text = (int16_t)(response[at] << 8 | response[at + 1]);
    at += 2 + (text > 0 ? text : 0);
    int length = response[at] << 24 | response[at + 1] << 16 | response[at + 2] << 8 | response[at + 3];
    if (length < 0 || length >= TEXT || at + 4 + length > size) fail("a message of %d bytes", length);
    memcpy(answer, response + at + 4, (size_t)length);
    answer[length] = 0;
}

static void hmac(const unsigned char *key, const char *text, unsigned char *out) {
    unsigned int size = DIGEST;
    HMAC(EVP_sha256(), key, DIGEST, (const unsigned char *)text, strlen(text), out, &size);
}

static void salted(const char *salt64, int iterations, unsigned char *out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char known[TEXT];
    static unsigned char value[DIGEST];
    pthread_mutex_lock(&lock);
    if (strcmp(known, salt64)) {
        unsigned char salt[TEXT];
        int size = EVP_DecodeBlock(salt, (const unsigned char *)salt64, (int)strlen(salt64));
        if (size < 0) fail("the salt is not base64");
        for (const char *end = salt64 + strlen(salt64); end > salt64 && end[-1] == '='; end--) size--;
        PKCS5_PBKDF2_HMAC(password, (int)strlen(password), salt, size, iterations, EVP_sha256(), DIGEST, value);
        snprintf(known, sizeof known, "%s", salt64);
    }
    memcpy(out, value, DIGEST);
    pthread_mutex_unlock(&lock);
}

static void authenticate(SSL *tls) {
    unsigned char response[RESPONSE_MAX], random[18], key[DIGEST], stored[DIGEST], proof[DIGEST];
    char nonce[32], bare[TEXT], first[TEXT + 8], server[TEXT], joined[TEXT], message[TEXT * 4], proof64[64], last[TEXT];
    ask(tls, 17, "SCRAM-SHA-256", 13, 2, response);
    RAND_bytes(random, sizeof random);
    EVP_EncodeBlock((unsigned char *)nonce, random, sizeof random);
    snprintf(bare, sizeof bare, "n=%s,r=%s", user, nonce);
    snprintf(first, sizeof first, "n,,%s", bare);
    exchange(tls, first, server);
    char full[TEXT], salt[TEXT];
    int iterations;
    if (sscanf(server, "r=%500[^,],s=%500[^,],i=%d", full, salt, &iterations) != 3) fail("not a SCRAM message");
    salted(salt, iterations, key);
    hmac(key, "Client Key", proof);
    EVP_Digest(proof, DIGEST, stored, NULL, EVP_sha256(), NULL);
    if ((size_t)snprintf(joined, sizeof joined, "c=biws,r=%s", full) >= sizeof joined) fail("too long a nonce");
    snprintf(message, sizeof message, "%s,%s,%s", bare, server, joined);
    unsigned char signature[DIGEST];
    hmac(stored, message, signature);
    for (int i = 0; i < DIGEST; i++) proof[i] ^= signature[i];
    EVP_EncodeBlock((unsigned char *)proof64, proof, DIGEST);
    if ((size_t)snprintf(last, sizeof last, "%s,p=%s", joined, proof64) >= sizeof last) fail("too long a nonce");
    exchange(tls, last, server);
    if (strncmp(server, "v=", 2)) fail("the broker says %s", server);
}

static SSL *connected(int port) {
    unsigned char response[RESPONSE_MAX];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, fd);
    if (SSL_connect(tls) != 1) fail("the handshake failed");
    if (*user) authenticate(tls);
    else ask(tls, 18, "", 0, 0, response);
    return tls;
}

/* --- many handshakes */

static atomic_long begun, ended;
static double started, until, rate;

static void *shake_hands(void *port) {
    for (;;) {
        long number = atomic_fetch_add(&begun, 1);
        if (rate > 0) {
            double wait = started + (double)number / rate - now();
            if (wait > 0) usleep((useconds_t)(wait * 1e6));
        }
        if (now() >= until) return NULL;
        SSL *tls = connected(*(int *)port);
        int fd = SSL_get_fd(tls);
        SSL_shutdown(tls);
        SSL_free(tls);
        close(fd);
        atomic_fetch_add(&ended, 1);
    }
}

static void handshakes(char *ports, char **a) {
    int count = atoi(a[0]), port = atoi(ports);
    rate = atof(a[2]);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    started = now();
    until = started + atof(a[1]);
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, shake_hands, &port);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("{\"connections\": %ld, \"seconds\": %.6f}\n", atomic_load(&ended), now() - started);
}

/* --- one request at a time on each of many connections */

struct connection {
    SSL *tls;
    char *frame;
    size_t have;
    unsigned char response[RESPONSE_MAX];
};

static void requests(char *ports, char **a) {
    int count = atoi(a[1]), connections = atoi(a[2]), error_offset = atoi(a[4]);
    double seconds = atof(a[3]);
    FILE *file = fopen(a[0], "rb");
    if (!file) fail("%s: %s", a[0], strerror(errno));
    fseek(file, 0, SEEK_END);
    size_t total = (size_t)ftell(file), size = total / (size_t)count;
    rewind(file);
    char *frames = malloc(total);
    if (fread(frames, 1, total, file) != total) fail("%s: short read", a[0]);
    char *port = ports;
    struct connection *states = calloc((size_t)connections, sizeof *states);
    int epoll = epoll_create1(0);
    for (int i = 0; i < connections; i++) {
        struct connection *c = &states[i];
        c->tls = connected((int)strtol(port, &port, 10));
        port = *port ? port + 1 : ports;
        c->frame = malloc(size);
        memcpy(c->frame, frames + (size_t)(i % count) * size, size);
        fcntl(SSL_get_fd(c->tls), F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, SSL_get_fd(c->tls), &event)) fail("epoll_ctl: %s", strerror(errno));
    }
    puts("connected");
    fflush(stdout);
    getchar(); /* what follows is measured by itself */
    long done = 0;
    double start = now(), end = start + seconds;
    for (int i = 0; i < connections; i++) write_all(states[i].tls, states[i].frame, (int)size);
    while (now() < end) {
        struct epoll_event events[256];
        int found = epoll_wait(epoll, events, 256, 1000);
        for (int i = 0; i < found; i++) {
            struct connection *c = events[i].data.ptr;
            int got = SSL_read(c->tls, c->response + c->have, (int)(RESPONSE_MAX - c->have));
            if (got <= 0) {
                if (SSL_get_error(c->tls, got) == SSL_ERROR_WANT_READ) continue; /* a ticket, or half a record */
                fail("closed by the broker");
            }
            c->have += (size_t)got;
            if (c->have < 4) continue;
            size_t length = (size_t)c->response[0] << 24 | (size_t)c->response[1] << 16 |
                            (size_t)c->response[2] << 8 | c->response[3];
            if (length + 4 > RESPONSE_MAX) fail("a response of %zu bytes", length);
            if (c->have < length + 4) continue;
            if (memcmp(c->response + 4, c->frame + 8, 4)) fail("response with another correlation id");
            if (c->response[4 + error_offset] || c->response[5 + error_offset])
                fail("error code %d", c->response[4 + error_offset] << 8 | c->response[5 + error_offset]);
            done++;
            c->have = 0;
            for (int k = 11; k >= 8 && !++c->frame[k]; k--) {} /* the next correlation id */
            write_all(c->tls, c->frame, (int)size);
        }
    }
    printf("{\"requests\": %ld, \"seconds\": %.6f}\n", done, now() - start);
}

int main(int argc, char **argv) {
    if (argc < 7) fail("usage: see the head of load_tls.c");
    user = argv[5];
    password = argv[6];
    open_context(argv[3], argv[4]);
    if (!strcmp(argv[1], "requests") && argc == 12) requests(argv[2], argv + 7);
    else if (!strcmp(argv[1], "handshakes") && argc == 10) handshakes(argv[2], argv + 7);
    else fail("usage: see the head of load_tls.c");
    fflush(stdout);
    _exit(0);
}
