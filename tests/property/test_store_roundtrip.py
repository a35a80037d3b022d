"""What was ingested is what is loaded, whatever the values; and the order of accounts of a run does not matter."""

from __future__ import annotations

import tempfile

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slurm_trace.accounting.records import RUN_FIELDS, block_of
from slurm_trace.store.engine import open_store
from slurm_trace.store.load import RUN_COLUMNS, load_allocations, load_raw, load_runs
from slurm_trace.store.merge import MODEL, merge, same
from support.runs import T0, ingest, run, running
from support.store_cases import table

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
TEXT = st.none() | st.text(max_size=20)
INTEGER = st.none() | st.sampled_from([-(2**64), -(2**62), -1, 0, 1, 2**31, 2**63 - 1, 2**63])
REQUIRED_TEXT = st.text(max_size=8)

RUNS = st.builds(
    run,
    st.integers(0, 50) | st.sampled_from([2**40, 2**63 - 1, 2**63]),
    submit=st.none() | st.integers(T0, T0 + 3),
    name=TEXT, user=TEXT, account=TEXT, partition=TEXT, node_list=TEXT, alloc_tres=TEXT, alloc_gres=TEXT,
    work_dir=TEXT, sluid=TEXT, db_index=TEXT, job_id=REQUIRED_TEXT, state=REQUIRED_TEXT, flags=REQUIRED_TEXT,
    uid=INTEGER, start=INTEGER, end=INTEGER, elapsed_s=INTEGER, suspended_s=INTEGER, limit_s=INTEGER,
    node_count=INTEGER, cpu_count=INTEGER, array_job_id=INTEGER, step_end=INTEGER, queried_at=INTEGER,
    final=st.booleans(), started=st.booleans(), raw=st.binary(max_size=30), line=st.just(7),
)  # fmt: skip


def storable(value):
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
    return not isinstance(value, int) or -(2**63) < value < 2**63


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)
@given(st.lists(RUNS, max_size=8, unique_by=lambda r: (r.job_id_raw, r.run_key)))
def test_what_was_ingested_is_what_is_loaded(records):
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"{folder}/store", create=True)
        summary = ingest(store, block_of(records))
        fitting = [r for r in records if all(storable(getattr(r, n)) for n in MODEL if hasattr(r, n))]
        fitting = [r for r in fitting if storable(r.alloc_tres) and storable(r.alloc_gres)]
        assert summary.inserted == len(fitting)
        assert len(summary.rejected) == len(records) - len(fitting)
        allocations = load_allocations(store)
        frame = load_runs(store)
        of_key = {(record.job_id_raw, record.run_key): record for record in fitting}
        assert len(frame) == len(of_key)
        for number, row in enumerate(frame.itertuples(index=False)):
            record = of_key[row.job_id_raw, row.run_key]
            for name in set(RUN_COLUMNS) & set(RUN_FIELDS):
                value = getattr(row, name)
                expected = getattr(record, name)
                assert (value == expected) if expected is not None else frame[name].isna()[number], name
            pair = (None, None) if frame["allocation"].isna()[number] else allocations[row.allocation]
            assert pair == (record.alloc_tres, record.alloc_gres)
            assert load_raw(store, row.run_id).raw == record.raw
        assert ingest(store, block_of(records)).unchanged == len(fitting)
        store.close()


def accounts(job):
    """What may be told of one run while it waits, runs, ends and is over; at most one final account."""
    waiting = st.builds(
        lambda at: run(
            job, state="PENDING", final=False, started=False, start=None, end=None, elapsed_s=0, queried_at=at
        ),
        st.integers(T0, T0 + 9),
    )
    under_way = st.builds(
        lambda at, end, count: running(job, queried_at=at, step_end=end, step_count=count),
        st.integers(T0 + 11, T0 + 109),
        st.none() | st.integers(T0 + 11, T0 + 90),
        st.none() | st.integers(0, 3),
    )
    ended = st.just(run(job, final=False, flags="settling", queried_at=T0 + 111))
    final = st.just([]) | st.just([run(job)])
    return st.tuples(
        st.lists(waiting | under_way | ended, max_size=5, unique_by=lambda r: r.queried_at), final
    ).map(lambda pair: pair[0] + pair[1])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.tuples(accounts(1), accounts(2), accounts(40)).map(lambda a: [r for part in a for r in part]),
    st.data(),
)
def test_order_and_repetition_do_not_matter(records, data):
    tables = []
    for _ in range(2):
        order = data.draw(st.permutations(records))
        repeated = data.draw(st.lists(st.sampled_from(order), max_size=4)) if order else []
        cut = data.draw(st.integers(0, len(order)))
        with tempfile.TemporaryDirectory() as folder:
            store = open_store(f"{folder}/store", create=True)
            ingest(store, block_of(order[:cut]), block_of([*order[cut:], *repeated]))
            ingest(store, block_of(repeated))
            tables.append(table(store))
            store.close()
    assert tables[0] == tables[1]


FINALS = st.builds(
    lambda start, end, elapsed, suspended, user: [
        {"start": start, "end": end, "elapsed_s": elapsed, "suspended_s": suspended, "user": user}.get(
            name, value
        )
        for name, value in zip(MODEL, _model(run(1)), strict=True)
    ],
    *(st.none() | st.integers(1, 4) for _ in range(4)),
    st.sampled_from([None, "ada"]),
)


def _model(record):
    return [1 if name in ("cluster_id", "allocation_id") else getattr(record, name) for name in MODEL]


@given(FINALS, FINALS, FINALS)
def test_merging_final_accounts_is_a_join(one, two, three):
    """Same result in every order and grouping, none of it shorter than what went in."""

    def join(a, b):
        return merge(a, b)[0]

    assert join(one, two) == join(two, one)
    assert join(join(one, two), three) == join(one, join(two, three))
    assert same(join(one, one), one)
    for name in ("end", "elapsed_s", "suspended_s"):
        at = MODEL.index(name)
        assert join(one, two)[at] == max((v[at] for v in (one, two) if v[at] is not None), default=None)
