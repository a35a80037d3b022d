"""Control totals: what sreport prints, and records that hold less than it says."""

import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import jsonschema
import pytest
from click.testing import CliRunner

from slurm_trace.accounting.sreport import read_sreport
from slurm_trace.analysis.job_ids import job_ids
from slurm_trace.cli.main import app
from slurm_trace.errors import CheckFailed, InputProblem, UsageProblem
from tests.support.grouped import T0, frame
from tests.support.world import Job, sacct_text, stamp
from tests.unit.test_report_schemas import schema

RULE = "-" * 80
USERS = f"""{RULE}
Cluster/Account/User Utilization 2026-01-01T00:00:00 - 2026-01-31T23:59:59 (2678400 secs)
Usage reported in TRES Seconds
{RULE}
Cluster|Account|Login|Proper Name|TRES Name|Used
c|root|||cpu|7000
c|root|||gres/gpu|700
c|lab|||cpu|7000
c|lab|ada|Ada L.|cpu|4000
c|lab|ada|Ada L.|gres/gpu|400
c|lab|bob||cpu|3000
c|lab|bob||gres/gpu|300
c|lab|bob||gres/gpu:a100|300
c|lab|bob||mem|999999
"""
UTILIZATION = f"""{RULE}
Cluster Utilization 2026-01-01T00:00:00 - 2026-01-01T11:59:59
Usage reported in TRES Minutes
{RULE}
Cluster|TRES Name|Allocated|Down|PLND Down|Idle|Planned|Reported
c|cpu|100|0|0|5|0|105
d|gres/gpu|60|0|0|0|0|60
"""
# 24.11 names two columns alike; -p ends lines with a separator; without --tres only CPUs are there
NEWER = UTILIZATION.replace("PLND Down", "Planned").replace("\n", "|\n").replace(f"{RULE}|", RULE)
NEWER = NEWER.replace("11:59:59|", "11:59:59").replace("Minutes|", "Minutes")
CPUS = f"""{RULE}
Cluster/User/Account Utilization 2026-01-01T00:00:00 - 2026-01-01T23:59:59 (86400 secs)
Usage reported in CPU Hours
{RULE}
Cluster|Login|Proper Name|Account|Used|Energy
c|ada|Ada L.|lab| 12|0
"""


def totals(text, zone=UTC):
    return [(t.cluster, t.tres, t.allocated_s, t.rounded_s) for t in read_sreport(text.splitlines(), zone)]


def test_rows_of_users_are_summed_and_those_of_accounts_hold_them_again():
    assert totals(USERS) == [("c", "cpu", 7000, 0), ("c", "gres/gpu", 700, 0)]
    (first, _) = read_sreport(USERS.splitlines())
    assert (first.since, first.until) == (1_767_225_600, 1_769_904_000)


@pytest.mark.parametrize("text", [UTILIZATION, NEWER])
def test_allocated_by_cluster_and_what_rounding_may_have_added(text):
    assert totals(text) == [("c", "cpu", 6000, 60), ("d", "gres/gpu", 3600, 60)]


def test_cpus_alone():
    assert totals(CPUS) == [("c", "cpu", 12 * 3600, 3600)]


def test_two_reports_stay_apart():
    assert len(totals(USERS + USERS)) == 4


def test_the_zone_shifts_the_time():
    (berlin, _) = read_sreport(USERS.splitlines(), ZoneInfo("Europe/Berlin"))
    assert berlin.since == 1_767_225_600 - 3600


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no report"),
        (RULE, "no report"),
        ("\n".join(USERS.splitlines()[:5]), "no report"),
        (USERS.replace("cpu", "billing").replace("gres/gpu", "energy"), "no report of cpu or gres/gpu"),
        (USERS.splitlines()[4], "no title"),
        (USERS.replace("Seconds", "Percentage of Total"), "Percentage"),
        (USERS.replace("|4000", "|40.5%"), "no number"),
        (USERS.replace("|4000", "|"), "no number"),
        (USERS.replace("c|lab|bob||cpu|3000", "c|lab"), "2 columns"),
        (USERS.replace("|Used", "|Energy"), "neither"),
        (USERS.replace("c|lab|bob||cpu|3000", "c|lab|bob||cpu"), "5 columns"),
        (USERS.replace("|4000", "|" + "4" * 5000), "no number"),
        (USERS.replace("(2678400 secs)", f"({'2' * 5000} secs)"), "no title"),
        (USERS.replace("(2678400 secs)", "(2682000 secs)"), "--tz"),
        (USERS.replace("2026-01-31T23:59:59", "soon"), "no time"),
    ],
)
def test_what_is_no_such_report_is_refused_with_its_line(text, says):
    with pytest.raises(InputProblem, match=says):
        totals(text)


