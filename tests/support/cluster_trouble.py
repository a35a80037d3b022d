"""Troubles that a node's hooks may meet, made real on the nodes of a cluster and taken back afterwards."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from support.cluster import Cluster

NODES = ("n1", "n2")
NOBODY = 65534

Trouble = Callable[[Cluster], AbstractContextManager[None]]
TROUBLES: dict[str, Trouble] = {}

_FUSE = os.makedev(10, 229)


def trouble(make: Callable[[Cluster], Iterator[None]]) -> Trouble:
    """Register a generator that makes a trouble, yields, and takes it back."""
    made = contextmanager(make)
    TROUBLES[make.__name__] = made
    return made


def _each(lab: Cluster) -> list[Path]:
    return [lab.node_directory(node) / "leases" for node in NODES]


@contextmanager
def _set_aside(path: Path) -> Iterator[None]:
    aside = path.with_name(path.name + ".aside")
    path.rename(aside)
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        aside.rename(path)


@contextmanager
def _in_place_of(paths: list[Path], put: Callable[[Path], object]) -> Iterator[None]:
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(_set_aside(path))
            put(path)
        yield


@contextmanager
def _mounted(lab: Cluster, options: str, fill: bool = False) -> Iterator[None]:
    with ExitStack() as stack:
        for path in _each(lab):
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], check=True)
            stack.callback(subprocess.run, ["umount", "--lazy", path], check=True)
            if fill:
                (path / ".filler").write_bytes(bytes(4096))
        yield


@trouble
def missing_directory(lab: Cluster) -> Iterator[None]:
    with _in_place_of([lab.node_directory(node) for node in NODES], lambda path: None):
        yield


@trouble
def directory_that_cannot_be_made(lab: Cluster) -> Iterator[None]:
    with lab.hooks_configured("directory=/proc/none/%n\n"):
        yield


@trouble
def directory_that_is_a_file(lab: Cluster) -> Iterator[None]:
    with _in_place_of(_each(lab), lambda path: path.write_text("mine")):
        yield


@trouble
def directory_that_is_a_link(lab: Cluster) -> Iterator[None]:
    with _in_place_of(_each(lab), lambda path: path.symlink_to(lab.jobs)):
        yield


@trouble
def directory_of_another_user(lab: Cluster) -> Iterator[None]:
    def put(path: Path) -> None:
        path.mkdir(mode=0o777)
        os.chown(path, NOBODY, NOBODY)

    with _in_place_of(_each(lab), put):
        yield


@trouble
def full_file_system(lab: Cluster) -> Iterator[None]:
    with _mounted(lab, "size=4k,mode=750", fill=True):
        yield


@trouble
def no_more_files(lab: Cluster) -> Iterator[None]:
    with _mounted(lab, "nr_inodes=1,mode=750"):
        yield


@trouble
def read_only_file_system(lab: Cluster) -> Iterator[None]:
    with _mounted(lab, "ro,mode=750"):
        yield


@trouble
def file_system_that_hangs(lab: Cluster) -> Iterator[None]:
    # A FUSE file system whose server never answers: whoever touches it waits until killed.
    device = lab.root / "dev" / "fuse"
    os.mknod(device, 0o600 | stat.S_IFCHR, _FUSE)
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as stack:
        stack.callback(device.unlink)
        for path in _each(lab):
            handle = os.open(device, os.O_RDWR)
            stack.callback(os.close, handle)
            options = f"fd={handle},rootmode=40755,user_id=0,group_id=0".encode()
            if libc.mount(b"hangs", os.fsencode(path), b"fuse", 0, options) != 0:
                raise OSError(ctypes.get_errno(), "mount")
            stack.callback(subprocess.run, ["umount", "--lazy", "--force", path], check=True)
        yield


@trouble
def configuration_that_hangs(lab: Cluster) -> Iterator[None]:
    with _in_place_of([lab.root / "etc" / "hooks.conf"], os.mkfifo):
        yield


@trouble
def configuration_of_garbage(lab: Cluster) -> Iterator[None]:
    run = f"touch {lab.root}/was-here"
    with lab.hooks_configured(
        f"directory=../../%n\ndirectory=$({run})\n\0\1=;`{run}`\n\ndirectory={lab.root}/nodes/%n/../%n"
    ):
        yield


@trouble
def script_that_is_missing(lab: Cluster) -> Iterator[None]:
    with _in_place_of([lab.root / "hooks" / "common.sh"], lambda path: None):
        yield


@trouble
def script_that_is_cut_short(lab: Cluster) -> Iterator[None]:
    whole = (lab.root / "hooks" / "common.sh").read_bytes()
    with _in_place_of(
        [lab.root / "hooks" / "common.sh"], lambda path: path.write_bytes(whole[: len(whole) // 2])
    ):
        yield


HOSTILE = r"""
evil=$(printf '$(touch %s/was-here)`id`;|&\n../../x' "{root}")
for name in SLURM_JOB_ID SLURM_JOB_GPUS CUDA_VISIBLE_DEVICES SLURM_CLUSTER_NAME SLURM_JOB_USER SLURM_JOB_ACCOUNT \
    SLURM_JOB_START_TIME SLURM_HET_JOB_ID SLURM_JOB_SLUID SLURM_JOB_EXIT_CODE SLURMD_NODENAME; do
    export "$name=$evil"
