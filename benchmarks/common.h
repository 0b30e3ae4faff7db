/* Common to the clients of the benchmarks: the end on an error, and the clock. */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    _exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}
