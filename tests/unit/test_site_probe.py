from __future__ import annotations

import io
import json
import os
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from slurm_trace.accounting.events import Event, Events, read_events
from slurm_trace.cli.main import app
from slurm_trace.cli.site import host_zone, write_atomically
from slurm_trace.errors import EnvironmentProblem, InputProblem, UsageProblem
from slurm_trace.site.gaps import open_points
from slurm_trace.site.nodes import NodeGres, read_gres, read_nodes
from slurm_trace.site.probe import Facts, Probed, build
from slurm_trace.site.profile import ClusterProfile, NodeGroup, SiteProfile, dump_profile, load_profile

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"
NOW = 1_800_000_000
SKUS = {"h100": "nvidia-h100-sxm5-80gb"}
CGROUP = "ConstrainCores=yes\nConstrainDevices = Yes\n"
TRES = "cpu=256,mem=2000G,node=4,gres/gpu=32,gres/gpu:h100=24"


def facts(version: str = "2205", **changes: object) -> Facts:
    folder = CAPTURES / version
    found: dict[str, object] = {
        "config": (folder / "scontrol_show_config.txt").read_text(),
        "nodes": (folder / "scontrol_show_node.txt").read_text(),
        "events": Events([Event("lab", "", 1796050081, None, "", "Cluster Registered TRES", TRES, "")]),
        "cgroup": None,
        "gres": "AutoDetect=nvml",
        "zone": "Europe/Berlin",
        "now": NOW,
    }
    return Facts(**(found | changes))  # type: ignore[arg-type]


def probed(version: str = "2205", **changes: object) -> Probed:
    return build(facts(version, **changes), SKUS.get)


def with_cgroup(config: str) -> str:
    return config.replace(
        "TaskPlugin              = task/none", "TaskPlugin              = task/affinity,task/cgroup"
    )


@pytest.mark.parametrize(("version", "unkillable"), [("2205", 30), ("2411", 30)])
def test_recorded_clusters(version: str, unkillable: int) -> None:
    found = probed(version)
    assert found.name == "lab"
    assert (found.cluster.zone, found.cluster.kill_wait_s) == ("Europe/Berlin", 2)
    assert found.cluster.unkillable_step_timeout_s == unkillable
    assert found.cluster.gres_types == ("gpu",)
    hopper, ampere = found.cluster.nodes
    assert (hopper.hosts, hopper.gpus, hopper.sku) == ("n[1-3]", 8, "nvidia-h100-sxm5-80gb")
    assert (ampere.hosts, ampere.gpus, ampere.sku) == ("n4", 8, None)
    assert {(g.cores, g.threads_per_core, g.basis, g.from_) for g in (hopper, ampere)} == {
        (64, 1, "declared", 1796050081)
    }
    assert any("n4: which card a100 is" in note for note in found.notes)
    assert found.cluster.registered_tres_at(1796050081) == {"cpu", "mem", "node", "gres/gpu", "gres/gpu:h100"}
    assert found.cluster.registered_tres_at(1796050080) is None


def test_what_the_probe_writes_can_be_read(tmp_path: Path) -> None:
    found = probed()
    path = tmp_path / "site.toml"
    path.write_text(dump_profile(SiteProfile({found.name: found.cluster}), found.notes))
    assert load_profile(path).cluster("lab") == found.cluster


def test_no_task_cgroup_confines_nothing() -> None:
    found = probed(cgroup=CGROUP)
    assert {(g.devices_confined, g.cores_confined) for g in found.cluster.nodes} == {(False, False)}


@pytest.mark.parametrize(
    ("cgroup", "printed", "expected"),
    [
        (None, "", (None, None)),
        (CGROUP, "", (True, True)),
        ("ConstrainDevices=yes\n#ConstrainCores=yes\n", "", (True, False)),
        ("", "", (False, False)),
        (
            None,
            "\nCgroup Support Configuration:\nConstrainCores          = yes\nConstrainDevices        = no\n",
            (False, True),
        ),
    ],
)
def test_confinement_is_claimed_only_where_it_is_read(
    cgroup: str | None, printed: str, expected: tuple[bool | None, bool | None]
) -> None:
    found = probed(cgroup=cgroup, config=with_cgroup(facts().config) + printed)
    assert {(g.devices_confined, g.cores_confined) for g in found.cluster.nodes} == {expected}
    assert {g.basis for g in found.cluster.nodes} == {"declared"}
    if expected == (None, None):
        assert any("cgroup.conf is not readable" in note for note in found.notes)


