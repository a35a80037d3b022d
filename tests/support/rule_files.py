"""Rule files of a site, as a test needs them."""

from __future__ import annotations

import copy

RULE = {
    "id": "site-long-runs",
    "subjects": ["run"],
    "generations": {"since": 1, "until": None},
    "when": {"feature": "O03.held_s", "op": "ge", "value": 600, "unit": "s"},
    "route": "WARN",
    "reason": "longer than the site expects",
    "rests_on": ["accounting"],
    "provenance": {"basis": "a choice", "source": "the site", "revision": "2026-11-30", "verified": False},
}
VERDICT = RULE | {
    "id": "site-verdict",
    "route": "INSUFFICIENT",
    "when": {"feature": "O02.bounded", "op": "is", "value": True},
    "rests_on": ["accounting"],
}


def document(*rules, kind="warning"):
    return {
        "schema": "slurm-trace/rules/1",
        "kind": kind,
        "decides": "what the site wants to know",
        "rules": list(rules),
    }


def ordering(*entries):
    return {
        "schema": "slurm-trace/precedence/1",
        "decides": "as the site has it",
        "precedence": [
            {"id": name, "first": first, "over": over, "reason": "so", "provenance": RULE["provenance"]}
            for name, first, over in entries
        ],
    }


def changed(rule, **changes):
    found = copy.deepcopy(rule)
    for path, value in changes.items():
        *inner, last = path.split("__")
        place = found
        for name in inner:
            place = place[name]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return found
