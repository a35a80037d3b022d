"""No event file, node listing or site profile makes anything but its one error."""

from __future__ import annotations

import io
import tempfile
from datetime import UTC
from pathlib import Path

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.accounting.events import read_events
from slurm_trace.errors import InputProblem
from slurm_trace.site.nodes import read_nodes
from slurm_trace.site.profile import dump_profile, load_profile

CELL = st.sampled_from(
    ["", "n1", "1700000000", "2024-03-31T02:30:00", "Unknown", "DOWN", "a|b", "\x00", "ü", "99999999999"]
)
KEYS = st.sampled_from(
    [
        "zone",
        "kill_wait_s",
        "nodes",
        "hosts",
        "gpus",
        "mig",
        "from",
        "to",
        "basis",
        "registered_tres",
        "names",
        "x",
    ]
)
PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.sampled_from(["", "UTC", "n[1-4]", "n[1-", "7x1g.10gb", "declared", "2024-01-01", "0000-00-00"]),
    st.dates(),
    st.datetimes(timezones=st.none() | st.just(UTC)),
    st.times(),
)
VALUE = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(st.lists(st.lists(CELL, min_size=1, max_size=8), max_size=8))
def test_every_event_row_is_an_event_or_rejected(rows: list[list[str]]) -> None:
    header = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    lines = ["|".join(row) for row in rows]
    found = read_events(io.BytesIO((header + "".join(f"{line}\n" for line in lines)).encode()), None, UTC)
    assert len(found.events) + len(found.rejected) == len([line for line in lines if line.strip()])


@given(st.binary(max_size=300))
def test_any_bytes_as_an_event_file(data: bytes) -> None:
    message = ""
    try:
        read_events(io.BytesIO(data), "c", UTC)
    except InputProblem as error:
        message = str(error)
    assert "\n" not in message


@given(st.text(max_size=300))
def test_any_text_as_a_listing_of_nodes(text: str) -> None:
    read_nodes("NodeName=" + text)


@given(
    st.dictionaries(KEYS | st.just("clusters"), VALUE, max_size=4), st.dictionaries(KEYS, VALUE, max_size=6)
)
def test_any_toml_as_a_profile(top: dict[str, object], cluster: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "site.toml"
        for document in (top, {"clusters": {"a": cluster}}):
            path.write_text(tomli_w.dumps(document))
            message = ""
            try:
                profile = load_profile(path)
            except InputProblem as error:
                message = str(error)
            else:
                path.write_text(dump_profile(profile))
                assert load_profile(path).digest == profile.digest
            assert "\n" not in message