def test_without_events_nothing_is_known_of_the_past() -> None:
    for events in (None, Events()):
        found = probed(events=events)
        assert found.cluster.registered_tres_at(NOW - 1) is None
        assert "gres/gpu" in (found.cluster.registered_tres_at(NOW) or ())
        assert {g.from_ for g in found.cluster.nodes} == {NOW}
        assert any("from now on only" in note for note in found.notes)


def test_registered_tres_over_time() -> None:
    registered = "Cluster Registered TRES"
    events = [
        Event("lab", "", 200, None, "", registered, "cpu=1,gres/gpu=1", ""),
        Event("lab", "", 100, 200, "", registered, "cpu=1", ""),
        Event("other", "", 50, None, "", registered, "cpu=1", ""),
        Event("lab", "n1", 150, 160, "DOWN", "x", "cpu=1,gres/gpu=4", ""),
        Event("lab", "", 170, 180, "DOWN", "slurmctld down", "cpu=1", ""),
    ]
    cluster = probed(events=Events(events)).cluster
    assert [(p.names, p.from_, p.to) for p in cluster.registered_tres] == [
        (("cpu",), 100, 200),
        (("cpu", "gres/gpu"), 200, None),
    ]
    assert {g.from_ for g in cluster.nodes} == {200}


def nodes_text(**gres: str) -> str:
    return "\n".join(
        f"NodeName={name} Arch=x86_64 CoresPerSocket=48 \n   Gres={text}\n   OS=Linux Gres=gpu:9 \n"
        "   Sockets=2 Boards=1\n   State=IDLE ThreadsPerCore=2 \n   Comment=Gres=gpu:64 NodeName=x\n"
        "   Reason=Gres=gpu:99\n"
        for name, text in gres.items()
    )


@pytest.mark.parametrize(
    ("gres", "gpus", "sku", "note"),
    [
        ("gpu:h100:4(S:0-1)", 4, "nvidia-h100-sxm5-80gb", None),
        ("gpu:h100:4,gpu:a100:2", 6, None, "a100, h100"),
        ("gpu:8", 8, None, "(untyped)"),
        ("gpu:h100", 1, "nvidia-h100-sxm5-80gb", None),
        ("gpu:1g.10gb:7", None, None, "MIG slices"),
        ("gpu:a100_1g.5gb:7", None, None, "MIG slices"),
        ("(null)", 0, None, "hold none"),
        ("", 0, None, "hold none"),
        ("shard:h100:32", None, None, "no cards are listed"),
        ("gpu:h100:4,shard:h100:32", 4, "nvidia-h100-sxm5-80gb", None),
        ("npu:8", None, None, "what gres npu computes"),
        ("bandwidth:10M,gpu:h100:2", 2, "nvidia-h100-sxm5-80gb", None),
        ("gpu:h100:2:2", None, None, "not readable"),
    ],
)
def test_gres_of_a_node(gres: str, gpus: int | None, sku: str | None, note: str | None) -> None:
    found = build(facts(nodes=nodes_text(a1=gres)), SKUS.get, {"bandwidth"})
    (group,) = found.cluster.nodes
    assert (group.hosts, group.gpus, group.sku, group.cores, group.threads_per_core) == (
        "a1",
        gpus,
        sku,
        96,
        2,
    )
    if note:
        assert any(note in n for n in found.notes)


