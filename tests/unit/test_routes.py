"""What the rules say beside a verdict is the same whether all runs are asked about or one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner

from slurm_trace.assess import Assessment, Request, assess
from slurm_trace.cli.main import app
from slurm_trace.examples.generate import write
from slurm_trace.store.engine import open_store


def _without(rows: Iterator[str]) -> Iterator[str]:
    """Some runs without a uid, some without an account, and one user name for several people."""
    names = next(rows).split("|")
    yield "|".join(names)
    user, uid, account = (names.index(name) for name in ("User", "UID", "Account"))
    for n, line in enumerate(rows):
        cells = line.split("|")
        cells[uid] = "" if n % 3 == 0 else cells[uid]
        cells[account] = "" if n % 5 == 0 else cells[account]
        cells[user] = "shared" if n % 41 == 0 else cells[user]
        yield "|".join(cells)


Both = tuple[Assessment, Callable[[Sequence[int]], Assessment]]
"""An assessment that has all, and what makes one that has what it takes for some runs."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("routes")
    write(folder, 2000, 3)
    export, path = folder / "export.txt", folder / "store.db"
    with (folder / "sacct.txt").open(encoding="utf-8") as rows:
        export.write_text("".join(_without(rows)), encoding="utf-8")
    done = CliRunner().invoke(app, ["--store", str(path), "import", "sacct", str(export), "--tz", "UTC"])
    assert done.exit_code == 0, done.output
    store = open_store(str(path))
    request = Request("2e22", None, Fraction(1, 20), profile=str(folder / "site.toml"))
    few = assess(store, request)
    yield assess(store, replace(request, routes=True)), lambda positions: few.near(store, positions)
    store.close()


@pytest.fixture(scope="module")
def found(both: Both) -> Assessment:
    return both[0]


def test_one_run_is_told_what_it_is_told_among_all(found: Assessment) -> None:
    whole, kinds = found.decisions(), Counter[str]()
    members = found.members.nonzero()[0].tolist()
    for i in members[::23]:
        assert found.decisions([i]).entries(i) == whole.entries(i)
        kinds.update(whole.routes(i))
    assert {"ATTRIBUTE(account)", "ATTRIBUTE(user)", "RULED_OUT"} <= kinds.keys()


def test_the_first_of_a_ranking_are_told_what_they_are_told_among_all(found: Assessment) -> None:
    first = found.order(20).tolist()
    near, whole = found.decisions(first), found.decisions()
    assert [near.entries(i) for i in first] == [whole.entries(i) for i in first]


def test_asking_about_no_run_is_no_error(found: Assessment) -> None:
    assert len(found.decisions([])) == len(found.envelope)


def test_what_is_loaded_for_a_few_runs_is_enough_for_them(both: Both) -> None:
    found, near = both
    whole, members = found.decisions(), found.members.nonzero()[0].tolist()
    for chosen in (members[::97], [members[0]], found.order(20).tolist()):
        told = near(chosen).decisions(chosen)
        assert [told.entries(i) for i in chosen] == [whole.entries(i) for i in chosen]
    idle = (~found.members).nonzero()[0].tolist()[:3]
    assert [near(idle).decisions(idle).entries(i) for i in idle] == [whole.entries(i) for i in idle]
