"""The node side's command: `slurm-trace-node run|status|doctor`, also as `python -m slurm_trace.node` and a zipapp."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from slurm_trace.errors import EnvironmentProblem, TraceError, UsageProblem
from slurm_trace.node.clock import SystemClock
from slurm_trace.node.config import NodeConfig, configure
from slurm_trace.node.courier import Courier
from slurm_trace.node.devices.base import DeviceInfo, DeviceSource
from slurm_trace.node.gres import read_order
from slurm_trace.node.lease import Lease, LeaseReader, read_boot_id
from slurm_trace.node.log import Log, to_stderr, to_syslog
from slurm_trace.node.open_lease import DAMAGED, OPEN, SEALED
from slurm_trace.node.presence import announce, running, withdraw
from slurm_trace.node.probe import Limits, Probe
from slurm_trace.node.sampler import Sampler, Tools
from slurm_trace.node.watchdog import Watchdog
from slurm_trace.version import VERSION

_STOP_S = 5.0
# Longer than an ending sampler takes for its last readings and deliveries.
_ENDING_S, _LOOK_S = 20.0, 0.1


def add_options(parser: argparse.ArgumentParser) -> None:
    """The settings of `NodeConfig` as options."""
    parser.add_argument(
        "--config", type=Path, help="file of key=value lines (default /etc/slurm-trace/node.conf)"
    )
    parser.add_argument("--directory", help="directory of the hooks (default /run/slurm-trace)")
    parser.add_argument("--spool", help="node-local directory of open spool files")
    parser.add_argument("--outbox", help="where sealed spool files go; may be shared by nodes")
    parser.add_argument("--source", help="nvml, amdsmi or replay")
    parser.add_argument("--replay", help="scenario file of the source replay")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; every error of ours becomes one line and an exit code."""
    parser = argparse.ArgumentParser(
        prog="slurm-trace-node", description="Passive sampler of a node's GPUs, one record per Slurm job."
    )
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="follow the leases and sample the GPUs that they hold")
    add_options(run_parser)
    run_parser.add_argument(
        "--interval-s", type=float, help="seconds between readings (default 1, at least 0.2)"
    )
    run_parser.add_argument(
        "--chunk-s", type=float, help="seconds that a killed sampler may lose (default 60)"
    )
    run_parser.add_argument("--until-idle", action="store_true", help="end when no lease is open any more")
    run_parser.add_argument("--syslog", action="store_true", help="messages go to syslog, not to stderr")
    status_parser = commands.add_parser(
        "status", help="show whether a sampler runs, and what lies in the spool"
    )
    add_options(status_parser)
    doctor_parser = commands.add_parser("doctor", help="check this node for what would hurt or be lost")
    add_options(doctor_parser)
    doctor_parser.add_argument(
        "--hooks", type=Path, help="folder of prolog and epilog (default: as installed)"
    )
    doctor_parser.add_argument("--slurm-conf", type=Path, help="default: SLURM_CONF, /etc/slurm/slurm.conf")
    doctor_parser.add_argument("--node", help="the node's name in Slurm (default: the host's)")
    doctor_parser.add_argument("--json", action="store_true", help="print JSON")
    given = vars(parser.parse_args(arguments))
    command = given.pop("command")
    try:
        if command == "doctor":
            # Of no use to the sampler, whose memory counts.
            from slurm_trace.node.doctor import examine

            return examine(given, make_source)
        return run(given) if command == "run" else status(given)
    except TraceError as error:
        sys.stderr.write(f"slurm-trace-node: {error}\n")
        return error.exit_code


def run(given: dict[str, Any]) -> int:
    """Serve leases until SIGTERM, or until idle."""
    until_idle, syslog_too = given.pop("until_idle", False), given.pop("syslog", False)
    config = configure(given.pop("config", None), given)
    write = to_syslog if syslog_too else to_stderr
    for folder in (config.spool_folder, config.outbox_folder, config.sampler_folder):
        _ensure(folder)

    def is_ending() -> bool:
        """It withdrew before the lease came for which this one was started, and will not see it."""
        return until_idle and running(config.sampler_folder) is None

    with _only_one(config.spool_folder, is_ending) as alone:
        if not alone:
            if until_idle:
                return 0
            raise EnvironmentProblem(f"another sampler uses {config.spool_folder}; stop it first")
        return _serve(config, write, until_idle)


