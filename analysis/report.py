"""The audit report as one HTML page without any outside resource. Pure: reports of the JSON contract in, text out.

Everything that came out of a record is untrusted: it is escaped, and what does not print is shown as its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from slurm_trace.analysis.figures import listing, ratio
from slurm_trace.analysis.picture import Histogram, Lane, svg
from slurm_trace.analysis.rules.rule import Rule

Json = Mapping[str, Any]

VERDICT_WORDS = {
    "RULED_OUT": "ruled out",
    "NOT_RULED_OUT": "not ruled out",
    "INSUFFICIENT": "not enough to tell",
}
GROUP_WORDS = {
    "all": "All runs together",
    "cluster": "By cluster",
    "account": "By account",
    "user": "By user",
}
MOST_GROUPS = 50
BESIDE = ("WARN", "ATTRIBUTE")
"""Routes that stand beside a verdict; a note is for `explain` alone."""

ASSUMPTION_WORDS = {
    "records_complete": "every run is in the records",
    "records_unaltered": "nobody changed the records before they were read",
    "gres_recorded": "a run without GPUs in its record had none",
    "labels_true": "a GPU type in a record names the card that was there",
    "confined": "a run could use only the devices it was given",
    "released_at_end": "a run let go of its devices when its record says that it ended",
    "units_left_out": "units that the ceilings leave out do not exceed the margin",
}

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#57606a;--line:#d0d7de;--band:#f6f8fa;
--under:#2f6f9f;--over:#b4480f;--none:#7a5c00}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0f1419;--soft:#9aa4af;--line:#343c46;--band:#181e25;
--under:#6cb2e4;--over:#f0883e;--none:#d7b44a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:70rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .75rem}h2{font-size:1.2rem;margin:2.5rem 0 .5rem}
h3{font-size:1rem;margin:1.5rem 0 .25rem}p{max-width:48rem;margin:.5rem 0}
.answer{font-size:1.1rem;border-left:4px solid var(--line);padding:.25rem 0 .25rem 1rem;margin:1rem 0}
.answer.NOT_RULED_OUT{border-color:var(--over)}.answer.INSUFFICIENT{border-color:var(--none)}
.answer.RULED_OUT{border-color:var(--under)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.875rem;width:100%;margin:.5rem 0}
table.narrow{width:auto}caption{text-align:left;color:var(--soft);padding:.25rem 0}
th,td{text-align:left;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
thead th{border-bottom:2px solid var(--line);white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
a{color:inherit}td.wrap{overflow-wrap:anywhere;min-width:6rem}sup{line-height:0}
code{font:.85em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.v{white-space:nowrap;font-weight:600}.v.NOT_RULED_OUT{color:var(--over)}.v.INSUFFICIENT{color:var(--none)}
.v.RULED_OUT{color:var(--under)}dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.5rem 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}.soft{color:var(--soft)}figure{margin:1rem 0}
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font-size:12px}
svg .tick{fill:var(--soft);font-size:11px}
svg .axis{stroke:var(--ink)}svg .grid{stroke:var(--line);stroke-width:.5}svg .under{fill:var(--under)}
svg .over{fill:var(--over)}svg circle{fill-opacity:.65}svg .threshold{stroke:var(--soft);stroke-dasharray:3 3}
svg .threshold.asked{stroke:var(--over);stroke-width:2;stroke-dasharray:none}svg .name.asked{font-weight:700}
svg .name{paint-order:stroke;stroke:var(--paper);stroke-width:5px}
@media print{body{padding:0;max-width:none;font-size:11px}h2{break-after:avoid}tr,figure{break-inside:avoid}
thead{display:table-header-group}}
"""