# In the report on groups

ROW = Job(
    number=1, submit=T0, start=T0, end=T0 + 1000, stopped_s=1000, suspended_s=0, state="COMPLETED", nodes=1, gpus=8,
    gpu_type="h100", cpus=64, flop=0,
).row()  # fmt: skip


@pytest.fixture
def call(tmp_path):
    (tmp_path / "export").write_bytes(sacct_text([ROW]))

    def command(*arguments):
        return CliRunner().invoke(app, ["--store", str(tmp_path / "store.db"), *arguments])

    covers = f"{stamp(T0 - 3600)}Z..{stamp(T0 + 9000)}Z"
    done = command("import", "sacct", str(tmp_path / "export"), "--tz", "UTC", "--covers", covers)
    assert done.exit_code == 0, done.output
    return command


def report(tmp_path, gpu_s, cpu_s, since=T0, until=T0 + 1000, zone=UTC):

    first, last = (datetime.fromtimestamp(t, zone).strftime("%Y-%m-%dT%H:%M:%S") for t in (since, until - 1))
    text = f"{RULE}\nCluster/Account/User Utilization {first} - {last} ({until - since} secs)\n"
    text += f"Usage reported in TRES Seconds\n{RULE}\nCluster|Account|Login|Proper Name|TRES Name|Used\n"
    path = tmp_path / "sreport.txt"
    path.write_text(text + f"c|a1|u1||cpu|{cpu_s}\nc|a1|u1||gres/gpu|{gpu_s}\n")
    return str(path)


def groups(call, *arguments):
    document = json.loads(call("groups", "--json", *arguments).stdout)
    jsonschema.validate(document, schema("groups"))
    return document


def test_records_that_hold_as_much_are_not_blocked(call, tmp_path):
    document = groups(call, "--sreport", report(tmp_path, 8000, 64_000))
    assert [t["short_s"] for t in document["control_totals"]] == [0, 0]
    assert document["groups"][0]["verdict"] == "RULED_OUT"


def test_a_report_may_begin_with_a_byte_order_mark(call, tmp_path):
    path = Path(report(tmp_path, 8000, 64_000))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().partition(b"\n")[2])
    assert [t["short_s"] for t in groups(call, "--sreport", str(path))["control_totals"]] == [0, 0]


def test_records_that_hold_less_leave_every_group_open(call, tmp_path):
    document = groups(call, "--by", "all", "--by", "user", "--sreport", report(tmp_path, 8001, 64_000))
    assert [t["short_s"] for t in document["control_totals"]] == [0, 1]
    assert {g["verdict"] for g in document["groups"]} == {"INSUFFICIENT"}
    assert all("hold 8000 gres/gpu seconds" in " ".join(g["reasons"]) for g in document["groups"])
    shown = call("groups", "--sreport", report(tmp_path, 8001, 64_000))
    assert "runs are missing" in shown.stderr
    checked = call("groups", "--check", "--sreport", report(tmp_path, 8001, 64_000))
    assert isinstance(checked.exception, CheckFailed)


def test_only_what_lies_in_its_time_is_compared(call, tmp_path):
    half = report(tmp_path, 4000, 32_000, until=T0 + 500)
    assert [t["records_s"] for t in groups(call, "--sreport", half)["control_totals"]] == [32_000, 4000]
    local = report(tmp_path, 4000, 32_000, until=T0 + 500, zone=ZoneInfo("Europe/Berlin"))
    again = groups(call, "--sreport", local, "--tz", "Europe/Berlin")
    assert [t["records_s"] for t in again["control_totals"]] == [32_000, 4000]


def test_a_cluster_that_only_sreport_knows_leaves_all_open(call, tmp_path):
    path = report(tmp_path, 10, 10)
    with Path(path).open() as text:
        other = text.read().replace("c|a1", "d|a1")
    (tmp_path / "sreport.txt").write_text(other)
    assert groups(call, "--sreport", path)["groups"][0]["verdict"] == "INSUFFICIENT"


def test_a_report_that_is_not_there(call):
    assert call("groups", "--sreport", "/nowhere/x").exception.exit_code == 2


# The other options


