"""`import feed` and `feed`, as a user calls them."""

from __future__ import annotations

import csv
import io
import json
from importlib.resources import files

import jsonschema
import pytest
from click.testing import CliRunner

from slurm_trace.accounting.feed_columns import ALIASES, REQUIRED
from slurm_trace.analysis.provider_skus import ProviderSkus
from slurm_trace.analysis.rates import Rates
from slurm_trace.cli.main import app
from slurm_trace.errors import EnvironmentProblem, InputProblem, UsageProblem

HEADER = "Account,Resource,SKU,Hours,Cost,Currency,Start,End"
FOCUS = (
    "BillingAccountId,ProviderName,ResourceId,SkuId,SkuMeter,ServiceCategory,ChargeCategory,ConsumedQuantity,ConsumedUnit,"
    "BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,x_Team"
)
DAY = "2026-01-01T00:00:00Z,2026-01-02T00:00:00Z"


def schema(name):
    document = json.loads(files("slurm_trace.schema.json").joinpath(f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    return document


@pytest.fixture
def call(tmp_path):
    def command(*arguments, data=None):
        done = CliRunner().invoke(
            app, ["--store", str(tmp_path / "store"), *map(str, arguments)], standalone_mode=False, input=data
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.return_value or 0, done.stdout, done.stderr

    return command


@pytest.fixture
def take(call, tmp_path):
    """Import lines, and give the JSON of the import."""

    def command(*rows, header=HEADER, code=0, options=()):
        path = tmp_path / "feed.csv"
        path.write_text("".join(f"{line}\n" for line in (header, *rows)), encoding="utf-8")
        found = call("import", "feed", path, "--json", *options)
        assert found[0] == code, found
        document = json.loads(found[1])
        jsonschema.validate(document, schema("import"))
        return document

    return command


@pytest.fixture
def report(call):
    def command(*options):
        document = json.loads(call("feed", "--json", *options)[1])
        name = "feed-disclosed" if "--disclose" in options else "feed-report"
        jsonschema.validate(document, schema(name))
        return document

    return command


@pytest.fixture(scope="module")
def per_hour():
    skus = ProviderSkus.load(Rates.load(), "max_any_op")
    return lambda sku, **labels: skus.meaning("", sku, labels, late=False).instance.flop_s * 3600


def test_the_schema_of_rows_is_what_the_reader_knows():
    document = schema("feed")
    assert {name: tuple(c["x-aliases"]) for name, c in document["properties"].items()} == ALIASES
    assert tuple(document["required"]) == REQUIRED


def test_counts_exit_codes_and_formats(call, take, tmp_path):
    rows = [f"acme,i-{n},g5.xlarge,24,1,USD,{DAY}" for n in range(3)]
    assert take(*rows)["inserted"] == 3
    again = take(*rows, "acme,i-9,g5.xlarge,24,1,USD,never,never", "", code=3)
    assert (again["read"], again["jobs"], again["unchanged"]) == (4, 3, 3)
    assert again["rejected"] == [
        {"line": 5, "reason": "start 'never' is no time; write e.g. 2026-01-31T12:00:00Z"}
    ]
    assert (
        call("import", "feed", tmp_path / "feed.csv", "--format", "csv")[1].splitlines()[1] == "4,3,0,0,3,0,1"
    )
    code, out, err = call("import", "feed", "-", data="\n".join([HEADER, *rows, ""]))
    assert (code, "warning: 3 charges name no provider" in err) == (0, True)
    assert "charges" in out
    text = "\n".join([HEADER, *rows, ""])
    assert call("import", "feed", "-", "--provider", "aws", data=text)[::2] == (0, "")


def test_what_is_no_feed(call, tmp_path):
    for text, said in (
        ("", "empty"),
        ("a,b\n1,2\n", "no header"),
        ("account,sku\n", "column resource is missing"),
    ):
        with pytest.raises(InputProblem, match=said):
            call("import", "feed", "-", data=text)
    with pytest.raises(UsageProblem, match="No such file"):
        call("import", "feed", tmp_path / "x")


def test_without_a_store(call):
    with pytest.raises(EnvironmentProblem, match="no store"):
        call("feed")


def test_the_bound_of_an_account(take, report, per_hour):
    take(
        f"acme,i-1,p5.48xlarge,10.01,1,USD,{DAY}",
        f"acme,i-2,p5.48xlarge,2,1,USD,{DAY}",
        f"acme,i-3,m5.large,24,1,USD,{DAY}",
        f"beta,i-4,g5.xlarge,1,1,USD,{DAY}",
    )
    document = report("--threshold", "1e24")
    acme, beta = document["accounts"]
    assert (acme["account"], acme["hours"], acme["charges"]) == ("acme", 11 + 2 + 24, 3)
    assert acme["bound_flop"] == 13 * per_hour("p5.48xlarge") + 24 * per_hour("m5.large")
    assert acme["bound_flop"] == acme["bound_gpu_flop"] + acme["bound_cpu_flop"]
    assert [(s["sku"], s["device"], s["devices"], s["vcpus"]) for s in acme["skus"]] == [
        ("p5.48xlarge", "nvidia-h100-sxm5-80gb", 8, 192),
        ("m5.large", None, 0, 2),
    ]
    assert sum(s["bound_flop"] for s in acme["skus"]) == acme["bound_flop"]
    assert beta["bound_flop"] == per_hour("g5.xlarge")
    assert document["total"]["bound_flop"] == acme["bound_flop"] + beta["bound_flop"]
    assert {a["verdict"] for a in (acme, beta, document["total"])} == {"RULED_OUT"}
    assert {a["verdict_strict"] for a in (acme, beta)} == {"INSUFFICIENT"}
    assert report("--threshold", "1e15")["accounts"][0]["verdict"] == "NOT_RULED_OUT"
    assert report("--basis", "bf16_dense")["total"]["verdict"] == "INSUFFICIENT"


@pytest.mark.parametrize("hours", ["", "0", "-3"])
def test_hours_that_say_nothing_are_the_whole_period(take, report, per_hour, hours):
    take(f'acme,i-1,g5.xlarge,"{hours}",1,USD,{DAY}')
    assert report()["total"]["bound_flop"] == 24 * per_hour("g5.xlarge")


@pytest.mark.parametrize("hours", ["n/a", "1,5", "1,000,000", "nan", "inf", "1e400", "0x10", "\uff11"])
def test_hours_that_cannot_be_read_leave_the_bound_open(take, report, hours):
    take(f'acme,i-1,g5.xlarge,"{hours}",1,USD,{DAY}')
    assert report()["total"]["verdict"] == "INSUFFICIENT"


@pytest.mark.parametrize(("later", "bound"), [("", 24), ("nan", None)])
@pytest.mark.parametrize("first", [0, 1])
def test_a_correction_that_says_less_lowers_nothing(take, report, per_hour, later, bound, first):
    both = ["1", later]
    for hours in (both[first], both[1 - first]):
        take(f"acme,i-1,g5.xlarge,{hours},1,USD,{DAY}")
    assert report()["total"]["bound_flop"] == (bound and bound * per_hour("g5.xlarge"))


def test_every_instance_of_a_quantity_counts(take, report, per_hour):
    header = HEADER + ",quantity"
    take(f"acme,i-1,g5.xlarge,,1,USD,{DAY},3", f"acme,i-2,g5.xlarge,30,1,USD,{DAY},3", header=header)
    assert report()["total"]["hours"] == 72 + 30
    take(f"acme,i-1,g5.xlarge,,1,USD,{DAY},many", header=header)
    total = report()["total"]
    assert (total["verdict"], total["bound_flop"]) == ("INSUFFICIENT", None)


def test_neither_hours_nor_instances(take, report):
    take(f"acme,,g5.xlarge,,1,USD,{DAY}")
    assert report()["total"]["verdict"] == "INSUFFICIENT"
    take(f"acme,vm,nvidia-tesla-t4,,1,USD,{DAY}")
    assert "2; export" in report()["total"]["reasons"][0], "one machine may hold many accelerators"


def test_more_hours_than_the_period_has(take, report):
    take(f"acme,i-1,g5.xlarge,1000,1,USD,{DAY}")
    total = report()["total"]
    assert total["hours"] == 1000
    assert any("more hours" in note for note in total["notes"])


def test_an_unknown_sku_is_the_largest_and_later_nothing(take, report, per_hour):
    take(f"acme,i-1,quantum.xl,1,1,USD,{DAY}")
    (sku,) = report()["accounts"][0]["skus"]
    assert (sku["how"], sku["device"], sku["devices"]) == ("unknown", "nvidia-rubin-ultra", 32)
    assert sku["bound_flop"] > per_hour("p6-b300.48xlarge")
    take("acme,i-2,quantum.xl,1,1,USD,2030-01-01,2030-01-02")
    account = report()["accounts"][0]
    assert (account["verdict"], account["bound_flop"]) == ("INSUFFICIENT", None)
    assert "quantum.xl" in account["reasons"][0]


def test_a_known_sku_is_bounded_whenever_it_ran(take, report):
    take("acme,i-2,p5.48xlarge,1,1,USD,2030-01-01T00:00:00Z,2030-01-02T00:00:00Z")
    assert report()["total"]["verdict"] == "RULED_OUT"


def test_a_site_lists_its_own_skus(call, take, tmp_path):
    overlay = tmp_path / "own.json"
    entry = {
        "id": "hill", "provider": "hill", "devices": ["nvidia-l4"], "sizes": {"Box 1": {"devices": 2, "vcpus": 8}},
        "basis": "contract", "source": "contract", "revision": "2026", "verified": True,
    }  # fmt: skip
    overlay.write_text(json.dumps({"schema": "slurm-trace/registry/1", "provider_skus": [entry]}))
    take(f"acme,i-1,box-1,1,1,USD,{DAY}", options=("--provider", "Hill"))
    document = json.loads(call("feed", "--json", "--rates-overlay", overlay)[1])
    (sku,) = document["accounts"][0]["skus"]
    assert (sku["how"], sku["taken_as"], sku["device"], sku["devices"]) == ("listed", "Box 1", "nvidia-l4", 2)
    plain = json.loads(call("feed", "--json")[1])
    assert plain["accounts"][0]["skus"][0]["how"] == "unknown"
    assert plain["inputs"]["skus"] != document["inputs"]["skus"]
    for change, said in (
        ({"devices": ["abacus"]}, "abacus"),
        ({"cores": ["tube"]}, "tube"),
        ({"devices": []}, "Box 1"),
    ):
        overlay.write_text(
            json.dumps({"schema": "slurm-trace/registry/1", "provider_skus": [entry | change]})
        )
        with pytest.raises(InputProblem, match=said):
            call("feed", "--rates-overlay", overlay)


def focus(**changes):
    cells = {
        "account": "1234", "provider": "Amazon Web Services", "resource": "arn:aws:ec2:i-1", "sku": "8D49XP354UEYTHGM",
        "meter": "USE1-BoxUsage:p5.48xlarge", "service": "Compute", "charge": "Usage", "hours": "2.5", "unit": "Hours",
        "cost": "1.0", "currency": "USD", "start": "2026-01-01T00:00:00Z", "end": "2026-01-01T03:00:00Z", "team": "x",
    }  # fmt: skip
    return ",".join((cells | changes).values())


def test_a_feed_in_focus(take, report, per_hour):
    take(
        focus(),
        focus(
            resource="vol-1",
            sku="A",
            meter="EBS:VolumeUsage.gp3",
            service="Storage",
            unit="GB-Mo",
            hours="100",
        ),
        focus(resource="", sku="T", meter="", charge="Tax", service="Other", hours="", unit=""),
        focus(hours="", unit="", charge="Credit", cost="-5"),
        header=FOCUS,
    )
    total = report()["total"]
    assert total["bound_flop"] == 3 * per_hour("p5.48xlarge")
    assert {"id": "categories_true", "status": "assumed"} in total["assumptions"]
    assert (total["charges"], total["hours"]) == (4, 3)
    assert report()["accounts"][0]["provider"] == "aws"


@pytest.mark.parametrize(
    ("hours", "unit", "counted"),
    [
        ("7200", "Seconds", 2),
        ("2", "GPU-Hours", 2),
        ("1", "100 Hours", 100),
        ("2", "Hrs", 2),
        ("30", "Minutes", 1),
    ],
)
def test_units_of_time(take, report, hours, unit, counted):
    take(focus(hours=hours, unit=unit), header=FOCUS)
    assert report()["total"]["hours"] == counted


def test_a_unit_that_is_not_of_time_leaves_the_bound_open(take, report):
    take(focus(hours="4", unit="Instances"), header=FOCUS)
    assert report()["total"]["verdict"] == "INSUFFICIENT"


def test_a_gpu_in_a_storage_service_counts(take, report, per_hour):
    take(focus(service="Storage"), header=FOCUS)
    assert report()["total"]["bound_flop"] == 3 * per_hour("p5.48xlarge")


def test_two_names_of_one_charge_that_differ(take, report, per_hour):
    take(focus(sku="g5.xlarge"), header=FOCUS)
    assert report()["total"]["bound_flop"] == 3 * per_hour("p5.48xlarge")


def test_a_row_that_could_not_be_read_may_be_anybodys(take, report):
    take(f"acme,i-1,g5.xlarge,1,1,USD,{DAY}", f"beta,i-1,g5.xlarge,1,1,USD,{DAY}")
    assert report()["total"]["verdict"] == "RULED_OUT"
    take("gamma,i-1,g5.xlarge,1,1,USD,never,never", code=3)
    found = {a["account"]: a["verdict"] for a in report()["accounts"]}
    assert found == {"acme": "RULED_OUT", "beta": "RULED_OUT", "gamma": "INSUFFICIENT"}
    assert report()["total"]["verdict"] == "INSUFFICIENT"
    take("a,b", code=3)
    assert {a["verdict"] for a in report()["accounts"]} == {"INSUFFICIENT"}
    assert report()["accounts"][0]["skus"][0]["bound_flop"] > 0, "what was read is bounded all the same"


def test_windows_select_whole_charges(take, report):
    take(
        f"acme,i-1,g5.xlarge,24,1,USD,{DAY}",
        "acme,i-1,g5.xlarge,24,1,USD,2026-02-01T00:00:00Z,2026-02-02T00:00:00Z",
    )
    assert (
        report("--since", "2026-01-01T12:00:00Z", "--until", "2026-01-01T13:00:00Z")["total"]["hours"] == 24
    )
    assert report("--since", "2026-01-02")["total"]["charges"] == 1
    assert report("--since", "2027-01-01")["accounts"] == []


def test_what_a_feed_covers(call, take, report):
    take(f"acme,i-1,g5.xlarge,24,1,USD,{DAY}", options=("--covers", "2026-01-01..2026-02-01"))
    assert report()["records_complete"] == {"status": "declared", "gaps": []}
    later = report("--until", "2026-03-01")
    assert later["total"]["verdict"] == "INSUFFICIENT"
    assert later["records_complete"]["gaps"] != []
    with pytest.raises(UsageProblem, match="--covers"):
        call("import", "feed", "-", "--covers", "x")


def test_feeds_are_no_records_of_a_cluster(call, take, tmp_path):
    take("a,b", code=3, options=("--covers", "2026-01-01..2040-02-01"))
    document = json.loads(call("rank", "--json")[1])
    assert (document["jobs"], document["inputs"]["rejected"], document["records_complete"]) == ([], 0, {})


def test_tables_and_csv(call, take):
    take(f"=acme,i-1,p5.48xlarge,24,1,USD,{DAY}", f"beta,i-2,unheard-of,1,1,USD,{DAY}")
    out = call("feed")[1]
    assert "2 accounts together" in out
    assert "beta" in out
    assert "8xnvidia-h100-sxm5-80gb, 192 vCPU" in call("feed", "--by", "sku")[1]
    lines = list(csv.DictReader(io.StringIO(call("feed", "--format", "csv")[1])))
    assert {line["account"] for line in lines} == {"'=acme", "beta"}
    lines = list(csv.DictReader(io.StringIO(call("feed", "--format", "csv", "--by", "sku")[1])))
    assert [line["sku"] for line in lines] == ["unheard-of", "p5.48xlarge"]


# What may leave the house


def test_a_disclosure_tells_no_name_and_no_exact_figure(call, take, report):
    rows = [
        f"acme-{a},i-{a}-{n},{sku},{7 + n},1,USD,{DAY}"
        for a in range(6)
        for n, sku in enumerate(["p5.48xlarge", "g5.xlarge"] * 3)
    ]
    take(*rows, f"secret,i-1,own-sku,1,1,USD,{DAY}")
    exact = report()
    for by in ("account", "sku"):
        document = report("--disclose", "--by", by)
        text = json.dumps(document) + call("feed", "--disclose", "--by", by)[1]
        for name in ("acme", "secret", "own-sku", "i-1"):
            assert name not in text
        for account in exact["accounts"]:
            assert str(account["bound_flop"]) not in text
        for cell in (document["total"], *document["cells"]):
            for name in ("accounts_below", "charges_below", "hours_below", "bound_flop_below"):
                assert cell[name] is None or set(str(cell[name])[1:]) <= {"0"}
    document = report("--disclose")
    assert [cell["key"] for cell in document["cells"]] == [
        f"A{n}" for n in range(1, len(document["cells"]) + 1)
    ]
    assert document["suppressed"] is True
    skus = report("--disclose", "--by", "sku")["cells"]
    assert [cell["key"] for cell in skus] == ["p5.48xlarge"], (
        "what is left out needs a second one to hide behind"
    )


def test_min_cell_needs_disclose(call):
    with pytest.raises(UsageProblem, match="--disclose"):
        call("feed", "--min-cell", "3")


@pytest.mark.parametrize("probe", [("--margin", "0"), ("--threshold", "1e22"), ("--threshold", "1e23/3")])
def test_a_disclosure_is_not_asked_at_limits_of_ones_choice(call, probe):
    with pytest.raises(UsageProblem, match="--disclose takes"):
        call("feed", "--disclose", *probe)


def test_a_meter_that_is_disputed_leaves_the_sku_open(take, report):
    head = "account,resource,sku,hours,start,end,meter"
    take(f"acme,i-1,t3.micro,1,{DAY},p5.48xlarge", header=head)
    (before,) = report()["accounts"]
    take(f"acme,i-1,t3.micro,1,{DAY},m5.large", header=head)
    (after,) = report()["accounts"]
    assert after["bound_flop"] is None or after["bound_flop"] >= before["bound_flop"]


def test_what_the_rules_say_of_accounts(call, take, report):
    late = "2031-01-01T00:00:00Z,2031-01-02T00:00:00Z"
    take(
        f"plain,i-1,g5.xlarge,24,1,USD,{DAY}",
        f"beyond,i-2,g5.xlarge,48,1,USD,{DAY}",
        f"unmetered,i-3,g5.xlarge,0,1,USD,{DAY}",
        f"unlisted,i-4,never.heard,24,1,USD,{DAY}",
        f"open,i-5,never.heard,24,1,USD,{late}",
        f"large,i-6,p5.48xlarge,1000,1,USD,{DAY}",
    )
    document = report()
    routes = {a["account"]: a["routes"] for a in document["accounts"]}
    for account in document["accounts"]:
        assert account["routes"][0]["route"] == account["verdict"]
        assert account["routes"][0]["rule"]
    beside = {name: {r["rule"] for r in told[1:]} for name, told in routes.items()}
    assert beside["plain"] == set()
    assert beside["beyond"] == {"hours-beyond-period"}
    assert beside["unmetered"] == {"charges-without-hours"}
    assert beside["unlisted"] == beside["open"] == {"skus-not-listed"}
    assert {r["route"] for r in routes["open"]} == {"INSUFFICIENT", "WARN"}
    table = call("feed")[1]
    assert "WARN: more hours were charged than the charge period has" in table
    assert "(rule hours-beyond-period)" in table
    assert "(rule" not in call("feed", "--by", "sku")[1]
    (line,) = [
        one
        for one in csv.DictReader(io.StringIO(call("feed", "--format", "csv")[1]))
        if one["account"] == "open"
    ]
    assert json.loads(line["routes"]) == routes["open"]


def test_a_large_part_of_the_threshold_is_a_warning(take, report, per_hour):
    take(f"acme,i-1,p5.48xlarge,24,1,USD,{DAY}")
    flop = per_hour("p5.48xlarge") * 24
    for part, warned in ((1.9, True), (2.1, False)):
        (account,) = report("--threshold", f"{int(flop * part)}")["accounts"]
        assert account["verdict"] == "RULED_OUT"
        assert ("group-large-part-of-threshold" in {r["rule"] for r in account["routes"]}) is warned


def test_what_leaves_the_house_has_no_routes(take, report):
    take(*(f"a{n},i-{n},never.heard,24,1,USD,{DAY}" for n in range(9)))
    assert "skus-not-listed" not in json.dumps(report("--disclose"))
