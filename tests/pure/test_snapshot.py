"""What was read, as data."""

from __future__ import annotations

import os
import pickle
from typing import Any, ClassVar

import pytest

from safedev._mask import parse_mask
from safedev._snapshot import PhysicalDevice, Snapshot, Variables, expected_devices, late, overtaken, visible_devices


class Counting(dict[str, str]):
    """An environment that notes which names it was asked for."""

    def __init__(self, **variables: str) -> None:
        super().__init__(**variables)
        self.asked: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.append(name)
        return super().get(name, default)

    def __iter__(self) -> Any:
        raise AssertionError("the whole environment is read")


def test_each_name_is_read_once() -> None:
    """
    What one call reads cannot change under it, and no other name is looked at.
    """
    source = Counting(A="1", B="2")
    variables = Variables(source)
    first = variables.get("A"), variables.get("C")
    source["A"] = source["C"] = "changed"

    assert first == (variables.get("A"), variables.get("C")) == ("1", None)
    assert ["A", "C"] == source.asked


def test_what_was_looked_at_and_is_set_is_remembered() -> None:
    """
    A name that is not set is not among what was read, and one that was not looked at neither.
    """
    variables = Variables(Counting(A="1", SECRET="x"))
    variables.get("A")
    variables.get("B")

    assert {"A": "1"} == variables.read() == dict(variables)
    assert 1 == len(variables)


def test_the_environment_of_the_process_is_read_as_it_reads_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What is set, what is set to nothing, what is unset since, and bytes that are no UTF-8.
    """
    monkeypatch.setenv("SAFEDEV_TEST_SET", "1")
    monkeypatch.setenv("SAFEDEV_TEST_EMPTY", "")
    monkeypatch.setenv("SAFEDEV_TEST_BYTES", "\udcff")
    monkeypatch.setenv("SAFEDEV_TEST_GONE", "1")
    monkeypatch.delenv("SAFEDEV_TEST_GONE")
    names = [f"SAFEDEV_TEST_{name}" for name in ("SET", "EMPTY", "BYTES", "GONE", "NEVER")]
    variables = Variables(os.environ)

    assert [os.environ.get(name) for name in names] == [variables.get(name) for name in names]


def test_a_name_that_is_not_set_raises_nothing_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    os.environ's own way raises and catches two exceptions for it, in each of the twenty names of launchers.
    """
    slow = type(os.environ).__getitem__

    def watched(self: Any, name: str) -> str:
        assert not name.startswith("SAFEDEV_TEST"), "it is read in the slow way"
        return slow(self, name)

    monkeypatch.setattr(type(os.environ), "__getitem__", watched)

    assert Variables(os.environ).get("SAFEDEV_TEST_NEVER") is None


def test_the_data_of_another_mapping_is_its_own_affair() -> None:
    """
    Only of os.environ itself is it known what stands behind it.
    """

    class Proxied(dict[str, str]):
        _data: ClassVar = {b"A": b"not this", "A": "nor this"}
        encodekey = decodevalue = staticmethod(str)

    assert "1" == Variables(Proxied(A="1")).get("A")


def test_variables_are_a_mapping() -> None:
    """
    A name can be asked for in every way that a mapping knows.
    """
    variables = Variables({"A": "1", "EMPTY": ""})

    assert ("1", "", "x") == (variables["A"], variables["EMPTY"], variables.get("B", "x"))
    assert [True, True, False] == ["A" in variables, "EMPTY" in variables, "B" in variables]


def test_a_name_that_is_not_set_is_a_key_error() -> None:
    """
    As of any mapping.
    """
    with pytest.raises(KeyError, match="B"):
        Variables({})["B"]


def seen(count: int, mask: str | None = None, **more: Any) -> Snapshot:
    return Snapshot(mask=parse_mask(mask), device_count=count, **more)


def machine(*models: str) -> tuple[PhysicalDevice, ...]:
    return tuple(PhysicalDevice(index=n, uuid=f"GPU-{n}abc", name=model) for n, model in enumerate(models))


