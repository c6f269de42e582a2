/* Only in thread-sanitizer builds: the C11 threads that librdkafka uses, by way of POSIX threads.
 * The sanitizer knows only these; a thread that it has not seen begin crashes it at the first
 * malloc, and a mutex that it does not see looks like a race. The linker prefers these to libc's.
 */
#ifdef __SANITIZE_THREAD__

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

/* glibc promises neither in words, but its own functions cast in the same way. */
_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t), "mtx_t is a pthread_mutex_t");
_Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t), "cnd_t is a pthread_cond_t");

static int result(int rc)
{
    switch (rc) {
    case 0:
        return thrd_success;
    case EBUSY:
        return thrd_busy;
    case ETIMEDOUT:
        return thrd_timedout;
    case ENOMEM:
        return thrd_nomem;
    default:
        return thrd_error;
    }
}

struct start {
    thrd_start_t run;
    void *arg;
};

static void *thread_main(void *arg)
{
    struct start start = *(struct start *)arg;
    free(arg);
    return (void *)(intptr_t)start.run(start.arg);
}

int thrd_create(thrd_t *thread, thrd_start_t run, void *arg)
{
    struct start *start = malloc(sizeof(*start));
    if (!start)
        return thrd_nomem;
    *start = (struct start){run, arg};
    int rc = pthread_create(thread, NULL, thread_main, start);
    if (rc != 0)
        free(start);
    return result(rc);
}

int thrd_join(thrd_t thread, int *exit_code)
{
    void *value;
    int rc = pthread_join(thread, &value);
    if (rc == 0 && exit_code)
        *exit_code = (int)(intptr_t)value;
    return result(rc);
}

int mtx_init(mtx_t *mutex, int type)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    if (type & mtx_recursive)
        pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    int rc = pthread_mutex_init((pthread_mutex_t *)mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    return result(rc);
}

int mtx_lock(mtx_t *mutex)
{
    return result(pthread_mutex_lock((pthread_mutex_t *)mutex));
}

int mtx_trylock(mtx_t *mutex)
{
    return result(pthread_mutex_trylock((pthread_mutex_t *)mutex));
}

int mtx_unlock(mtx_t *mutex)
{
    return result(pthread_mutex_unlock((pthread_mutex_t *)mutex));
}

void mtx_destroy(mtx_t *mutex)
{
    pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

int cnd_init(cnd_t *cond)
{
    return result(pthread_cond_init((pthread_cond_t *)cond, NULL));
}

int cnd_signal(cnd_t *cond)
{
    return result(pthread_cond_signal((pthread_cond_t *)cond));
}

int cnd_broadcast(cnd_t *cond)
{
    return result(pthread_cond_broadcast((pthread_cond_t *)cond));
}

int cnd_wait(cnd_t *cond, mtx_t *mutex)
{
    return result(pthread_cond_wait((pthread_cond_t *)cond, (pthread_mutex_t *)mutex));
}

int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict at)
{
    return result(pthread_cond_timedwait((pthread_cond_t *)cond, (pthread_mutex_t *)mutex, at));
}

void cnd_destroy(cnd_t *cond)
{
    pthread_cond_destroy((pthread_cond_t *)cond);
}

/* librdkafka itself is not instrumented: that its atomics order a free after a read is not seen. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:librdkafka.so\n";
}

#else

/* ISO C wants something in every file. */
typedef int tsan_threads_unused;

#endif
