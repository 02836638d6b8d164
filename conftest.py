"""Settings of every test run."""

import gc
import os

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


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and leave out modules and tests, which stay: 7% of the time of compiling tests."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_sessionfinish() -> None:
    """Free everything at the end: extension modules complain about what is left."""
    gc.unfreeze()
