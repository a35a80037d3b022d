"""Billing feeds as they really come."""

from __future__ import annotations

import io
import itertools

import pytest

from slurm_trace.accounting.feed import BLOCK_ROWS, read_feed
from slurm_trace.accounting.feed_columns import provider_id, unit_seconds
from slurm_trace.errors import InputProblem

HEADER = "account,resource,sku,hours,cost,currency,start,end"
ROW = "acme,i-1,p5.48xlarge,10,98,USD,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z"
T0 = 1_767_225_600
DAY = 86_400


def read(text, **options):
    data = text if isinstance(text, bytes) else text.encode()
    blocks = list(read_feed(io.BytesIO(data), **options))
    return [c for b in blocks for c in b.charges], [r for b in blocks for r in b.rejected]


def lone(text, **options):
    (charge,), rejected = read(text, **options)
    assert rejected == []
    return charge


def test_a_plain_row():
    charge = lone(f"{HEADER}\n{ROW}\n", provider="AWS")
    assert (charge.provider, charge.account, charge.resource, charge.sku) == (
        "aws",
        "acme",
        "i-1",
        "p5.48xlarge",
    )
    assert (charge.start, charge.end, charge.used_s, charge.quantity) == (T0, T0 + DAY, 36_000, None)
    assert (charge.cost, charge.currency, charge.flags, charge.line) == ("98", "USD", (), 2)
    assert charge.raw == (ROW + "\n").encode()


@pytest.mark.parametrize(
    "text",
    [
        f"\ufeff{HEADER}\r\n{ROW}\r\n",
        f"{HEADER}\n{ROW}\n".replace(",", ";"),
        f"{HEADER}\n{ROW}\n".replace(",", "\t"),
        f"Bill of January\n\n{HEADER}\n{ROW}\n",
        HEADER.upper().replace("ACCOUNT", "Account ") + f"\n{ROW}\n",
        HEADER + ",tags\n" + ROW + ',"two\nlines, and ""quotes"""\n',
        f"{HEADER}\n\n{ROW}\n\n",
    ],
)
def test_shapes_of_one_feed(text):
    charge = lone(text)
    assert (charge.account, charge.used_s, charge.end) == ("acme", 36_000, T0 + DAY)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("2026-01-01", "2026-01-01", (T0, T0 + DAY)),
        ("2026-01-01 00:00:00 UTC", "2026-01-01T01:00Z", (T0, T0 + 3600)),
        ("1767225600", "1767229200", (T0, T0 + 3600)),
        ("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:01", (T0, T0 + 1)),
    ],
)
def test_times(start, end, expected):
    charge = lone(f"account,resource,sku,hours,start,end\nacme,i,p,1,{start},{end}\n")
    assert (charge.start, charge.end) == expected


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ("2026-01-02", "2026-01-01", "empty"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "empty"),
        ("", "2026-01-01", "start '' is no time"),
        ("2026-01-01", "31/01/2026", "end '31/01/2026' is no time"),
        ("2026-13-01", "2026-01-01", "start"),
    ],
)
def test_periods_that_are_none(start, end, said):
    charges, (rejected,) = read(f"account,resource,sku,hours,start,end\nacme,i,p,1,{start},{end}\n")
    assert charges == []
    assert said in rejected.reason
    assert (rejected.account, rejected.line) == ("acme", 2)


def test_a_stray_quote_takes_no_other_row_along():
    header = HEADER + ",tags"
    rows = [ROW + ',"x', ROW + ',"y"', ROW + ",z", '"' + ROW + ",z"]
    charges, rejected = read("\n".join([header, *rows, ""]))
    assert sorted([c.line for c in charges] + [r.line for r in rejected]) == [2, 3, 4, 5]
    assert [c.line for c in charges] == [3, 4]


@pytest.mark.parametrize("rest", [ROW + ",z"[:-1], ROW[:-3], ROW[:20], "ac"])
def test_a_quote_that_never_closes_hides_no_cut_line(rest):
    charges, rejected = read(f'{HEADER},tags\n{ROW},"x\n{rest}')
    assert charges == [] or [c.line for c in charges] == [3]
    assert 2 in [r.line for r in rejected]
    assert len(charges) + len(rejected) == 2


