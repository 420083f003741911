/* LD_PRELOAD: makes system calls on some paths fail.
 *
 * FAULT_CALL   one of open create read write link rename mkdir symlink sync
 * FAULT_PATH   text that the path must contain
 * FAULT_ERRNO  the error, as a number
 * FAULT_FIRST  the first matching call that fails, counted from 1 over all processes
 * FAULT_LAST   the last one (default: the first; 0: all that follow)
 * FAULT_COUNT  a file of at least 8 bytes in which the processes count together
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *fault_call, *fault_path;
static int fault_errno;
static long fault_first, fault_last;
static _Atomic uint64_t *calls;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

__attribute__((constructor)) static void begin(void) {
    const char *count = getenv("FAULT_COUNT");
    int fd = count ? REAL(open)(count, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *shared = mmap(NULL, sizeof *calls, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) return;
    fault_path = getenv("FAULT_PATH");
    fault_errno = (int)number("FAULT_ERRNO", EIO);
    fault_first = number("FAULT_FIRST", 1);
    fault_last = number("FAULT_LAST", fault_first);
    fault_call = getenv("FAULT_CALL");
    calls = shared;
}

/* The path that `fd` was opened with and, if given, a name below it. */
static int matches(int fd, const char *name) {
    char link[64], path[PATH_MAX + 1];
    ssize_t length = 0;
    if (!name || name[0] != '/') {
        if (fd == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        length = readlink(link, path, PATH_MAX);
        if (length < 0) length = 0;
    }
    if (name) length += snprintf(path + length, sizeof path - (size_t)length, "/%s", name);
    if (length > PATH_MAX) length = PATH_MAX;
    path[length] = 0;
    return strstr(path, fault_path) != NULL;
}

static int fails(const char *call, int fd, const char *name) {
    if (!calls) begin(); /* a fork is told what fails after its start */
    if (!calls || strcmp(call, fault_call) != 0) return 0;
    int before = errno, hit = matches(fd, name);
    errno = before;
    if (!hit) return 0;
    long turn = (long)atomic_fetch_add(calls, 1) + 1;
    if (turn < fault_first || (fault_last && turn > fault_last)) return 0;
    errno = fault_errno;
    return 1;
}

static int fails_to_open(int fd, const char *name, int flags) {
    return fails(flags & O_CREAT ? "create" : "open", fd, name);
}

#define OPEN(name)                                                        \
    int name(const char *path, int flags, ...) {                          \
        va_list rest;                                                     \
        va_start(rest, flags);                                            \
        mode_t mode = va_arg(rest, mode_t);                               \
        va_end(rest);                                                     \
        if (fails_to_open(AT_FDCWD, path, flags)) return -1;              \
        return REAL(name)(path, flags, mode);                             \
    }
#define OPENAT(name)                                                      \
    int name(int fd, const char *path, int flags, ...) {                  \
        va_list rest;                                                     \
        va_start(rest, flags);                                            \
        mode_t mode = va_arg(rest, mode_t);                               \
        va_end(rest);                                                     \
        if (fails_to_open(fd, path, flags)) return -1;                    \
        return REAL(name)(fd, path, flags, mode);                         \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int fd, void *data, size_t size) {
    return fails("read", fd, NULL) ? -1 : REAL(read)(fd, data, size);
}
ssize_t pread(int fd, void *data, size_t size, off_t at) {
    return fails("read", fd, NULL) ? -1 : REAL(pread)(fd, data, size, at);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t at) {
    return fails("read", fd, NULL) ? -1 : REAL(pread64)(fd, data, size, at);
}
ssize_t readv(int fd, const struct iovec *parts, int count) {
    return fails("read", fd, NULL) ? -1 : REAL(readv)(fd, parts, count);
}
ssize_t write(int fd, const void *data, size_t size) {
    return fails("write", fd, NULL) ? -1 : REAL(write)(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    return fails("write", fd, NULL) ? -1 : REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    return fails("write", fd, NULL) ? -1 : REAL(pwrite64)(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return fails("write", fd, NULL) ? -1 : REAL(writev)(fd, parts, count);
}
int link(const char *from, const char *to) {
    return fails("link", AT_FDCWD, to) ? -1 : REAL(link)(from, to);
}
int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    return fails("link", to_fd, to) ? -1 : REAL(linkat)(from_fd, from, to_fd, to, flags);
}
int rename(const char *from, const char *to) {
    return fails("rename", AT_FDCWD, to) ? -1 : REAL(rename)(from, to);
}
int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    return fails("rename", to_fd, to) ? -1 : REAL(renameat)(from_fd, from, to_fd, to);
}
int mkdir(const char *path, mode_t mode) {
    return fails("mkdir", AT_FDCWD, path) ? -1 : REAL(mkdir)(path, mode);
}
int mkdirat(int fd, const char *path, mode_t mode) {
    return fails("mkdir", fd, path) ? -1 : REAL(mkdirat)(fd, path, mode);
}
int symlink(const char *target, const char *path) {
    return fails("symlink", AT_FDCWD, path) ? -1 : REAL(symlink)(target, path);
}
int symlinkat(const char *target, int fd, const char *path) {
    return fails("symlink", fd, path) ? -1 : REAL(symlinkat)(target, fd, path);
}
int fsync(int fd) { return fails("sync", fd, NULL) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails("sync", fd, NULL) ? -1 : REAL(fdatasync)(fd); }
