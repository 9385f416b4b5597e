"""On a machine that has devices, the fake hides them, leaves them alone, and gives them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rig import Rig


def test_the_devices_of_the_machine_are_hidden(rig: Rig) -> None:
    """
    Inside the fake torch sees the pretended machine, although there is a driver.
    """

    def inside() -> list[object]:
        import torch

        from safedev.testing import fake_cuda

        with fake_cuda(5, names=list("ABCDE")):
            torch.cuda.set_device(4)
            return [torch.cuda.device_count(), torch.cuda.get_device_name()]

    assert [5, "E"] == rig.call(inside, gpus=2).value


def test_no_driver_is_started(rig: Rig) -> None:
    """
    Whatever is called inside the fake, the driver of the machine sleeps on.
    """

    def inside() -> None:
        import torch

        import safedev
        from safedev.testing import FakeCudaError, fake_cuda

        with fake_cuda(3):
            torch.cuda.is_available()
            safedev.set_device(2)
            torch.cuda.mem_get_info()
            torch.cuda.synchronize()
            for make in (lambda: torch.zeros(1, device="cuda"), torch.cuda.Stream, torch.cuda.Event):
                try:
                    make()
                except FakeCudaError:
                    continue
                raise AssertionError(make)

    result = rig.call(inside, gpus=2)

    assert result.error is None
    assert not result.awake


def test_a_process_that_has_used_a_device_has_it_again_afterwards(rig: Rig) -> None:
    """
    What torch knew of the real devices is as it was, and tensors can be made.
    """

    def around() -> list[object]:
        import torch

        from safedev.testing import fake_cuda

        torch.cuda.set_device(1)
        torch.cuda.manual_seed_all(5)
        before = torch.zeros(3, device="cuda")
        with fake_cuda(4):
            inside = [torch.cuda.is_initialized(), torch.cuda.device_count(), torch.cuda.current_device()]
        after = torch.zeros(3, device="cuda")
        stream = torch.cuda.current_stream().device.index
        return [
            inside,
            str(before.device),
            str(after.device),
            stream,
            torch.cuda.device_count(),
            torch.cuda.current_device(),
            torch.cuda.initial_seed(),
        ]

    assert [[False, 4, 0], "cuda:1", "cuda:1", 1, 2, 1, 5] == rig.call(around, gpus=2).value


@pytest.mark.parametrize(
    "making",
    [
        pytest.param("torch.zeros(1, device='cuda:0')", id="factory"),
        pytest.param("torch.zeros(1).to('cuda')", id="to"),
        pytest.param("torch.zeros(1).to(1)", id="to-an-ordinal"),
        pytest.param("torch.zeros(1).cuda()", id="cuda"),
        pytest.param("torch.nn.Linear(1, 1).to(torch.device('cuda', 1))", id="module"),
        pytest.param("torch.zeros(1).pin_memory()", id="pinned"),
    ],
)
def test_tensors_are_refused_although_a_device_was_used_before(rig: Rig, making: str) -> None:
    """
    Torch's C++ no longer asks whether CUDA has started, and the fake still refuses.
    """
    code = f"""
    import torch
    from safedev.testing import FakeCudaError, fake_cuda
    torch.zeros(1, device="cuda")
    with fake_cuda(2):
        try:
            made = {making}
        except FakeCudaError:
            made = "refused"
    made
    """

    assert "refused" == rig.call(code, gpus=2).value
