"""Times and durations in every spelling."""

from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from slurm_trace.accounting.times import Moment, TimeReader, parse_duration, parse_limit
from support.sacct import read_lines

BERLIN = ZoneInfo("Europe/Berlin")
HEADER = "JobIDRaw|Submit|Start|End|State|AllocTRES"


@pytest.mark.parametrize(
    "text", ["", "Unknown", "None", "NA", "N/A", "(null)", "unknown", " ", "4294967294", "4294967295"]
)
def test_words_for_no_time(text: str) -> None:
    moment = TimeReader(UTC).read(text)
    assert (moment.latest, moment.earliest, moment.ancient) == (None, None, False)


@pytest.mark.parametrize("text", ["0", "946684799", "1970-01-01T01:00:00", "1969-12-31T19:00:00", "-1"])
def test_before_2000_there_was_no_slurm(text: str) -> None:
    moment = TimeReader(UTC).read(text)
    assert (moment.latest, moment.ancient) == (None, True)


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("2025-07-01T10:00:00", 1_751_364_000),
        ("2025-07-01 10:00:00", 1_751_364_000),
        ("2025-07-01T10:00", 1_751_364_000),
        ("2025-07-01T10:00:00.500", 1_751_364_000),
        ("2025-07-01T10:00:00Z", 1_751_364_000),
        ("2025-07-01T12:00:00+0200", 1_751_364_000),
        ("2025-07-01T12:00:00+02:00", 1_751_364_000),
        ("2025-07-01T06:30:00-03:30", 1_751_364_000),
        ("1751364000", 1_751_364_000),
    ],
)
def test_spellings(text: str, epoch: int) -> None:
    assert TimeReader(UTC).read(text).latest == epoch


def test_zone_counts_only_where_the_time_has_none() -> None:
    reader = TimeReader(BERLIN)
    assert reader.read("2025-07-01T12:00:00") == Moment(1_751_364_000, 1_751_364_000, local=True)
    assert reader.read("2025-07-01T10:00:00Z") == Moment(1_751_364_000, 1_751_364_000, local=False)
    assert TimeReader(timezone(timedelta(hours=-8))).read("2025-07-01T02:00:00").latest == 1_751_364_000


def test_the_hour_that_comes_twice() -> None:
    moment = TimeReader(BERLIN).read("2025-10-26T02:30:00")
    assert (moment.earliest, moment.latest, moment.shift) == (1_761_438_600, 1_761_442_200, "dst_fold")


def test_the_hour_that_does_not_come() -> None:
    moment = TimeReader(BERLIN).read("2025-03-30T02:30:00")
    assert (moment.earliest, moment.latest, moment.shift) == (1_743_294_600, 1_743_298_200, "dst_gap")


@pytest.mark.parametrize(
    "text", ["soon", "2025-13-01T10:00:00", "2025-07-01", "10:00:00", "2025-07-01T25:00:00", "٢٠٢٥"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        TimeReader(UTC).read(text)


def test_fold_makes_the_held_time_larger() -> None:
    """Without Elapsed the first reading of Start and the second of End; with it the second of both."""
    cells = "|2025-10-26T01:00:00|2025-10-26T02:15:00|2025-10-26T02:45:00|COMPLETED|cpu=1,node=1"
    run = read_lines(HEADER, "7" + cells, zone=BERLIN).run
    assert (run.start, run.end) == (1_761_437_700, 1_761_443_100)
    assert run.flags == "dst_fold"
    run = read_lines(f"{HEADER}|Elapsed", f"7{cells}|00:30:00", zone=BERLIN).run
    assert (run.start, run.end, run.elapsed_s) == (1_761_441_300, 1_761_443_100, 1800)


def test_utc_is_assumed_once_and_said_of_each_run() -> None:
    row = "|2025-07-01T10:00:00|2025-07-01T10:00:00|2025-07-01T10:00:05|COMPLETED|cpu=1,node=1"
    reading = read_lines(HEADER, "7" + row, "8" + row, zone=None)
    assert [run.flags for run in reading.runs] == ["tz_assumed", "tz_assumed"]
    assert len(reading.warnings) == 1
    assert "--tz" in reading.warnings[0]
    epoch = read_lines(HEADER, "7|1751364000|1751364000|1751364005|COMPLETED|cpu=1,node=1", zone=None)
    assert (epoch.run.flags, epoch.warnings) == ("", [])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:00", 0),
        ("03:33:25", 12_805),
        ("2-22:03:04", 252_184),
        ("1-00:00", 86_400),
        ("2-12", 216_000),
        ("35:45.828", 2146),
        ("00:00.001", 1),
        ("3600", 3600),
        ("8371-10:29:20", 723_292_160),
        ("", None),
        ("INVALID", None),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("NOT_SET", None),
        ("INFINITE", None),
    ],
)
def test_durations(text: str, seconds: int | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["x", "1:2:3:4", "-5", "1-", "--"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "minutes", "seconds"),
    [
        ("20160", True, 1_209_600),
        ("4294967295", True, None),
        ("Partition_Limit", True, None),
        ("whatever comes", True, None),
        ("1-00:00:00", False, 86_400),
        ("UNLIMITED", False, None),
    ],
)
def test_limits(text: str, minutes: bool, seconds: int | None) -> None:
    assert parse_limit(text, minutes=minutes) == seconds
