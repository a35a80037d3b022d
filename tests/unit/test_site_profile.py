from __future__ import annotations

from pathlib import Path

import pytest

from slurm_trace.errors import InputProblem, UsageProblem
from slurm_trace.site.profile import (
    ClusterProfile,
    NodeGroup,
    SiteProfile,
    TresPeriod,
    dump_profile,
    load_profile,
)

FULL = """
[clusters.alpha]
zone = "Europe/Berlin"
kill_wait_s = 30
unkillable_step_timeout_s = 60
max_gpus_per_node = 8

[[clusters.alpha.registered_tres]]
to = 2024-07-01
names = ["cpu", "mem"]

[[clusters.alpha.registered_tres]]
from = 2024-07-01
names = ["cpu", "mem", "gres/gpu"]

[[clusters.alpha.nodes]]
hosts = "g[1-2]"
gpus = 4
sku = "a100"
to = 2024-07-01T00:00:00Z

[[clusters.alpha.nodes]]
hosts = "g[1-3]"
gpus = 8
sku = "h100"
mig = "7x1g.10gb"
cpu_model = "AMD EPYC 9654"
cores = 192
threads_per_core = 2
devices_confined = true
cores_confined = false
basis = "proven"
from = 2024-07-02T00:00:00+02:00
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return path


def test_no_path_is_the_empty_profile() -> None:
    profile = load_profile(None)
    assert profile == SiteProfile()
    assert profile.cluster("anything") == ClusterProfile()
    assert profile.cluster(None).group_of("n1", 0) is None
    assert profile.cluster("x").registered_tres_at(0) is None


def test_full_profile_reads(tmp_path: Path) -> None:
    alpha = load_profile(write(tmp_path, FULL)).cluster("alpha")
    assert (alpha.zone, alpha.kill_wait_s, alpha.unkillable_step_timeout_s) == ("Europe/Berlin", 30, 60)
    assert alpha.max_gpus_per_node == 8
    midnight_berlin = 1719784800  # 2024-06-30T22:00Z
    assert alpha.registered_tres_at(midnight_berlin - 1) == {"cpu", "mem"}
    assert alpha.registered_tres_at(midnight_berlin) == {"cpu", "mem", "gres/gpu"}
    new = alpha.nodes[1]
    assert (new.gpus, new.mig, new.cores, new.threads_per_core) == (8, "7x1g.10gb", 192, 2)
    assert (new.devices_confined, new.cores_confined, new.basis) == (True, False, "proven")


def test_group_follows_the_dates(tmp_path: Path) -> None:
    alpha = load_profile(write(tmp_path, FULL)).cluster("alpha")
    old, new = alpha.nodes
    assert old.to == 1719792000
    assert new.from_ == 1719871200
    assert alpha.group_of("g1", old.to - 1) == old
    assert alpha.group_of("g1", old.to) is None
    assert alpha.group_of("g1", new.from_) == new
    assert alpha.group_of("g3", 0) is None
    assert list(alpha.inventory()) == ["g1", "g2", "g3"]


def test_groups_during_names_every_stretch() -> None:
    old, new = NodeGroup(hosts="n1", gpus=1, to=100), NodeGroup(hosts="n1", gpus=2, from_=200, to=300)
    cluster = ClusterProfile(nodes=(new, old))
    assert cluster.groups_during("n1", 0, 100) == (old,)
    assert cluster.groups_during("n1", 0, 101) == (old, None)
    assert cluster.groups_during("n1", 50, 250) == (old, None, new)
    assert cluster.groups_during("n1", 250, 301) == (new, None)
    assert cluster.groups_during("n1", 250, 250) == (new,)
    assert cluster.groups_during("n2", 0, 1) == (None,)


def test_dump_and_load_keep_everything(tmp_path: Path) -> None:
    profile = load_profile(write(tmp_path, FULL))
    text = dump_profile(profile, ("written by hand", "", "see the manual"))
    assert text.startswith("# written by hand\n#\n# see the manual\n")
    again = load_profile(write(tmp_path, text))
    assert again == profile
    assert again.digest == profile.digest


def test_digest_is_of_the_content_not_the_layout(tmp_path: Path) -> None:
    first = load_profile(write(tmp_path, FULL))
    assert load_profile(write(tmp_path, FULL.replace(" = ", "="))).digest == first.digest
    assert load_profile(write(tmp_path, FULL.replace("gpus = 8", "gpus = 7"))).digest != first.digest
    assert len(SiteProfile().digest) == 64


def test_periods_need_no_dates() -> None:
    cluster = ClusterProfile(registered_tres=(TresPeriod(names=("cpu",)),))
    assert cluster.registered_tres_at(-5) == {"cpu"}


NODE = '[[clusters.a.nodes]]\nhosts = "n1"\n'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("clusters = 1", ["clusters"]),
        ("cluster.a.zone = 'UTC'", ["'cluster' was unexpected", "known keys: clusters"]),
        ("[clusters.a]\nkillwait = 3", ["clusters.a", "'killwait' was unexpected", "kill_wait_s"]),
        ("[clusters.a]\nkill_wait_s = '30'", ["clusters.a.kill_wait_s", "not of type 'integer'"]),
        ("[clusters.a]\nkill_wait_s = true", ["clusters.a.kill_wait_s", "not of type 'integer'"]),
        ("[clusters.a]\nkill_wait_s = -1", ["clusters.a.kill_wait_s", "minimum"]),
        ("[clusters.a]\nzone = 'Europe/Nowhere'", ["clusters.a.zone", "IANA name"]),
        ("[clusters.a]\nzone = '../etc/passwd'", ["clusters.a.zone", "IANA name"]),
        (NODE + "from = 'soon'", ["clusters.a.nodes[0].from", "TOML date"]),
        (NODE + "from = 12:00:00", ["clusters.a.nodes[0].from", "TOML date"]),
        (NODE + "from = 20240101", ["clusters.a.nodes[0].from", "not of type 'string'"]),
        (NODE + "from = 2024-02-02\nto = 2024-02-02", ["clusters.a.nodes[0]", "`from` is not before `to`"]),
        (NODE + "mig = 'seven'", ["clusters.a.nodes[0].mig", "7x1g.10gb"]),
        (NODE + "basis = 'sure'", ["clusters.a.nodes[0].basis", "proven"]),
        (NODE + NODE, ["clusters.a.nodes", "node n1", "at the same time"]),
        ("[[clusters.a.nodes]]\ngpus = 1", ["clusters.a.nodes[0]", "'hosts' is a required property"]),
        ("[[clusters.a.nodes]]\nhosts = 'n[1-'", ["clusters.a.nodes"]),
        ("[[clusters.a.nodes]]\nhosts = 'n[1-9999999]'", ["clusters.a.nodes"]),
        ("[[clusters.a.nodes]]\nhosts = '@group'", ["clusters.a.nodes"]),
        (
            "[[clusters.a.registered_tres]]\nfrom = 2024-01-01",
            ["registered_tres[0]", "'names' is a"],
        ),
        ("= 3", ["no valid TOML", "line 1"]),
    ],
)
def test_bad_profile_is_one_line_with_the_remedy(tmp_path: Path, text: str, parts: list[str]) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputProblem) as caught:
        load_profile(path)
    message = str(caught.value)
    assert "\n" not in message
    for part in [str(path), *parts]:
        assert part in message


def test_missing_or_unreadable_file_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="site probe"):
        load_profile(tmp_path / "none.toml")
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputProblem, match="no valid TOML"):
        load_profile(path)
