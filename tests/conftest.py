"""What every test relies on."""

from __future__ import annotations

import os

import pytest

# A test says itself what it was launched by. The shell that runs the tests may be a task of a job.
LAUNCHERS_SET = (
    "FLUX_",
    "GROUP_RANK",
    "HOROVOD_",
    "JSM_",
    "LOCAL_RANK",
    "LOCAL_SIZE",
    "LOCAL_WORLD_SIZE",
    "MPI_",
    "MV2_",
    "NODE_RANK",
    "OMPI_",
    "PALS_",
    "PMIX_",
    "PMI_",
    "RANK",
    "SLURM",
    "TORCHELASTIC_",
    "WORLD_SIZE",
)


@pytest.fixture(autouse=True)
def no_launcher_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the variables of whatever launched the test session out of the test's environment."""
    for variable in list(os.environ):
        if variable.startswith(LAUNCHERS_SET):
            monkeypatch.delenv(variable)