TWINS = machine("T4", "T4", "T4")
MIXED = machine("T4", "H100")
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("snapshot", "indices"),
    [
        pytest.param(seen(2), None, id="machine-unknown"),
        pytest.param(seen(3, physical=TWINS), [0, 1, 2], id="no-mask"),
        pytest.param(seen(2, "2,0", physical=TWINS), [2, 0], id="numbers"),
        pytest.param(seen(1, "1,7,0", physical=TWINS), [1], id="a-number-that-is-not-here-ends-the-list"),
        pytest.param(seen(1, "1,3,0", physical=TWINS), [1], id="the-number-behind-the-last-ends-the-list"),
        pytest.param(seen(2, "GPU-2,GPU-0abc", physical=TWINS), [2, 0], id="uuids"),
        pytest.param(seen(1, "GPU-2,GPU-9,GPU-0", physical=TWINS), [2], id="a-uuid-that-is-not-here-ends-the-list"),
        pytest.param(seen(1, "GPU-2,GPU-", physical=TWINS), [2], id="an-ambiguous-uuid-ends-the-list"),
        pytest.param(seen(2, physical=TWINS), None, id="the-count-says-otherwise"),
        pytest.param(seen(0, "", physical=TWINS), [], id="all-hidden"),
        pytest.param(seen(2, physical=MIXED), None, id="different-devices-in-unknown-order"),
        pytest.param(seen(2, "1,0", physical=MIXED), None, id="numbers-in-unknown-order"),
        pytest.param(seen(2, "1,0", physical=MIXED, variables=PCI), [1, 0], id="numbers-in-bus-order"),
        pytest.param(
            seen(2, "1,0", physical=MIXED, variables={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}), None, id="fastest-first"
        ),
        pytest.param(seen(2, "GPU-1,GPU-0", physical=MIXED), [1, 0], id="uuids-need-no-order"),
        pytest.param(seen(1, "MIG-a", physical=TWINS), None, id="an-instance"),
        pytest.param(
            seen(2, "1,0", physical=(PhysicalDevice(index=0), PhysicalDevice(index=1))), [1, 0], id="no-uuid-is-told"
        ),
        pytest.param(
            seen(1, "0", physical=(TWINS[0], PhysicalDevice(index=1))), None, id="numbers-beside-a-lost-device"
        ),
        pytest.param(
            seen(1, "GPU-0", physical=(TWINS[0], PhysicalDevice(index=1))), [0], id="a-uuid-beside-a-lost-one"
        ),
        pytest.param(seen(1, physical=TWINS, driver_count=1), None, id="the-driver-may-have-read-another-mask"),
        pytest.param(
            seen(2, physical=MIXED, driver_count=2, uuids=("GPU-1abc", "GPU-0abc")),
            [1, 0],
            id="the-driver-told-the-uuids",
        ),
        pytest.param(
            seen(1, physical=MIXED, driver_count=1, uuids=("GPU-9",)), None, id="the-driver-told-an-unknown-uuid"
        ),
    ],
)
def test_which_device_each_ordinal_is(snapshot: Snapshot, indices: list[int] | None) -> None:
    """
    By the UUIDs, or by the numbers where their order is known; else it is unknown, and not guessed.
    """
    devices = visible_devices(snapshot)

    assert indices == (None if devices is None else [device.index for device in devices])


def test_a_device_of_an_unknown_order_is_unknown_alone() -> None:
    """
    How many devices a mask would show is known, even where it is not known which.
    """
    assert [None, None] == expected_devices(seen(2, "1,0,5", physical=MIXED))


def test_without_an_inventory_no_device_is_expected() -> None:
    """
    Nothing is known of a machine that nobody listed.
    """
    assert [] == expected_devices(seen(2, "1,0"))


LOST = (PhysicalDevice(index=0, uuid="GPU-0abc", name="T4"), PhysicalDevice(index=1))
DIVIDED = (PhysicalDevice(index=0, uuid="GPU-0abc", name="A100", mig=True),)


