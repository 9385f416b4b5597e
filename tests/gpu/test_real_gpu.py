"""What the pretend machine is believed to do, asked of a real device.

Each row runs in a fresh process. A row that nobody is known to have asked a driver (``unsure`` in the tables of
``tests/pretend_gpu``) and that comes out otherwise is an expected failure with both answers as its reason: settle the
table, the pretend driver and the parser by it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import rig_server
from driver_facts import CALLS, DRIVER, PRELUDE, Call, Fact
from mask_facts import ANY_MACHINE, UNSURE, AnyMachineRow

pytestmark = pytest.mark.gpu
STATES = "\n(awake(), torch.cuda.is_initialized())"
SEEN = PRELUDE + "start(); uuids()"
RUN = (
    "import json, sys; sys.path.insert(0, sys.argv[1]); from rig_server import evaluate, plain\n"
    "print(json.dumps(plain(evaluate(sys.stdin.read(), '<snippet>', {}))))"
)


def ask(code: str, **env: str) -> object:
    """What *code* gives in a process of its own, without a mask but for *env*'s."""
    clean = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")}
    folder = str(Path(rig_server.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", RUN, folder],
        env=clean | env, input=code, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def devices() -> list[str]:
    """UUIDs of this machine's devices, in CUDA's order."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.skip(f"no NVIDIA driver: {error}")
    found = ask(SEEN)
    assert isinstance(found, list)
    if not found:
        pytest.skip("the driver shows no device")
    return found


def settle(known: bool, expected: object, found: object) -> None:
    """Compare; where nobody knew, what was found is news and not a fault."""
    if not known and expected != found:
        pytest.xfail(f"unsure: the table has {expected!r}, this driver {found!r}")
    assert expected == found


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ANY_MACHINE])
def test_the_driver_reads_a_mask(devices: list[str], row: AnyMachineRow) -> None:
    """
    A mask leaves none, one or all of this machine's devices.
    """
    env = {} if row.mask is None else {"CUDA_VISIBLE_DEVICES": row.mask.replace("{0}", f"GPU-{devices[0]}")}
    expected = {"none": [], "one": devices[:1], "all": devices}[row.left]

    settle(row.known != UNSURE, expected, ask(SEEN, **env))


@pytest.mark.parametrize("fact", [pytest.param(fact, id=fact.id) for fact in DRIVER])
def test_the_driver_starts_and_freezes(devices: list[str], fact: Fact) -> None:
    """
    What starts the driver, what it holds to and what a child finds.
    """
    settle(fact.sure, fact.answer, ask(PRELUDE + fact.code))


@pytest.mark.parametrize(
    "call", [pytest.param(call, id=call.id) for call in CALLS if not call.settings and call.machine == "full"]
)
def test_a_call_of_torch_starts_the_driver_or_not(devices: list[str], call: Call) -> None:
    """
    A call of torch starts the driver, and initialises torch, as on the pretend
    machine.
    """
    torch = pytest.importorskip("torch")
    if torch.version.cuda is None or tuple(map(int, version("torch").split(".")[:2])) < call.since:
        pytest.skip(f"for a CUDA build of torch {call.since} or later")

    assert [call.starts, call.initialises] == ask(f"{PRELUDE}import torch\n{call.code}{STATES}", **dict(call.env))


def test_an_ordinal_past_the_last_is_refused_in_the_pretend_runtimes_words(devices: list[str]) -> None:
    """
    torch's message for an ordinal past the last is the one that the tests on
    pretend GPUs know.
    """
    pytest.importorskip("torch")
    tried = f"try: torch.cuda.set_device({len(devices)})\nexcept RuntimeError as error: words = str(error)"
    code = f"import torch\n{tried}\nwords"
    words = ask(code)

    assert str(words).startswith("CUDA error: invalid device ordinal")
