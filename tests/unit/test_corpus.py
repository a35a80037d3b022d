"""The boundary corpus: what is committed still holds, and a change of what is decided is noticed and named."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from slurm_trace.analysis import groups
from slurm_trace.analysis.corpus import anchors, design, expectations, judge, report, runner
from slurm_trace.analysis.corpus.draw import Draw, along
from slurm_trace.analysis.corpus.families import FAMILIES, beyond
from slurm_trace.analysis.corpus.families.common import threshold_flop
from slurm_trace.analysis.corpus.site import Run
from slurm_trace.analysis.group import NO_TERMS
from slurm_trace.analysis.rates import Rates
from slurm_trace.analysis.verdicts import Question
from slurm_trace.cli import corpus_files
from slurm_trace.cli.corpus_files import write_run
from slurm_trace.cli.main import app
from slurm_trace.errors import CheckFailed, EnvironmentProblem, UsageProblem

FEW = 14
"""Two rounds of the seven offsets around an edge."""


@pytest.fixture(scope="module")
def outcome():
    return runner.run(processes=2)


def cases_in_words(outcome, most=10):
    changed = [json.dumps(change.plain()) for change in outcome.changes[:most]]
    wrong = [
        f"{case.instance.id} {dict(case.instance.site.varies)}: intended {case.instance.site.intended}, "
        f"found {judge.site_verdict(case.answers)}, {[answer.below for answer in case.violations]}"
        for case in outcome.cases
        if case.violations or case.as_intended is False
    ]
    return "\n".join(
        ["`make corpus-expect` writes the expectations anew, if that was meant:", *changed, *wrong[:most]]
    )


def test_every_route_is_the_expected_one_and_every_bound_is_one_sided(outcome):
    assert outcome.holds, cases_in_words(outcome)
    assert not outcome.changes


def test_the_whole_design_was_run(outcome):
    found = Counter(case.instance.family for case in outcome.cases)
    assert found == {family.name: family.count for family in FAMILIES}
    assert len(found) >= 24
    assert sum(found.values()) >= 20_000
    assert all(family.about.endswith(".") for family in FAMILIES)


def test_the_sites_are_those_that_the_expectations_were_written_for(outcome):
    expected = expectations.load_expectations()
    assert {name: len(routes) for name, routes in expected.routes.items()} == {
        f.name: f.count for f in FAMILIES
    }
    lines = ((case.instance.family, case.instance.line()) for case in outcome.cases)
    assert design.digests(lines) == expected.sites


def test_the_anchors_are_the_registry_as_it_is():
    kept = json.loads(files("slurm_trace.schema.corpus").joinpath(anchors.ANCHORS_FILE).read_text())
    assert kept == json.loads(json.dumps(anchors.work_out()))


def test_routes_of_every_kind_are_there(outcome):
    verdicts = Counter(answer.verdict for case in outcome.cases for answer in case.answers)
    assert min(verdicts[name] for name in ("RULED_OUT", "NOT_RULED_OUT", "INSUFFICIENT")) > 1000
    assert any(answer.runaway for case in outcome.cases for answer in case.answers)
    assert any("WARN" in answer.beside for case in outcome.cases for answer in case.answers)
    kinds = {answer.kind for case in outcome.cases for answer in case.answers}
    assert kinds == {"run", "all", "cluster", "account", "user", "lineage", "family"}


def test_what_reached_the_threshold_is_ruled_out_nowhere(outcome):
    """The same as the runner's own check, by another way."""
    reached = 0
    for case in outcome.cases:
        threshold = threshold_flop(anchors.load_anchors(), case.instance.site.ask)
        for answer in case.answers:
            if answer.true_flop is not None and answer.true_flop >= threshold:
                reached += 1
                assert "RULED_OUT" not in (answer.verdict, answer.verdict_strict), case.instance.id
            if answer.true_flop is not None and answer.bound_flop is not None:
                assert answer.bound_flop >= answer.true_flop, case.instance.id
    assert reached > 50