def test_a_base_model_in_every_form(call):
    document = groups(call, "--base-flop", "1.5e23")
    assert document["base_model"] == {"flop": 150_000_000_000_000_000_000_000, "use": "added"}
    (group,) = document["groups"]
    assert group["bound_with_base_flop"] == group["bound_flop"] + document["base_model"]["flop"]
    assert (group["verdict"], group["verdict_with_base"]) == ("RULED_OUT", "NOT_RULED_OUT")
    shown = call("groups", "--base-flop", "1.5e23").stdout
    assert "together with the base model" in shown
    assert "own contribution" in shown
    assert isinstance(call("groups", "--check", "--base-flop", "1.5e23").exception, CheckFailed)


def test_a_third_of_the_base_model_is_the_threshold_of_a_modification(call):
    document = groups(call, "--threshold", "eu-modifier-gpai", "--base-flop", "2e23")
    assert document["threshold"]["flop"] == 2 * 10**23 // 3
    assert document["base_model"]["use"] == "threshold"
    assert document["groups"][0]["verdict_with_base"] is None
    unknown = groups(call, "--threshold", "eu-modifier-systemic")
    assert unknown["threshold"]["flop"] == 10**25 // 3
    assert (
        "1/3 of the base model"
        in call("groups", "--threshold", "eu-modifier-gpai", "--base-flop", "2e23").stdout
    )


@pytest.mark.parametrize(
    "wrong",
    [
        ("--base-flop", "much"),
        ("--base-flop", "-1"),
        ("--base-flop", "2", "--threshold", "eu-modifier-gpai"),
        ("--within", "90"),
        ("--within", "0d"),
        ("--within", "99999999999d"),
        ("--pause", "soon"),
    ],
)
def test_what_can_t_be_used_is_refused(call, wrong):
    done = call("groups", *wrong)
    assert done.exit_code == 2 or isinstance(done.exception, UsageProblem)


def test_every_kind_and_window_is_what_the_schema_says(call):
    kinds = [
        argument
        for by in schema("groups")["properties"]["groups"]["items"]["properties"]["by"]["enum"]
        for argument in ("--by", by)
    ]
    document = groups(call, *kinds, "--within", "90d", "--pause", "3d")
    assert [g["by"] for g in document["groups"]] == kinds[1::2]
    assert (document["within_s"], document["pause_s"]) == (90 * 86_400, 3 * 86_400)
    assert all(
        g["worst_window"]["until"] - g["worst_window"]["since"] == 90 * 86_400 for g in document["groups"]
    )
    shown = call("groups", *kinds, "--within", "90d", "--threshold", "1").stdout
    assert "worst window of 90d" in shown
    assert "fewest runs of all that could reach T: c:1@" in shown


# Ids that no record has


def test_ids_between_the_lowest_and_the_highest_that_no_record_has():
    runs = frame({"job_id_raw": 10}, {"job_id_raw": 14}, {"job_id_raw": 12, "submit": 5}, {"job_id_raw": 10})
    found = job_ids(runs, "c", [(T0, T0 + 1)])
    assert (found.lowest, found.highest, found.known, found.absent) == (10, 14, 3, 2)
    assert job_ids(runs, "c", []) is None
    assert job_ids(runs, "d", [(T0, T0 + 1)]) is None


def test_ids_of_a_federation_are_counted_by_the_cluster_that_gave_them_out():
    first, second = 2**26 + 5, 2 * 2**26 + 5
    runs = frame({"job_id_raw": first}, {"job_id_raw": first + 2}, {"job_id_raw": second})
    assert job_ids(runs, "c", [(T0, T0 + 1)]).absent == 1


def test_absent_ids_are_a_warning_and_no_blocker(tmp_path):
    rows = [ROW, ROW | {"JobID": "4", "JobIDRaw": "4"}]
    (tmp_path / "export").write_bytes(sacct_text(rows))
    store = ["--store", str(tmp_path / "s.db")]
    covers = f"{stamp(T0 - 3600)}Z..{stamp(T0 + 9000)}Z"
    CliRunner().invoke(
        app, [*store, "import", "sacct", str(tmp_path / "export"), "--tz", "UTC", "--covers", covers]
    )
    done = CliRunner().invoke(app, [*store, "groups", "--json"])
    assert "2 job ids from 1 to 4 are in no record" in done.stderr
    document = json.loads(done.stdout)
    assert document["job_ids"] == {"c": {"lowest": 1, "highest": 4, "known": 2, "absent": 2}}
    assert document["groups"][0]["verdict"] == "RULED_OUT"
