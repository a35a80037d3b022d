"""Job states: the words of Slurm, which of them are final, and the forms in which they are printed."""

from __future__ import annotations

import re
from functools import lru_cache

#: States after which a row does not change any more (sacct(1), JOB STATE CODES). REQUEUED and RESIZING rows are
#: closed incarnations: the job goes on in another row.
FINAL_STATES: frozenset[str] = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REQUEUED",
        "RESIZING",
        "REVOKED",
        "TIMEOUT",
    }
)

#: States of a job that still waits, runs or cleans up (squeue(1), JOB STATE CODES).
OPEN_STATES: frozenset[str] = frozenset(
    {
        "COMPLETING",
        "CONFIGURING",
        "PENDING",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "RUNNING",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "STOPPED",
        "SUSPENDED",
    }
)

KNOWN_STATES: frozenset[str] = FINAL_STATES | OPEN_STATES

_STATE = re.compile(r"([A-Za-z][A-Za-z_]+)(\+?)(?: by (\d{1,18})| (?:by?)?\+)?", re.ASCII)


def is_final(word: str) -> bool:
    """Whether a row in this state does not change any more; False for a word that is not known."""
    return word in FINAL_STATES


@lru_cache(maxsize=4096)
def base_state(text: str) -> tuple[str, int | None]:
    """The base word of a printed state, and the user id of who cancelled.

    Args:
        text: `COMPLETED`, `CANCELLED by 1000`, or a form cut by fixed-width output such as `OUT_OF_ME+`.

    Returns:
        The word in capitals (a cut one completed where only one known state begins so; an unknown one as it came),
        and the uid or None.

    Raises:
        ValueError: The text cannot be a state.
    """
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is no job state")
    word, cut, uid = match.groups()
    word = word.upper()
    if cut:
        whole = [state for state in KNOWN_STATES if state.startswith(word)]
        word = whole[0] if len(whole) == 1 else f"{word}+"
    return word, int(uid) if uid else None
