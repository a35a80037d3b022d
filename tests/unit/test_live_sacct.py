"""Reading a live Slurm through stand-ins for `sacct` that fail in every way the real one does."""

from __future__ import annotations

import os
import stat
import textwrap
import time
from pathlib import Path
from typing import IO

import pytest

from slurm_trace.accounting.commands import BACKOFF_S, Finished, SubprocessRunner, ask, clean_environment
from slurm_trace.accounting.discovery import LiveCluster, discover
from slurm_trace.accounting.live import LiveQuery, LiveWindow, notices, read_live
from slurm_trace.accounting.lock import only_one
from slurm_trace.accounting.records import RunRecord, StepRecord
from slurm_trace.accounting.sacct_command import DELIMITER, IDS_A_CALL, JOB_FIELDS
from slurm_trace.accounting.windows import DAY_S, Window
from slurm_trace.errors import EnvironmentProblem

NOW = 1_800_000_000
LIVE = LiveCluster(name="lab", version="22.05.8", private_data=False)

SACCT = '''\
#!{python}
"""Answers like sacct, in the way the file `mode` says for the n-th call."""
import os, pathlib, sys, time
here = pathlib.Path(__file__).parent
argv = sys.argv[1:]
if argv == ["--version"]:
    print("slurm-wlm 22.05.8"); sys.exit()
if argv == ["--helpformat"]:
    print(" ".join({known!r})); sys.exit()
calls = here / "calls"
with calls.open("a") as log:
    ours = sorted(k for k in os.environ if k.startswith(("SLURM", "SACCT")))
    log.write(" ".join(argv) + "|" + os.environ["TZ"] + "|" + str(ours) + "\\n")
n = len(calls.read_text().splitlines())
modes = (here / "mode").read_text().split()
mode = modes[min(n, len(modes)) - 1]
fields = next(a for a in argv if a.startswith("--format=")).removeprefix("--format=").split(",")
gap = next(a for a in argv if a.startswith("--delimiter=")).removeprefix("--delimiter=")
def row(**cells):
    sys.stdout.write("".join(str(cells.get(f, "")) + gap for f in fields) + "\\n")
def header():
    row(**{{f: f for f in fields}})
def job(number):
    row(JobIDRaw=number, JobID=number, Cluster="lab", State="COMPLETED", Submit={now} - 900, Start={now} - 800,
        End={now} - 700, ElapsedRaw=100, Suspended="00:00:00", AllocTRES="cpu=1,node=1,gres/gpu=1", NNodes=1,
        AllocNodes=1, AllocCPUS=1, NodeList="n1", JobName="a", User="u", Account="x", UID=7)
if mode == "hang":
    time.sleep(60)
elif mode == "refused":
    sys.stderr.write("sacct: error: Problem talking to the database: Connection refused\\n"); sys.exit(1)
elif mode == "partial":
    header(); job(1); sys.stderr.write("sacct: error: lost\\n"); sys.exit(1)
elif mode == "empty":
    sys.exit(0)
elif mode == "field":
    sys.stderr.write('sacct: error: Invalid field requested: "X"\\n'); sys.exit(1)
elif mode == "wide":
    sys.stderr.write("sacct: error: Too wide of a date range in query\\n"); sys.exit(1)
elif mode == "prose":
    print("SLURM accounting storage is disabled"); sys.exit(0)
elif mode == "headeronly":
    header()
elif mode == "chatty":
    header(); sys.stderr.write("sacct: warning: a plugin is missing\\n")
elif mode == "killed":
    os.kill(os.getpid(), 9)
elif mode == "ok":
    header(); job(1); job(2)
    if any(a.startswith("--state=") for a in argv):
        row(JobIDRaw="2.batch", JobID="2.batch", Cluster="lab", State="CANCELLED", Start={now} - 800, End={now} - 650)
'''


