/* holdfast journal FILE: shows a dispatcher's send journal. */
#include "common/journal/journal.h"

#include "common/base/clock.h"
#include "common/base/crypto.h"
#include "ctl/commands.h"

#include <stdio.h>

int command_journal(int argc, char **argv)
{
    struct journal_left journal;
    struct error err = {0};
    char hex[33], id[ULID_PREFIXED_SIZE], at[32];
    if (argc != 1)
        return command_usage("holdfast journal FILE");
    if (!journal_read(argv[0], &journal, &err))
        return command_fail(&err);
    crypto_hex(journal.incarnation, sizeof journal.incarnation, hex);
    printf("incarnation %s\n%s\n", hex,
           journal.proves ? "what was claimed by it and is not below never left, or is settled"
                          : "proves nothing about what is not below:");
    if (!journal.proves)
        printf("  %s\n", journal.why);
    printf("%zu sends let go and not settled\n", journal.count);
    for (size_t i = 0; i < journal.count; i++)
        printf("  %s  seq %d  %s\n", ulid_format_prefixed("eff", &journal.entries[i].effect, id),
               journal.entries[i].seq,
               clock_format_us(journal.entries[i].at_wall_us, at, sizeof at));
    journal_left_close(&journal, false);
    return 0;
}
