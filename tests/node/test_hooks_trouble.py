"""Every trouble that a node can be in: exit status 0, within a second, nothing written where it does not belong."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_trace.node.lease import read_leases
from support.hooks import JOB, SHELLS, HookBox, Ran, with_tools

CAP_S = 1.0
HOOK_NAMES = ("prolog", "epilog")
NOBODY = 65534


@pytest.fixture(params=SHELLS)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> HookBox:
    return HookBox(tmp_path, request.param).make()


@pytest.fixture
def small(box: HookBox) -> Iterator[HookBox]:
    """The directory on a file system of 16 KiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=755", "none", box.directory], check=True)
    box.leases.mkdir()
    yield box
    subprocess.run(["umount", box.directory], check=True)


def both(box: HookBox, **options: object) -> list[Ran]:
    ran = [box.run(hook, JOB, **options) for hook in HOOK_NAMES]  # type: ignore[arg-type]
    assert [(one.code, one.output) for one in ran] == [(0, b"")] * 2
    return ran


def quick(call: Callable[[], Ran]) -> Ran:
    """Up to three tries: a busy machine is not the hook's doing."""
    for _ in range(3):
        ran = call()
        if ran.seconds < CAP_S:
            break
    assert ran.seconds < CAP_S
    return ran


@pytest.mark.parametrize(
    "job_id",
    [
        "",
        "0",
        "007",
        "-1",
        "+1",
        "1e3",
        "1.0",
        "12 ",
        "12\n",
        "12;id",
        "$(id)",
        "../12",
        "12_3",
        "12+1",
        "\u0661\u0662",
        "1" * 11,
    ],
)
def test_job_id_that_is_no_plain_number(box: HookBox, job_id: str) -> None:
    log = with_tools(box)
    for hook in HOOK_NAMES:
        assert box.run(hook, {**JOB, "SLURM_JOB_ID": job_id}).code == 0
    assert box.names() == []
    lines = log.read_text().splitlines()
    assert len(lines) == 2
    assert all("refused: SLURM_JOB_ID" in line and "job unknown" in line for line in lines)


def test_no_environment_at_all(box: HookBox) -> None:
    for hook in HOOK_NAMES:
        assert box.run(hook, {}).code == 0
    assert box.names() == []


def test_directory_is_made_where_it_is_missing(box: HookBox) -> None:
    box.configure(directory=str(box.root / "other"))
    both(box)
    made = box.root / "other" / "leases"
    assert len(list(made.iterdir())) == 2
    assert made.stat().st_mode & 0o7777 == 0o2750


def test_directory_that_cannot_be_made(box: HookBox) -> None:
    log = with_tools(box)
    box.configure(directory="/proc/none/here")
    both(box)
    assert "cannot create /proc/none/here/leases" in log.read_text()


@pytest.mark.parametrize("target", ["directory", "nowhere", "file"])
def test_directory_that_is_a_link(box: HookBox, target: str) -> None:
    elsewhere = box.root / "elsewhere"
    if target == "directory":
        elsewhere.mkdir()
    elif target == "file":
        elsewhere.write_text("mine")
    box.leases.rmdir()
    box.leases.symlink_to(elsewhere)
    both(box)
    assert target != "directory" or list(elsewhere.iterdir()) == []
    assert target != "file" or elsewhere.read_text() == "mine"
    assert target != "nowhere" or not elsewhere.exists()


def test_directory_of_another_user(box: HookBox) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give a directory away")
    log = with_tools(box)
    os.chown(box.leases, NOBODY, NOBODY)
    both(box)
    assert box.names() == []
    assert "has another owner" in log.read_text()


def test_full_file_system(small: HookBox) -> None:
    log = with_tools(small)
    (small.leases / "99.1.filler").write_bytes(b"x" * 16384)
    both(small)
    assert small.names() == ["99.1.filler"]
    assert log.read_text().count("no space") == 2


def test_full_file_system_and_an_open_lease(small: HookBox) -> None:
    small.prolog()
    (lease,) = small.scan().open
    filler = small.leases / "99.1.filler"
    try:
        filler.write_bytes(b"x" * 16384)
    except OSError:
        assert filler.stat().st_size
    assert small.epilog().code == 0
    assert small.scan().open == (lease,)


def test_read_only_file_system(small: HookBox) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small.directory], check=True)
    both(small)
    assert small.names() == []


@pytest.mark.parametrize(
    "names", [[".4711.{}.tmp"], ["4711.{}.lease", "4711.{}.end"]], ids=["claims", "names"]
)
def test_planted_links_are_not_followed(box: HookBox, names: list[str]) -> None:
    victim = box.root / "victim"
    victim.write_text("mine")

    def plant() -> None:
        now = int(Path("/proc/uptime").read_text().split()[0].replace(".", ""))
        for moment in range(now - 1, now + 200):
            for name in names:
                (box.leases / name.format(moment)).symlink_to(victim)

    assert box.run("prolog", JOB, before=plant).code == 0
    for path in box.leases.iterdir():
        path.unlink()
    assert box.run("epilog", JOB, before=plant).code == 0
    assert victim.read_text() == "mine"
    assert all((box.leases / name).is_symlink() for name in box.names())


