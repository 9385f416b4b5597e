"""Who the contract is tried on: the fake, torch over a pretend driver, torch over a real one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from behaviours import PRELUDE, Behaviour

from safedev.testing import fake_cuda

if TYPE_CHECKING:
    from rig import Rig


def on_the_fake(behaviour: Behaviour) -> Any:
    """The outcome under ``fake_cuda``, in this very process."""
    parts = ast.parse(PRELUDE + behaviour.code)
    last = parts.body.pop()
    assert isinstance(last, ast.Expr)
    scope: dict[str, Any] = {}
    with fake_cuda(
        behaviour.gpus,
        names=behaviour.names,
        memory=behaviour.memory,
        environ=behaviour.env,
        faults=behaviour.faults,
        driver=behaviour.driver,
        nvml=behaviour.nvml,
    ):
        exec(compile(parts, "<behaviour>", "exec"), scope)
        return as_json(eval(compile(ast.Expression(last.value), "<behaviour>", "eval"), scope))


def over_the_pretend_driver(rig: Rig, behaviour: Behaviour) -> Any:
    """The outcome of torch itself, in a process that was forked for it."""
    settings: dict[str, object] = {}
    if behaviour.names:
        settings["PRETEND_GPU_MODELS"] = ",".join(behaviour.names)
    if behaviour.memory:
        settings["PRETEND_GPU_TOTAL_MIB"] = ",".join([str(behaviour.memory >> 20)] * behaviour.gpus)
    settings["PRETEND_GPU_BUSY"] = ",".join(str(n) for n, fault in behaviour.faults.items() if fault == "exclusive")
    full = [f"{n}:2" for n, fault in behaviour.faults.items() if fault == "out-of-memory"]
    settings["PRETEND_GPU_CONTEXT_ERROR"] = ",".join(full)
    if behaviour.driver == "too-old":
        settings["PRETEND_CUDA_VERSION"] = "10020"
    machine = "no-nvml" if behaviour.nvml == "absent" else "full"
    return rig.call(
        PRELUDE + behaviour.code, gpus=behaviour.gpus, env=behaviour.env, settings=settings, machine=machine
    ).value


def on_real_devices(behaviour: Behaviour) -> Any:
    """The outcome of torch itself, in a process of its own that sees as many real devices as the row says."""
    seen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(behaviour.gpus))) or "-1"}
    *before, last = ast.parse(PRELUDE + behaviour.code).body
    assert isinstance(last, ast.Expr)
    code = "\n".join([*map(ast.unparse, before), f"import json\nprint(json.dumps({ast.unparse(last)}))"])
    if not behaviour.env and "os.environ[MASK]" not in behaviour.code:
        environ = {**os.environ, **seen}
    else:
        environ = {**os.environ, **behaviour.env}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=100, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def as_json(value: Any) -> Any:
    """What is left of a value that crosses from one process to another."""
    return json.loads(json.dumps(value, default=repr))
