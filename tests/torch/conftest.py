"""Fixtures of the tests that need torch, of any build."""

from __future__ import annotations

# As pytest finds it by the entry point of an installed safedev; imported here for a source tree that is not installed.
from safedev.testing._plugin import fake_cuda as fake_cuda  # noqa: PLC0414 - named to be found