def render(
    rank: Json,
    groups: Sequence[Json],
    thresholds: Iterable[tuple[str, int]],
    bounds: Histogram,
    rules: Iterable[Rule],
) -> str:
    """The page.

    Args:
        rank: `slurm-trace/rank/1`, its `jobs` cut to those that shall be listed.
        groups: `slurm-trace/groups/1`, one for each kind of group, top down.
        thresholds: Id and operations of the thresholds to draw.
        bounds: All ranked runs, by bound.
        rules: The rules that the `routes` of runs and groups name.
    """
    threshold_flop = rank["threshold"]["flop"]
    body = [
        *_question(rank),
        *_answer(rank, groups),
        *_tally(rank),
        *_inputs(rank),
        *_picture(groups, thresholds, bounds, threshold_flop),
        *(part for report in groups for part in _groups(report)),
        *_jobs(rank),
        *_runaways(rank),
        *_beside(rank, groups, rules),
        *_reading(rank),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Compute threshold report: {text(rank['threshold']['id'])}</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Anything as inert text: escaped, and characters that do not print shown as their code point."""
    shown = "-" if value is None else str(value)
    return escape("".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown))


def flop(value: int | None) -> str:
    """Operations with three digits, rounded up, the exact figure as a tooltip."""
    if value is None:
        return "no bound"
    digits = len(str(value))
    if digits <= 3:
        return str(value)
    lead = -(-value // 10 ** (digits - 3))
    mantissa, exponent = (lead, digits - 1) if lead < 1000 else (100, digits)
    return f'<span title="{value}">{mantissa / 100:.2f}&times;10<sup>{exponent}</sup></span>'


def _question(rank: Json) -> list[str]:
    asked = rank["threshold"]
    window = rank.get("window") or {}
    since, until = (None if window.get(k) is None else _moment(window[k]) for k in ("since", "until"))
    period = (
        ""
        if since is None and until is None
        else f", runs that touch {since or 'the beginning'} to {until or 'the end'}"
    )
    margin = f"{100 * rank['margin']:g} %" if "margin" in rank else "the margin"
    return [
        "<h1>Which runs cannot have reached the threshold, and which cannot be cleared?</h1>",
        f"<p>Threshold T: <strong>{flop(asked['flop'])}</strong> operations (<code>{text(asked['id'])}</code>; counts "
        f"{text(asked['counts'])}). Counted here: <code>{text(rank['basis'])}</code>, from accounting alone "
        f"(<code>{text(rank['trust'])}</code>){period}. A run is ruled out if its bound plus {margin} is below T.</p>",
    ]


def _answer(rank: Json, groups: Sequence[Json]) -> list[str]:
    whole = next((g for report in groups for g in report["groups"] if g["by"] == "all"), None)
    if whole is None:
        return []
    verdict = whole["verdict"]
    sentence = {
        "RULED_OUT": "The own contribution of all runs together is below T, and so is that of each group and run.",
        "NOT_RULED_OUT": "All runs together cannot be ruled out by their sum; the groups and runs below show what can.",
        "INSUFFICIENT": "The records do not suffice to tell for all runs together; the reasons stand with the groups.",
    }[verdict]
    if whole.get("fewest_jobs") is not None:
        sentence += f" It takes at least {_some(whole['fewest_jobs'], 'run')} to reach T"
        sentence += (
            f", of at least {_some(whole['fewest_users'], 'user')}." if whole.get("fewest_users") else "."
        )
    return [f'<p class="answer {verdict}">{sentence}</p>']


def _tally(rank: Json) -> list[str]:
    default, strict = rank["verdicts"], rank["verdicts_strict"]
    rows = [
        f'<tr><th scope="row" class="v {v}">{word}</th><td class="n">{default[v]:,}</td>'
        f'<td class="n">{strict[v]:,}</td></tr>'
        for v, word in VERDICT_WORDS.items()
    ]
    return [
        '<table class="narrow"><caption>Runs, each by itself</caption>',
        '<thead><tr><th scope="col">own contribution</th><th scope="col" class="n">default assumptions</th>'
        '<th scope="col" class="n">strict: nothing unproven</th></tr></thead>',
        f"<tbody>{''.join(rows)}</tbody></table>",
    ]


def _inputs(rank: Json) -> list[str]:
    inputs = rank["inputs"]
    complete = rank.get("records_complete", {})
    items = [
        ("runs in the records", f"{inputs['jobs']:,}"),
        ("of these never started", f"{inputs['never_started']:,}"),
        ("never closed (listed apart)", f"{inputs['runaway']:,}"),
        ("rows that could not be read", f"{inputs['rejected']:,}"),
        *(
            (
                f"records of {name}",
                f"complete: {state['status']}" + "".join(f"; {gap}" for gap in state["gaps"]),
            )
            for name, state in complete.items()
        ),
        ("rate registry", inputs["rates"]),
        ("threshold registry", inputs.get("thresholds")),
        ("site profile", inputs.get("site_profile")),
        ("evaluator", inputs["evaluator"]),
        ("computed at", _moment(rank["generated_at"])),
    ]
    rows = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in items if v is not None)
    return ["<h2>What it was computed from</h2>", f"<dl>{rows}</dl>"]


def _picture(
    groups: Sequence[Json], thresholds: Iterable[tuple[str, int]], bounds: Histogram, threshold_flop: int
) -> list[str]:
    names: dict[int, list[str]] = {threshold_flop: []}
    for name, value in thresholds:
        names.setdefault(value, []).append(name)
    names[threshold_flop] = names[threshold_flop] or ["T"]
    lanes = [
        Lane(
            report["groups"][0]["by"],
            [(text(g["key"]), g["bound_flop"]) for g in report["groups"] if g["bound_flop"] is not None],
        )
        for report in groups
        if report["groups"]
    ]
    hidden = bounds.zero + bounds.unbounded
    note = (
        f" Not drawn: {bounds.unbounded:,} runs without a bound, {bounds.zero:,} with a bound of 0."
        if hidden
        else ""
    )
    return [
        "<h2>Bounds against thresholds</h2>",
        f"<figure>{svg(bounds, lanes, names, threshold_flop)}",
        '<figcaption class="soft">Bars: runs by the most they can have done. Dots: groups by the sum of their runs. '
        f"The solid line is T.{note}</figcaption></figure>",
    ]


_CLEARED = "Ruled out all the same, by what the hardware of the inventory can do,"


def _groups(report: Json) -> list[str]:
    lines = report["groups"]
    if not lines:
        return []
    head = (
        ("group", ""), ("runs", "n"), ("users", "n"), ("GPU hours", "n"), ("bound", "n"), ("bound / T", "n"),
        ("own contribution", ""), ("strict", ""), ("look at", ""), ("fewest runs to T", "n"), ("fewest users", "n"),
    )  # fmt: skip
    rows = [
        (
            text(g["key"]), f"{g['jobs']:,}", _count(g.get("users")), _gpu_hours(g), flop(g["bound_flop"]),
            ratio(g["ratio"]), _verdict(g["verdict"]), _verdict(g.get("verdict_strict")), _rules_of(g),
            _count(g["fewest_jobs"]), _count(g["fewest_users"]),
        )
        for g in lines[:MOST_GROUPS]
    ]  # fmt: skip
    reasons: dict[tuple[str, str], list[str]] = {}
    for g in lines[:MOST_GROUPS]:
        for reason in g.get("reasons", ()):
            what = _CLEARED if g["verdict"] == "RULED_OUT" else "Not enough to tell"
            reasons.setdefault((what, reason), []).append(g["key"])
    more = len(lines) - MOST_GROUPS
    return [
        f"<h2>{GROUP_WORDS.get(lines[0]['by'], text(lines[0]['by']))}</h2>",
        _table(head, rows),
        f'<p class="soft">{more:,} more groups, all further down in the same order, are not listed here.</p>'
        if more > 0
        else "",
        *(
            f'<p class="soft">{what} of {text(listing(keys))}: {text(reason)}</p>'
            for (what, reason), keys in reasons.items()
        ),
    ]


def _jobs(rank: Json) -> list[str]:
    listed, total = rank["jobs"], sum(rank["verdicts"].values())
    if not listed:
        return ["<h2>Runs</h2>", "<p>No run held anything.</p>"]
    return [
        "<h2>Runs with the largest claim</h2>",
        f'<p class="soft">{len(listed):,} of {total:,}: not ruled out first, then what cannot be told, then ruled out. '
        "<code>slurm-trace rank --format csv</code> lists all of them, <code>slurm-trace explain JOB</code> the terms "
        "of one.</p>",
        _run_table(listed),
    ]


def _runaways(rank: Json) -> list[str]:
    listed = rank.get("runaway_jobs") or []
    if not listed:
        return []
    return [
        "<h2>Records that were never closed</h2>",
        '<p class="soft">Not ranked, since nobody knows when they ended; they count in every group.</p>',
        _run_table(listed),
    ]


def _run_table(jobs: Sequence[Json]) -> str:
    head = (
        ("#", "n"), ("job", ""), ("name", ""), ("user", ""), ("account", ""), ("state", ""), ("start", ""),
        ("nodes", "n"), ("GPUs", ""), ("held", "n"), ("bound", "n"), ("bound / T", "n"), ("own contribution", ""),
        ("strict", ""), ("look at", ""),
    )  # fmt: skip
    rows = [
        (
            text(j["rank"]), text(f"{j['cluster']}:{j['job_id']}"), text(j.get("name")), text(j["user"]),
            text(j["account"]), text(j["state"]), text(None if j["start"] is None else _moment(j["start"])),
            _count(j["nodes"]), _gpus(j), _duration(j["held_s"]), flop(j["bound_flop"]), ratio(j["ratio"]),
            _verdict(j["verdict"]), _verdict(j["verdict_strict"]), _rules_of(j),
        )
        for j in jobs
    ]  # fmt: skip
    return _table(head, rows)


def _rules_beside(entry: Json) -> list[str]:
    return [route["rule"] for route in entry.get("routes", ()) if route["route"] in BESIDE]


def _rules_of(entry: Json) -> str:
    """The rules that speak of a run or a group beside its verdict, each a link to what it says."""
    names = map(text, _rules_beside(entry))
    return ", ".join(f'<a href="#rule-{name}">{name}</a>' for name in names) or "-"


def _beside(rank: Json, groups: Sequence[Json], rules: Iterable[Rule]) -> list[str]:
    listed = [*rank["jobs"], *(rank.get("runaway_jobs") or ())]
    of_runs, of_groups = (
        Counter(name for entry in entries for name in _rules_beside(entry))
        for entries in (listed, [g for report in groups for g in report["groups"][:MOST_GROUPS]])
    )
    rows = [
        (
            f'<code id="rule-{text(rule.id)}">{text(rule.id)}</code>',
            "a warning" if rule.group is None else f"look at it with its {text(rule.group)}",
            text(rule.reason), f"{of_runs[rule.id]:,}", f"{of_groups[rule.id]:,}",
        )
        for rule in rules
        if rule.id in of_runs or rule.id in of_groups
    ]  # fmt: skip
    if not rows:
        return []
    return [
        "<h2>What to look at beside the verdicts</h2>",
        '<p class="soft">Rules that changed no verdict, in the runs and groups listed. '
        "<code>slurm-trace rules show RULE</code> prints one of them with its condition.</p>",
        _table((("rule", ""), ("route", ""), ("reason", ""), ("runs", "n"), ("groups", "n")), rows),
    ]


def _reading(rank: Json) -> list[str]:
    statuses: dict[str, set[str]] = {}
    for job in rank["jobs"]:
        for assumption in job["assumptions"]:
            statuses.setdefault(assumption["id"], set()).add(assumption["status"])
    rows = [
        (f"<code>{text(name)}</code>", text(ASSUMPTION_WORDS.get(name, "")), text(", ".join(sorted(found))))
        for name, found in statuses.items()
    ]
    return [
        "<h2>How to read this</h2>",
        "<p>A bound is the most that the hardware a run held could have done in the time it held it, every unknown "
        "taken at its worst. <strong>Ruled out</strong>: this run's (group's) own contribution is below T. "
        "<strong>Not ruled out</strong>: the bound reaches T; it says nothing about what was done. "
        "<strong>Not enough to tell</strong>: a fact without which there is no bound is missing. Operations that a "
        "model inherited from an earlier one are no part of any figure here.</p>",
        "<p>The strict column grants no assumption that is not proven, but for the two that no accounting can prove: "
        "that nobody altered the records, and that the units left out fit into the margin.</p>",
        *(
            [
                _table(
                    (("assumption", ""), ("what is granted", ""), ("stands as, in the runs listed", "")), rows
                )
            ]
            if rows
            else []
        ),
    ]


def _table(head: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f'<th scope="col"{_class(kind)}>{name}</th>' for name, kind in head)
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(kind or 'wrap')}>{cell}</td>" for (_, kind), cell in zip(head, row, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead>\n<tbody>{lines}</tbody></table></div>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _verdict(verdict: str | None) -> str:
    return (
        "-"
        if verdict is None
        else f'<span class="v {text(verdict)}">{VERDICT_WORDS.get(verdict, text(verdict))}</span>'
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _some(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _gpu_hours(group: Json) -> str:
    unknown = group.get("gpu_unknown_jobs")
    hours = "-" if group["gpu_seconds"] is None else f"{group['gpu_seconds'] / 3600:,.0f}"
    return f"{hours} + {unknown:,} runs unknown" if unknown else hours


def _gpus(job: Json) -> str:
    if job["gpu_count"] is None:
        return "unknown"
    return text(" ".join(f"{g['count']}x{g['type'] or 'gpu'}" for g in job["gpus"]) or "0")


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return "-"
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def _moment(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
