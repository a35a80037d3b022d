"""Build the library with gcc against NVIDIA's own header, once per version of its sources.

`python build.py` prints the folder: put it into LD_LIBRARY_PATH, FAKE_NVML names the scenario.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
import sys
import tempfile
from dataclasses import astuple
from pathlib import Path

from slurm_trace.node.devices.profiles import PROFILES

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "fake-nvml"
SOURCES = ("scenario.c", "model.c", "nvml.c", "fake.h")
LIBRARY = "libnvidia-ml.so.1"
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}")


def header() -> Path:
    """nvml.h as the package nvidia-nvml-dev brings it."""
    files = importlib.metadata.files("nvidia-nvml-dev") or []
    for file in files:
        if file.name == "nvml.h":
            return Path(str(file.locate()))
    raise FileNotFoundError("nvidia-nvml-dev brings no nvml.h")


def _profiles() -> str:
    rows = []
    for key, profile in PROFILES.items():
        cells = [
            f'"{value}"'
            if isinstance(value, str)
            else str(value).lower()
            if isinstance(value, bool)
            else str(value)
            for value in (key, *astuple(profile))
        ]
        rows.append("    {" + ", ".join(cells) + "},\n")
    return "static const struct profile profiles[] = {\n" + "".join(rows) + "};\n"


def build(*, old_driver: bool = False, cache: Path | None = None) -> Path:
    """The folder that holds the library, built now unless it is there already."""
    nvml_h, profiles = header(), _profiles()
    flags = (*FLAGS, "-DOLD_DRIVER") if old_driver else FLAGS
    digest = hashlib.sha256("\0".join((*flags, profiles)).encode())
    for file in (nvml_h, *(HERE / name for name in SOURCES)):
        digest.update(file.read_bytes())
    folder = (cache or CACHE) / digest.hexdigest()[:16]
    if (folder / LIBRARY).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        (Path(scratch) / "profiles.h").write_text(profiles)
        made = Path(scratch) / LIBRARY
        inputs = [str(HERE / name) for name in SOURCES if name.endswith(".c")]
        paths = ["-I", scratch, "-I", str(HERE), "-isystem", str(nvml_h.parent)]
        subprocess.run(["gcc", *flags, *paths, "-o", str(made), *inputs, "-lm", "-lpthread"], check=True)
        made.replace(folder / LIBRARY)
    return folder


if __name__ == "__main__":
    sys.stdout.write(f"{build(old_driver='--old-driver' in sys.argv)}\n")
