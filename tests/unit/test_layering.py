"""The import graph of the package: every arrow points to a lower layer."""

from __future__ import annotations

import ast
import configparser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "slurm_trace"

# What each part may import from the package, besides itself. A dotted entry allows that module alone.
ALLOWED: dict[str, tuple[str, ...]] = {
    "errors": (),
    "version": (),
    "child": ("errors",),
    "schema": ("errors",),
    "prolog_epilog": (),
    "node": ("errors", "version"),
    "examples": (),
    "accounting": ("errors", "version"),
    "site": ("errors", "version", "schema", "accounting"),
    "store": ("errors", "version", "child", "schema", "accounting", "site", "node"),
    "analysis": (
        "errors",
        "version",
        "schema",
        "accounting.events",
        "accounting.nodes",
        "accounting.records",
        "accounting.sreport",
        "accounting.states",
        "accounting.tres",
        "site.profile",
    ),
    "assess": ("errors", "version", "child", "schema", "accounting", "site", "store", "analysis"),
    "classify": ("errors", "version", "schema", "accounting", "node", "store", "analysis"),
    "assess_feed": ("errors", "version", "store", "analysis"),
    "cli": (
        "errors",
        "version",
        "child",
        "schema",
        "accounting",
        "site",
        "node",
        "store",
        "analysis",
        "assess",
        "assess_feed",
        "classify",
        "examples",
    ),
}


def _modules() -> dict[str, Path]:
    """Dotted name → file of every module that setup.cfg puts into the wheel."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    folders = dict(
        (part.strip() for part in line.split("="))
        for line in config["options"]["package_dir"].strip().splitlines()
    )
    found = {}
    for name, folder in folders.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            dotted = ".".join((name, *parts)).removesuffix(".__init__")
            found[dotted] = path
    return found


MODULES = _modules()


def _imports(dotted: str, path: Path, *, top_only: bool = False) -> set[str]:
    """Absolute names of everything of the package that a module imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_only else list(ast.walk(tree))
    package = dotted if path.name == "__init__.py" else dotted.rpartition(".")[0]
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*anchor, base] if base else anchor)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                names.add(whole if whole in MODULES else base)
    return names


def _part(dotted: str) -> str:
    return dotted.split(".")[1] if "." in dotted else ""


@pytest.mark.parametrize("dotted", sorted(MODULES))
def test_a_module_imports_only_lower_layers(dotted: str) -> None:
    part = _part(dotted)
    if not part:
        allowed: tuple[str, ...] = ("version",)
    else:
        assert part in ALLOWED, f"{dotted}: name its layer in ALLOWED"
        allowed = (part, *ALLOWED[part])
    for name in _imports(dotted, MODULES[dotted]):
        if name.split(".")[0] != PACKAGE:
            continue
        inner = name.removeprefix(PACKAGE).removeprefix(".")
        assert any(inner == a or inner.startswith(f"{a}.") for a in allowed), f"{dotted} imports {name}"


def test_the_mapped_names_are_never_imported_as_top_level_ones() -> None:
    for dotted, path in MODULES.items():
        for name in _imports(dotted, path):
            assert name.split(".")[0] not in {"analysis", "schema", "prolog_epilog", "examples"}, dotted


def test_the_entry_point_imports_no_command() -> None:
    main = f"{PACKAGE}.cli.main"
    ours = {n for n in _imports(main, MODULES[main]) if n.startswith(PACKAGE)}
    assert ours <= {f"{PACKAGE}.errors", f"{PACKAGE}.version"}


def test_the_generator_needs_nothing_but_the_standard_library() -> None:
    import sys

    dotted = f"{PACKAGE}.examples.generate"
    for name in _imports(dotted, MODULES[dotted]):
        assert name.split(".")[0] in {*sys.stdlib_module_names, PACKAGE}
