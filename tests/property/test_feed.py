"""Whatever happens to a feed: no row is lost, no input makes a traceback, no bound falls below what was computed."""

from __future__ import annotations

import io
import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_trace.accounting.feed import Charge, read_feed
from slurm_trace.analysis.completeness import Completeness
from slurm_trace.analysis.feed import AccountLine, FeedRecords, bound_accounts
from slurm_trace.analysis.feed_disclosure import By, Disclosed, disclose, power_above
from slurm_trace.analysis.provider_skus import ProviderSkus
from slurm_trace.analysis.question import Question
from slurm_trace.analysis.rates import Rates
from slurm_trace.errors import InputProblem
from slurm_trace.store.engine import open_store
from slurm_trace.store.feed import KIND, FeedImport
from slurm_trace.store.feed_load import CHARGE_COLUMNS, count_rejected_charges, load_charges
from slurm_trace.store.ingest import ImportInfo

COLUMNS = ("account", "resource", "sku", "hours", "quantity", "cost", "start", "end", "tags")
SKUS = (
    "p5.48xlarge",
    "g5.xlarge",
    "m5.16xlarge",
    "Standard_NC24ads_A100_v4",
    "n2-standard-16",
    "a2-megagpu-16g",
)
T0 = 1_767_225_600
HOUR = 3600
QUESTION = Question(10**22, "max_any_op")


@pytest.fixture(scope="module")
def skus() -> ProviderSkus:
    return ProviderSkus.load(Rates.load(), QUESTION.basis)


def frame(charges: list[Charge]) -> pd.DataFrame:
    """Charges as the store would give them."""
    columns: dict[str, Any] = {name: [getattr(c, name) for c in charges] for name in CHARGE_COLUMNS}
    columns["flags"] = [" ".join(c.flags) for c in charges]
    made = {n: pd.array(columns[n], dtype="Int64") for n in ("start", "end", "used_s", "quantity")}
    return pd.DataFrame({n: made.get(n, pd.Series(columns[n], dtype=object)) for n in CHARGE_COLUMNS})


# Nothing is lost, nothing breaks

HEADER = b"account,resource,sku,hours,cost,currency,start,end,tags"
ROW = b"acme,i-1,p5.48xlarge,10.5,98.3,USD,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z,team=x"

lines = st.lists(
    st.one_of(
        st.sampled_from(
            [ROW, HEADER, b"", b'"', b'"a', b",,,", b"\xff\xfe", b"\0", ROW + b',"', ROW[:-6] + b'"te']
        ),
        st.binary(max_size=30),
        st.tuples(st.integers(0, 90), st.binary(max_size=4)).map(lambda t: ROW[: t[0]] + t[1] + ROW[t[0] :]),
        st.integers(0, 90).map(lambda n: ROW[:n]),
    ),
    max_size=12,
)


@settings(max_examples=400, deadline=None)
@given(lines, st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_every_row_is_a_charge_or_rejected(body: list[bytes], newline: bytes, ends: bool) -> None:
    data = newline.join([HEADER, *body]) + newline * ends
    read = io.BytesIO(data)
    kept: list[tuple[int, bytes]] = []
    for block in read_feed(read):
        kept += [(row.line, row.raw) for row in (*block.charges, *block.rejected)]
        for row in block.rejected:
            assert "\n" not in row.reason
            row.reason.encode()
    kept.sort()
    assert len({line for line, _ in kept}) == len(kept)
    physical = [line for line in io.BytesIO(data).readlines()[1:] if line.strip()]
    found = [line for _, raw in kept for line in io.BytesIO(raw).readlines() if line.strip()]
    assert found == physical
    whole = sum(line.strip() == ROW for line in physical[:-1])
    charges = sum(raw.strip() == ROW for _, raw in kept)
    assert charges >= whole, "no row is taken along by another one"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    for given_data in (data, HEADER + b"\n" + data):
        said = "fuzz"
        try:
            for block in read_feed(io.BytesIO(given_data), name="fuzz"):
                for charge in block.charges:
                    assert "\0" not in charge.account + charge.resource + charge.sku
        except InputProblem as problem:
            said = str(problem)
        assert said.startswith("fuzz")
        assert "\n" not in said


cells = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1e9", "1e20", "nan", "∞", "1,5", "9" * 50, "2026-01-01", "1767225600", "é", "\0"]
    ),
    st.text(max_size=6),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(*[cells] * len(COLUMNS)), max_size=6), st.permutations(COLUMNS))
def test_any_cells(skus: ProviderSkus, rows: list[tuple[str, ...]], order: list[str]) -> None:
    data = ",".join(order) + "\n" + "".join(",".join(row) + "\n" for row in rows)
    charges = [c for block in read_feed(io.BytesIO(data.encode("utf-8", "replace"))) for c in block.charges]
    bound_accounts(frame(charges), skus, QUESTION, FeedRecords(Completeness("assumed"), {}))


# Bound >= truth

