"""The pretend driver does what NVIDIA's is known to do: masks, order, MIG, the start, forks."""

from __future__ import annotations

import random

import pytest

from driver_facts import DRIVER, PRELUDE, Fact
from mask_facts import (
    ANY_MACHINE,
    FAILS,
    GPUS,
    MASKS,
    MIG_GPUS,
    MIG_MASKS,
    MIG_SETTING,
    RULES,
    AnyMachineRow,
    MigRow,
    Row,
    RuleRow,
    mig_uuid,
    uuid,
)
from rig import Rig

SEEN = PRELUDE + "start(); uuids()"
TORCH_COUNT = """
import torch
try:
    count = torch.cuda.device_count()
except Exception as error:
    count = type(error).__name__
count
"""
# The driver's count of each mask of a list, in a child of its own.
DRIVERS_COUNTS = """
def counts(masks):
    import ctypes, os
    library, found = ctypes.CDLL("libcuda.so.1"), []
    for text in masks:
        pid = os.fork()
        if pid == 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = text
            n = ctypes.c_int(0)
            library.cuInit(0)
            library.cuDeviceGetCount(ctypes.byref(n))
            os._exit(n.value)
        found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return found
"""
TORCHS_COUNTS = """
def counts(masks):
    import os, torch
    found = []
    for text in masks:
        os.environ["CUDA_VISIBLE_DEVICES"] = text
        try:
            found.append(torch.cuda.device_count())
        except ValueError:
            found.append(None)
    return found
"""


def masked(mask: str | None) -> dict[str, str]:
    return {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}


def uuids(*gpus: int) -> list[str]:
    return [uuid(gpu).removeprefix("GPU-") for gpu in gpus]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in MASKS])
def test_the_driver_reads_a_mask(rig: Rig, row: Row) -> None:
    """
    Of four GPUs a mask leaves those that the driver is known to leave, in that
    order.
    """
    found = rig.call(SEEN, torch=False, gpus=GPUS, env=masked(row.mask)).value

    assert uuids(*row.driver) == found


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in MASKS])
def test_torch_counts_what_a_mask_leaves(rig: Rig, row: Row) -> None:
    """
    torch's own parser, over the pretend NVML, counts as the table says: as the
    driver does, but for the rows where it fails or is known to differ.
    """
    expected = len(row.driver) if row.torch is None else row.torch
    found = rig.call(TORCH_COUNT, gpus=GPUS, env=masked(row.mask)).value

    assert expected == found


def test_the_table_has_rows_where_torch_fails() -> None:
    """
    The comparison with torch's parser is of some use: there are masks on which
    it raises, and masks on which it differs.
    """
    outcomes = {type(row.torch) for row in MASKS}

    assert {type(None), str, int} == outcomes
    assert any(row.torch == FAILS for row in MASKS)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.id) for row in MASKS if row.driver and len(row.mask or "") < 100]
)
def test_a_tensor_lands_where_the_mask_says(rig: Rig, row: Row) -> None:
    """
    Ordinal n is the n-th GPU of the mask, for torch as for the driver.
    """
    code = "import torch\nfor n in range(torch._C._cuda_getDeviceCount()): torch.zeros(1, device=f'cuda:{n}')"
    result = rig.call(code, gpus=GPUS, env=masked(row.mask))

    assert list(row.driver) == result.events("context")


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ANY_MACHINE])
@pytest.mark.parametrize("gpus", [1, 3])
def test_a_mask_leaves_none_one_or_all(rig: Rig, row: AnyMachineRow, gpus: int) -> None:
    """
    The table that is meant for real machines holds on the pretend ones.
    """
    mask = row.mask and row.mask.replace("{0}", uuid(0))
    found = rig.call(SEEN, torch=False, gpus=gpus, env=masked(mask)).value

    assert uuids(*{"none": [], "one": [0], "all": range(gpus)}[row.left]) == found


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.rule}-{n}") for n, row in enumerate(RULES)])
def test_a_rule_turns_an_unsettled_question_round(rig: Rig, row: RuleRow) -> None:
    """
    What no source settles can be had the other way, by name.
    """
    without = rig.call(SEEN, torch=False, gpus=GPUS, env=masked(row.mask)).value
    with_it = rig.call(
        SEEN, torch=False, gpus=GPUS, env=masked(row.mask), settings={"PRETEND_MASK_RULES": f"none,{row.rule}"}
    ).value

    assert uuids(*row.without) == without
    assert uuids(*row.with_it) == with_it


def test_the_driver_reads_masks_as_torch_does(rig: Rig) -> None:
    """
    Of 2,000 random masks of ASCII text, the driver and torch's parser agree on
    every one that torch's parser survives.
    """
    rng = random.Random(20)
    parts = [
        "0",
        "1",
        "2",
        "3",
        "4",
        "9",
        "01",
        "+",
        "-",
        "--1",
        "-1",
        " ",
        "\t",
        ",",
        ",",
        ",",
        ".",
        "x",
        "gpu",
        "GPU-",
        uuid(0),
        uuid(1),
        "GPU-03",
        "GPU-04040404",
        "MIG",
    ]
    masks = [
        m for m in ("".join(rng.choices(parts, k=rng.randint(1, 7))) for _ in range(2_000)) if not m.startswith("MIG-")
    ]
    drivers = rig.call(DRIVERS_COUNTS + f"counts({masks!r})", gpus=GPUS, torch=False).value
    torchs = rig.call(TORCHS_COUNTS + f"counts({masks!r})", gpus=GPUS).value
    wrong = [row for row in zip(masks, drivers, torchs, strict=True) if row[2] not in (None, row[1])]

    assert [] == wrong
    assert torchs.count(None) < len(masks) / 4


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in MIG_MASKS])
@pytest.mark.parametrize("release", ["535.261.03", "570.86.10"])
def test_the_driver_divides_gpus(rig: Rig, row: MigRow, release: str) -> None:
    """
    Drivers before R570 show one MIG device and no whole GPU beside it; later
    ones show one compute instance of each GPU instance, and whole GPUs.
    """
    settings = {"PRETEND_GPU_MIG": MIG_SETTING, "PRETEND_DRIVER_RELEASE": release}
    found = rig.call(SEEN, torch=False, gpus=MIG_GPUS, env=masked(row.mask), settings=settings).value
    named = []
    for name in row.before_570 if release < "570" else row.since_570:
        gpu, _, instance = name.partition(":")
        gi, _, ci = instance.partition("/")
        named.append(mig_uuid(int(gpu), int(gi), int(ci)) if instance else uuid(int(gpu)))

    assert [text[4:] for text in named] == found


