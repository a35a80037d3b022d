"""What this process has taken so far."""

from __future__ import annotations

import os
import resource

_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def own_usage() -> dict[str, int]:
    """CPU time in ms since the process began, resident set now and at its highest in KiB, process id."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - pathlib would cost more than the read
        resident = int(statm.read().split()[1]) * _PAGE_KIB
    return {
        "cpu_ms": int((used.ru_utime + used.ru_stime) * 1000),
        "rss_kib": resident,
        "peak_rss_kib": used.ru_maxrss,
        "pid": os.getpid(),
    }