def test_quotes_that_close_around_a_damaged_row_do_not_hide_it():
    damaged = ROW.replace("2026", "never") + ",z"
    charges, rejected = read(f'{HEADER},tags\n{ROW},"\n{damaged}\n{ROW},"\n')
    assert charges == []
    assert [r.line for r in rejected] == [2, 3, 4]


def test_a_quote_that_never_closes_takes_little_memory_and_no_row():
    def endless():
        yield (HEADER + ",tags\n").encode()
        yield (ROW + ',"x\n').encode()
        yield from itertools.repeat((ROW + ",y\n").encode(), 20_000)

    charges = sum(len(block.charges) for block in read_feed(endless()))
    assert charges == 20_000


def test_a_last_line_without_end_is_doubted():
    def last(header, row):
        charges, rejected = read(f"{header}\n{row}")
        return charges[0] if charges else rejected[0].reason

    assert last(HEADER, ROW).used_s == 36_000
    assert last("account,resource,sku,start,end,hours", f"a,i,p,{T0},{T0 + DAY},12").used_s is None
    assert "cut off" in last("account,resource,hours,start,end,sku", f"a,i,1,{T0},{T0 + DAY},n2-standard-1")
    assert "cut off" in last("account,resource,hours,sku,start,end", f"a,i,1,p,{T0},2026-01-02T00:00:00")
    assert last("account,resource,hours,sku,start,end", f"a,i,1,p,{T0},2026-01-02").end == T0 + 2 * DAY


def test_a_cut_quantity_or_hours_is_unreadable():
    assert "quantity_unreadable" in lone(f"{HEADER},quantity\n{ROW},1").flags
    assert "hours_unreadable" in lone(f"account,resource,sku,start,end,hours\na,i,p,{T0},{T0 + DAY},1").flags


def test_blocks_are_of_bounded_size():
    data = (HEADER + "\n" + (ROW + "\n") * (2 * BLOCK_ROWS + 1)).encode()
    assert [len(block) for block in read_feed(io.BytesIO(data))] == [BLOCK_ROWS, BLOCK_ROWS, 1]


@pytest.mark.parametrize("text", [b"", b"\n\n", b"\xff\xfea\0c\0", b"account,sku\n1,2\n", b"{}", b"x\n" * 50])
def test_what_is_no_feed(text):
    with pytest.raises(InputProblem, match=r"^bill"):
        read(text, name="bill")


@pytest.mark.parametrize(
    ("said", "provider"),
    [
        ("Amazon Web Services", "aws"),
        ("AWS", "aws"),
        ("Microsoft", "azure"),
        ("Google Cloud", "gcp"),
        ("Hill", "hill"),
    ],
)
def test_providers(said, provider):
    assert provider_id(said) == provider


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [("Hours", 3600), ("hrs", 3600), ("100 Hours", 360_000), ("vCPU-Hours", 3600), ("Days", 86_400), ("GB-Hours", None),
     ("Requests", None), ("", None), ("hours per month", None)],
)  # fmt: skip
def test_units(unit, seconds):
    assert unit_seconds(unit) == seconds


def test_a_column_that_stands_there_twice_is_refused():
    data = b"account,resource,sku,hours,hours,start,end\na,i,s,1,1000,2026-01-01,2026-01-02\n"
    with pytest.raises(InputProblem, match="column 'hours' stands there more than once"):
        list(read_feed(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("unit", "used_s", "flag"),
    [
        ("", 36_000, None),
        ("Hours", 36_000, None),
        ("Days", 864_000, None),
        ("Minutes", 36_000, None),
        ("GB", None, "unit_unknown"),
    ],
)
def test_a_unit_beside_hours_counts_where_it_is_larger(unit, used_s, flag):
    data = f"account,resource,sku,hours,unit,start,end\na,i,s,10,{unit},2026-01-01,2026-03-01\n".encode()
    (charge,) = [c for block in read_feed(io.BytesIO(data)) for c in block.charges]
    assert charge.used_s == used_s
    assert flag is None or flag in charge.flags


def test_a_name_that_was_cut_off_is_nobodys():
    (block,) = read_feed(io.BytesIO(b"resource,sku,hours,start,end,account\ni,s,1,2026-01-01,2026-01-02,acm"))
    assert [row.account for row in block.rejected] == [None]