def test_a_number_may_mean_an_instance(rig: Rig) -> None:
    """
    Whether a number counts GPUs or the devices an unmasked process sees is
    unsettled: by a rule it counts the latter.
    """
    settings = {"PRETEND_GPU_MIG": MIG_SETTING, "PRETEND_MASK_RULES": "mig-ordinals"}
    found = rig.call(SEEN, torch=False, gpus=MIG_GPUS, env=masked("1,4"), settings=settings).value

    assert [mig_uuid(0, 2, 0)[4:], uuid(2)[4:]] == found


def test_a_gpu_in_mig_mode_without_instances_is_not_there(rig: Rig) -> None:
    """
    A GPU in MIG mode that holds nothing is no device.
    """
    found = rig.call(SEEN, torch=False, gpus=2, settings={"PRETEND_GPU_MIG": "0:"}).value

    assert uuids(1) == found


def test_the_older_question_for_a_uuid_names_the_parent(rig: Rig) -> None:
    """
    cuDeviceGetUuid answers with the GPU of a MIG device, cuDeviceGetUuid_v2
    with the MIG device.
    """
    code = (
        PRELUDE + "start(); b = (ctypes.c_ubyte * 16)(); library().cuDeviceGetUuid(b, 0); (bytes(b).hex(), uuids()[0])"
    )
    found = rig.call(code, torch=False, gpus=1, settings={"PRETEND_GPU_MIG": "0:3/0"}).value

    assert [uuid(0)[4:].replace("-", ""), mig_uuid(0, 3, 0)[4:]] == found


@pytest.mark.parametrize(
    ("order", "mask", "gpus"),
    [
        pytest.param(None, None, (2, 0, 1, 3), id="fastest-first-by-default"),
        pytest.param("FASTEST_FIRST", None, (2, 0, 1, 3), id="fastest-first"),
        pytest.param("PCI_BUS_ID", None, (0, 1, 2, 3), id="by-bus"),
        pytest.param("pci_bus_id", None, (2, 0, 1, 3), id="unknown-value"),  # unsure
        pytest.param(None, "0,3", (2, 3), id="numbers-count-in-that-order"),
        pytest.param("PCI_BUS_ID", "0,3", (0, 3), id="numbers-count-by-bus"),
        pytest.param(None, f"{uuid(0)},{uuid(2)}", (0, 2), id="uuids-do-not-count"),
    ],
)
def test_numbers_count_in_the_order_chosen(
    rig: Rig, order: str | None, mask: str | None, gpus: tuple[int, ...]
) -> None:
    """
    An ordinal of the mask counts in the order of CUDA_DEVICE_ORDER, which is
    not NVML's unless it is PCI_BUS_ID.
    """
    env = masked(mask) | ({} if order is None else {"CUDA_DEVICE_ORDER": order})
    found = rig.call(SEEN, torch=False, gpus=GPUS, env=env, settings={"PRETEND_GPU_FASTEST": "2,0"}).value

    assert uuids(*gpus) == found


def test_the_order_is_read_with_the_mask(rig: Rig) -> None:
    """
    A change of the order after the start changes nothing.
    """
    code = PRELUDE + "start(); os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'; uuids()"
    found = rig.call(code, torch=False, gpus=2, settings={"PRETEND_GPU_FASTEST": "1,0"}).value

    assert uuids(1, 0) == found


@pytest.mark.parametrize("fact", [pytest.param(fact, id=fact.id) for fact in DRIVER])
def test_the_driver_starts_and_freezes(rig: Rig, fact: Fact) -> None:
    """
    What starts the driver, what it holds to and what a child finds is as it is
    documented, or was seen on NVIDIA's own library.
    """
    found = rig.call(PRELUDE + fact.code, gpus=1, torch=False).value

    assert fact.answer == found


def test_a_million_characters_are_a_mask(rig: Rig) -> None:
    """
    A mask of a million characters is read like any other: its repetitions void it.
    """
    found = rig.call(PRELUDE + "mask('0' + ',9' * 500_000); (start(), count())", gpus=2, torch=False).value

    assert [100, None] == found


def test_the_trace_names_what_happened(rig: Rig) -> None:
    """
    The trace has one line each for the start, a context, the choice of a
    device and an allocation, by physical index.
    """
    result = rig.call(
        "import torch; torch.cuda.set_device(1); torch.zeros(1, device='cuda')", gpus=GPUS, env=masked("0,3")
    )

    assert [2] == result.events("init")
    assert [3] == result.events("context")
    assert {3} == set(result.events("set"))
    assert [3] == result.events("malloc")