uses = st.lists(
    st.fixed_dictionaries(
        {
            "account": st.sampled_from(["acme", "beta"]),
            "resource": st.sampled_from(["i-1", "i-2", "i-3"]),
            "sku": st.sampled_from(SKUS),
            "day": st.integers(0, 3),
            "seconds": st.integers(1, 24 * HOUR),
            "instances": st.integers(1, 3),
            "tells": st.sampled_from(["both", "hours", "one"]),
        }
    ),
    min_size=1,
    max_size=8,
)
BAD_HOURS = ("", "0", "-7.5", "n/a", "1,5", "NaN", "-0.0001")
damages = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from(
            [
                "hours",
                "hours_zero",
                "sku",
                "resource",
                "quantity",
                "row",
                "stray_quote",
                "credit",
                "lower",
                "again",
            ]
        ),
        st.sampled_from(BAD_HOURS),
    ),
    max_size=5,
)


def rows_of(use: dict[str, Any]) -> dict[str, str]:
    """A charge as the provider writes it: hours of all instances, and how many there were where it says so."""
    start = T0 + use["day"] * 24 * HOUR
    count = 1 if use["tells"] == "one" else use["instances"]
    hours = Fraction(use["seconds"] * count, HOUR)
    return {
        "account": use["account"],
        "resource": use["resource"],
        "sku": use["sku"],
        "hours": f"{math.ceil(hours * 10**6) / 10**6:.6f}",
        "quantity": str(count) if use["tells"] == "both" or count > 1 else "",
        "cost": "1",
        "start": str(start),
        "end": str(start + 24 * HOUR),
        "tags": "x",
    }


def hurt(row: dict[str, str], how: str, bad: str) -> tuple[dict[str, str] | None, list[dict[str, str]]]:
    """The row after damage (None: it can't be read), and rows that come with it."""
    if how == "hours":
        return row | {"hours": bad}, []
    if how == "hours_zero":
        return row | {"hours": "0"}, []
    if how == "sku":
        return row | {"sku": "thing-9000"}, []
    if how == "resource":
        return row | {"resource": ""}, []
    if how == "quantity":
        return row | {"quantity": "some"}, []
    if how == "credit":
        return row, [row | {"hours": "-" + row["hours"], "cost": "-1"}]
    if how == "stray_quote":
        return row | {"tags": '"x'}, []
    if how == "row":
        return None, []
    return row, []


def written(rows: list[dict[str, str] | None], order: list[str]) -> list[bytes]:
    """Header and rows as lines; one that can't be read has too few cells."""
    made = [
        ",".join("?" if row is None else row[name] for name in (order if row else order[:3])) for row in rows
    ]
    return [line.encode() + b"\n" for line in (",".join(order), *made)]


def truth(uses: list[dict[str, Any]], skus: ProviderSkus) -> dict[str, int]:
    """Operations of instances that work without a pause."""
    done: dict[str, int] = defaultdict(int)
    for use in uses:
        instance = skus.meaning("", use["sku"], {}, late=False).instance
        assert instance is not None
        count = 1 if use["tells"] == "one" else use["instances"]
        done[use["account"]] += use["seconds"] * count * instance.flop_s
    return done


def check(total: AccountLine, accounts: list[AccountLine], done: dict[str, int]) -> None:
    for line in accounts:
        true = done.get(line.account or "", 0)
        assert line.bound.bound_flop is None or line.bound.bound_flop >= true, line
        assert line.bound.verdict != "RULED_OUT" or true < QUESTION.threshold_flop
        assert line.bound.verdict_strict != "RULED_OUT"
        if line.bound.bound_flop is not None:
            assert line.bound.bound_flop == sum(s.bound.bound_flop or 0 for s in line.skus)
    assert total.bound.bound_flop is None or total.bound.bound_flop >= sum(done.values())
    missing = {a for a in done if a not in {line.account for line in accounts}}
    assert not missing or all(line.bound.bound_flop is None for line in (total, *accounts))


@settings(max_examples=300, deadline=None)
@given(uses, damages, st.permutations(COLUMNS), st.integers(0, 60))
def test_bound_covers_truth(
    skus: ProviderSkus, uses: list[dict[str, Any]], damages: list[Any], order: list[str], cut: int
) -> None:
    rows: list[dict[str, str] | None] = []
    own: list[int] = []  # where the row of each use stands
    for use in uses:
        row: dict[str, str] | None = rows_of(use)
        extra: list[dict[str, str]] = []
        for at, how, bad in damages:
            if row is not None and uses[at % len(uses)] is use:
                row, more = hurt(row, how, bad)
                extra += more
        own.append(len(rows) + 1)
        rows += [row, *extra]
    made = written(rows, order)
    data = b"".join(made)
    data = data[: max(len(made[0]), len(data) - cut)]
    # Of a line that is gone altogether nobody can know.
    uses = [use for use, n in zip(uses, own, strict=True) if len(b"".join(made[:n])) < len(data)]
    blocks = list(read_feed(io.BytesIO(data)))
    rejected: dict[str | None, int] = defaultdict(int)
    for block in blocks:
        for one in block.rejected:
            rejected[one.account] += 1
    records = FeedRecords(Completeness("assumed"), dict(rejected))
    charges = [charge for block in blocks for charge in block.charges]
    check(*bound_accounts(frame(charges), skus, QUESTION, records), truth(uses, skus))


