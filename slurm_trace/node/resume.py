"""What an earlier sampler left open: its spool files, by lease."""

from __future__ import annotations

import contextlib
from pathlib import Path

from slurm_trace.node.log import Log
from slurm_trace.node.open_lease import DAMAGED, OPEN, seal
from slurm_trace.node.spool_keeper import SpoolKeeper
from slurm_trace.node.spool_writer import SpoolDamaged, SpoolFailed, SpoolWriter


def reopen(folder: Path, keeper: SpoolKeeper, log: Log) -> dict[str, list[SpoolWriter]]:
    """Open every file that can go on; per stem its parts in order.

    Files that were closed but for a rename are sealed, damaged ones are kept aside.
    """
    found: dict[str, list[SpoolWriter]] = {}
    for path in sorted(folder.glob(f"*{OPEN}")):
        writer = _reopen(path, keeper, log)
        if writer is not None:
            stem = ".".join(path.name.split(".", 2)[:2])
            found.setdefault(stem, []).append(writer)
    for writers in found.values():
        writers.sort(key=lambda writer: int(writer.meta["part"] or 0))
    return found


def _reopen(path: Path, keeper: SpoolKeeper, log: Log) -> SpoolWriter | None:
    writer = None
    try:
        writer = SpoolWriter.resume(path)
        if writer is None:
            path.unlink()
        elif writer.meta.get("closed") is not None:
            stem = f"{writer.meta['lease.job_id']}.{writer.meta['lease.moment']}"
            closed = writer.meta["closed"]
            seal(writer)
            if closed not in ("stop", "part"):
                keeper.mark(stem)
            writer = None
    except SpoolDamaged as error:
        if writer is not None:
            writer.close()
        kept = path.with_name(path.name + DAMAGED)
        log.trouble("damaged", f"{path.name} cannot be resumed ({error}); kept as {kept.name}")
        with contextlib.suppress(OSError):
            path.replace(kept)
        return None
    except (SpoolFailed, OSError) as error:
        log.trouble("resume", f"{path.name} cannot be resumed now ({error}); the next start tries again")
        return None
    return writer
