"""Fixtures of the tests on pretend GPUs; `rig.py` explains them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rig import Rig, missing

REQUIRED = "SAFEDEV_REQUIRE_PRETEND_GPU"


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """
    Pretend machines. Skipped, with the reason, where they cannot be built; a
    failure instead where SAFEDEV_REQUIRE_PRETEND_GPU=1 says that they must.
    """
    reason = missing()
    if reason is not None:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED}=1, and {reason}", pytrace=False)
        pytest.skip(reason)
    made = Rig(tmp_path_factory.mktemp("pretend_gpu"))
    yield made
    made.close()
