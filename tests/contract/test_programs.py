"""Random programs of torch.cuda calls have the same outcome under the fake and over the pretend driver."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

from behaviours import VERSION, Behaviour
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from subjects import on_the_fake, over_the_pretend_driver

if TYPE_CHECKING:
    from rig import Rig

ORDINALS = st.integers(-2, 4)
# The driver's answer to each of these is documented, or known from reports.
MASKS = st.sampled_from(
    ["", "-1", "0", "1", "1,0", "2,0,1", "0,0", "7", "0,7,1", "none", "1gpu", "0,1,2,3", " 1", "+1"]
)
ANYWHERE = st.sampled_from([
    "cuda.device_count()",
    "cuda.is_available()",
    "cuda.is_initialized()",
    "cuda.init()",
    "cuda.current_device()",
    "cuda.synchronize()",
    "cuda.mem_get_info()[1] > 0",
    "cuda.get_device_name()",
    "cuda.memory_allocated()",
    "cuda.manual_seed_all(3)",
    "cuda._is_in_bad_fork()",
    "len(cuda.default_generators)",
    "leave()",
    "del os.environ[MASK]",
    "in_child(lambda: said(cuda.current_device))",
    "in_thread(lambda: said(cuda.current_device))",
])  # fmt: skip
AT_AN_ORDINAL = [
    "cuda.set_device({})",
    "cuda.set_device('cuda:{}')",
    "enter(cuda.device({}))",
    "enter(cuda._DeviceGuard({}))",
    "cuda.get_device_name({})",
    "cuda.get_device_capability({})",
    "cuda.mem_get_info({})[1] > 0",
    "cuda.synchronize({})",
    "cuda.memory_allocated(abs({}))",
    "cuda.can_device_access_peer(0, {})",
    "in_thread(lambda: said(cuda.set_device, {}))",
]
if VERSION >= (2, 8):
    AT_AN_ORDINAL += [
        "torch.accelerator.set_device_index({})",
        "enter(torch.accelerator.device_index({}))",
        "torch.accelerator.current_device_index() - {}",
        "torch.accelerator.synchronize(abs({}))",
    ]
STEPS = st.one_of(
    ANYWHERE,
    st.builds(str.format, st.sampled_from(AT_AN_ORDINAL), ORDINALS),
    st.builds("os.environ[MASK] = {!r}".format, MASKS),
)
MACHINES = st.fixed_dictionaries({
    "gpus": st.integers(0, 3),
    "faults": st.dictionaries(st.integers(0, 2), st.sampled_from(["exclusive", "out-of-memory"]), max_size=2),
    "nvml": st.sampled_from(["working", "working", "absent"]),
    "driver": st.sampled_from(["working", "working", "working", "too-old"]),
    "env": st.one_of(st.just({}), st.builds(lambda mask: {"CUDA_VISIBLE_DEVICES": mask}, MASKS)),
})  # fmt: skip

RUN = """
entered, outcomes = [], []
def enter(context):
    context.__enter__()
    entered.append(context)
def leave():
    return entered.pop().__exit__(None, None, None)
def in_thread(call):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(call()))
    thread.start()
    thread.join()
    return seen
def step(text):
    try:
        return eval(text, globals())
    except SyntaxError:
        return exec(text, globals())
for text in steps:
    outcomes.append(said(step, text))
outcomes
"""


@settings(
    max_examples=int(os.environ.get("SAFEDEV_PROGRAMS", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(machine=MACHINES, steps=st.lists(STEPS, min_size=1, max_size=12))
def test_the_fake_agrees_with_torch_on_any_program(rig: Rig, machine: dict[str, object], steps: list[str]) -> None:
    """
    Whatever is called in whatever order, on whatever machine: values and
    errors are those of torch over the pretend driver.
    """
    faults = {index: fault for index, fault in machine["faults"].items() if index < machine["gpus"]}
    names = ["A", "B", "C"][: machine["gpus"]]
    program = Behaviour(code=f"steps = {steps!r}\n{RUN}", outcome=None, names=names, **{**machine, "faults": faults})
    over_torch = over_the_pretend_driver(rig, program)

    assert without_places(over_torch) == without_places(on_the_fake(program))


def without_places(outcomes: list[object]) -> list[object]:
    """The outcomes without what an assertion of torch's own tells besides: a file and a line of the build."""
    return [re.sub(r"(INTERNAL ASSERT FAILED).*", r"\1", one) if isinstance(one, str) else one for one in outcomes]