def held(count: int, mask: str | None = None, **more: Any) -> Snapshot:
    """A process in which the driver has started, and shows *count* devices."""
    if "physical" in more:
        more["physical_count"] = len(more["physical"])
    return seen(count, mask, driver_count=count, **more)


@pytest.mark.parametrize(
    ("snapshot", "told"),
    [
        pytest.param(seen(2, "0", physical_count=2), False, id="the-driver-sleeps"),
        pytest.param(held(2, "0"), False, id="machine-unknown"),
        pytest.param(held(2, "0", physical_count=2), True, id="fewer-numbers-than-devices"),
        pytest.param(held(1, "0,1", physical_count=2), True, id="more-numbers-than-devices"),
        pytest.param(held(2, "1,0", physical_count=2), False, id="as-many-numbers"),
        pytest.param(held(1, "0,7,1", physical_count=2), False, id="up-to-a-number-that-is-not-here"),
        pytest.param(held(1, "0,2,1", physical_count=2), False, id="up-to-the-number-behind-the-last"),
        pytest.param(held(0, "0", physical_count=0), False, id="a-machine-without-devices"),
        pytest.param(held(2, "", physical_count=2), True, id="hidden-since"),
        pytest.param(held(0, "", physical_count=2), False, id="hidden-before"),
        pytest.param(held(2, "GPU-0", physical_count=2), False, id="uuids-of-an-unlisted-machine"),
        pytest.param(held(2, physical_count=2), False, id="unset-and-all-are-shown"),
        pytest.param(held(1, physical_count=2), False, id="unset-and-one-may-be-lost"),
        pytest.param(held(2, physical_count=1), False, id="unset-and-parts-may-be-shown"),
        pytest.param(held(3, physical=TWINS), False, id="listed-and-all-are-shown"),
        pytest.param(held(2, physical=TWINS), True, id="listed-and-one-is-missing"),
        pytest.param(held(1, physical=LOST), False, id="a-lost-device-is-not-shown"),
        pytest.param(held(1, "0,1", physical=LOST), False, id="a-lost-device-of-the-mask-is-not-shown"),
        pytest.param(held(1, "0", physical=LOST), False, id="the-mask-leaves-the-lost-device-out"),
        pytest.param(held(0, physical=LOST), True, id="beside-a-lost-device-another-is-missing"),
        pytest.param(held(1, "0,1", physical=(*MIXED, LOST[1])), False, id="which-one-is-lost-cannot-be-told"),
        pytest.param(held(1, physical=(PhysicalDevice(index=0),) * 2), False, id="nothing-is-told-of-any"),
        pytest.param(held(2, physical=(*MIXED, PhysicalDevice(index=2))), False, id="lost-in-an-unknown-order"),
        pytest.param(held(2, "2,0", physical=(TWINS[0], LOST[1], TWINS[2])), False, id="numbers-beside-a-lost-device"),
        pytest.param(
            held(1, "2", physical=(TWINS[0], LOST[1], TWINS[2]), uuids=("GPU-0abc",)),
            False,
            id="a-lost-one-may-move-numbers",
        ),
        pytest.param(held(1, "1,0", physical=MIXED), True, id="fewer-than-numbers-of-an-unknown-order"),
        pytest.param(held(2, physical=DIVIDED), False, id="instances-are-more-than-devices"),
        pytest.param(held(0, physical=DIVIDED), False, id="divided-and-without-instances"),
        pytest.param(held(1, "MIG-a,MIG-b", physical=TWINS), False, id="a-mask-of-instances"),
        pytest.param(held(2, "MIG-a", physical=TWINS), True, id="fewer-instances-than-devices"),
        pytest.param(held(1, "MIG-a", physical=DIVIDED, uuids=("GPU-A1",)), False, id="the-same-instance"),
        pytest.param(held(1, "MIG-a", physical=DIVIDED, uuids=("GPU-b1",)), True, id="another-instance"),
        pytest.param(held(1, "MIG-GPU-0abc/1/0", physical=DIVIDED, uuids=("GPU-b1",)), False, id="by-its-older-name"),
        pytest.param(held(1, "MIG-a", physical=DIVIDED, uuids=("GPU-0abc",)), False, id="told-by-its-device"),
        pytest.param(held(1, "MIG-a", physical=TWINS, uuids=("GPU-0abc",)), True, id="an-instance-and-a-whole-device"),
        pytest.param(held(0, "MIG-a", physical=DIVIDED, uuids=()), False, id="no-instance-is-shown"),
        pytest.param(held(1, "MIG-a", physical=(*DIVIDED, LOST[1])), False, id="no-uuid-and-a-lost-device"),
        pytest.param(held(1, "2", physical=TWINS, uuids=("GPU-2abc",)), False, id="the-same-device"),
        pytest.param(held(1, "2", physical=TWINS, uuids=("GPU-0abc",)), True, id="another-device"),
        pytest.param(held(2, "2,0", physical=TWINS, uuids=("GPU-0abc", "GPU-2abc")), True, id="another-order"),
        pytest.param(held(1, "1", physical=MIXED, uuids=("GPU-0abc",)), False, id="numbers-of-an-unknown-order"),
        pytest.param(held(1, "GPU-1", physical=MIXED, uuids=("GPU-0abc",)), True, id="another-uuid"),
        pytest.param(held(1, "2", physical=TWINS, uuids=("GPU-9",)), False, id="a-uuid-that-nobody-lists"),
        pytest.param(held(2, "0", physical_count=2, inherited=True), False, id="this-process-was-started-with-it"),
        pytest.param(held(2, "gpu-0abc", physical=TWINS), False, id="a-defect-that-is-nearly-a-device"),
        pytest.param(held(2, "all", physical=TWINS), True, id="a-defect-that-is-no-device"),
        pytest.param(held(2, "0,0", physical=TWINS), True, id="a-repetition"),
        pytest.param(held(3, physical=TWINS, uuids=("GPU-0abc",)), False, id="not-all-uuids-were-told"),
    ],
)
def test_whether_the_mask_was_changed_after_the_start(snapshot: Snapshot, told: bool) -> None:
    """
    By the number of devices, and by their UUIDs where those are told. A lost device, which no driver shows, and a
    divided one are no sign.
    """
    assert told is overtaken(snapshot)


