"""Reads the fixtures of sacct output."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import IO, Any

from slurm_trace.accounting.open_source import read_any
from slurm_trace.accounting.options import ReadOptions
from slurm_trace.accounting.records import RejectedRow, RunBlock, RunRecord, StepRecord
from slurm_trace.errors import TraceError

FIXTURES = Path(__file__).parents[1] / "fixtures"


@dataclass
class Reading:
    runs: list[RunRecord]
    orphans: list[StepRecord]
    steps_skipped: int
    rejected: list[RejectedRow]
    warnings: list[str]
    problem: TraceError | None

    @property
    def run(self) -> RunRecord:
        assert len(self.runs) == 1
        return self.runs[0]


def columns(*names: str) -> tuple[str, ...]:
    """Names of columns, written as words."""
    return tuple(" ".join(names).split())


def drain(blocks: Iterator[RunBlock]) -> tuple[list[RunBlock], TraceError | None]:
    """All blocks, and the problem with which they end."""
    read: list[RunBlock] = []
    while True:
        try:
            read.append(next(blocks))
        except StopIteration:
            return read, None
        except TraceError as error:
            return read, error


def read_bytes(
    data: bytes, reader: Callable[[IO[bytes], ReadOptions], Iterator[RunBlock]] = read_any, **options: Any
) -> Reading:
    """What a reader makes of some bytes; times are UTC unless a zone is named."""
    options = {"zone": UTC, "source_name": "export", **options}
    blocks, problem = drain(reader(io.BytesIO(data), ReadOptions(**options)))
    assert "\n" not in str(problem)
    return Reading(
        [run for block in blocks for run in block.records()],
        [step for block in blocks for step in block.steps],
        sum(block.steps_skipped for block in blocks),
        [row for block in blocks for row in block.rejected],
        [warning for block in blocks for warning in block.warnings],
        problem,
    )


def read_lines(*lines: str, **options: Any) -> Reading:
    """What the reader makes of some lines of text."""
    return read_bytes(("\n".join(lines) + "\n").encode(), **options)


def read_fixture(name: str, **options: Any) -> Reading:
    """What the reader makes of a file below tests/fixtures."""
    return read_bytes((FIXTURES / name).read_bytes(), **{"source_name": name, **options})
