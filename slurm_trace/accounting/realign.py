"""Lines with more pieces than columns: a delimiter stood inside a name.

Only columns that users write may take more than one piece; every other column must look like itself. If all ways to
lay the pieces onto the columns agree on what the line says, that is what it says; else nobody can tell.
"""

from __future__ import annotations

from slurm_trace.accounting.fields import FREE_TEXT, SHAPES, Layout

#: More pieces than this over the columns are not tried: the work grows with their square.
MAX_EXTRA = 400


def realign(pieces: list[str], layout: Layout) -> dict[str, str] | None:
    """The cells of an overfull line by the names of our fields, or None if they cannot be told.

    A name or working directory on whose extent the ways differ is left empty.
    """
    extra = len(pieces) - layout.width
    if not 0 < extra <= MAX_EXTRA:
        return None
    names = layout.names + ("",) * layout.trailing
    ways = [_ways(name, i, pieces, extra) for i, name in enumerate(names)]
    reached, leading_home = _from_left(ways), _from_right(ways, extra)
    if extra not in reached[-1]:
        return None
    row: dict[str, str] = {}
    for field, position in layout.columns.items():
        texts = {
            layout.delimiter.join(pieces[position + before : position + after + 1])
            for before, after in ways[position]
            if before in reached[position] and after in leading_home[position + 1]
        }
        if len(texts) > 1 and names[position] not in FREE_TEXT:
            return None
        row[field] = texts.pop() if len(texts) == 1 else ""
    return row


def _ways(name: str, position: int, pieces: list[str], extra: int) -> list[tuple[int, int]]:
    """How a column may take its pieces: (surplus of pieces before it, surplus after it)."""
    shape = SHAPES.get(name)
    if name in FREE_TEXT:
        begins = [o for o in range(extra + 1) if shape is None or shape.match(pieces[position + o])]
        return [(before, after) for before in begins for after in range(before, extra + 1)]
    if name == "":  # what stands behind the trailing delimiter
        return [(extra, extra)] if pieces[-1] == "" else []
    return [(o, o) for o in range(extra + 1) if shape is None or shape.fullmatch(pieces[position + o])]


def _from_left(ways: list[list[tuple[int, int]]]) -> list[set[int]]:
    """For each column (and the end of the line) the surplus with which it can be reached."""
    reached = [{0}]
    for column in ways:
        reached.append({after for before, after in column if before in reached[-1]})
    return reached


def _from_right(ways: list[list[tuple[int, int]]], extra: int) -> list[set[int]]:
    """For each column (and the end of the line) the surplus from which the end can be reached."""
    home = [{extra}]
    for column in reversed(ways):
        home.append({before for before, after in column if after in home[-1]})
    return home[::-1]
