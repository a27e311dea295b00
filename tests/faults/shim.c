/* Makes system calls on files under a folder fail, or kills the process before one of them.

   Loaded by LD_PRELOAD; shim.py builds it and says what the arguments mean. It stands before the C
   library, so that it also sees what h5py, safetensors and Arrow do. With FAULTS_FOLDER and
   FAULTS_AT, a process is killed before that call on the folder, and so are its children. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, ONCE, ON, KILL, TEAR }; /* as in shim.py */

static char folder[PATH_MAX], only[64], log_text[1 << 20];
static int mode = COUNT, error_number, armed;
static long at, log_size;
static atomic_long seen;
static __thread int inside;

void faults_arm(const char *prefix, const char *name, long call, int number, int how) {
  snprintf(folder, sizeof folder, "%s", prefix);
  snprintf(only, sizeof only, "%s", name);
  at = call, error_number = number, mode = how;
  atomic_store(&seen, 0);
  log_size = 0;
  log_text[0] = 0;
  armed = 1;
}

long faults_disarm(void) {
  armed = 0;
  return atomic_load(&seen);
}

const char *faults_log(void) { return log_text; }

__attribute__((constructor)) static void from_environment(void) {
  const char *prefix = getenv("FAULTS_FOLDER"), *call = getenv("FAULTS_AT");
  if (prefix && call)
    faults_arm(prefix, "", atol(call), 0, KILL);
}

static int is_under(int directory, const char *path) {
  char full[2 * PATH_MAX], link[64];
  ssize_t size = 0;
  if (path == NULL || path[0] != '/') {
    snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d",
             directory);
    size = readlink(link, full, PATH_MAX - 1);
    if (size < 0)
      return 0;
  }
  full[size] = 0;
  if (path)
    snprintf(full + size, sizeof full - size, size ? "/%s" : "%s", path);
  return strncmp(full, folder, strlen(folder)) == 0;
}

/* What to do at a call: 0 to let it happen, otherwise the number of the error. Calls that are not
   documented to be interrupted (`restarts` is 0) get no EINTR. Of errors that stay, a full disk
   lets reading, closing and removing happen, and a read-only one reading and closing (`changes`
   is 0 for these, and 2 for removing). */
static int fault(const char *name, int directory, const char *path, int restarts, int changes) {
  if (!armed || inside)
    return 0;
  inside = 1;
  int before = errno, hit = 0;
  if ((only[0] == 0 || strcmp(name, only) == 0) && is_under(directory, path)) {
    long number = atomic_fetch_add(&seen, 1) + 1;
    if (log_size < (long)sizeof log_text - 64)
      log_size += snprintf(log_text + log_size, 64, "%s\n", name);
    int stays = error_number == EIO || changes == 1 || (error_number == EROFS && changes);
    if (mode == KILL && number == at)
      kill(getpid(), SIGKILL);
    if (mode == TEAR && number == at)
      hit = -1;
    if ((mode == ONCE && number == at) || (mode == ON && number >= at && stays))
      hit = error_number == EINTR && !restarts ? 0 : error_number;
  }
  inside = 0;
  errno = before;
  return hit;
}

#define REAL(type, name, ...)                                                                      \
  static type (*real)(__VA_ARGS__);                                                                \
  if (!real)                                                                                       \
  real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
#define FAIL(call, directory, path, restarts, changes, result)                                     \
  do {                                                                                             \
    int number = fault(call, directory, path, restarts, changes);                                  \
    if (number == -1)                                                                              \
      kill(getpid(), SIGKILL);                                                                     \
    if (number) {                                                                                  \
      errno = number;                                                                              \
      return result;                                                                               \
    }                                                                                              \
  } while (0)

