"""Settings of every test run."""

import gc
import os
from collections.abc import Generator

import pytest

# Tensors in tests are small and workers share the cores: several threads each would mostly wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def opencl() -> None:
    """An OpenCL device that runs kernels; without one, the test is skipped."""
    pytest.importorskip("pyopencl")
    from presilicon.base import MissingToolError
    from presilicon.scheduling import open_device

    try:
        open_device("opencl").close()
    except MissingToolError as error:
        pytest.skip(str(error))


NOT_HERE = "not on this machine: "
"""Begins the reason of a skip that no tool could prevent; any other skip is one for want of a tool."""


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip for want of a tool into a failure where all tools should be there."""
    if not os.environ.get("CI") or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if reason.removeprefix("Skipped: ").startswith(NOT_HERE):
        return
    report.outcome, report.longrepr = "failed", f"with CI set, no test may be skipped for want of a tool: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test that is skipped for want of a tool fail in CI."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let a module of tests that is skipped for want of a tool fail in CI."""
    report = yield
    _refuse_skip(report)
    return report


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and leave out modules and tests, which stay: 7% of the time of compiling tests."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_sessionfinish() -> None:
    """Free everything at the end: extension modules complain about what is left."""
    gc.unfreeze()
