/* Log lines: one JSON object, built in memory, written with one write(2). */
#include "common/base/log.h"

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/json.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Up to this size the kernel keeps a write to a pipe in one piece, whoever else writes to it. */
#define LINE_MAX_BYTES PIPE_BUF
#define LINE_CUT ",\"cut\":true}\n"
#define LINE_END "}\n"
#define VALUE_MAX_BYTES 512
#define SPEC_MAX 16

static const char *log_part = "holdfast";
static enum log_level log_least = LOG_INFO;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(const char *part, enum log_level least)
{
    log_part = part;
    log_least = least;
}

bool log_level_parse(const char *name, enum log_level *out)
{
    for (int level = LOG_DEBUG; level <= LOG_ERROR; level++) {
        if (strcmp(level_names[level], name) == 0) {
            *out = (enum log_level)level;
            return true;
        }
    }
    return false;
}

/* One printf conversion of a fields string, as far as we need to know it. */
struct conversion {
    char spec[SPEC_MAX]; /* "%", flags, width, precision, length, letter */
    bool bare;           /* no flag, width or precision, which could make "007" or "+1" */
    int stars;           /* 0 or 1: a "*" whose int comes before the value */
    char length;         /* 0, 'l', 'L' (ll), 'z', 'j', 't'; h and hh arrive as int anyway */
    char letter;
};

/* Reads the conversion at *fmt (which points at '%') and moves *fmt past it. */
static void conversion_read(const char **fmt, struct conversion *c)
{
    const char *p = *fmt + 1;
    memset(c, 0, sizeof(*c));
    for (; *p && strchr("-+ #0123456789.*", *p); p++)
        c->stars += *p == '*';
    c->bare = p == *fmt + 1;
    for (; *p && strchr("hlLzjt", *p); p++)
        c->length = *p == 'h' ? 0 : c->length == 'l' ? 'L' : *p;
    c->letter = *p;
    if (*p)
        p++;
    size_t len = (size_t)(p - *fmt);
    if (len >= SPEC_MAX || c->stars > 1)
        c->letter = '\0'; /* nothing we write needs more; its value is left out */
    else
        memcpy(c->spec, *fmt, len);
    *fmt = p;
}

/* A va_list inside a struct can be handed on by address, whatever its type on this machine. */
struct arguments {
    va_list list;
};

static int conversion_put_int(const struct conversion *c, char *out, size_t size,
                              struct arguments *args)
{
    switch (c->length) {
    case 'l':
        return snprintf(out, size, c->spec, va_arg(args->list, long));
    case 'L':
        return snprintf(out, size, c->spec, va_arg(args->list, long long));
    case 'z':
    case 't':
        return snprintf(out, size, c->spec, va_arg(args->list, size_t));
    case 'j':
        return snprintf(out, size, c->spec, va_arg(args->list, intmax_t));
    default:
        return snprintf(out, size, c->spec, va_arg(args->list, int));
    }
}

static int conversion_put_text(const struct conversion *c, char *out, size_t size,
                               struct arguments *args)
{
    int star = c->stars ? va_arg(args->list, int) : 0;
    const char *text = va_arg(args->list, const char *);
    if (!text)
        return snprintf(out, size, "null");
    return c->stars ? snprintf(out, size, c->spec, star, text) : snprintf(out, size, c->spec, text);
}

/* Formats one value into out; returns its length, cut to size - 1. */
static size_t conversion_put(const struct conversion *c, char *out, size_t size,
                             struct arguments *args)
{
    int len = 0;
    switch (c->letter) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'c':
        len = conversion_put_int(c, out, size, args);
        break;
    case 's':
        len = conversion_put_text(c, out, size, args);
        break;
    case 'p':
        len = snprintf(out, size, c->spec, va_arg(args->list, void *));
        break;
    case 'e':
    case 'f':
    case 'g':
        len = snprintf(out, size, c->spec, va_arg(args->list, double));
        break;
    case '%':
        len = snprintf(out, size, "%%");
        break;
    default:
        break;
    }
    if (len < 0)
        return 0;
    return (size_t)len < size ? (size_t)len : size - 1;
}

