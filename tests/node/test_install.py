"""`hooks install`, `hooks print` and the files themselves, as they lie in the installed package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_trace.cli.main import app
from slurm_trace.errors import EnvironmentProblem, InputProblem, UsageProblem
from slurm_trace.node.install import DROP_INS, LIBEXEC, MANIFEST, PIECES, hook_file, make_plan
from support.hooks import HOOKS, JOB, SHELLS


def call(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["hooks", *arguments], input=answer)


def actions(root: Path, **options: object) -> dict[str, str]:
    return {step.target: step.action for step in make_plan(root, **options)}  # type: ignore[arg-type]


def installed(root: Path, target: str = f"{LIBEXEC}/prolog") -> Path:
    return root / target.lstrip("/")


def test_first_the_plan_then_the_question(tmp_path: Path) -> None:
    result = call("install", "--root", str(tmp_path))
    assert isinstance(result.exception, UsageProblem)
    assert f"create     0755 {installed(tmp_path)}" in result.output
    assert list(tmp_path.iterdir()) == []


def test_install_is_repeatable(tmp_path: Path) -> None:
    assert call("install", "--root", str(tmp_path), "--yes").exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = call("install", "--root", str(tmp_path))
    assert again.exit_code == 0
    assert "Nothing to do." in again.output
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert set(actions(tmp_path).values()) == {"unchanged"}


def test_modes_and_directories_whatever_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        call("install", "--root", str(tmp_path / "image"), "--drop-ins", "--yes")
    finally:
        os.umask(mask)
    for piece in PIECES + DROP_INS:
        assert installed(tmp_path / "image", piece.target).stat().st_mode & 0o7777 == piece.mode
    assert installed(tmp_path / "image", LIBEXEC).stat().st_mode & 0o7777 == 0o755


def test_installed_hooks_work(tmp_path: Path) -> None:
    call("install", "--root", str(tmp_path), "--yes")
    leases = tmp_path / "run" / "leases"
    leases.mkdir(parents=True)
    config = tmp_path / "hooks.conf"
    config.write_text(f"directory={leases.parent}\n")
    for hook in ("prolog", "epilog"):
        subprocess.run([installed(tmp_path, f"{LIBEXEC}/{hook}"), config], env=dict(JOB), check=True)
    assert sorted(path.suffix for path in leases.iterdir()) == [".end", ".lease"]


def test_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    other = installed(tmp_path)
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\nmine\n")
    result = call("install", "--root", str(tmp_path), "--yes")
    assert isinstance(result.exception, EnvironmentProblem)
    assert f"conflict   0755 {other}" in result.output
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
    assert call("install", "--root", str(tmp_path), "--yes", "--force").exit_code == 0
    assert other.read_bytes() == hook_file("prolog")


def test_settings_that_were_edited_are_kept(tmp_path: Path) -> None:
    call("install", "--root", str(tmp_path), "--yes")
    settings = installed(tmp_path, "/etc/slurm-trace/hooks.conf")
    settings.write_text("sampler_start=systemd\n")
    assert call("install", "--root", str(tmp_path), "--yes", "--force").exit_code == 0
    assert settings.read_text() == "sampler_start=systemd\n"


def test_what_an_earlier_version_wrote_is_updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def earlier(name: str) -> bytes:
        return hook_file(name) + b"# earlier\n"

    with monkeypatch.context() as patch:
        patch.setattr("slurm_trace.node.install.hook_file", earlier)
        call("install", "--root", str(tmp_path), "--yes")
    assert set(actions(tmp_path).values()) == {"update", "unchanged"}
    assert call("install", "--root", str(tmp_path), "--yes").exit_code == 0
    assert installed(tmp_path).read_bytes() == hook_file("prolog")


def test_changed_mode_is_mended(tmp_path: Path) -> None:
    call("install", "--root", str(tmp_path), "--yes")
    installed(tmp_path).chmod(0o644)
    assert actions(tmp_path)[f"{LIBEXEC}/prolog"] == "update"
    call("install", "--root", str(tmp_path), "--yes")
    assert installed(tmp_path).stat().st_mode & 0o7777 == 0o755


def test_sampler_is_the_build_or_this_python(tmp_path: Path) -> None:
    build = tmp_path / "slurm-trace-node.pyz"
    build.write_bytes(b"#!/usr/bin/env python3\nPK")
    call("install", "--root", str(tmp_path / "a"), "--sampler", str(build), "--yes")
    assert installed(tmp_path / "a", f"{LIBEXEC}/slurm-trace-node").read_bytes() == build.read_bytes()
    call("install", "--root", str(tmp_path / "b"), "--yes")
    wrapper = installed(tmp_path / "b", f"{LIBEXEC}/slurm-trace-node")
    version = subprocess.run([wrapper, "--version"], capture_output=True, text=True, check=True, cwd="/")
    assert version.stdout.strip()
    call("install", "--root", str(tmp_path / "a"), "--drop-ins", "--yes")
    assert installed(tmp_path / "a", f"{LIBEXEC}/slurm-trace-node").read_bytes() == build.read_bytes()
    result = call("install", "--root", str(tmp_path / "c"), "--sampler", str(tmp_path / "none"), "--yes")
    assert isinstance(result.exception, UsageProblem)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("alloc", "PrologFlags=Alloc"),
        ("contain", "PrologFlags=Contain"),
        ("run-in-job", "PrologFlags=Alloc,Contain,RunInJob"),
    ],
)
def test_lines_for_slurm_conf(flags: str, line: str) -> None:
    lines = call("print", "--prolog-flags", flags).output.splitlines()
    settings = [one for one in lines if one and not one.startswith("#")]
    assert settings == [
        f"Prolog={LIBEXEC}/prolog",
        f"Epilog={LIBEXEC}/epilog",
        line,
        "AccountingStorageTRES=gres/gpu",
    ]
    assert "Prolog=/etc/slurm/prolog.d/*" in call("print", "--drop-ins").output


def test_print_one_file() -> None:
    assert call("print", "prolog").output.encode() == hook_file("prolog")
    assert call("print", "/etc/tmpfiles.d/slurm-trace.conf").output.encode() == hook_file(
        "systemd/tmpfiles.conf"
    )
    assert isinstance(call("print", "none").exception, UsageProblem)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_drop_in_is_well_where_the_hook_is_missing(tmp_path: Path, shell: str, hook: str) -> None:
    program, words = SHELLS[shell]
    script = tmp_path / hook
    script.write_text((HOOKS / "dropin" / hook).read_text().replace(LIBEXEC, str(tmp_path / "none")))
    ended = subprocess.run(
        [*words, script], executable=shutil.which(program), env={}, check=False, capture_output=True
    )
    assert ended.returncode == 0


def test_unit_passes_systemd_analyze(tmp_path: Path) -> None:
    assert shutil.which("systemd-analyze"), "systemd is not installed"
    command = tmp_path / "slurm-trace-node"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    unit = tmp_path / "slurm-trace-node.service"
    unit.write_text(
        (HOOKS / "systemd" / unit.name).read_text().replace(f"{LIBEXEC}/slurm-trace-node", str(command))
    )
    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_user_and_directories_pass_systemd(tmp_path: Path) -> None:
    assert shutil.which("systemd-tmpfiles"), "systemd is not installed"
    call("install", "--root", str(tmp_path), "--yes")
    (tmp_path / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tmp_path / "etc" / "group").write_text("root:x:0:\n")
    root = f"--root={tmp_path}"
    subprocess.run(["systemd-sysusers", root], check=True, capture_output=True)
    assert "slurm-trace:" in (tmp_path / "etc" / "passwd").read_text()
    subprocess.run(
        ["systemd-tmpfiles", root, "--create", "slurm-trace.conf"], check=True, capture_output=True
    )
    leases = tmp_path / "run" / "slurm-trace" / "leases"
    assert leases.stat().st_mode & 0o7777 == 0o2750
    assert leases.stat().st_uid == 0
    assert (tmp_path / "var" / "spool" / "slurm-trace" / "open").is_dir()


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nothing"])
def test_what_is_no_file_is_somebody_elses(tmp_path: Path, kind: str) -> None:
    call("install", "--root", str(tmp_path), "--yes")
    hook, settings = installed(tmp_path), installed(tmp_path, "/etc/slurm-trace/hooks.conf")
    for path in (hook, settings):
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("nowhere")
    found = actions(tmp_path)
    assert (found[f"{LIBEXEC}/prolog"], found["/etc/slurm-trace/hooks.conf"]) == ("conflict", "kept")
    assert isinstance(call("install", "--root", str(tmp_path), "--yes").exception, EnvironmentProblem)
    forced = call("install", "--root", str(tmp_path), "--yes", "--force")
    assert (forced.exit_code == 0) == (kind != "folder")
    assert hook.is_file() == (kind != "folder")
    assert not list(tmp_path.rglob("*.new"))


def test_damaged_list_of_what_was_installed(tmp_path: Path) -> None:
    call("install", "--root", str(tmp_path), "--yes")
    installed(tmp_path, MANIFEST).write_bytes(b"\xff\xfe\n\x00  \n" * 100)
    assert set(actions(tmp_path).values()) == {"unchanged"}


@pytest.mark.parametrize("kind", ["empty", "pipe", "text"])
def test_sampler_that_is_no_program(tmp_path: Path, kind: str) -> None:
    build = tmp_path / "build"
    if kind == "pipe":
        os.mkfifo(build)
    else:
        build.write_text("" if kind == "empty" else "words")
    result = call("install", "--root", str(tmp_path / "a"), "--sampler", str(build), "--yes")
    assert isinstance(result.exception, InputProblem)
    assert "make node" in str(result.exception)
