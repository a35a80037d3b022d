"""`import` and `store` as a user calls them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from slurm_trace.accounting.records import block_of
from slurm_trace.cli.import_sources import FileRequest, open_input
from slurm_trace.cli.main import app
from slurm_trace.store.engine import open_store
from slurm_trace.store.ingest import begin_import
from slurm_trace.store.load import count_runs, load_events, load_imports, load_raw, load_runs
from tests.support.runs import run

HEADER = "JobIDRaw|JobID|Cluster|User|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES|NodeList"
TIMES = "2025-03-01T10:00:00|2025-03-01T10:01:00|2025-03-01T11:01:00|3600"
ROW = "{0}|{0}|{1}|ada|COMPLETED|" + TIMES + "|1|cpu=4,gres/gpu=1,node=1|n1"
COUNTS = ("read", "jobs", "inserted", "updated", "unchanged", "steps_skipped")
EVENTS = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
EVENTS += "lab|n1|2025-03-01T10:00:00|2025-03-02T10:00:00|DOWN|disk|root\n"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Runs a command on a store of its own; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments, stdin=None):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run(
            [sys.executable, "-c", "from slurm_trace.cli.main import run; run()", "--store", "store", *arguments],
            input=stdin, capture_output=True, env=environment, timeout=120, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return command


def export(path, rows, header=HEADER):
    Path(path).write_text("\n".join([header, *rows]) + "\n")


def test_json_of_an_import(call):
    export("a.txt", [ROW.format(job, "lab") for job in (1, 2)])
    code, out, err = call("import", "sacct", "a.txt", "--tz", "UTC", "--json")
    expected = {
        "schema": "slurm-trace/import/1",
        "read": 2,
        "jobs": 2,
        "inserted": 2,
        "updated": 0,
        "unchanged": 0,
        "steps_skipped": 0,
    }
    assert json.loads(out) == {**expected, "rejected": [], "warnings": []}
    assert list(json.loads(out)) == ["schema", *COUNTS, "rejected", "warnings"]
    assert (code, err) == (0, "")
    assert (
        json.loads(call("import", "sacct", "a.txt", "--tz", "UTC", "--format", "json")[1])["unchanged"] == 2
    )


def test_rejected_rows_are_exit_3_and_all_else_is_kept(call):
    export("a.txt", [ROW.format(1, "lab"), ROW.format("x", "lab"), ROW.format(3, "lab")])
    code, out, err = call("import", "sacct", "a.txt", "--tz", "UTC", "--json")
    told = json.loads(out)
    assert code == 3
    assert [row["line"] for row in told["rejected"]] == [3]
    assert told["rejected"][0]["reason"]
    assert "line 3" in err
    code, out, _ = call("store", "info", "--json")
    info = json.loads(out)
    assert info["clusters"] == [{"name": "lab", "runs": 2, "rejected": 1}]
    assert info["imports"][0]["complete"] is True


def test_table_and_csv(call):
    export("a.txt", [ROW.format(1, "lab")])
    code, out, err = call("import", "sacct", "a.txt")
    assert code == 0
    assert "inserted" in out
    assert "--tz" in err
    assert call("import", "sacct", "a.txt", "--tz", "UTC", "--format", "csv")[1].splitlines() == [
        "read,jobs,inserted,updated,unchanged,steps_skipped,rejected",
        "1,1,0,1,0,0,0",
    ]


def test_pipe_large_and_small(call):
    for count, inserted in ((1, 1), (3000, 2999)):
        text = "\n".join([HEADER, *(ROW.format(job, "lab") for job in range(1, count + 1))]) + "\n"
        code, out, _ = call("import", "sacct", "-", "--tz", "UTC", "--json", stdin=text.encode())
        assert code == 0
        assert json.loads(out)["read"] == count
        assert json.loads(out)["inserted"] == inserted


def test_what_the_log_keeps(call):
    import hashlib

    export("a.txt", [ROW.format(1, "lab")])
    call(
        "import",
        "sacct",
        "a.txt",
        "--tz",
        "Europe/Helsinki",
        "--covers",
        "2025-03-01..2025-03-02",
        "--queried-at",
        "2025-03-05",
    )
    store = open_store("store")
    (entry,) = load_imports(store)
    assert entry.digest == hashlib.sha256(Path("a.txt").read_bytes()).hexdigest()
    assert (entry.covers_to - entry.covers_from, entry.name) == (86400, str(Path("a.txt").absolute()))
    assert entry.covers_from == 1740780000
    raw = load_raw(store, 1)
    assert (raw.header.decode(), raw.zone) == (HEADER, "Europe/Helsinki")
    assert raw.raw.decode() == ROW.format(1, "lab")
    store.close()


def test_zone_of_the_profile(call):
    Path("site.toml").write_text('[clusters.lab]\nzone = "Europe/Helsinki"\n')
    export("a.txt", [ROW.format(1, "lab")])
    code, _, err = call("--config", "site.toml", "import", "sacct", "a.txt")
    assert (code, err) == (0, "")
    assert list(load_runs(open_store("store"))["submit"]) == [1740816000]


def test_no_cluster(call):
    export("a.txt", [ROW.format(1, "")])
    code, _, err = call("import", "sacct", "a.txt", "--tz", "UTC")
    assert (code, err.count("\n")) == (2, 1)
    assert "--cluster" in err
    assert call("import", "sacct", "a.txt", "--tz", "UTC", "--cluster", "lab")[0] == 0
    assert call("import", "sacct", "a.txt", "--tz", "UTC")[0] == 0
    assert count_runs(open_store("store")) == {"lab": 1}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nowhere.txt"], 2),
        (["."], 2),
        (["a.txt", "--tz", "Mars/Base"], 2),
        (["a.txt", "--covers", "2025-01-01"], 2),
        (["a.txt", "--covers", "2025-01-02..2025-01-01"], 2),
        (["a.txt", "--queried-at", "soon"], 2),
        (["a.txt", "--since", "2025-01-01"], 2),
        (["a.txt", "--source", "sacct"], 2),
        (["--covers", "2025-01-01..2025-01-02"], 2),
        (["--since", "2025-01-02", "--until", "2025-01-01"], 2),
        (["prose.txt"], 3),
        (["empty.txt"], 3),
        (["packed.gz"], 3),
        (["store"], 3),
        (["a\0b"], 2),
    ],
    ids=repr,
)
def test_what_bad_calls_get(call, arguments, code):
    export("a.txt", [ROW.format(1, "lab")])
    Path("prose.txt").write_text("sacct: error: slurmdbd is down\n")
    Path("empty.txt").touch()
    Path("packed.gz").write_bytes(b"\x1f\x8b\x08")
    call("store", "init")
    if "\0" in arguments[0]:
        result = CliRunner().invoke(app, ["--store", "store", "import", "sacct", *arguments])
        assert result.exception.exit_code in (2, 4)
        return
    got, out, err = call("import", "sacct", *arguments)
    assert (got, out) == (code, "")
    assert len(err.strip().splitlines()) <= 4
    assert count_runs(open_store("store")) == {}


def test_file_that_is_no_export_is_noted(call):
    Path("prose.txt").write_text("no such thing\n")
    assert call("import", "sacct", "prose.txt")[0] == 3
    (entry,) = load_imports(open_store("store"))
    assert not entry.complete
    assert "prose.txt" in entry.problem
    assert "incomplete" in call("store", "info")[1]


def test_events(call):
    Path("e.txt").write_text(EVENTS)
    code, out, _ = call("import", "events", "e.txt", "--tz", "UTC", "--json")
    assert code == 0
    assert json.loads(out)["inserted"] == 1
    assert (
        json.loads(call("import", "events", "-", "--tz", "UTC", "--json", stdin=EVENTS.encode())[1])[
            "unchanged"
        ]
        == 1
    )
    (event,) = load_events(open_store("store"))
    assert (event.node, event.end - event.start) == ("n1", 86400)


def test_store_commands(call):
    assert call("store", "info")[0] == 4
    assert call("store", "upgrade")[0] == 4
    assert call("store", "init")[0] == 0
    assert call("store", "init")[0] == 0
    assert call("store", "upgrade")[0] == 0
    for form in ("table", "json", "csv"):
        assert call("store", "info", "--format", form)[0] == 0


def _feed(pipe, data):
    with contextlib.suppress(OSError):
        pipe.write(data)
        pipe.flush()


def test_killed_while_reading(call, tmp_path):
    """Killing the reading process is an error of one line; killing the whole command leaves what was committed."""
    export("a.txt", [ROW.format(job, "lab") for job in range(1, 60_001)])
    command = [
        sys.executable,
        "-c",
        "from slurm_trace.cli.main import run; run()",
        "--store",
        "store",
        "import",
        "sacct",
        "-",
        "--tz",
        "UTC",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    for victim in ("child", "parent", "interrupt"):
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        # The input stays open, so that the import is under way for certain when the signal comes.
        feed = threading.Thread(target=_feed, args=(process.stdin, Path("a.txt").read_bytes()), daemon=True)
        feed.start()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 30
        while (
            not (found := children.read_text().split())
            and time.monotonic() < deadline
            and process.poll() is None
        ):
            time.sleep(0.005)
        sent = signal.SIGINT if victim == "interrupt" else signal.SIGKILL
        os.kill(int(found[0]) if victim == "child" else process.pid, sent)
        process.wait(timeout=60)
        err = process.stderr.read()
        feed.join(timeout=60)
        process.stdin.raw.close()
        assert process.returncode == (-9 if victim == "parent" else 4)
        assert b"Traceback" not in err
        if victim == "child":
            assert err.decode().count("\n") == 1
            assert "was killed" in err.decode()
    code, out, _ = call("import", "sacct", "a.txt", "--tz", "UTC", "--json")
    assert code == 0
    assert json.loads(out)["jobs"] == 60_000
    assert count_runs(open_store("store")) == {"lab": 60_000}


def broken_off(path):
    """An import of a file, or of standard input, that ends after its first row."""
    state = None
    if path != "-":
        with open_input(path) as source:
            state = source.state
    info = FileRequest(path=path).info("file", state)
    with (
        contextlib.closing(open_store("store", create=True)) as store,
        begin_import(store, info) as running,
    ):
        running.add(block_of([run(1, cluster="lab")]))


def made_good():
    with contextlib.closing(open_store("store")) as store:
        return load_imports(store)[0].completed_by


def test_only_the_same_file_makes_a_killed_import_good(call):
    export("a.txt", [ROW.format(job, "lab") for job in (1, 2)])
    broken_off("a.txt")
    export("a.txt", [ROW.format(job, "lab") for job in (3, 4)])
    _, _, err = call("import", "sacct", "a.txt", "--tz", "UTC")
    assert made_good() is None
    assert "was not finished, and this input may be another" in err
    broken_off("a.txt")
    _, _, err = call("import", "sacct", "a.txt", "--tz", "UTC")
    assert "import 1 (" in err
    assert "import 3 (" not in err
    with contextlib.closing(open_store("store")) as store:
        assert [i.completed_by for i in load_imports(store)] == [None, None, 4, None]


def test_nothing_makes_a_killed_import_of_standard_input_good(call):
    broken_off("-")
    text = f"{HEADER}\n{ROW.format(1, 'lab')}\n".encode()
    code, _, err = call("import", "sacct", "-", "--tz", "UTC", stdin=text)
    assert code == 0
    assert made_good() is None
    assert "was not finished, and this input may be another" in err