/* Whether a new field starts at p: a blank, a word and '='. */
static bool field_starts(const char *p)
{
    if (*p != ' ')
        return false;
    size_t word = strspn(p + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return word > 0 && p[1 + word] == '=';
}

struct value {
    char text[VALUE_MAX_BYTES + 1];
    size_t len;
    bool number; /* exactly one bare %d, %i or %u and nothing else */
};

/* Formats everything up to the next field of the format. */
static const char *value_read(const char *fmt, struct value *value, struct arguments *args)
{
    int conversions = 0;
    bool plain = true;
    value->len = 0;
    while (*fmt && !field_starts(fmt)) {
        size_t room = VALUE_MAX_BYTES - value->len;
        if (*fmt == '%') {
            struct conversion c;
            conversion_read(&fmt, &c);
            value->len += conversion_put(&c, value->text + value->len, room + 1, args);
            conversions++;
            plain = plain && c.bare && c.letter && strchr("diu", c.letter);
        } else {
            if (room)
                value->text[value->len++] = *fmt;
            fmt++;
            plain = false;
        }
    }
    value->text[value->len] = '\0';
    value->number = conversions == 1 && plain;
    return fmt;
}

/* Adds one member, or takes it back and says false when the line would grow past its maximum. */
static bool line_put_member(struct buf *line, const char *key, size_t key_len,
                            const struct value *value)
{
    size_t before = line->len;
    buf_puts(line, ",");
    json_put_string(line, key, key_len);
    buf_puts(line, ":");
    if (value->number)
        buf_put(line, value->text, value->len);
    else
        json_put_string(line, value->text, value->len);
    if (!line->failed && line->len + strlen(LINE_CUT) <= LINE_MAX_BYTES)
        return true;
    line->failed = false;
    line->len = before;
    return false;
}

/* Returns whether every field found room. */
static bool line_put_fields(struct buf *line, const char *fmt, struct arguments *args)
{
    bool all = true;
    while (*fmt) {
        const char *key = fmt + strspn(fmt, " ");
        const char *equals = strchr(key, '=');
        if (!equals)
            return all;
        struct value value;
        fmt = value_read(equals + 1, &value, args);
        all = line_put_member(line, key, (size_t)(equals - key), &value) && all;
    }
    return all;
}

static void line_put_head(struct buf *line, enum log_level level, const char *event)
{
    char at[32];
    buf_printf(line, "{\"at\":\"%s\",\"level\":\"%s\",\"part\":",
               clock_format_us(clock_wall_us(), at, sizeof(at)), level_names[level]);
    json_put_string(line, log_part, strnlen(log_part, VALUE_MAX_BYTES));
    buf_puts(line, ",\"event\":");
    json_put_string(line, event, strnlen(event, VALUE_MAX_BYTES));
}

static void line_write(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* there is nowhere left to say that the log cannot be written */
        data += n;
        len -= (size_t)n;
    }
}

void log_event(enum log_level level, const char *event, const char *fields, ...)
{
    if (level < log_least)
        return;
    int saved_errno = errno;
    struct buf line;
    struct arguments args;
    buf_init(&line, LINE_MAX_BYTES * 2);
    line_put_head(&line, level, event);
    va_start(args.list, fields);
    bool all = line_put_fields(&line, fields, &args);
    va_end(args.list);
    buf_puts(&line, all ? LINE_END : LINE_CUT);
    if (line.failed)
        line_write("{\"level\":\"error\",\"event\":\"log_line_lost\"}\n", 42);
    else
        line_write(line.data, line.len);
    buf_free(&line);
    errno = saved_errno;
}

void log_error(enum log_level level, const char *event, const struct error *err)
{
    log_event(level, event, "code=%s place=%s text=%s", error_code_name(err->code), err->place,
              err->text);
}