class Stand(SubprocessRunner):
    """Runs the stand-in; its clock stands still and waiting takes no time."""

    def __init__(self, folder: Path, known: tuple[str, ...] = JOB_FIELDS) -> None:
        super().__init__(
            {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_CONF": "/x", "SACCT_FORMAT": "JobID", "TZ": "X"}
        )
        self.folder = folder
        self.slept: list[float] = []
        self.put("sacct", SACCT.format(python=os.sys.executable, known=known, now=NOW))  # type: ignore[attr-defined]

    def put(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def modes(self, *modes: str) -> Stand:
        (self.folder / "mode").write_text(" ".join(modes))
        return self

    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def now(self) -> int:
        return NOW


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Stand(tmp_path)


def query(**changes: object) -> LiveQuery:
    return LiveQuery(**({"since": NOW - 1000, "steps": False, "call_limit_s": 20} | changes))  # type: ignore[arg-type]


def read(
    stand: Stand, wanted: LiveQuery, live: LiveCluster = LIVE
) -> tuple[list[LiveWindow], list[RunRecord], list[StepRecord]]:
    windows, runs, steps = [], [], []
    for window in read_live(stand, live, wanted):
        windows.append(window)
        for block in window.blocks():
            runs += block.records()
            steps += block.steps
    return windows, runs, steps


def test_good_answer(stand: Stand) -> None:
    windows, runs, _ = read(stand.modes("ok"), query())
    assert [r.job_id_raw for r in runs] == [1, 2]
    assert (runs[0].submit, runs[0].start, runs[0].end, runs[0].elapsed_s) == (
        NOW - 900,
        NOW - 800,
        NOW - 700,
        100,
    )
    assert windows[0].covers == Window(NOW - 1000, NOW - 10)
    assert windows[0].watermark == NOW - 10
    assert windows[0].flags["all_users"] is windows[0].flags["duplicates"] is True


def test_command_line_and_environment(stand: Stand) -> None:
    read(stand.modes("ok"), query())
    (call,) = stand.calls()
    argv, zone, variables = call.split("|")
    assert zone == "UTC"
    assert variables == "['SLURM_CONF', 'SLURM_TIME_FORMAT']"
    for part in (
        "--allusers",
        "--duplicates",
        "--allocations",
        "--parsable",
        "--clusters=lab",
        f"--delimiter={DELIMITER}",
    ):
        assert part in argv.split(" ")
    assert "--starttime=2027-01-15T07:43:20 --endtime=2027-01-15T08:00:01" in argv
    assert argv.split("--format=")[1].split()[0].endswith("NodeList,WorkDir,JobName")
    assert not {"SubmitLine", "Comment", "AdminComment"} & set(
        argv.split("--format=")[1].split()[0].split(",")
    )


def test_unknown_fields_are_not_asked_for(tmp_path: Path) -> None:
    known = tuple(f for f in JOB_FIELDS if f not in ("SLUID", "AllocGRES"))
    stand = Stand(tmp_path, known).modes("ok")
    assert len(read(stand, query())[1]) == 2
    assert "SLUID" not in stand.calls()[0]


def test_a_sacct_that_cannot_identify_a_run_is_refused(tmp_path: Path) -> None:
    stand = Stand(tmp_path, ("JobID", "State")).modes("ok")
    with pytest.raises(EnvironmentProblem, match=r"no field .*JobIDRaw.*Submit"):
        read(stand, query())


def test_connection_refused_twice_then_fine(stand: Stand) -> None:
    windows, runs, _ = read(stand.modes("refused", "refused", "ok"), query())
    assert [r.job_id_raw for r in runs] == [1, 2]
    assert stand.slept == list(BACKOFF_S[:2])
    assert windows[0].watermark == NOW - 10


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("refused", "exit 1: sacct: error: Problem talking to the database: Connection refused"),
        ("partial", "exit 1: sacct: error: lost"),
        ("empty", "printed nothing"),
        ("field", "Invalid field requested"),
        ("prose", "SLURM accounting storage is disabled"),
        ("killed", "exit -9"),
    ],
)
def test_lasting_failure_hands_on_no_row(stand: Stand, mode: str, said: str) -> None:
    answers = read_live(stand.modes(mode), LIVE, query())
    with pytest.raises(EnvironmentProblem) as caught:
        next(answers)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(stand.calls()) == len(BACKOFF_S) + 1


def test_windows_before_a_failure_stay_good(stand: Stand) -> None:
    stand.modes("ok", "refused")
    answers = read_live(stand, LIVE, query(since=NOW - 5 * DAY_S))
    assert len([r for b in next(answers).blocks() for r in b.records()]) == 2
    with pytest.raises(EnvironmentProblem, match="what was read before is kept"):
        next(answers)


