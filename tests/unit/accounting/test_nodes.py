"""Lists of nodes: counted as ClusterShell expands them, and nothing else gets near it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_trace.accounting.nodes import MAX_NODES, count_nodes, expand


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ("n1",)),
        ("c1-[9-10]", ("c1-9", "c1-10")),
        ("n[001-003],gpu-7", ("n001", "n002", "n003", "gpu-7")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("nd[30103,30203,30706-30707]", ("nd30103", "nd30203", "nd30706", "nd30707")),
        ("None assigned", ()),
        ("", ()),
        ("(null)", ()),
        (None, ()),
    ],
)
def test_expand(text: str | None, nodes: tuple[str, ...]) -> None:
    assert sorted(expand(text)) == sorted(nodes)
    assert count_nodes(text or "") == len(nodes)


@pytest.mark.parametrize(
    "text", ["a@b", "n1&n2", "n1!n2", "n1^n2", "@group", "n[1-3", "n[3-1]", "n1 n2", "n,,m", "n[a-b]", "*"]
)
def test_operators_and_broken_lists_are_refused(text: str) -> None:
    for call in (count_nodes, expand):
        with pytest.raises(ValueError, match=r"."):
            call(text)


@pytest.mark.parametrize("text", ["n[1-9999999]", "a[1-9999]b[1-9999]", f"n[1-{MAX_NODES + 1}]"])
def test_no_cluster_is_that_large(text: str) -> None:
    with pytest.raises(ValueError, match="more than"):
        expand(text)


def test_own_limit() -> None:
    with pytest.raises(ValueError, match="more than 3"):
        expand("n[1-4]", limit=3)


names = st.from_regex(r"[a-z]{1,3}", fullmatch=True)
ranges = st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda t: f"{t[0]}-{t[0] + t[1]}")


@given(st.lists(st.tuples(names, ranges), min_size=1, max_size=4, unique_by=lambda t: t[0]))
def test_count_is_the_length_of_the_expansion(parts: list[tuple[str, str]]) -> None:
    text = ",".join(f"{name}[{span}]" for name, span in parts)
    assert count_nodes(text) == len(expand(text))