def test_gres_text() -> None:
    assert read_gres("gpu:h100:4(S:0,2-3),shard:16(S:0)") == (
        NodeGres("gpu", "h100", 4),
        NodeGres("shard", None, 16),
    )
    assert read_gres("gpu:2K") == (NodeGres("gpu", None, 2048),)
    with pytest.raises(ValueError, match="unreadable"):
        read_gres("gpu:h100:4:5")


def test_free_text_of_a_node_is_not_read() -> None:
    assert [n.name for n in read_nodes(nodes_text(a1="gpu:1", a2="gpu:2"))] == ["a1", "a2"]
    assert read_nodes("") == []


def test_no_cluster_name_is_one_line() -> None:
    with pytest.raises(EnvironmentProblem, match="ClusterName"):
        probed(config="")


def test_every_gap_is_named_and_a_full_profile_has_none() -> None:
    assert len(open_points(ClusterProfile())) == 5
    group = NodeGroup(
        hosts="n1", gpus=1, sku="x", cpu_model="y", cores=2, devices_confined=True, cores_confined=True
    )
    full = probed().cluster
    full = ClusterProfile(
        zone="UTC",
        kill_wait_s=1,
        unkillable_step_timeout_s=1,
        gres_types=(),
        registered_tres=full.registered_tres,
        nodes=(group,),
    )
    assert open_points(full) == ()


