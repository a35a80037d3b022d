"""From Slurm's index of a GPU to the minor number of its device file, as gres.conf tells it.

SLURM_JOB_GPUS counts the places in Slurm's own list. With `File=` that list is sorted by file name, with
`AutoDetect=nvml` it has NVML's order (both seen on Slurm 22.05 and 24.11). Names sort in more than one way, and types
may come before names: an index is resolved only where every such order gives the same list. Otherwise the answer is
None, and the remedy a file of lines `INDEX /dev/nvidiaN` in place of gres.conf.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_HOSTS_LIMIT = 100_000
_MAP_LINE = re.compile(r"([0-9]{1,5})\s+(?:/dev/nvidia)?([0-9]{1,5})", re.ASCII)
_PAIR = re.compile(r"([A-Za-z]+)\s*=\s*(\"[^\"]*\"|\S+)")
_MINOR = re.compile(r".*/nvidia([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True)
class GresOrder:
    """Slurm's list of the GPUs of one node.

    Attributes:
        minors: By Slurm's index; None where that cannot be told from the file alone.
        nvml: The list has NVML's order.
        reason: Why `minors` is None.
    """

    minors: Mapping[int, int] | None = None
    nvml: bool = False
    reason: str = ""

    def resolve(self, by_nvml_index: Sequence[int | None]) -> dict[int, int] | None:
        """Slurm's index → minor number.

        Args:
            by_nvml_index: The minor number of each whole card, in NVML's order.
        """
        if self.minors is not None:
            return dict(self.minors)
        if not self.nvml:
            return None
        found = {index: minor for index, minor in enumerate(by_nvml_index) if minor is not None}
        return found if found and len(found) == len(by_nvml_index) else None


def read_order(path: str | Path, node: str | None) -> GresOrder:
    """The order of a node's GPUs by gres.conf, or by a file of lines `INDEX /dev/nvidiaN`."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return GresOrder(reason=f"{path} cannot be read ({error.strerror})")
    return order_of(text, node)


def order_of(text: str, node: str | None) -> GresOrder:
    """The same, of the file's text."""
    lines = [line for line in map(_bare, text.replace("\\\n", " ").split("\n")) if line]
    mapped = [_MAP_LINE.fullmatch(line) for line in lines]
    if lines and all(mapped):
        pairs = [(int(one[1]), int(one[2])) for one in mapped if one]
        if len(dict(pairs)) == len({minor for _, minor in pairs}) == len(pairs):
            return GresOrder(minors=dict(pairs))
        return GresOrder(reason="an index or a device is named twice")
    return _of_conf(lines, node)


def _of_conf(lines: Sequence[str], node: str | None) -> GresOrder:
    files: list[tuple[str, str]] = []
    detected = False
    for line in lines:
        if line.lower().startswith("include"):
            return GresOrder(reason="Include is not followed")
        words = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line)}
        hosts = words.get("nodename")
        if hosts is not None and node is None:
            return GresOrder(reason="it differs from node to node, and the node's name is not known")
        if hosts is not None and node not in expand(hosts):
            continue
        if "autodetect" in words and words.get("name", "gpu").lower() == "gpu":
            detected = words["autodetect"].lower() == "nvml"
        if words.get("name", "").lower() == "gpu":
            if "file" not in words:
                if "autodetect" in words:
                    continue
                return GresOrder(reason="a line of gpu has no File=, or MultipleFiles=")
            files.extend((words.get("type", ""), name) for name in expand(words["file"]))
    if not files:
        return GresOrder(nvml=detected, reason="AutoDetect" if detected else "no gpu of this node in it")
    if detected:
        return GresOrder(reason="AutoDetect= and File= for the same node")
    return _of_files(files)


def _of_files(files: Sequence[tuple[str, str]]) -> GresOrder:
    types = list(dict.fromkeys(kind for kind, _ in files))
    orders = {
        tuple(name for _, name in sorted(files, key=lambda one: one[1])),
        tuple(name for _, name in sorted(files, key=lambda one: _natural(one[1]))),
        tuple(name for _, name in sorted(files, key=lambda one: (one[0], _natural(one[1])))),
        tuple(name for _, name in sorted(files, key=lambda one: (types.index(one[0]), _natural(one[1])))),
    }
    if len(orders) > 1:
        return GresOrder(reason="file names, natural order and types sort these devices in different ways")
    numbers = [_MINOR.fullmatch(name) for name in next(iter(orders))]
    minors = [int(number[1]) for number in numbers if number]
    if len(minors) != len(files) or len(set(minors)) != len(minors):
        return GresOrder(reason="a device file is not /dev/nvidiaN, or is named twice")
    return GresOrder(minors=dict(enumerate(minors)))


def _bare(line: str) -> str:
    return line.partition("#")[0].strip()


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    return tuple((text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name, re.ASCII))


def expand(text: str) -> list[str]:
    """The names in Slurm's notation for lists: `n[1-3,07],gpu1`; what cannot be read is left as it is."""
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [list(_ranges(piece)) if place % 2 else [piece] for place, piece in enumerate(pieces)]
        product = itertools.product(*choices)
        names.extend("".join(one) for one in itertools.islice(product, _HOSTS_LIMIT - len(names)))
    return names


def _ranges(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal() and int(last) - int(first) < _HOSTS_LIMIT:
            for number in range(int(first), int(last) + 1):
                yield str(number).zfill(len(first))
        else:
            yield part
