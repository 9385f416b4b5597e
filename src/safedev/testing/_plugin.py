# ruff: noqa: ANN401 - the options are those of the fake
"""The pytest plug-in: one fixture, which does nothing until a test asks for it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Protocol

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from safedev.testing._machine import FakeMachine


class InstallFakeCuda(Protocol):
    """What the fixture ``fake_cuda`` is: it takes what :func:`safedev.testing.fake_cuda` takes."""

    def __call__(self, count: int, **options: Any) -> FakeMachine:
        """Put the fake in place, until the end of the test."""
        ...


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[InstallFakeCuda]:  # noqa: ARG001 - it must be undone after the fake
    """Make torch.cuda answer as on a machine with GPUs, until the end of the test: ``fake_cuda(2)``."""
    with ExitStack() as until_the_end:

        def install(count: int, **options: Any) -> FakeMachine:
            from safedev.testing._fake import fake_cuda  # imports torch

            return until_the_end.enter_context(fake_cuda(count, **options))

        yield install