SCONTROL = """\
#!/bin/sh
case "$*" in
  "show config") cat {captures}/scontrol_show_config.txt ;;
  "show node") cat {captures}/scontrol_show_node.txt ;;
  *) exit 1 ;;
esac
"""
SACCTMGR = """\
#!/bin/sh
echo 'Cluster|NodeName|TimeStart|TimeEnd|State|TRES|User|Reason'
echo 'lab||1796050081|Unknown||cpu=1,gres/gpu=32||Cluster Registered TRES'
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {"scontrol": SCONTROL.format(captures=CAPTURES / "2205"), "sacctmgr": SACCTMGR}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    return tmp_path


def call(*arguments: str, config: str | None = None) -> tuple[int, str, str]:
    options = ["--config", config] if config else []
    try:
        done = CliRunner().invoke(app, [*options, "site", *arguments], catch_exceptions=False)
    except (UsageProblem, InputProblem, EnvironmentProblem) as error:
        return error.exit_code, "", str(error)
    return done.exit_code, done.stdout, done.stderr


def test_probe_writes_and_show_reads(slurm: Path) -> None:
    path = slurm / "site.toml"
    code, out, err = call("probe", "--output", str(path))
    assert (code, out) == (0, "")
    assert str(path) in err
    cluster = load_profile(path).cluster("lab")
    assert (cluster.zone, len(cluster.nodes)) == ("Europe/Berlin", 2)
    code, out, err = call("show", config=str(path))
    assert code == 0
    assert "n[1-3]" in out
    assert "cpu_model" in err
    shown = json.loads(call("show", "--json", config=str(path))[1])
    assert shown["schema"] == "slurm-trace/site/1"
    assert shown["clusters"]["lab"]["nodes"][0]["from"] == "2026-11-30T14:48:01+00:00"
    assert shown["digest"] == load_profile(path).digest
    assert (
        call("show", "--format", "csv", config=str(path))[1].splitlines()[0].startswith("cluster,hosts,gpus")
    )


def test_probe_keeps_what_is_there(slurm: Path) -> None:
    path = slurm / "site.toml"
    path.write_text('[clusters.other]\nzone = "UTC"\n[clusters.lab]\nzone = "UTC"\n')
    code, _, err = call("probe", "--output", str(path))
    assert code == 2
    assert "--force" in err
    assert load_profile(path).cluster("lab").zone == "UTC"
    assert call("probe", "--output", str(path), "--force")[0] == 0
    assert load_profile(path).cluster("lab").zone == "Europe/Berlin"
    assert load_profile(path).cluster("other").zone == "UTC"
    assert [p.name for p in slurm.iterdir() if p.name.startswith(".site")] == []


def test_probe_to_stdout(slurm: Path) -> None:
    code, out, _ = call("probe", "--output", "-")
    assert code == 0
    assert out.startswith("# Site profile of lab")
    path = slurm / "again.toml"
    path.write_text(out)
    assert load_profile(path).cluster("lab").kill_wait_s == 2


def test_probe_where_slurm_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'scontrol: error: no controller' >&2\nexit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    code, _, err = call("probe", "--output", str(tmp_path / "x.toml"))
    assert code == 4
    assert "no controller" in err
    assert not (tmp_path / "x.toml").exists()


def test_show_without_a_profile_says_what_stands_in() -> None:
    code, out, err = call("show")
    assert code == 0
    assert "site probe" in out
    assert err.count("warning:") == 5


def test_unwritable_target_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        write_atomically(tmp_path / "none" / "site.toml", "x")


@pytest.mark.parametrize(
    ("zone", "expected"), [("Europe/Berlin", "Europe/Berlin"), (":UTC", "UTC"), ("EST5EDT7", None)]
)
def test_zone_of_the_host(monkeypatch: pytest.MonkeyPatch, zone: str, expected: str | None) -> None:
    monkeypatch.setenv("TZ", zone)
    assert host_zone() == expected


# Events from a file


def events(text: str, cluster: str | None = None, zone: str | None = "UTC") -> Events:
    return read_events(io.BytesIO(text.encode()), cluster, ZoneInfo(zone) if zone else None, "events.txt")


@pytest.mark.parametrize("version", ["2205", "2411"])
def test_recorded_events(version: str) -> None:
    with (CAPTURES / version / "sacctmgr_event.txt").open("rb") as stream:
        found = read_events(stream, None, UTC, "f")
    assert [e.node for e in found.events] == ["", "n3"]
    assert found.first_seen == found.events[0].start
    assert found.events[0].tres is None
    assert found.rejected == found.warnings == []


def test_zone_of_events() -> None:
    text = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    text += "lab|n1|2024-11-03T01:30:00|2024-11-03T01:30:00|DOWN|x|root(0)\n"
    (event,) = events(text, zone="America/New_York").events
    assert event.end is not None
    assert event.end - event.start == 3600
    local = events(text, zone=None)
    assert local.events[0].start == 1730597400
    assert "UTC" in local.warnings[0]


def test_trailing_delimiter_other_order_and_pipes() -> None:
    text = "Node Name|Time Start|Time End|Reason|State|\nn1|1700000000|1700000100|a|b|c|DOWN|\n"
    text += "n2|1700000000|Unknown||DRAIN|\n"
    found = events(text, "c")
    assert [(e.cluster, e.node, e.end, e.reason, e.state) for e in found.events] == [
        ("c", "n1", 1700000100, "a|b|c", "DOWN"),
        ("c", "n2", None, "", "DRAIN"),
    ]


def test_newline_in_the_last_column() -> None:
    text = "Cluster|NodeName|TimeStart|TimeEnd|Reason\nl|n1|1700000000|Unknown|one\ntwo\nl|n2|1700000001|Unknown|x\n"
    assert [e.reason for e in events(text).events] == ["one two", "x"]


def test_unreadable_events_are_counted() -> None:
    text = "NodeName|TimeStart|TimeEnd|State\nn1|soon|Unknown|DOWN\nn2|1700000000\n"
    text += "n3|Unknown|Unknown|DOWN\nn4|1700000000|Unknown|DOWN\n"
    found = events(text, "c")
    assert [e.node for e in found.events] == ["n4"]
    assert [r.line for r in found.rejected] == [2, 3, 4]
    assert all("sacctmgr" in r.reason for r in found.rejected)
    assert len(events(text).rejected) == 4


def test_clock_that_was_set_back_leaves_the_end_open() -> None:
    assert events("NodeName|TimeStart|TimeEnd\nn1|1700000100|1700000000\n", "c").events[0].end is None


@pytest.mark.parametrize("text", ["", "hello\n", "JobID|State\n1|COMPLETED\n", "\x00\xff|\n"])
def test_what_is_no_event_file_is_refused(text: str) -> None:
    with pytest.raises(InputProblem, match="sacctmgr -P show event"):
        events(text)