@pytest.mark.parametrize(
    ("snapshot", "either"),
    [
        pytest.param(held(1, "2", physical=TWINS, uuids=("GPU-0abc",)), False, id="no-order"),
        pytest.param(held(1, "2", physical=TWINS, uuids=("GPU-0abc",), variables=PCI), True, id="another-device"),
        pytest.param(held(1, "2,0", physical=TWINS, variables=PCI), False, id="another-number-of-devices"),
        pytest.param(held(2, "", physical=TWINS, variables=PCI), False, id="hidden-since"),
        pytest.param(held(1, "0,1", physical_count=2, variables=PCI), False, id="an-unlisted-machine"),
    ],
)
def test_the_order_is_blamed_only_where_it_may_be_the_cause(snapshot: Snapshot, either: bool) -> None:
    """
    A change of the order moves devices, and drops none.
    """
    mask, which = f"CUDA_VISIBLE_DEVICES is {snapshot.mask.raw!r} now", "it, or CUDA_DEVICE_ORDER," if either else "it"

    assert overtaken(snapshot)
    assert late(snapshot).startswith(
        f"{mask}, and CUDA had started before {which} was changed: it holds to {snapshot.driver_count} device"
    )


def test_a_snapshot_survives_pickling() -> None:
    """
    It is data, whatever it holds.
    """
    snapshot = seen(2, "1,x", physical=MIXED, variables=PCI, found=(1,), uuids=("GPU-1abc",))

    assert snapshot == pickle.loads(pickle.dumps(snapshot))