done
IFS=0123456789/ ENV={root}/evil BASH_ENV={root}/evil CDPATH=/tmp PATH={root}/evil-bin LD_PRELOAD={root}/none.so
SHELLOPTS=errexit:nounset PS4='$(touch {root}/was-here)' POSIXLY_CORRECT=1 TMPDIR=/nowhere
export IFS ENV BASH_ENV CDPATH PATH LD_PRELOAD PS4 POSIXLY_CORRECT TMPDIR
long=$(printf '%0100000d' 0)
export long
"""


@trouble
def hostile_environment(lab: Cluster) -> Iterator[None]:
    folder = lab.root / "evil-bin"
    folder.mkdir(exist_ok=True)
    for name in ("mv", "sleep", "logger", "kill", "chmod", "mkdir", "rm", "touch", "sh"):
        (folder / name).write_text(f"#!/bin/sh\n/bin/touch {lab.root}/was-here; /bin/sleep 600\n")
        (folder / name).chmod(0o755)
    (lab.root / "evil").write_text(f"touch {lab.root}/was-here\n")
    with lab.before_hooks(HOSTILE.replace("{root}", str(lab.root))):
        yield


@trouble
def job_id_that_is_no_number(lab: Cluster) -> Iterator[None]:
    with lab.before_hooks("SLURM_JOB_ID=12_3; export SLURM_JOB_ID\n"):
        yield


@trouble
def no_environment(lab: Cluster) -> Iterator[None]:
    with lab.before_hooks("unset SLURM_JOB_ID SLURMD_NODENAME SLURM_JOB_GPUS SLURM_CLUSTER_NAME\n"):
        yield


@trouble
def closed_streams(lab: Cluster) -> Iterator[None]:
    with lab.before_hooks("exec 0<&- 1>&- 2>&-\n"):
        yield


@trouble
def small_limits(lab: Cluster) -> Iterator[None]:
    with lab.before_hooks("ulimit -f 0; ulimit -c 0; ulimit -n 12\n"):
        yield


@trouble
def ignored_signals(lab: Cluster) -> Iterator[None]:
    with lab.before_hooks("trap '' HUP INT TERM PIPE CHLD\n"):
        yield


@trouble
def asked_to_stop(lab: Cluster) -> Iterator[None]:
    with lab.before_hooks("(sleep 0.02; kill -TERM $$) </dev/null >/dev/null 2>&1 &\n"):
        yield


@trouble
def working_directory_that_is_gone(lab: Cluster) -> Iterator[None]:
    with lab.before_hooks(f"mkdir {lab.root}/gone.$$; cd {lab.root}/gone.$$; rmdir {lab.root}/gone.$$\n"):
        yield


@trouble
def sampler_that_cannot_be_started(lab: Cluster) -> Iterator[None]:
    usual = f"directory={lab.root}/nodes/%n\n"
    with lab.hooks_configured(
        f"{usual}sampler_start=setsid\nsampler_user=root\nsampler_command=/nowhere/sampler\n"
    ):
        yield


@trouble
def systemd_that_is_not_there(lab: Cluster) -> Iterator[None]:
    usual = f"directory={lab.root}/nodes/%n\n"
    with lab.hooks_configured(f"{usual}sampler_start=systemd\nsampler_command=/nowhere/sampler\n"):
        yield