#define OPEN(name)                                                                                 \
  int name(const char *path, int flags, ...) {                                                     \
    REAL(int, name, const char *, int, ...);                                                       \
    va_list more;                                                                                  \
    va_start(more, flags);                                                                         \
    mode_t bits = va_arg(more, mode_t);                                                            \
    va_end(more);                                                                                  \
    FAIL("open", AT_FDCWD, path, 1, (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0, -1);             \
    return real(path, flags, bits);                                                                \
  }
#define OPENAT(name)                                                                               \
  int name(int directory, const char *path, int flags, ...) {                                      \
    REAL(int, name, int, const char *, int, ...);                                                  \
    va_list more;                                                                                  \
    va_start(more, flags);                                                                         \
    mode_t bits = va_arg(more, mode_t);                                                            \
    va_end(more);                                                                                  \
    FAIL("open", directory, path, 1, (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0, -1);            \
    return real(directory, path, flags, bits);                                                     \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                                \
  FILE *name(const char *path, const char *how) {                                                  \
    REAL(FILE *, name, const char *, const char *);                                                \
    FAIL("open", AT_FDCWD, path, 1, how[0] != 'r', NULL);                                          \
    return real(path, how);                                                                        \
  }
FOPEN(fopen)
FOPEN(fopen64)

/* A torn write: half of the bytes, then the end. */
#define WRITE(name, offset)                                                                        \
  ssize_t name(int file, const void *bytes, size_t size, offset position) {                        \
    REAL(ssize_t, name, int, const void *, size_t, offset);                                        \
    int number = fault("write", file, NULL, 1, 1);                                                    \
    if (number == -1) {                                                                            \
      if (real(file, bytes, size / 2, position) >= 0)                                              \
        fsync(file);                                                                               \
      kill(getpid(), SIGKILL);                                                                     \
    }                                                                                              \
    if (number) {                                                                                  \
      errno = number;                                                                              \
      return -1;                                                                                   \
    }                                                                                              \
    return real(file, bytes, size, position);                                                      \
  }
WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)

ssize_t write(int file, const void *bytes, size_t size) {
  REAL(ssize_t, write, int, const void *, size_t);
  int number = fault("write", file, NULL, 1, 1);
  if (number == -1) {
    if (real(file, bytes, size / 2) >= 0)
      fsync(file);
    kill(getpid(), SIGKILL);
  }
  if (number) {
    errno = number;
    return -1;
  }
  return real(file, bytes, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  REAL(ssize_t, writev, int, const struct iovec *, int);
  FAIL("write", file, NULL, 1, 1, -1);
  return real(file, parts, count);
}

size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file) {
  REAL(size_t, fwrite, const void *, size_t, size_t, FILE *);
  FAIL("write", fileno(file), NULL, 1, 1, 0);
  return real(bytes, size, count, file);
}

int fflush(FILE *file) {
  REAL(int, fflush, FILE *);
  if (file)
    FAIL("write", fileno(file), NULL, 1, 1, EOF);
  return real(file);
}

/* The file is closed, whatever the answer. Closing what was read does not fail. */
#define CLOSE(name, type, descriptor)                                                              \
  int name(type file) {                                                                            \
    REAL(int, name, type);                                                                         \
    int reads = (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY;                              \
    int number = reads ? 0 : fault("close", descriptor, NULL, 1, 0), done = real(file);            \
    if (number == -1)                                                                              \
      kill(getpid(), SIGKILL);                                                                     \
    if (number)                                                                                    \
      errno = number;                                                                              \
    return number ? -1 : done;                                                                     \
  }
CLOSE(close, int, file)
CLOSE(fclose, FILE *, fileno(file))

#define ON_FILE(name, call, ...)                                                                   \
  int name(int file) {                                                                             \
    REAL(int, name, int);                                                                          \
    FAIL(call, file, NULL, 1, 1, -1);                                                              \
    return real(file);                                                                             \
  }
ON_FILE(fsync, "fsync")
ON_FILE(fdatasync, "fsync")

#define TRUNCATE(name, offset)                                                                     \
  int name(int file, offset size) {                                                                \
    REAL(int, name, int, offset);                                                                  \
    FAIL("truncate", file, NULL, 1, 1, -1);                                                        \
    return real(file, size);                                                                       \
  }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int rename(const char *old, const char *new) {
  REAL(int, rename, const char *, const char *);
  FAIL("rename", AT_FDCWD, new, 0, 1, -1);
  return real(old, new);
}

int link(const char *old, const char *new) {
  REAL(int, link, const char *, const char *);
  FAIL("link", AT_FDCWD, new, 0, 1, -1);
  return real(old, new);
}

int linkat(int one, const char *old, int two, const char *new, int flags) {
  REAL(int, linkat, int, const char *, int, const char *, int);
  FAIL("link", two, new, 0, 1, -1);
  return real(one, old, two, new, flags);
}

#define ON_PATH(name, call)                                                                        \
  int name(const char *path) {                                                                     \
    REAL(int, name, const char *);                                                                 \
    FAIL(call, AT_FDCWD, path, 0, 2, -1);                                                          \
    return real(path);                                                                             \
  }
ON_PATH(unlink, "unlink")
ON_PATH(rmdir, "rmdir")

int unlinkat(int directory, const char *path, int flags) {
  REAL(int, unlinkat, int, const char *, int);
  FAIL(flags & AT_REMOVEDIR ? "rmdir" : "unlink", directory, path, 0, 2, -1);
  return real(directory, path, flags);
}

int mkdir(const char *path, mode_t bits) {
  REAL(int, mkdir, const char *, mode_t);
  FAIL("mkdir", AT_FDCWD, path, 0, 1, -1);
  return real(path, bits);
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t size) {
  REAL(ssize_t, sendfile64, int, int, off64_t *, size_t);
  FAIL("write", out, NULL, 1, 1, -1);
  return real(out, in, offset, size);
}
