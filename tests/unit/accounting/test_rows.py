"""What one row means."""

import pytest

from slurm_trace.accounting.states import FINAL_STATES, KNOWN_STATES, base_state, is_final
from support.sacct import Reading, read_lines

NAMES = (
    "JobID",
    "JobIDRaw",
    "State",
    "Submit",
    "Start",
    "End",
    "Elapsed",
    "Suspended",
    "NNodes",
    "NodeList",
    "AllocTRES",
)
PLAIN = {
    "JobID": "7",
    "JobIDRaw": "7",
    "State": "COMPLETED",
    "Submit": "1751364000",
    "Start": "1751364010",
    "End": "1751367610",
    "Elapsed": "01:00:00",
    "Suspended": "00:00:00",
    "NNodes": "1",
    "NodeList": "n1",
    "AllocTRES": "cpu=4,gres/gpu=2,node=1",
}
SUBMIT, START, END = 1_751_364_000, 1_751_364_010, 1_751_367_610


def row(leave: str = "", queried_at: int | None = None, cluster: str | None = None, **cells: str) -> Reading:
    names = [name for name in NAMES if name not in leave.split()] + [
        name for name in cells if name not in NAMES
    ]
    values = PLAIN | cells
    return read_lines(
        "|".join(names), "|".join(values[name] for name in names), queried_at=queried_at, cluster=cluster
    )


def test_a_plain_row() -> None:
    run = row().run
    assert (run.submit, run.start, run.end, run.elapsed_s, run.run_key) == (SUBMIT, START, END, 3600, SUBMIT)
    assert (run.final, run.started, run.flags, run.queried_at, run.line) == (True, True, "", None, 2)
    assert run.raw == "|".join(PLAIN[name] for name in NAMES).encode()
    assert (run.step_end, run.step_count, run.cluster) == (None, None, None)
    assert row(cluster="mine").run.cluster == "mine"
    assert row(cluster="mine", Cluster="own").run.cluster == "own"


@pytest.mark.parametrize("word", sorted(KNOWN_STATES))
def test_every_state_of_the_manual(word: str) -> None:
    run = row(State=word).run
    assert (run.state, run.final) == (word, word in FINAL_STATES)
    assert "state_unknown" not in run.flags
    assert is_final(word) == (word in FINAL_STATES)


@pytest.mark.parametrize(
    ("text", "word", "uid"),
    [
        ("CANCELLED by 1234", "CANCELLED", 1234),
        ("CANCELLED by 640000000", "CANCELLED", 640000000),
        ("CANCELLED+", "CANCELLED", None),
        ("CANCELLED b+", "CANCELLED", None),
        ("OUT_OF_ME+", "OUT_OF_MEMORY", None),
        ("NODE_FAI+", "NODE_FAIL", None),
        ("COMP+", "COMP+", None),
        ("RE+", "RE+", None),
        ("completed", "COMPLETED", None),
        ("FOO", "FOO", None),
    ],
)
def test_forms_of_a_state(text: str, word: str, uid: int | None) -> None:
    assert base_state(text) == (word, uid)


@pytest.mark.parametrize("text", ["1", "a b", "COMPLETED 0:0", "2025-07-01", "|"])
def test_what_is_no_state(text: str) -> None:
    with pytest.raises(ValueError, match="no job state"):
        base_state(text)


def test_unknown_word_is_kept_and_said_once() -> None:
    rows = (
        "|".join(NAMES),
        *("|".join((PLAIN | {"State": "FOO", "JobIDRaw": i, "JobID": i})[n] for n in NAMES) for i in "789"),
    )
    reading = read_lines(*rows)
    assert {(run.state, run.final, run.flags) for run in reading.runs} == {("FOO", False, "state_unknown")}
    assert len(reading.warnings) == 1


