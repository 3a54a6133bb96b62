/* Loaded before libc (LD_PRELOAD): writes to files of one folder fail from a given one on, as on a disk that breaks.

   FAILING_FOLDER   the folder
   FAILING_CONTROL  a file of two integers of 64 bits: how many further writes succeed (negative: all), and how many were asked for.
                    Both are shared by all processes, and may be changed at any time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int64_t *control;
static const char *folder;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("FAILING_CONTROL"), O_RDWR);
    control = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    folder = getenv("FAILING_FOLDER");
}

/* Does this write fail? */
static int fails(int descriptor) {
    char link[32], path[4096];
    if (!control) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder))) return 0;
    __sync_fetch_and_add(&control[1], 1);
    int64_t left = control[0];
    while (left > 0 && !__sync_bool_compare_and_swap(&control[0], left, left - 1)) left = control[0];
    if (left != 0) return 0;
    errno = EIO;
    return 1;
}

#define FAILING(result, name, parameters, arguments)                                  \
    result name parameters {                                                          \
        static result(*next) parameters;                                              \
        if (!next) next = (result(*) parameters)dlsym(RTLD_NEXT, #name);              \
        return fails(descriptor) ? -1 : next arguments;                               \
    }

FAILING(ssize_t, write, (int descriptor, const void *bytes, size_t count), (descriptor, bytes, count))
FAILING(ssize_t, pwrite, (int descriptor, const void *bytes, size_t count, off_t offset), (descriptor, bytes, count, offset))
FAILING(ssize_t, pwrite64, (int descriptor, const void *bytes, size_t count, off64_t offset), (descriptor, bytes, count, offset))
FAILING(int, fsync, (int descriptor), (descriptor))
FAILING(int, fdatasync, (int descriptor), (descriptor))
FAILING(int, ftruncate, (int descriptor, off_t length), (descriptor, length))
FAILING(int, ftruncate64, (int descriptor, off64_t length), (descriptor, length))