def test_planted_pipes_and_directories_do_not_hold_the_hook(box: HookBox) -> None:
    def plant() -> None:
        now = int(Path("/proc/uptime").read_text().split()[0].replace(".", ""))
        for moment in range(now - 1, now + 100):
            os.mkfifo(box.leases / f".4711.{moment}.tmp")
            (box.leases / f"4711.{moment}.lease").mkdir()
            os.mkfifo(box.leases / f"4711.{moment}.end")

    quick(lambda: (_clear(box.leases), box.run("prolog", JOB, before=plant))[1])
    quick(lambda: (_clear(box.leases), box.run("epilog", JOB, before=plant))[1])
    assert not any((box.leases / name).is_file() for name in box.names())


def _clear(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


@pytest.mark.parametrize("hook", HOOK_NAMES)
def test_file_system_that_hangs(box: HookBox, hook: str) -> None:
    log = with_tools(box)
    os.mkfifo(box.root / "hooks.conf")
    ran = quick(lambda: box.run(hook, JOB))
    assert (ran.code, ran.output, ran.left_over) == (0, b"", False)
    assert f"{hook}: job 4711: gave up after 0.7 s" in log.read_text()


@pytest.mark.parametrize("hook", HOOK_NAMES)
@pytest.mark.parametrize("tool", ["ln", "logger"])
def test_program_that_hangs(box: HookBox, hook: str, tool: str) -> None:
    with_tools(box, **{tool: "exec sleep 600"})
    env = JOB if tool == "ln" else {}
    ran = quick(lambda: box.run(hook, env))
    assert (ran.code, ran.output) == (0, b"")


@pytest.mark.parametrize("tool", ["mv", "rm", "logger", "sleep"])
def test_program_that_is_missing(box: HookBox, tool: str) -> None:
    with_tools(box, **{tool: "exit 127"})
    both(box)
    assert all(name.endswith((".lease", ".end", ".tmp")) for name in box.names())
    assert box.scan().refused == ()


def test_script_part_that_is_missing(box: HookBox) -> None:
    with_tools(box)
    (box.hooks / "common.sh").unlink()
    both(box)
    assert box.names() == []


def test_no_process_is_left(box: HookBox) -> None:
    for _ in range(5):
        assert [one.left_over for one in both(box)] == [False, False]


def test_asked_to_stop(box: HookBox) -> None:
    with_tools(box, ln="exec sleep 600")
    for hook in HOOK_NAMES:
        ran = box.run(hook, JOB, signal_after_s=0.2)
        assert ran.code == 0
        assert ran.seconds < CAP_S


def _ignore_signals() -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def _block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGALRM})


def test_signals_ignored_by_the_caller(box: HookBox) -> None:
    both(box, before=_ignore_signals)
    assert len(box.scan().ended) == 1


def test_signals_blocked_by_the_caller(box: HookBox) -> None:
    both(box, before=_block_signals)


def test_closed_standard_streams(box: HookBox) -> None:
    both(box, before=lambda: os.closerange(0, 3))
    assert len(box.scan().ended) == 1


@pytest.mark.parametrize("limit", [resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_CPU])
def test_small_limits(box: HookBox, limit: int) -> None:
    for hook in HOOK_NAMES:
        ran = quick(lambda hook=hook: box.run(hook, JOB, before=lambda: resource.setrlimit(limit, (1, 1))))
        assert ran.code == 0
    assert box.scan().refused == ()


def test_few_descriptors(box: HookBox) -> None:
    both(box, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16)))


# Not bash: it tries again for 15 s of its own before the script hears of it (and then ends with 0).
@pytest.mark.parametrize("box", ["dash", "busybox sh"], indirect=True)
def test_no_more_processes(box: HookBox) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to run as a user without processes of its own")
    box.root.chmod(0o755)
    for parent in box.root.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    assert box.config.exists()

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    both(box, before=confine)


def test_working_directory_that_is_gone(box: HookBox) -> None:
    for hook in HOOK_NAMES:
        gone = box.root / f"gone-{hook}"
        gone.mkdir()
        assert box.run(hook, JOB, cwd=gone, before=gone.rmdir).code == 0
    assert len(box.scan().ended) == 1


def test_dead_sampler_does_not_fill_memory(box: HookBox) -> None:
    log = with_tools(box)
    for number in range(1, 4101):
        (box.leases / f"{number}.1.lease").touch()
        (box.leases / f"{number}.1.end").touch()
    quick(box.epilog)
    assert len(list(box.leases.glob("*.end"))) < 4102
    assert "no sampler took" in log.read_text()


def test_leases_that_nobody_closes_come_to_an_end(box: HookBox) -> None:
    log = with_tools(box)
    for number in range(1, 10002):
        (box.leases / f"{number}.1.lease").touch()
    quick(box.prolog)
    assert "is the Epilog configured?" in log.read_text()
    assert len(box.names()) == 10001