class TestNeverStarted:
    def test_pending_without_start(self) -> None:
        run = row(
            State="PENDING", Start="Unknown", End="Unknown", NodeList="None assigned", Elapsed="00:00:00"
        ).run
        assert (run.started, run.final, run.node_count, run.cpu_count) == (False, False, 0, 0)

    def test_pending_without_start_whatever_was_requested(self) -> None:
        run = row(State="PENDING", Start="NA", End="NA", Elapsed="01:49:22").run
        assert (run.started, run.elapsed_s, run.flags) == (False, 0, "elapsed_disagrees")

    def test_final_without_start_and_allocation(self) -> None:
        run = row(
            State="CANCELLED by 7", Start="None", AllocTRES="", Elapsed="00:00:00", NodeList="None assigned"
        ).run
        assert (run.started, run.final, run.alloc_tres) == (False, True, "")

    def test_start_is_end_and_no_node(self) -> None:
        run = row(State="FAILED", Start=PLAIN["End"], NodeList="None assigned", Elapsed="00:00:00").run
        assert (run.started, run.node_list) == (False, None)

    def test_without_a_column_nothing_is_proven(self) -> None:
        assert row(leave="Start", State="PENDING").run.started
        assert row(leave="AllocTRES", State="CANCELLED", Start="None", Elapsed="00:00:00").run.started
        assert row(State="CANCELLED", Start="None", Elapsed="00:00:00").run.started

    def test_no_allocation_column_but_no_node_either(self) -> None:
        run = row(
            leave="AllocTRES", State="CANCELLED", Start="None", Elapsed="00:00:00", NodeList="None assigned"
        ).run
        assert not run.started

    def test_what_has_run_time_has_started(self) -> None:
        assert row(State="FAILED", Start="None", AllocTRES="").run.started

    def test_running_without_start_has_started(self) -> None:
        assert row(State="RUNNING", Start="Unknown", End="Unknown", AllocTRES="").run.started


def test_pending_with_a_start_is_half_written() -> None:
    run = row(State="PENDING", End="Unknown", Elapsed="00:00:00").run
    assert (run.started, run.final, run.flags, run.start) == (True, False, "half_written", START)


def test_start_before_2000_is_taken_from_submit() -> None:
    run = row(State="FAILED", Start="1970-01-01T01:00:00", End="1970-01-01T01:00:00", Elapsed="00:00:00").run
    assert (run.start, run.end, run.started, run.flags) == (SUBMIT, None, True, "start_from_submit")
    never = row(State="FAILED", Start="1970-01-01T01:00:00", AllocTRES="", Elapsed="00:00:00").run
    assert (never.start, never.started, never.flags) == (None, False, "")


def test_a_run_that_just_ended_is_not_final() -> None:
    settling = row(queried_at=END + 9).run
    assert (settling.final, settling.flags, settling.queried_at) == (False, "settling", END + 9)
    assert row(queried_at=END + 10).run.final


def test_a_state_that_is_not_final_wins_over_an_end() -> None:
    run = row(State="RUNNING").run
    assert (run.final, run.end, run.queried_at) == (False, END, START + 3600)


def test_requeued_without_an_end_is_not_over() -> None:
    assert not row(State="REQUEUED", End="Unknown").run.final
    assert row(State="REQUEUED").run.final


def test_when_a_running_row_was_true() -> None:
    run = row(State="RUNNING", End="Unknown", Suspended="00:10:00").run
    assert run.queried_at == START + 3600 + 600
    assert row(leave="Elapsed", State="RUNNING", End="Unknown").run.queried_at is None


class TestElapsed:
    def test_suspended_is_not_elapsed(self) -> None:
        run = row(Elapsed="00:45:00", Suspended="00:15:00").run
        assert (run.elapsed_s, run.suspended_s, run.flags) == (2700, 900, "")

    def test_shorter_without_a_column_suspended(self) -> None:
        run = row(leave="Suspended", Elapsed="00:30:00").run
        assert (run.elapsed_s, run.flags) == (1800, "")

    def test_the_larger_stands(self) -> None:
        assert row(Elapsed="02:00:00").run.elapsed_s == 7200
        run = row(Elapsed="00:30:00").run
        assert (run.elapsed_s, run.flags) == (3600, "elapsed_disagrees")

    def test_start_to_end_is_the_witness_between_two(self) -> None:
        run = row(ElapsedRaw="9999").run
        assert (run.elapsed_s, run.flags) == (3600, "elapsed_disagrees")
        assert row(Elapsed="02:00:00", ElapsedRaw="9999").run.elapsed_s == 9999

    def test_waiting_time_is_no_run_time(self) -> None:
        run = row(Elapsed="01:00:10").run
        assert (run.elapsed_s, run.flags) == (3600, "elapsed_disagrees")

    def test_not_given(self) -> None:
        assert row(leave="Elapsed").run.elapsed_s is None
        assert row(Elapsed="INVALID").run.elapsed_s is None


