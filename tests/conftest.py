"""Under CI=true a test that was skipped, or expected to fail, has not shown anything: it fails."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

_STRICT = os.environ.get("CI") == "true"


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped although CI=true: {report.longrepr}"
        # With this mark on it, pytest would show the failure and still end well.
        vars(report).pop("wasxfail", None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failed one."""
    report = yield
    if _STRICT:
        _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a module skipped as a whole into a failed one."""
    report = yield
    if _STRICT:
        _fail_if_skipped(report)
    return report