def test_a_site_is_answered_the_same_alone_and_among_others(outcome):
    alone = judge.Judge(anchors.load_anchors())
    for case in outcome.cases[:: len(outcome.cases) // 250]:
        (answers,) = alone.table([case.instance.site])
        assert expectations.route_text(answers) == case.route, case.instance.id


def test_another_seed_makes_other_sites_that_hold_as_well():
    found = runner.run(seed=7, most=FEW)
    assert found.changes is None
    assert found.holds
    usual = {case.instance.line() for case in runner.run(most=FEW).cases}
    shared = sum(case.instance.line() in usual for case in found.cases)
    assert shared < len(usual) // 10


def test_the_first_instances_are_the_same_whatever_their_number():
    some, more = (list(design.instances(3, anchors.load_anchors(), most)) for most in (2, 5))
    assert [one.line() for one in some] == [one.line() for one in more if one.number < 2]


def test_random_choices_are_what_they_always_were():
    draw = Draw(1, "family", 2)
    assert [draw.between(0, 99) for _ in range(5)] == [50, 1, 9, 80, 39]
    assert draw.parts(100, 3) == [39, 31, 30]
    assert sum(Draw(1, "f", 1).parts(7, 3)) == 7
    assert [along(n, "ab", (1, 2)) for n in range(5)] == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 1)]


# Changes that must be noticed


@pytest.fixture
def judged(monkeypatch):
    """Runs a part of the corpus in this process, after a patch."""
    runner._judge.cache_clear()
    yield partial(runner.run, most=FEW)
    runner._judge.cache_clear()


def test_a_changed_margin_is_noticed_and_the_cases_are_named(monkeypatch, judged):
    from fractions import Fraction

    monkeypatch.setattr(judge, "Question", partial(Question, margin=Fraction(6, 100)))
    found = judged()
    changed = {change.instance.family: change for change in found.changes}
    assert not found.holds
    assert "threshold_edge" in changed
    assert "margin_edge" not in changed  # it names its margins
    change = changed["threshold_edge"]
    assert change.plain()["varies"]["offset_s"] in (-1000, -2, -1, 0)
    assert change.expected.startswith("R")
    assert change.found.startswith("N")
    assert change.plain()["site"]["runs"]


def test_a_changed_ceiling_is_noticed(monkeypatch, judged):
    sections = copy.deepcopy(Rates.load(None).sections)
    card = sections["devices"]["nvidia-h100-sxm5-80gb"]
    card["max_clock_mhz"] += 1
    faster = Rates(sections)
    monkeypatch.setattr(judge.Rates, "load", lambda overlay: faster)
    found = judged()
    assert "threshold_edge" in {change.instance.family for change in found.changes}


def test_a_ceiling_below_the_hardware_is_noticed_as_not_one_sided(monkeypatch, judged):
    ceiling = Rates.ceiling
    monkeypatch.setattr(Rates, "ceiling", lambda *args, **named: ceiling(*args, **named) / 2)
    found = judged()
    violations = [answer for case in found.cases for answer in case.violations]
    assert any("bound" in answer.below for answer in violations)
    assert not found.holds
    assert report.summary(found, FEW)["not_one_sided"][0]["why"]


def test_an_instance_that_nobody_expects_is_a_change():
    (one,) = list(design.instances(1, anchors.load_anchors(), 1))[:1]
    known = expectations.Expectations(1, {}, {})
    (change,) = known.changes([(one, "RR")])
    assert (change.expected, change.found) == ("(not in the expectations)", "RR")


def test_expectations_are_read_as_they_were_written(outcome):
    found = [(case.instance, case.route) for case in outcome.cases]
    again = expectations.read(json.loads(json.dumps(expectations.document(5, found))))
    assert again.seed == 5
    assert [again.routes[one.family][one.number] for one, _ in found] == [route for _, route in found]


def test_a_design_that_is_not_sound_is_told(monkeypatch):
    known = anchors.load_anchors()
    assert design.self_check(design.DEFAULT_SEED, known, 5) == []
    monkeypatch.setattr(design, "FAMILIES", (FAMILIES[0], FAMILIES[0]))
    problems = design.self_check(1, known, 2)
    assert any("families" in problem for problem in problems)
    assert any("20000 are the least" in problem for problem in problems)
    assert any("threshold_edge is there 2 times" in problem for problem in problems)
    assert any("threshold_edge/0001 is there 2 times" in problem for problem in problems)