class TestIdentity:
    def test_without_submit(self) -> None:
        run = row(leave="Submit").run
        assert (run.run_key, run.submit, run.flags) == (START, None, "identity_incomplete")

    def test_without_submit_and_start_the_row_itself(self) -> None:
        lines = "JobID|State", "7|COMPLETED", "7|COMPLETED", "7|FAILED"
        keys = [run.run_key for run in read_lines(*lines).runs]
        assert len(set(keys)) == 3
        assert all(-(2**63) < key < 0 for key in keys)
        assert [run.run_key for run in read_lines(*lines).runs] == keys

    def test_array_task_without_raw_id(self) -> None:
        reading = read_lines(
            "JobID|State|Start",
            "30_5|COMPLETED|1751364010",
            "30_5.batch|COMPLETED|1751364010",
            "31|FAILED|1751364010",
        )
        (rejected,) = reading.rejected
        assert (rejected.line, "JobIDRaw" in rejected.reason) == (2, True)
        assert (reading.run.job_id_raw, reading.steps_skipped, reading.orphans) == (31, 1, [])

    def test_array_that_waits(self) -> None:
        run = row(JobID="30_[1-10%2]", JobIDRaw="30", State="PENDING", Start="Unknown", End="Unknown").run
        assert (run.job_id, run.job_id_raw, run.array_job_id) == ("30_[1-10%2]", 30, 30)

    def test_numbers_that_pass_every_integer_are_text(self) -> None:
        run = row(DBIndex="14899746724559597568", SLUID="sCXHM8PGMAMC00").run
        assert (run.db_index, run.sluid) == ("14899746724559597568", "sCXHM8PGMAMC00")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"JobIDRaw": "9223372036854775808"}, "no job id"),
        ({"JobID": "0", "JobIDRaw": "0"}, "no job id"),
        ({"JobID": "7.batch"}, "do not name the same row"),
        ({"Start": "soon"}, "Start"),
        ({"Elapsed": "a while"}, "no duration"),
        ({"NNodes": "several"}, "no count"),
        ({"UID": "9223372036854775808"}, "no count"),
        ({"UID": "9223372036854775807K"}, "no count"),
        ({"NNodes": "99999999999999999P"}, "too large"),
        ({"State": "17"}, "no job state"),
        ({"State": ""}, "no job state"),
        ({"Submit": ""}, "Submit is empty"),
        ({"JobIDRaw": ""}, "no job id"),
        ({"JobID": ""}, "no job id"),
        ({"Start": "102"}, "Start"),
    ],
)
def test_rejected_with_a_reason(cells: dict[str, str], words: str) -> None:
    reading = row(**cells)
    (rejected,) = reading.rejected
    assert words in rejected.reason
    assert (reading.runs, rejected.line) == ([], 2)


def test_counts_of_the_allocation_not_of_the_request() -> None:
    assert row(NNodes="4", AllocNodes="1").run.node_count == 1
    assert row(AllocCPUS="2", NCPUS="8").run.cpu_count == 2
    assert row(NCPUS="8").run.cpu_count == 8
    assert row().run.cpu_count == 4
    assert row(NNodes="1.50K", NodeList="None assigned").run.node_count == 1536
    assert row(leave="NNodes NodeList").run.node_count == 1


@pytest.mark.parametrize("nodes", ["n[1-3]", "n1@n2", "n[1-99999999]"])
def test_nodes_that_do_not_fit_their_count(nodes: str) -> None:
    run = row(NodeList=nodes).run
    assert (run.node_list, run.flags) == (nodes, "nodes_disagree")
    assert run.node_count == (3 if nodes == "n[1-3]" else 1)
