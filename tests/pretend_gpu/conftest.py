"""Fixtures of the tests on pretend GPUs; `rig.py` explains them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

REQUIRED = "SAFEDEV_REQUIRE_PRETEND_GPU"


def load_rig() -> ModuleType:
    """`rig.py` of this folder, whatever pytest's import mode is."""
    name = "pretend_gpu_rig"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("rig.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """
    Pretend machines. Skipped, with the reason, where they cannot be built; a
    failure instead where SAFEDEV_REQUIRE_PRETEND_GPU=1 says that they must.
    """
    module = load_rig()
    reason = module.missing()
    if reason is not None:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED}=1, and {reason}", pytrace=False)
        pytest.skip(reason)
    made = module.Rig(tmp_path_factory.mktemp("pretend_gpu"))
    yield made
    made.close()