@pytest.mark.parametrize("made", [True, False], ids=["directory there", "directory missing"])
def test_many_nodes_on_one_machine_begin_a_job_at_once(box: HookBox, made: bool) -> None:
    if not made:
        box.configure(directory=str(box.root / "other"))
    config, (program, words) = str(box.config), SHELLS[box.shell]
    processes = [
        subprocess.Popen(
            [*words, str(box.hooks / "prolog"), config],
            executable=f"/usr/bin/{program}",
            env={**JOB, "SLURMD_NODENAME": f"n{number}"},
        )
        for number in range(8)
    ]
    assert {process.wait() for process in processes} == {0}
    scan = read_leases(box.leases if made else box.root / "other" / "leases")
    assert sorted(lease.node or "" for lease in scan.open) == [f"n{number}" for number in range(8)]


def test_hundreds_at_once(box: HookBox) -> None:
    processes = []
    config, (program, words) = str(box.config), SHELLS[box.shell]
    for number in range(1, 151):
        command = [*words, str(box.hooks / "prolog"), config]
        env = {**JOB, "SLURM_JOB_ID": str(number % 50 + 1), "SLURMD_NODENAME": f"n{number % 3}"}
        processes.append(subprocess.Popen(command, executable=f"/usr/bin/{program}", env=env))
    assert {process.wait() for process in processes} == {0}
    scan = box.scan()
    assert scan.refused == ()
    assert len(scan.open) + len(scan.ended) == 150


def test_claim_of_a_killed_hook_is_in_no_ones_way(box: HookBox) -> None:
    box.prolog()
    (lease,) = box.scan().open
    (box.leases / f".{lease.stem}.tmp").touch()
    box.epilog()
    scan = box.scan()
    assert (scan.open, scan.orphans) == ((), ())
    assert [(one.stem, end.how) for one, end in scan.ended] == [(lease.stem, "epilog")]


def test_old_claims_are_swept(box: HookBox) -> None:
    for number in range(30):
        (box.leases / f".{number + 1}.{number}.tmp").touch()
    young = f".9.{int(Path('/proc/uptime').read_text().split()[0].replace('.', ''))}.tmp"
    (box.leases / young).touch()
    box.prolog()
    box.epilog()
    assert [name for name in box.names() if name.endswith(".tmp")] == [young]


def test_two_epilogs_at_once_close_one_lease_and_no_other(box: HookBox) -> None:
    config, (program, words) = str(box.config), SHELLS[box.shell]
    for number in range(1, 11):
        box.prolog({**JOB, "SLURM_JOB_ID": str(number)})
    processes = [
        subprocess.Popen(
            [*words, str(box.hooks / "epilog"), config],
            executable=f"/usr/bin/{program}",
            env={**JOB, "SLURM_JOB_ID": str(number % 10 + 1)},
        )
        for number in range(40)
    ]
    assert {process.wait() for process in processes} == {0}
    scan = box.scan()
    assert (scan.open, scan.refused) == ((), ())
    assert {end.how for _, end in scan.ended} == {"epilog"}
    assert {end.how for end in scan.orphans} <= {"orphan"}
    assert len(scan.ended) == 10
    assert all(not name.startswith(".") for name in box.names())


def test_killed_at_any_moment(box: HookBox) -> None:
    chance = random.Random(3)
    config, (program, words) = str(box.config), SHELLS[box.shell]
    for number in range(60):
        process = subprocess.Popen(
            [*words, str(box.hooks / HOOK_NAMES[number % 2]), config],
            executable=f"/usr/bin/{program}",
            env={**JOB, "SLURM_JOB_ID": str(number // 2 + 1)},
            process_group=0,
        )
        time.sleep(chance.uniform(0, 0.012))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert box.scan().refused == ()
    for lease in box.scan().open:
        box.epilog({**JOB, "SLURM_JOB_ID": str(lease.job_id)})
    scan = box.scan()
    assert (scan.open, scan.refused) == ((), ())
    # What was written is whole, and an epilog that found a lease closed that one.
    assert {end.how for end in scan.orphans} <= {"orphan"}


@pytest.mark.parametrize("box", ["bash as sh"], indirect=True)
@pytest.mark.parametrize("name", ["[", "echo", "umask", "printf", "mv"])
def test_function_from_the_environment_is_not_run(box: HookBox, name: str) -> None:
    ran = box.root / "ran"
    env = {**JOB, f"BASH_FUNC_{name}%%": f"() {{ : >{ran}; }}"}
    for hook in HOOK_NAMES:
        assert box.run(hook, env).code == 0
    assert not ran.exists()
    assert len(box.scan().ended) == 1


@pytest.mark.parametrize("line", [" directory={} \n", "directory={}\r\n"], ids=["blanks", "carriage return"])
def test_configuration_of_another_systems_editor(box: HookBox, line: str) -> None:
    box.config.write_bytes(line.format(box.directory).encode())
    for hook in HOOK_NAMES:
        program, words = SHELLS[box.shell]
        command = [*words, str(box.hooks / hook), str(box.root / "hooks.conf")]
        subprocess.run(command, executable=f"/usr/bin/{program}", env=JOB, check=True)
    assert len(box.scan().ended) == 1
