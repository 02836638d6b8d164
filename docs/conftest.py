"""Examples that need a device."""

import pytest


@pytest.fixture(autouse=True)
def devices(request: pytest.FixtureRequest) -> None:
    """The device that a page's examples run on; they are skipped without it."""
    if request.path.name == "hybrid-runtime.md":
        request.getfixturevalue("opencl")