# The command


def call(*arguments):
    done = CliRunner().invoke(app, ["corpus", "run", *map(str, arguments)], standalone_mode=False)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout, done.stderr


def test_dry_run_prints_the_design_and_writes_nothing(tmp_path):
    out, err = call("--dry-run", "--out", tmp_path / "run", "--instances", 2)
    total = sum(family.count for family in FAMILIES)
    assert f"{total} instances in {len(FAMILIES)} families, seed {design.DEFAULT_SEED}" in out
    assert "self-check: enough families and instances" in out
    assert all(family.name in out for family in FAMILIES)
    assert (err, list(tmp_path.iterdir())) == ("", [])
    told = json.loads(call("--dry-run", "--json", "--instances", 2)[0])
    assert (told["total"], told["sound"], told["problems"]) == (total, True, [])
    assert [f["name"] for f in told["families"]] == [family.name for family in FAMILIES]


def test_a_run_is_written_whole_with_the_same_bytes_each_time(tmp_path):
    for name in ("one", "two"):
        call("--instances", 2, "--out", tmp_path / name)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert first == second
    assert sorted(first) == ["config.json", "raw_routes.jsonl", "seed", "sites.jsonl", "summary.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]
    assert int(first["seed"]) == design.DEFAULT_SEED == json.loads(first["config.json"])["seed"]
    sites, routes = (
        [json.loads(line) for line in first[name].splitlines()]
        for name in ("sites.jsonl", "raw_routes.jsonl")
    )
    assert [s["id"] for s in sites] == [r["id"] for r in routes]
    assert len(sites) == 2 * len(FAMILIES)
    assert all(r["answers"] for r in routes if r["verdict"])
    summary = json.loads(first["summary.json"])
    assert summary["total"]["instances"] == len(sites)
    assert summary["what_it_shows"].startswith("A match rate here is internal consistency, not detection")
    assert "no figure here has a base rate" in summary["what_it_shows"]


def test_nothing_is_written_over(tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "note").write_text("mine")
    with pytest.raises(UsageProblem, match="holds something already and is never written over"):
        call("--instances", 1, "--out", full)
    assert [p.name for p in full.iterdir()] == ["note"]
    with pytest.raises(UsageProblem, match="is no directory"):
        call("--instances", 1, "--out", full / "note")
    empty = tmp_path / "deep" / "empty"
    empty.mkdir(parents=True)
    call("--instances", 1, "--out", empty)
    assert (empty / "config.json").exists()


def test_a_link_to_an_empty_directory_stays_and_one_to_nowhere_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    call("--instances", 1, "--out", link)
    assert link.is_symlink()
    assert (tmp_path / "real" / "config.json").exists()
    nowhere = tmp_path / "nowhere"
    nowhere.symlink_to("gone")
    with pytest.raises(UsageProblem, match="/nowhere: a link that leads nowhere"):
        call("--instances", 1, "--out", nowhere)


PARENT = """
import os, time
from slurm_trace.analysis.corpus.runner import _pool
with _pool(2) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    for work in [pool.submit(time.sleep, 60) for _ in range(2)]:
        work.result()
"""


@pytest.mark.parametrize("last_word", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_a_run_that_is_killed(last_word):
    # -P: the installed package, not the checkout that the tests are run in.
    with subprocess.Popen([sys.executable, "-P", "-c", PARENT], stdout=subprocess.PIPE) as parent:
        worker = int(parent.stdout.readline())
        os.kill(worker, 0)
        parent.send_signal(last_word)
        parent.wait(timeout=30)
    deadline = time.monotonic() + 20
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(worker)


def is_alive(process):
    """A process of this number runs; one that nobody has waited for yet has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_comes_to_lie_there_meanwhile_is_not_written_over(tmp_path):
    target = tmp_path / "run"

    def slow():
        target.mkdir()
        (target / "other").write_text("theirs")
        yield "{}"

    with pytest.raises(UsageProblem, match="never written over"):
        write_run(target, {}, 1, {}, {"sites.jsonl": slow()})
    assert [p.name for p in tmp_path.rglob("*")] == ["run", "other"]


@pytest.mark.parametrize("last_word", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_leaves_no_directory(tmp_path, last_word):
    target = tmp_path / "run"

    def dying():
        yield "{}"
        os.kill(os.getpid(), last_word)
        yield "{}"

    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        write_run(target, {}, 1, {}, {"sites.jsonl": dying()})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -last_word
    assert not target.exists()


def test_a_run_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(path, lines):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(corpus_files, "_write", full)
    with pytest.raises(EnvironmentProblem, match="No space left on device; name another --out"):
        write_run(tmp_path / "run", {}, 1, {}, {"sites.jsonl": ["{}"]})
    assert list(tmp_path.iterdir()) == []


def test_json_is_what_its_schema_says():
    schema = json.loads(files("slurm_trace.schema.json").joinpath("corpus.schema.json").read_text("utf-8"))
    for seed in ((), ("--seed", 5)):
        out, err = call("--instances", 1, "--json", *seed)
        told = json.loads(out)
        jsonschema.validate(told, schema)
        assert ("no routes are expected of seed 5" in err) is bool(seed)
        assert (told["match_rate"], told["total"]["changed"]) == ((None, None) if seed else (1.0, 0))


def test_check_fails_on_a_changed_route_and_names_the_case(monkeypatch):
    kept = expectations.load_expectations()
    routes = {name: list(texts) for name, texts in kept.routes.items()}
    routes["node_fail"][1] = "RR; cluster RR"
    monkeypatch.setattr(
        runner, "load_expectations", lambda: expectations.Expectations(kept.seed, kept.sites, routes)
    )
    with pytest.raises(CheckFailed, match="a route changed"):
        call("--instances", 2, "--check")
    out, err = call("--instances", 2)
    assert "changed: node_fail/0001 (told=events, down_s=" in out
    assert "expected RR; cluster RR, found " in out
    assert "a route changed" in err
    told = json.loads(call("--instances", 2, "--json")[0])
    (case,) = told["changed"]
    assert (case["id"], case["expected"]) == ("node_fail/0001", "RR; cluster RR")
    assert case["site"]["runs"][0]["state"] == "NODE_FAIL"
    assert told["holds"] is False


def test_check_passes_where_nothing_changed():
    out, err = call("--instances", 2, "--check", "--format", "csv")
    assert out.splitlines()[0].startswith("name,design,instances,runs,verdicts")
    assert len(out.splitlines()) == 1 + len(FAMILIES)
    assert err == ""


# Families about a window, a base model and use between leases


@pytest.fixture
def beyond_only(monkeypatch, judged):
    monkeypatch.setattr(design, "FAMILIES", beyond.FAMILIES)
    return judged


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_window_a_second_too_long_or_too_short_is_noticed(monkeypatch, beyond_only, off_by):
    right = groups.worst_windows
    monkeypatch.setattr(groups, "worst_windows", lambda *a: right(*a[:-1], a[-1] + off_by))
    assert {case.instance.family for case in beyond_only().cases if case.as_intended is False} == {
        "worst_window"
    }


def test_a_base_model_that_is_not_added_is_noticed(monkeypatch, beyond_only):
    monkeypatch.setattr(judge, "Terms", lambda **_: NO_TERMS)
    wrong = {case.instance.family for case in beyond_only().cases if case.as_intended is False}
    assert {"base_added", "worst_window"} == wrong


def test_use_between_leases_that_is_left_out_is_not_one_sided(monkeypatch, beyond_only):
    monkeypatch.setattr(judge, "unattributed", lambda ends, cards: {})
    found = beyond_only(most=60)
    wrong = {case.instance.family for case in found.cases if case.violations}
    assert wrong == {"between_leases"}
    assert not found.holds


def test_the_worst_truth_is_that_of_one_window():
    runs = [
        Run(job_id_raw=n, submit=a, start=a, end=b, elapsed_s=b - a, true_flop=flop)
        for n, (a, b, flop) in enumerate([(0, 10, 5), (19, 30, 7), (20, 40, 6)])
    ]
    assert judge._worst_truth(runs, 10) == 13
    assert judge._worst_truth(runs, 11) == 13
    assert judge._worst_truth(runs, 12) == 18
    assert judge._worst_truth(runs[:2], 10) == 7
    assert judge._worst_truth(runs[:2], 11) == 12
