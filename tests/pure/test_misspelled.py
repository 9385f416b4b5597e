"""Names that were meant to be the mask's, and names that were not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedev._misspelled import misspelled


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("CUDA_VISIBLE_DEVICE", id="a-letter-missing"),
        pytest.param("CUDA_VISIBLE_DEVICESS", id="a-letter-too-many"),
        pytest.param("CUDA_VISIBLE_DEVISES", id="a-letter-changed"),
        pytest.param("CUDA_VISBLE_DEVICE", id="two-letters-missing"),
        pytest.param("CUDA_VISIBEL_DEVICES", id="two-letters-swapped"),
        pytest.param("CUDA_VISIBLE_DEVICES__", id="two-letters-too-many"),
        pytest.param("CUDDA_VISSIBLE_DEVICES", id="two-letters-doubled"),
        pytest.param("XCUDA_VISIBLE_DEVICE", id="one-too-many-before-it-and-one-missing"),
        pytest.param("CUDA-VISIBLE-DEVICES", id="dashes"),
        pytest.param("CUDAVISIBLEDEVICES", id="no-underscores"),
        pytest.param("cuda_visible_devices", id="small-letters"),
        pytest.param("Cuda_Visible_Device", id="mixed-letters-one-missing"),
        pytest.param("SET CUDA_VISIBLE_DEVICES", id="a-shells-word-before-it"),
        pytest.param("export CUDA_VISIBLE_DEVICES", id="another-shells-word-before-it"),
        pytest.param(" CUDA_VISIBLE_DEVICES ", id="blanks-around-it"),
        pytest.param("MY_CUDA_VISIBLE_DEVICES_LIST", id="inside-another-name"),
        pytest.param("CUDA_VISIBLE_DEVICES\r", id="a-carriage-return"),
    ],
)
def test_a_slip_is_seen(name: str) -> None:
    """
    A name within two letters of the right one, in other letters, or around it, was meant to be it.
    """
    assert (name,) == misspelled(["PATH", name, "HOME"])


# Names that real programs read; see the documentation of each.
@pytest.mark.parametrize(
    "name",
    [
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES",
        "ASCEND_VISIBLE_DEVICES",
        "MUSA_VISIBLE_DEVICES",
        "MTHREADS_VISIBLE_DEVICES",
        "MLU_VISIBLE_DEVICES",
        "TPU_VISIBLE_DEVICES",
        "TPU_VISIBLE_CHIPS",
        "XPU_VISIBLE_DEVICES",
        "NPU_VISIBLE_DEVICES",
        "GPU_VISIBLE_DEVICES",
        "HABANA_VISIBLE_DEVICES",
        "NEURON_RT_VISIBLE_CORES",
        "AMD_VISIBLE_DEVICES",
        "JAX_CUDA_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
        "APPTAINERENV_CUDA_VISIBLE_DEVICES",
        "SINGULARITYENV_CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "CUDA_MODULE_LOADING",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_VISIBLE",
        "VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "PATH",
        "",
    ],
)
def test_a_name_that_exists_is_no_slip(name: str) -> None:
    """
    Names of variables that some program reads, and names that are far from the right one, raise no alarm.
    """
    assert () == misspelled([name])


LETTERS = st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0")


@given(edits=st.lists(st.tuples(st.sampled_from("idc"), st.integers(0, 19), LETTERS), min_size=1, max_size=2))
def test_two_slips_are_seen_wherever_they_are(edits: list[tuple[str, int, str]]) -> None:
    """
    Letters put in, left out or changed, at any two places.
    """
    letters = list("CUDA_VISIBLE_DEVICES")
    for kind, place, letter in edits:
        letters[place : place + (kind != "i")] = [] if kind == "d" else [letter]
    name = "".join(letters)

    assert (() if name == "CUDA_VISIBLE_DEVICES" else (name,)) == misspelled([name])


def test_three_letters_are_another_name() -> None:
    """
    Two letters are the limit.
    """
    assert () == misspelled(["CUDA_VISIBLE_DEVI", "CUBA_VISABLE_DEVISES", "XCUDA_VISBLE_DEVICE"])


def test_every_slip_is_named_in_the_order_of_the_environment() -> None:
    """
    Several slips are several names.
    """
    names = ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES_")

    assert names == misspelled(names)


@pytest.mark.parametrize("other", [3, None, b"CUDA_VISIBLE_DEVICE", ("CUDA_VISIBLE_DEVICE",)])
def test_a_name_that_is_no_text_is_passed_over(other: object) -> None:
    """
    `os.environ` may have been replaced by any mapping; what follows in it is looked at.
    """
    assert ("CUDA_VISIBLE_DEVICE",) == misspelled([other, "CUDA_VISIBLE_DEVICE"])


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["x" * 10**6], id="a-long-name"),
        pytest.param(["CUDA_VISIBLE_DEVICE" + "S" * 10**6], id="a-long-tail"),
        pytest.param([f"VARIABLE_NUMBER_{n:05}" for n in range(2_000)], id="many-names-as-long-as-the-right-one"),
        pytest.param(["\ud800" * 20, "\x00" * 20], id="no-text-at-all"),
    ],
)
def test_odd_environments_raise_no_alarm(names: list[str]) -> None:
    """
    Long names, many names and names that are no text are looked at in reasonable time.
    """
    assert [] == [name for name in misspelled(names) if "CUDA_VISIBLE_DEVICES" not in name]
