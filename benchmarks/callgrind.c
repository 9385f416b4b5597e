/* Lets the worker say which calls valgrind is to count. Outside valgrind both do nothing. */
#include <valgrind/callgrind.h>

void count_from_here(void)
{
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

void count_to_here(const char *name)
{
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}
