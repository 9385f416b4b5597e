"""Fixtures of the contract."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rig import Rig

sys.path.insert(0, str(Path(__file__).parent))  # the rows and the subjects, which the tests of this folder share


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """
    Pretend machines; skipped, with the reason, where there can be none.
    """
    import rig as module

    reason = module.missing()
    if reason is not None:
        if os.environ.get("SAFEDEV_REQUIRE_PRETEND_GPU") == "1":
            pytest.fail(f"SAFEDEV_REQUIRE_PRETEND_GPU=1, and {reason}", pytrace=False)
        pytest.skip(reason)
    made = module.Rig(tmp_path_factory.mktemp("pretend_gpu"))
    yield made
    made.close()
