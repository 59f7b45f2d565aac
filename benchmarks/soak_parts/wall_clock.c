/* Puts the wall clock of a program ahead by the nanoseconds in the file that GRAFTLINE_SOAK_CLOCK names, at every look.
   Clocks that only go forward are left alone. A wait until a moment of the wall clock is one for what is left until then,
   as it is on a machine whose clock was set before the wait began. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
static const volatile int64_t nowhere = 0;
static const volatile int64_t *offset = &nowhere;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("GRAFTLINE_SOAK_CLOCK");
  int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (descriptor < 0) return;
  void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (found != MAP_FAILED) offset = found;
}

static void *next(const char *name, const char *version) {
  void *found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
  return found ? found : dlsym(RTLD_NEXT, name);
}

static int64_t of(const struct timespec *at) { return at->tv_sec * SECOND + at->tv_nsec; }

static struct timespec moment(int64_t at) {
  struct timespec made = {at / SECOND, at % SECOND};
  if (made.tv_nsec < 0) made.tv_sec -= 1, made.tv_nsec += SECOND;
  return made;
}

int clock_gettime(clockid_t which, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = next("clock_gettime", NULL);
  int failed = real(which, at);
  if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) *at = moment(of(at) + *offset);
  return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  if (at) at->tv_sec = now.tv_sec, at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}

int clock_nanosleep(clockid_t which, int flags, const struct timespec *until, struct timespec *left) {
  static int (*real)(clockid_t, int, const struct timespec *, struct timespec *);
  if (!real) real = next("clock_nanosleep", NULL);
  if (which != CLOCK_REALTIME || !(flags & TIMER_ABSTIME)) return real(which, flags, until, left);
  struct timespec shifted = moment(of(until) - *offset);
  return real(which, flags, &shifted, left);
}

int sem_timedwait(sem_t *restrict one, const struct timespec *restrict until) {
  static int (*real)(sem_t *, const struct timespec *);
  if (!real) real = next("sem_timedwait", NULL);
  struct timespec shifted = moment(of(until) - *offset);
  return real(one, &shifted);
}

int pthread_cond_timedwait(pthread_cond_t *restrict one, pthread_mutex_t *restrict held, const struct timespec *restrict until) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!real) real = next("pthread_cond_timedwait", "GLIBC_2.3.2");
  /* the condition alone knows its clock; no machine has been up for 31 years, so that a later moment is one of the wall */
  struct timespec shifted = moment(until->tv_sec > 1000000000 ? of(until) - *offset : of(until));
  return real(one, held, &shifted);
}
