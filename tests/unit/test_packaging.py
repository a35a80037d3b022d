"""The wheel holds the whole tree, adds one name to site-packages, and its entry point starts fast."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "slurm_trace": "slurm_trace",
    "analysis": "slurm_trace/analysis",
    "schema": "slurm_trace/schema",
    "prolog_epilog": "slurm_trace/prolog_epilog",
    "examples": "slurm_trace/examples",
}
HEAVY = ("pandas", "numpy", "sqlalchemy", "alembic", "rich", "jsonschema", "ijson", "ClusterShell")


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the tree, so that no build folder is left in it or reused."""
    copy = tmp_path_factory.mktemp("tree")
    out = tmp_path_factory.mktemp("dist")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(out), "."]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def wheel(wheel_file: zipfile.ZipFile) -> list[str]:
    """Names in the wheel."""
    return wheel_file.namelist()


def test_the_wheel_holds_every_file_of_the_tree(wheel: list[str]) -> None:
    expected = {
        f"{installed}/{path.relative_to(ROOT / folder)}"
        for folder, installed in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "egg-info" not in str(path)
    }
    assert expected - set(wheel) == set()


def test_the_hooks_are_executable_in_the_wheel(wheel_file: zipfile.ZipFile) -> None:
    for name in ("prolog", "epilog", "dropin/prolog", "dropin/epilog"):
        entry = wheel_file.getinfo(f"slurm_trace/prolog_epilog/{name}")
        assert entry.external_attr >> 16 & 0o777 == 0o755, name


def test_the_wheel_adds_one_top_level_name(wheel: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"slurm_trace"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["import", "--help"]])
def test_the_entry_point_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from slurm_trace.cli.main import app\n"
        f"app.main({arguments!r}, standalone_mode=False)\n"
        f"print('HEAVY', sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/")
    assert done.stderr.strip() == "HEAVY []"


def test_every_library_that_is_imported_is_declared() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    lines += [
        line
        for extra in ("pyslurm", "postgresql", "mariadb")
        for line in config["options.extras_require"][extra].splitlines()
    ]
    declared = {re.split(r"[\[<>=;]", line)[0].strip().lower() for line in lines if line.strip()}
    # nvidia-ml-py brings a module of another name.
    assert "nvidia-ml-py" in declared
    known = {*sys.stdlib_module_names, "slurm_trace", "pynvml"}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                for name in names:
                    top = name.split(".")[0]
                    assert top in known or top.replace("_", "-").lower() in declared, f"{path}: {name}"
