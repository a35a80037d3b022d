"""Builds dist/slurm-trace-node.pyz: the node side and nvidia-ml-py in one file, for any Python from 3.9 on.

    python3 prolog_epilog/zipapp_node.py [TARGET]

The same sources give the same bytes. The code is in it as source, and compiled for the Python that builds it: there it
starts at once; another version compiles it at every start, which takes half a second and 10 MiB for that time. So build
it with the Python of the nodes where you can: make node PYTHON=/usr/bin/python3.9.
"""

from __future__ import annotations

import py_compile
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "dist" / "slurm-trace-node.pyz"
NVML = "nvidia-ml-py>=12.570"
SHEBANG = b"#!/usr/bin/python3 -I\n"
MAIN = "from slurm_trace.node.main import main\n\nraise SystemExit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def sources() -> Iterator[tuple[str, Path]]:
    """Name in the archive → file, of our own."""
    package = ROOT / "slurm_trace"
    shared = [package / name for name in ("__init__.py", "errors.py", "version.py")]
    for path in [*shared, *sorted((package / "node").rglob("*.py"))]:
        yield path.relative_to(ROOT).as_posix(), path


def build(target: Path = TARGET) -> Path:
    """Write the archive, and return where it is."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
        ]
        subprocess.run([*pip, "--no-deps", "--target", str(root / "pip"), NVML], check=True)
        shutil.copy(root / "pip" / "pynvml.py", root / "pynvml.py")
        (root / "__main__.py").write_text(MAIN, encoding="utf-8")
        files = dict(sources())
        files |= {name: root / name for name in ("pynvml.py", "__main__.py")}
        for licence in sorted((root / "pip").glob("nvidia_ml_py-*/**/*")):
            if licence.name.lower().startswith(("licen", "metadata")):
                files[f"nvidia_ml_py/{licence.name}"] = licence
        claim = root / target.name
        with claim.open("wb") as archive:
            archive.write(SHEBANG)
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
                for name in sorted(files):
                    _add(packed, name, files[name].read_bytes())
                    if name.endswith(".py"):
                        _add(packed, f"{name}c", _compiled(files[name], name, root))
        claim.chmod(claim.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        shutil.copy(claim, target)
    return target


def _compiled(path: Path, name: str, folder: Path) -> bytes:
    made = folder / "compiled.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), str(made), dfile=name, doraise=True, invalidation_mode=mode)
    return made.read_bytes()


def _add(packed: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    packed.writestr(entry, content)


if __name__ == "__main__":
    sys.stdout.write(f"{build(Path(sys.argv[1]) if sys.argv[1:] else TARGET)}\n")