def _serve(config: NodeConfig, write: Callable[[str], None], until_idle: bool) -> int:
    clock = SystemClock()
    log = Log(time.monotonic, write)
    watchdog = Watchdog(config.hang_s)
    limits = Limits(config.hang_s, config.open_s, config.ring_s)
    probe = Probe(make_source(config), watchdog, clock, log, limits)
    courier = Courier(config.spool_folder, config.outbox_folder, log.trouble)
    reader = LeaseReader(config.leases_folder)
    tools = Tools(config, probe, clock, log, reader, courier, read_boot_id(), slurm_order(config, log))
    sampler = Sampler(tools)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sampler.stop())

    def is_over() -> bool:
        withdraw(config.sampler_folder)
        if all(lease.stem in sampler.sealed for lease in reader.scan().open):
            return True
        _announce(config, log)
        return False

    _announce(config, log)
    try:
        sampler.resume()
        # Signals come to this thread, which never waits for the driver.
        watchdog.watch(lambda: sampler.run(until_idle, is_over))
    finally:
        withdraw(config.sampler_folder)
    if not courier.stop(_STOP_S):
        log.say("some sealed spool files could not be delivered; the next start tries again")
    if watchdog.stuck:
        # The interpreter would wait for the driver's library, and that for the call that hangs.
        os._exit(0)
    return 0


def _announce(config: NodeConfig, log: Log) -> None:
    try:
        announce(config.sampler_folder)
    except OSError as error:
        log.trouble(
            "pid", f"{config.sampler_folder} cannot be written: {error.strerror}; prologs start others"
        )


def make_source(config: NodeConfig) -> DeviceSource:
    """The device source that the settings name; what it needs is imported now."""
    if config.source == "replay":
        from slurm_trace.node.devices.replay import replay

        if not config.replay:
            raise UsageProblem("source=replay: name the scenario or trace with --replay FILE")
        return replay(Path(config.replay))
    if config.source == "amdsmi":
        from slurm_trace.node.devices.amdsmi import AmdSmiSource

        return AmdSmiSource()
    from slurm_trace.node.devices.nvml import NvmlSource

    return NvmlSource(gpm=config.gpm == "yes")


def slurm_order(
    config: NodeConfig, log: Log
) -> Callable[[Lease, Sequence[DeviceInfo]], dict[int, int] | None]:
    """Answers what minor numbers Slurm's indices mean; gres.conf is read for every lease, for it may change."""

    def minors(lease: Lease, devices: Sequence[DeviceInfo]) -> dict[int, int] | None:
        order = read_order(config.gres_conf, lease.node)
        cards = sorted((d for d in devices if d.parent_uuid is None), key=lambda device: device.index)
        found = order.resolve([card.minor for card in cards])
        if found is None:
            log.trouble(
                "gres", f"Slurm's order of the GPUs cannot be told from {config.gres_conf}: {order.reason}"
            )
        return found

    return minors


def status(given: dict[str, Any]) -> int:
    """Print what the sampler says of itself, and what lies in its directories. 1: no sampler runs."""
    config = configure(given.pop("config", None), given)
    pid = running(config.sampler_folder)
    spool, outbox = _names(config.spool_folder), _names(config.outbox_folder)
    lines = {
        "running": pid or "no",
        "open": _count(spool, OPEN),
        "undelivered": _count(spool, SEALED),
        "damaged": _count(spool, DAMAGED),
        "outbox": _count(outbox, ".spool"),
        "outbox_bytes": "unknown" if outbox is None else _bytes(config.outbox_folder, outbox),
    }
    for key, value in lines.items():
        sys.stdout.write(f"{key}={value}\n")
    with contextlib.suppress(OSError):
        sys.stdout.write((config.sampler_folder / "status").read_text(encoding="utf-8"))
    return 0 if pid else 1


def _names(folder: Path) -> list[str] | None:
    """What lies in a folder, but for hidden files; None where that cannot be seen."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]  # noqa: PTH208
    except FileNotFoundError:
        return []
    except OSError:
        return None


def _count(names: list[str] | None, suffix: str) -> int | str:
    return "unknown" if names is None else sum(name.endswith(suffix) for name in names)


def _bytes(folder: Path, names: Sequence[str]) -> int:
    size = 0
    for name in names:
        # One may be fetched meanwhile.
        with contextlib.suppress(OSError):
            size += (folder / name).stat().st_size if name.endswith(".spool") else 0
    return size


def _ensure(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder} cannot be made ({error.strerror}); create it for the sampler's user"
        ) from None


@contextlib.contextmanager
def _only_one(folder: Path, is_ending: Callable[[], bool]) -> Iterator[bool]:
    """Whether this is the only sampler of a spool directory, for as long as it lasts; one that ends is waited for."""
    try:
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise EnvironmentProblem(
            f"{folder} cannot be written ({error.strerror}); give it to the sampler's user, on a disk with space"
        ) from None
    with lock:
        until = time.monotonic() + _ENDING_S
        while not _locked(lock.fileno()):
            if time.monotonic() > until or not is_ending():
                yield False
                return
            time.sleep(_LOOK_S)
        yield True


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
