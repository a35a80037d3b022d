"""Writes the expectations of the boundary corpus anew: `make corpus-expect`, after a change of routes that is meant.

The anchors are written first, since the sites lie where they say; a change of them moves the sites.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from slurm_trace.analysis.corpus import anchors, expectations, runner
from slurm_trace.analysis.corpus.design import DEFAULT_SEED

FOLDER = Path(__file__).parents[2] / "schema" / "corpus"


def main() -> int:
    """Write both files; report what changed, and refuse what no expectation may hold."""
    target = FOLDER / anchors.ANCHORS_FILE
    text = json.dumps(anchors.work_out(), indent=1, sort_keys=True) + "\n"
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")
        click.echo("anchors written: the sites move with them")
    outcome = runner.run(DEFAULT_SEED, processes=2)
    wrong = [case for case in outcome.cases if case.violations or case.as_intended is False]
    for case in wrong[:20]:
        click.echo(
            f"{case.instance.id}: {dict(case.instance.site.varies)}: intended {case.instance.site.intended}"
        )
        for answer in case.violations or case.answers:
            click.echo(f"    {answer.kind} {answer.key}: {answer.verdict} {answer.below}")
    if wrong:
        click.echo(f"{len(wrong)} cases are not one-sided or not as their family intends: nothing is written")
        return 1
    document = expectations.document(DEFAULT_SEED, [(case.instance, case.route) for case in outcome.cases])
    path = FOLDER / expectations.EXPECTED_FILE
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    changes = outcome.changes or ()
    for change in changes[:20]:
        click.echo(f"{change.instance.id}: {change.expected} is now {change.found}")
    click.echo(f"{len(outcome.cases)} routes written, {len(changes)} of them changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
