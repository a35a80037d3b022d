"""What the hooks leave behind of an ordinary job, in every shell that may be /bin/sh."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_trace.node.install import HOOK_FILES
from support.hooks import HOOKS, JOB, SHELLS, HookBox

FIXTURES = Path(__file__).parents[1] / "fixtures" / "hooks"


@pytest.fixture(params=SHELLS)
def box(request: pytest.FixtureRequest, tmp_path: Path) -> HookBox:
    return HookBox(tmp_path, request.param).make()


def read_env(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_lease_holds_what_the_hook_was_told(box: HookBox) -> None:
    ran = box.prolog()
    assert (ran.code, ran.output, ran.left_over) == (0, b"", False)
    (lease,) = box.scan().open
    assert (lease.job_id, lease.cluster, lease.node, lease.uid, lease.user) == (
        4711,
        "lab",
        "n1",
        7001,
        "alice",
    )
    assert (lease.account, lease.partition, lease.start_time) == ("ml", "gpu", 1796051971)
    assert (lease.gpus, lease.cuda, lease.sluid, lease.dropped) == (("0", "1"), ("0", "1"), None, ())
    assert box.names() == [f"{lease.stem}.lease"]


def test_lease_is_for_its_group_only(box: HookBox) -> None:
    box.prolog()
    (name,) = box.names()
    assert (box.leases / name).stat().st_mode & 0o777 == 0o640


def test_epilog_closes_the_lease(box: HookBox) -> None:
    box.prolog()
    ran = box.epilog({**JOB, "SLURM_JOB_EXIT_CODE": "768", "SLURM_JOB_DERIVED_EC": "0"})
    assert (ran.code, ran.output, ran.left_over) == (0, b"", False)
    scan = box.scan()
    ((lease, end),) = scan.ended
    assert not scan.open
    assert not scan.refused
    assert (end.stem, end.how, end.exit_code, end.derived_ec) == (lease.stem, "epilog", 768, 0)
    assert end.closed_cs is not None
    assert end.closed_cs >= lease.opened_cs


def test_epilog_without_prolog_is_an_orphan(box: HookBox) -> None:
    assert box.epilog().code == 0
    scan = box.scan()
    assert [(end.job_id, end.how, end.start_time) for end in scan.orphans] == [(4711, "orphan", 1796051971)]
    assert (scan.open, scan.ended, scan.refused) == ((), (), ())


def test_second_epilog_is_an_orphan(box: HookBox) -> None:
    box.prolog()
    box.epilog()
    box.epilog()
    assert [end.how for end in box.scan().orphans] == ["orphan"]
    assert len(box.scan().ended) == 1


@pytest.mark.parametrize("recording", ["2205-requeue", "2411-requeue"])
def test_recorded_requeue_gives_two_leases(box: HookBox, recording: str) -> None:
    for step in sorted((FIXTURES / recording).iterdir()):
        hook = step.name.partition("-")[2].removesuffix(".env")
        assert box.run(hook, read_env(step)).code == 0
    scan = box.scan()
    assert (scan.open, scan.orphans, scan.refused) == ((), (), ())
    assert [lease.restart_count for lease, _ in scan.ended] == [0, 1]
    assert [end.how for _, end in scan.ended] == ["epilog", "epilog"]
    assert [lease.start_time for lease, _ in scan.ended] == [end.start_time for _, end in scan.ended]
    assert [lease.gpus for lease, _ in scan.ended] == [("1", "2"), ("3", "4")]


def test_recorded_job_on_four_nodes(box: HookBox) -> None:
    box.run("prolog", read_env(FIXTURES / "2411-four-nodes" / "1-prolog.env"))
    (lease,) = box.scan().open
    assert (lease.node, lease.gpus) == ("n1", tuple("01234567"))


@pytest.mark.parametrize(
    ("variables", "gpus", "cuda"),
    [
        ({}, None, None),
        ({"SLURM_JOB_GPUS": "", "CUDA_VISIBLE_DEVICES": ""}, (), ()),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, None, ("NoDevFiles",)),
        ({"SLURM_JOB_GPUS": "128,129"}, ("128", "129"), None),
        (
            {"SLURM_JOB_GPUS": "3", "CUDA_VISIBLE_DEVICES": "GPU-8f2c1f5e-3d6a-4a7e-9f0c-1b2d3e4f5a6b"},
            ("3",),
            ("GPU-8f2c1f5e-3d6a-4a7e-9f0c-1b2d3e4f5a6b",),
        ),
        (
            {
                "SLURM_JOB_GPUS": "3,4",
                "CUDA_VISIBLE_DEVICES": "MIG-GPU-8f2c1f5e-3d6a-4a7e-9f0c-1b2d3e4f5a6b/1/0,4",
            },
            ("3", "4"),
            ("MIG-GPU-8f2c1f5e-3d6a-4a7e-9f0c-1b2d3e4f5a6b/1/0", "4"),
        ),
    ],
    ids=["none", "empty", "NoDevFiles", "indices from 128", "UUID", "MIG"],
)
def test_gpu_variables_as_they_come(
    box: HookBox, variables: dict[str, str], gpus: tuple[str, ...] | None, cuda: tuple[str, ...] | None
) -> None:
    box.prolog({"SLURM_JOB_ID": "1", **variables})
    (lease,) = box.scan().open
    assert (lease.gpus, lease.cuda, lease.dropped) == (gpus, cuda, ())


def test_value_that_does_not_pass_is_dropped_by_name(box: HookBox) -> None:
    hostile = {"SLURM_JOB_USER": "al;ice", "SLURM_JOB_ACCOUNT": "x\nuid=0", "SLURM_JOB_GPUS": "0" * 9000}
    box.prolog({**JOB, **hostile, "SLURM_JOB_UID": "-1", "SLURM_CLUSTER_NAME": "h\u00f6he"})
    (lease,) = box.scan().open
    assert lease.dropped == ("cluster", "uid", "user", "account", "gpus")
    assert (lease.cluster, lease.uid, lease.user, lease.account, lease.gpus) == (None, None, None, None, None)
    assert lease.partition == "gpu"


def test_sluid_chooses_between_open_leases(box: HookBox) -> None:
    first, second = {**JOB, "SLURM_JOB_SLUID": "s7V00000000A1"}, {**JOB, "SLURM_JOB_SLUID": "s7V00000000B2"}
    box.prolog(first)
    box.prolog(second)
    box.epilog(first)
    ended = {lease.sluid: end.how for lease, end in box.scan().ended}
    assert ended == {"s7V00000000A1": "epilog"}
    assert [lease.sluid for lease in box.scan().open] == ["s7V00000000B2"]


def test_start_time_chooses_where_there_is_no_sluid(box: HookBox) -> None:
    first, second = {**JOB, "SLURM_JOB_START_TIME": "1000"}, {**JOB, "SLURM_JOB_START_TIME": "2000"}
    box.prolog(first)
    box.prolog(second)
    box.epilog(first)
    assert [lease.start_time for lease in box.scan().open] == [2000]


def test_resized_job_ends_under_another_sluid(box: HookBox) -> None:
    box.prolog({**JOB, "SLURM_JOB_SLUID": "s7V00000000A1"})
    box.epilog({**JOB, "SLURM_JOB_SLUID": "s7V00000000C3"})
    ((lease, end),) = box.scan().ended
    assert (lease.sluid, end.sluid) == ("s7V00000000A1", "s7V00000000C3")


def test_nodes_that_share_a_directory_keep_apart(box: HookBox) -> None:
    for node in ("n1", "n2", "n3"):
        box.prolog({**JOB, "SLURMD_NODENAME": node})
    box.epilog({**JOB, "SLURMD_NODENAME": "n2"})
    assert [lease.node for lease, _ in box.scan().ended] == ["n2"]
    assert {lease.node for lease in box.scan().open} == {"n1", "n3"}


def test_directory_for_each_of_several_slurmd(box: HookBox) -> None:
    box.configure(directory=f"{box.root}/on-%n")
    box.prolog({**JOB, "SLURMD_NODENAME": "n7"})
    assert len(list((box.root / "on-n7" / "leases").iterdir())) == 1
    ran = box.prolog({**JOB, "SLURMD_NODENAME": "../../n7"})
    assert ran.code == 0
    assert sorted(path.name for path in box.root.iterdir()) == ["hooks.conf", "on-n7", "run"]


def test_lease_of_the_last_boot_is_not_closed_by_this_ones_epilog(box: HookBox) -> None:
    box.prolog()
    (path,) = box.leases.iterdir()
    text = path.read_text()
    boot_id = text.partition("boot_id=")[2].partition("\n")[0]
    path.write_text(text.replace(boot_id, "0" * 8 + boot_id[8:]))
    box.epilog()
    scan = box.scan()
    assert [end.how for _, end in scan.ended] == ["reboot"]
    assert [end.how for end in scan.orphans] == ["orphan"]


def test_epilog_removes_what_is_sealed(box: HookBox) -> None:
    box.prolog()
    box.epilog()
    box.prolog({**JOB, "SLURM_JOB_ID": "4712"})
    marks = box.directory / "sampler"
    ((sealed, _),) = box.scan().ended
    others = [f"{number}.7" for number in range(1, 7)]
    for stem in (*others, sealed.stem):
        (marks / f"{stem}.done").touch()
        (box.leases / f"{stem}.lease").touch()
    for name in ("...done", "x;y.done"):
        (marks / name).touch()
    box.epilog({**JOB, "SLURM_JOB_ID": "4712"})
    assert len(box.names()) == 10, "rm is a process: not before eight lie there"
    (marks / "8.7.done").touch()
    box.prolog({**JOB, "SLURM_JOB_ID": "4713"})
    box.epilog({**JOB, "SLURM_JOB_ID": "4713"})
    assert {name.partition(".")[0] for name in box.names()} == {"4712", "4713"}
    assert sorted(path.name for path in marks.glob("*.done")) == ["...done", "x;y.done"]


def test_scripts_are_clean_for_shellcheck() -> None:
    assert shutil.which("shellcheck"), "shellcheck is not installed"
    scripts = [str(HOOKS / name) for name in HOOK_FILES]
    checked = subprocess.run(
        ["shellcheck", "-x", *scripts], capture_output=True, text=True, check=False, cwd=HOOKS
    )
    assert checked.stdout + checked.stderr == ""


def test_scripts_are_executable_as_installed() -> None:
    for name in ("prolog", "epilog"):
        assert (HOOKS / name).stat().st_mode & 0o111 == 0o111
    for name in ("common.sh", "sampler.sh"):
        assert not (HOOKS / name).stat().st_mode & 0o111