def test_hung_sacct_is_killed_and_the_window_halved(stand: Stand) -> None:
    began = time.monotonic()
    windows, _, _ = read(stand.modes("hang", "ok"), query(since=NOW - DAY_S // 2, call_limit_s=1.0))
    assert time.monotonic() - began < 15
    assert windows[0].asked == Window(NOW - DAY_S // 2, NOW)
    assert windows[-1].asked is not None
    assert windows[-1].asked.until == NOW + 1
    hung, retried = (c.split("--endtime=")[1].split("|")[0] for c in stand.calls()[:2])
    assert hung == "2027-01-15T08:00:01"
    assert retried == "2027-01-15T08:00:00"


def test_a_window_that_slurmdbd_refuses_is_halved(stand: Stand) -> None:
    windows, _, _ = read(stand.modes("wide", "ok"), query(since=NOW - DAY_S))
    assert windows[0].asked == Window(NOW - DAY_S, NOW - DAY_S // 2)


def test_sacct_that_always_hangs_ends(stand: Stand) -> None:
    with pytest.raises(EnvironmentProblem, match="no answer in time"):
        read(stand.modes("hang"), query(call_limit_s=0.3))


def test_nothing_in_the_window(stand: Stand) -> None:
    windows, runs, _ = read(stand.modes("headeronly"), query())
    assert (len(windows), runs) == (1, [])


def test_windows_without_a_run_become_one_with_the_next(stand: Stand) -> None:
    windows, runs, _ = read(
        stand.modes("headeronly", "headeronly", "ok", "ok", "headeronly"),
        query(since=NOW - 20 * DAY_S, steps=True),
    )
    assert [w.asked for w in windows] == [
        Window(NOW - 20 * DAY_S, NOW - 13 * DAY_S),
        Window(NOW - 13 * DAY_S, NOW + 1),
    ]
    assert windows[0].covers == windows[0].asked
    assert len(runs) == 2
    assert sum("--state=" in call for call in stand.calls()) == 1


def test_remarks_on_standard_error_are_warnings(stand: Stand) -> None:
    assert "a plugin is missing" in read(stand.modes("chatty"), query())[0][0].warnings[0]


def test_steps_come_without_their_job_rows(stand: Stand) -> None:
    _, runs, steps = read(stand.modes("ok"), query(steps=True))
    assert [r.job_id_raw for r in runs] == [1, 2]
    assert [(s.job_id_raw, s.job_id, s.end, s.finished) for s in steps] == [(2, "2.batch", NOW - 650, True)]
    assert "--state=CANCELLED,FAILED" in stand.calls()[1]


def test_failed_steps_fail_the_window(stand: Stand) -> None:
    with pytest.raises(EnvironmentProblem):
        read(stand.modes("ok", "partial", "ok", "partial", "ok", "empty", "ok", "refused"), query(steps=True))


def test_hidden_data_completes_nothing(stand: Stand) -> None:
    for private in (True, None):
        live = LiveCluster(name="lab", version="22.05.8", private_data=private)
        windows, runs, _ = read(stand.modes("ok"), query(), live)
        assert windows[0].covers is None
        assert windows[0].flags["private_data"] is private
        assert len(runs) == 2
        assert "PrivateData" in notices(live)[0]
    assert notices(LIVE) == []


def test_purged_time_is_not_covered(stand: Stand) -> None:
    live = LiveCluster(name="lab", version="22.05.8", private_data=False, purge_after_s=500)
    assert read(stand.modes("ok"), query(), live)[0][0].covers == Window(NOW - 500, NOW - 10)
    assert "PurgeJobAfter" in notices(live)[0]


def test_ids_go_in_batches(stand: Stand) -> None:
    windows, _, _ = read(stand.modes("ok"), query(since=NOW + 5, refresh=range(1, 3 * IDS_A_CALL + 1)))
    assert len(windows) == 3
    assert {w.covers for w in windows} == {w.watermark for w in windows} == {None}
    assert all(len(c.split("--jobs=")[1].split("|")[0].split(",")) == IDS_A_CALL for c in stand.calls())


def test_no_sacct_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match=r"cannot run sacct.*on PATH"):
        discover(SubprocessRunner({"PATH": str(tmp_path)}))


def test_runner_kills_the_whole_group(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    script = f"(sleep 2; touch {marker}) & sleep 60"
    with (tmp_path / "out").open("wb") as out:
        assert (
            SubprocessRunner({"PATH": os.environ["PATH"]}).run(["sh", "-c", script], out, 0.3).status is None
        )
    time.sleep(2.5)
    assert not marker.exists()


def test_ask_wants_an_answer(stand: Stand) -> None:
    with pytest.raises(EnvironmentProblem, match=r"false failed \(exit 1\)"):
        ask(stand, ["false"])
    with pytest.raises(EnvironmentProblem, match="true said nothing"):
        ask(stand, ["true"], pauses=(1, 2))
    assert stand.slept == [1, 2]


def test_reason_is_one_short_line() -> None:
    text = Finished(1, "a\n\n  b\n" + "x" * 5000).reason
    assert text.startswith("exit 1: a; b; xxx")
    assert len(text) < 400


def test_environment_keeps_what_slurm_needs() -> None:
    kept = clean_environment(
        {
            "PATH": "p",
            "HOME": "h",
            "SLURM_CONF": "c",
            "SLURM_JWT": "j",
            "SLURM_CLUSTERS": "x",
            "LC_TIME": "de",
            "TZ": "X",
        }
    )
    assert kept == {
        "PATH": "p",
        "HOME": "h",
        "SLURM_CONF": "c",
        "SLURM_JWT": "j",
        "TZ": "UTC",
        "SLURM_TIME_FORMAT": "%s",
        "LC_ALL": "C.UTF-8",
    }


class Says:
    """A runner whose commands print what is written here."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers

    def run(self, argv: list[str], stdout: IO[bytes], limit_s: float) -> Finished:
        key = next((k for k in self.answers if k in " ".join(argv)), None)
        if key is None:
            return Finished(1, "no such thing")
        stdout.write(self.answers[key].encode())
        return Finished(0, "")

    def sleep(self, seconds: float) -> None: ...

    def now(self) -> int:
        return NOW


CONFIG = """\
Configuration data as of 2026-11-30T16:57:58
PrivateData            = none
SlurmUserId            = slurm(64030)

SlurmDBD configuration:
MaxQueryTimeRange      = {range}
PrivateData            = {private}
PurgeJobAfter          = {purge}
SlurmUser              = slurm(64030)
"""


def site(private: str = "none", purge: str = "NONE", widest: str = "UNLIMITED", **more: str) -> Says:
    config = CONFIG.format(private=private, purge=purge, range=widest)
    return Says(version="slurm 24.11.5", configuration=config, **({"cluster": "lab\n"} | more))


def test_discovery_reads_the_limits_of_slurmdbd() -> None:
    live = discover(site(purge="12 months*", widest="31-00:00:00"))
    assert live == LiveCluster(
        name="lab", version="24.11.5", private_data=False, purge_after_s=12 * 31 * DAY_S, widest_s=31 * DAY_S
    )
    assert live.release == (24, 11)


@pytest.mark.parametrize(
    ("uid", "level", "hidden"),
    [
        (0, "None", False),
        (64030, "None", False),
        (7001, "None", True),
        (7001, "Operator", False),
        (7001, "", True),
    ],
)
def test_private_data_hides_from_whom(
    monkeypatch: pytest.MonkeyPatch, uid: int, level: str, hidden: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr("getpass.getuser", lambda: "somebody")
    assert discover(site("accounts,jobs", AdminLevel=level)).private_data is hidden
    assert discover(site("accounts,usage", AdminLevel=level)).private_data is False


def test_private_data_that_is_not_told_is_unknown() -> None:
    assert (
        discover(Says(version="slurm 24.11.5", configuration="Nothing = 1", cluster="lab\n")).private_data
        is None
    )


def test_one_of_several_clusters() -> None:
    several = {"cluster": "a\nb\n"}
    assert discover(site(**several, config="ClusterName = b\n")).name == "b"
    with pytest.raises(EnvironmentProblem):
        discover(site(**several))
    with pytest.raises(EnvironmentProblem, match="--cluster"):
        discover(site(**several, config="Other = b\n"))
    assert discover(site(**several), "a").name == "a"


def test_only_one_at_a_time(tmp_path: Path) -> None:
    with only_one("sacct-lab", tmp_path):
        with (
            pytest.raises(EnvironmentProblem, match=rf"process {os.getpid()}"),
            only_one("sacct-lab", tmp_path),
        ):
            pass
        with only_one("sacct-other", tmp_path):
            pass
    with only_one("sacct-lab", tmp_path):
        pass


def test_lock_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot make the lock"), only_one("x", tmp_path / "file"):
        pass
    (tmp_path / "x.lock").symlink_to(tmp_path / "file")
    with pytest.raises(EnvironmentProblem, match="cannot make the lock"), only_one("x", tmp_path):
        pass
