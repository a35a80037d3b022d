"""The HTML report: complete, self-contained, careful with its words and with what records bring along."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from slurm_trace.analysis.figures import listing, ratio
from slurm_trace.analysis.picture import BINS_PER_DECADE, Histogram, Lane, histogram, svg
from slurm_trace.analysis.report import flop, render, text
from support.reports import HOSTILE, RULES, THRESHOLDS, T, grouped, ranking


class _Outline(HTMLParser):
    """Tags, attributes and text of a page; every opened tag has to be closed in order."""

    VOID = frozenset({"meta", "br", "img", "link", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page() -> str:
    bounds = histogram([12e22, 96e21, float("inf"), 5e22, 3e17, 0.0], T)
    return render(ranking(), grouped(), THRESHOLDS, bounds, RULES)


@pytest.fixture(scope="module")
def outline(page: str) -> _Outline:
    parser = _Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_it_brings_nothing_from_outside_and_runs_nothing(outline: _Outline) -> None:
    for tag, attributes in outline.tags:
        assert tag not in {"script", "img", "link", "iframe", "object", "embed", "base", "form"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "action"}
            assert name != "href" or (value or "").startswith("#")
            assert name != "style"
            assert "url(" not in (value or "")


def test_text_from_records_stays_text(outline: _Outline) -> None:
    shown = "".join(outline.text)
    for hostile in HOSTILE[:3]:
        assert hostile in shown
    assert "over\\u202eride\\u001b[31m\\u000a" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", shown)


def test_the_first_lines_say_what_was_asked_and_what_came_out(outline: _Outline) -> None:
    shown = " ".join("".join(outline.text).split())
    beginning = shown[: shown.index("What it was computed from")]
    for piece in ("eu-gpai", "max_any_op", "5 %", "12,000", "default assumptions", "12,003", "strict"):
        assert piece in beginning
    assert "It takes at least 1 run to reach T, of at least 1 user." in beginning


def test_the_inputs_are_named_with_their_digests(outline: _Outline) -> None:
    shown = "".join(outline.text)
    for piece in (
        "12,345",
        "67",
        "a" * 64,
        "b" * 64,
        "c" * 64,
        "0.1.0/1",
        "nothing says what the file covers",
    ):
        assert piece in shown


def test_it_speaks_of_own_contributions_and_never_of_compliance(outline: _Outline) -> None:
    shown = "".join(outline.text).lower()
    assert "own contribution is below t" in shown
    assert not re.search(r"complian|model is|innocent|guilty|violat|exceeded", shown)


def test_long_lists_say_what_they_left_out(outline: _Outline) -> None:
    shown = "".join(outline.text)
    assert "5 of 12,003" in shown
    assert "30 more groups" in shown
    assert "1 runs without a bound, 1 with a bound of 0" in shown


def test_warnings_and_attributions_lead_to_what_the_rule_says(outline: _Outline) -> None:
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    links = [attributes["href"] or "" for tag, attributes in outline.tags if tag == "a"]
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links} <= set(ids)
    # six runs, and of 80 users 50 are listed
    assert links.count("#rule-with-its-user") == links.count("#rule-large-part-of-threshold") == 6
    assert links.count("#rule-few-runs-reach-threshold") == 1 + 1 + 5 + 50
    shown = "".join(outline.text)
    section = shown[shown.index("What to look at beside the verdicts") : shown.index("How to read this")]
    for piece in ("look at it with its user", "ruled out by itself, but the user that it belongs to is not"):
        assert piece in section
    assert "bound-below-limit" not in section
    assert "looks-busy" not in shown


def test_without_warnings_there_is_no_section_of_them() -> None:
    plain = ranking() | {"runaway_jobs": []}
    plain["jobs"] = [{**one, "routes": []} for one in plain["jobs"]]
    page = render(plain, [], THRESHOLDS, Histogram({}), RULES)
    assert "What to look at" not in page


def test_an_empty_store_gives_a_page() -> None:
    nothing = {"NOT_RULED_OUT": 0, "INSUFFICIENT": 0, "RULED_OUT": 0}
    empty = ranking() | {"jobs": [], "runaway_jobs": [], "verdicts": nothing, "verdicts_strict": nothing}
    page = render(empty, [g | {"groups": []} for g in grouped()], THRESHOLDS, Histogram({}), RULES)
    assert "No run held anything" in page


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00&times;10<sup>3</sup>"),
        (1001, "1.01&times;10<sup>3</sup>"),
        (9991, "1.00&times;10<sup>4</sup>"),
        (10**23 + 1, "1.01&times;10<sup>23</sup>"),
    ],
)
def test_a_rounded_figure_is_never_below_the_exact_one(value: int, shown: str) -> None:
    assert shown in flop(value)
    assert value < 1000 or f'title="{value}"' in flop(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.4111e0, "1.42"),
        (0.999, "0.999"),
        (0.9991, "1"),
        (5.605, "5.61"),
        (0.0, "0"),
        (1641.3, "1.65e+03"),
        (None, "-"),
    ],
)
def test_a_rounded_ratio_is_never_below_the_exact_one(value: float | None, shown: str) -> None:
    assert ratio(value) == shown


def test_of_many_names_the_first_are_given() -> None:
    assert listing(["a", "b", "c"]) == "a, b, c"
    assert listing(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_groups_that_cannot_be_told_are_named() -> None:
    reports = grouped()
    first, second = reports[2]["groups"][:2]
    first |= {"key": "<lab>", "verdict": "INSUFFICIENT", "reasons": ["2 of its runs have no bound"]}
    second |= {"key": "far", "verdict": "RULED_OUT", "reasons": ["2 of its runs have no bound"]}
    shown = render(ranking(), reports, THRESHOLDS, histogram([1e22], T), RULES)
    assert "Not enough to tell of &lt;lab&gt;: 2 of its runs have no bound" in shown
    assert "by what the hardware of the inventory can do, of far: 2 of its runs have no bound" in shown


def test_no_bound_is_not_zero() -> None:
    assert flop(None) == "no bound"
    assert text(None) == "-"


def test_the_threshold_is_an_edge_of_the_bins() -> None:
    for threshold in (10**23, 10**25, 3, 123_456_789_012_345):
        found = histogram([float(threshold), float(threshold) * (1 - 1e-12)], threshold)
        assert found.counts == {0: 1, -1: 1}
    assert histogram([T * 10.0, T / 10.0], T).counts == {BINS_PER_DECADE: 1, -BINS_PER_DECADE: 1}


def test_the_picture_says_in_words_what_it_shows() -> None:
    picture = svg(Histogram({-3: 5, 0: 2}), [Lane("user", [("a", T), ("b", 1)])], {T: ["eu-gpai"]}, T)
    assert (
        "5 runs have a bound below the threshold, 2 at or above it. user: 1 below, 1 at or above" in picture
    )
