"""The fake library inside this process, under unmodified nvidia-ml-py, with a clock that stands until it is set."""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import pynvml

from fake_nvml.build import LIBRARY, build
from slurm_trace.node.devices.nvml import NvmlSource

EPOCH = 1_700_000_000


class FakeNvml:
    """Loads a scenario, moves its clock, hands out sources. Times are seconds of the scenario."""

    def __init__(self, folder: Path, *, old_driver: bool = False) -> None:
        """Keep the scenario in `folder`; with `old_driver`, calls of newer drivers are missing."""
        self._folder = folder
        self._library = ctypes.CDLL(str(build(old_driver=old_driver) / LIBRARY))
        self._library.fakenvml_calls.restype = ctypes.c_ulong
        self._files = 0
        self.now = 0.0

    def load(self, text: str, at: float = 0.0) -> Path:
        """Put a scenario in force, and the clock on `at`."""
        self._files += 1
        path = self._folder / f"scenario-{self._files}.txt"
        path.write_text(f"epoch {EPOCH}\n{text}")
        os.environ["FAKE_NVML"] = str(path)
        os.environ["FAKE_NVML_CLOCK"] = str(_CLOCK)
        pynvml.nvmlLib = self._library
        pynvml._nvmlGetFunctionPointer_cache.clear()
        self.set(at)
        return path

    def set(self, at: float) -> None:
        """Put the clock on `at`."""
        self.now = at
        with _CLOCK.open("r+b") as file:
            file.write(struct.pack("=d", EPOCH + at))

    def wait(self, seconds: float) -> None:
        """Move the clock on, as sleeping would."""
        self.set(self.now + seconds)

    def source(self, **options: Any) -> NvmlSource:
        """A source whose clock is the scenario's."""
        return NvmlSource(clock=lambda: self.now, pause=self.wait, **options)

    def calls(self, name: str) -> int:
        """How often a function of the library has been called in this process."""
        return int(self._library.fakenvml_calls(name.encode()))

    def end(self) -> None:
        """Leave nothing initialised behind, whatever failed."""
        while pynvml.nvmlLib is not None and pynvml.nvmlLib.nvmlShutdown() == pynvml.NVML_SUCCESS:
            pass


def _clock_file() -> Path:
    """One file for the life of the process: the library maps it once."""
    handle, name = tempfile.mkstemp(prefix="fake-nvml-clock-")
    with os.fdopen(handle, "wb") as file:
        file.write(struct.pack("=d", float(EPOCH)))
    atexit.register(Path(name).unlink, missing_ok=True)
    return Path(name)


_CLOCK = _clock_file()