corrections = st.lists(
    st.tuples(
        st.integers(0, 7), st.sampled_from(["0.25", "-5", "", "0", "nan", "as before", "all in reverse"])
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(uses, corrections, st.permutations(range(5)))
def test_bound_covers_truth_after_any_order_of_imports(
    tmp_path_factory: pytest.TempPathFactory,
    skus: ProviderSkus,
    uses: list[dict[str, Any]],
    corrections: list[tuple[int, str]],
    shuffled: list[int],
) -> None:
    """Corrections, credits and repetitions come in files of their own, in any order."""
    good = [rows_of(use) for use in uses]
    files: list[list[dict[str, str] | None]] = [list(good)]
    for at, hours in corrections:
        row = good[at % len(good)]
        if hours == "all in reverse":
            files.append(list(reversed(good)))
        else:
            files.append([row if hours == "as before" else row | {"hours": hours}])
    store = open_store(str(tmp_path_factory.mktemp("feed") / "s.db"), create=True)
    for at in [n for n in shuffled if n < len(files)]:
        with FeedImport(store, ImportInfo(KIND, str(at))) as running:
            for block in read_feed(io.BytesIO(b"".join(written(files[at], list(COLUMNS))))):
                running.add_charges(block.charges, block.rejected)
            running.finish()
    charges = load_charges(store)
    records = FeedRecords(Completeness("assumed"), count_rejected_charges(store))
    check(*bound_accounts(charges, skus, QUESTION, records), truth(uses, skus))
    store.close()


# What may leave the house

tables = st.lists(
    st.tuples(
        st.sampled_from([f"acct{n}" for n in range(9)]),
        st.sampled_from([*SKUS, "secret-sku"]),
        st.integers(1, 8),
        st.integers(0, 500),
    ),
    max_size=30,
)


def charges_of(table: list[tuple[str, str, int, int]]) -> list[Charge]:
    return [
        Charge(
            "",
            account,
            f"r{n}.{k}",
            sku,
            None,
            None,
            None,
            T0,
            T0 + HOUR,
            hours * HOUR,
            None,
            None,
            None,
            (),
            1,
            b"",
        )
        for n, (account, sku, count, hours) in enumerate(table)
        for k in range(count)
    ]


@settings(max_examples=150, deadline=None)
@given(tables, st.sampled_from(["account", "sku"]), st.integers(2, 6))
def test_nothing_of_small_cells_can_be_told(
    skus: ProviderSkus, table: list[tuple[str, str, int, int]], by: By, min_cell: int
) -> None:
    records = FeedRecords(Completeness("assumed"), {})

    def told(rows: list[tuple[str, str, int, int]]) -> tuple[list[AccountLine], Any]:
        _, accounts = bound_accounts(frame(charges_of(rows)), skus, QUESTION, records)
        return accounts, disclose(accounts, QUESTION, by, min_cell)

    accounts, found = told(table)
    groups: dict[str, list[tuple[str, str, int, int]]] = defaultdict(list)
    for row in table:
        groups[row[0] if by == "account" else row[1]].append(row)
    small = {
        key
        for key, rows in groups.items()
        if sum(r[2] for r in rows) < min_cell or (by == "sku" and len({r[0] for r in rows}) < min_cell)
    }
    assert found.suppressed >= bool(small)
    assert len(found.cells) <= len(groups) - len(small)
    hidden = len(groups) - len(found.cells)
    assert hidden == 0 or hidden >= 2 or not found.cells, (
        "one cell alone would be what is missing to the total"
    )
    assert "acct" not in repr(found)
    assert "secret" not in repr(found)
    for cell in (found.total, *found.cells):
        for name in ("accounts_below", "charges_below", "hours_below", "bound_flop_below"):
            value = getattr(cell, name)
            assert value is None or str(value).strip("0") == "1"
    if by == "account" and found.cells:
        # Take away whatever is not told: what is told of the total must not change.
        order = sorted(accounts, key=lambda a: a.bound.charges)
        kept = {a.account for a in order[len(order) - len(found.cells) :]}
        ties = sorted(a.bound.charges for a in accounts)
        if ties[hidden - 1 : hidden] != ties[hidden : hidden + 1] or not hidden:
            _, without = told([row for row in table if row[0] in kept])
            for name in Disclosed.__slots__:
                value = getattr(found.total, name)
                assert value is None or value == getattr(without.total, name), name
            assert without.cells == found.cells


@given(st.integers(0, 10**40))
def test_a_power_is_above(value: int) -> None:
    power = power_above(value)
    assert value < power <= max(1, value * 10)
    assert str(power).strip("0") == "1"
