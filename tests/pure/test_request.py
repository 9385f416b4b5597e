"""What `preferred` asks for."""

from __future__ import annotations

import contextlib
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedev._request import ACCELERATORS, Request, request_for
from safedev._text import quoted_number
from safedev.errors import DeviceSpecError


class Indexed:
    """What numpy's integers are to us: something with `__index__`."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class device:  # noqa: N801 - it is told by this name
    """What a `torch.device` is to us."""

    def __init__(self, type: Any, index: Any = None) -> None:  # noqa: A002 - torch's own name for it
        self.type = type
        self.index = index


class Truths(Indexed):
    """What a tensor or an array of one truth value is to us: it has an index, and is no number."""

    def __init__(self, dtype: object) -> None:
        super().__init__(1)
        self.dtype = dtype


@pytest.mark.parametrize(
    ("preferred", "request_"),
    [
        pytest.param(None, Request(kind="auto", spec="auto", type=""), id="nothing"),
        pytest.param("auto", Request(kind="auto", spec="auto", type=""), id="auto"),
        pytest.param("cuda", Request(kind="cuda", spec="cuda"), id="cuda"),
        pytest.param(device("cuda"), Request(kind="cuda", spec="cuda"), id="cuda-device"),
        pytest.param(3, Request(kind="ordinal", spec="cuda:3", ordinal=3), id="int"),
        pytest.param(0, Request(kind="ordinal", spec="cuda:0", ordinal=0), id="zero"),
        pytest.param(-1, Request(kind="ordinal", spec="cuda:-1", ordinal=-1), id="negative"),
        pytest.param("3", Request(kind="ordinal", spec="cuda:3", ordinal=3), id="digits"),
        pytest.param("cuda:3", Request(kind="ordinal", spec="cuda:3", ordinal=3), id="cuda-with-ordinal"),
        pytest.param("cuda:256", Request(kind="ordinal", spec="cuda:256", ordinal=256), id="beyond-torchs-range"),
        pytest.param(device("cuda", 3), Request(kind="ordinal", spec="cuda:3", ordinal=3), id="device-with-ordinal"),
        pytest.param(Indexed(3), Request(kind="ordinal", spec="cuda:3", ordinal=3), id="index"),
        pytest.param("cpu", Request(kind="cpu", spec="cpu", type="cpu"), id="cpu"),
        pytest.param("cpu:0", Request(kind="cpu", spec="cpu", type="cpu"), id="cpu-with-number"),
        pytest.param(device("cpu"), Request(kind="cpu", spec="cpu", type="cpu"), id="cpu-device"),
        pytest.param("mps", Request(kind="accelerator", spec="mps", type="mps"), id="mps"),
        pytest.param("xpu:1", Request(kind="accelerator", spec="xpu:1", type="xpu", ordinal=1), id="xpu"),
        pytest.param(
            device("npu", 0), Request(kind="accelerator", spec="npu:0", type="npu", ordinal=0), id="accelerator-device"
        ),
        pytest.param("GPU-1c55", Request(kind="uuid", spec="GPU-1c55", uuid="GPU-1c55"), id="uuid"),
        pytest.param("MIG-1c55", Request(kind="uuid", spec="MIG-1c55", uuid="MIG-1c55"), id="instance"),
        pytest.param(
            "MIG-GPU-1c55/1/0",
            Request(kind="uuid", spec="MIG-GPU-1c55/1/0", uuid="MIG-GPU-1c55/1/0"),
            id="old-instance",
        ),
    ],
)
def test_a_form_is_understood(preferred: object, request_: Request) -> None:
    """
    Each form of the documentation asks for what it says.
    """
    assert request_ == request_for(preferred)


@pytest.mark.parametrize("kind", sorted(ACCELERATORS))
def test_every_kind_of_accelerator_is_known(kind: str) -> None:
    """
    The kinds that torch has a name for are requests; whether one is there is decided later.
    """
    assert "accelerator" == request_for(kind).kind


@pytest.mark.parametrize(
    ("preferred", "spec"),
    [
        pytest.param(device("meta"), "meta", id="meta"),
        pytest.param(device("meta", 0), "meta:0", id="meta-with-number"),
        pytest.param(device("vulkan"), "vulkan", id="vulkan"),
    ],
)
def test_a_device_that_is_no_accelerator_is_refused_as_its_text_is(preferred: object, spec: str) -> None:
    """
    With the same error, and the same words.
    """
    with pytest.raises(DeviceSpecError) as by_text:
        request_for(spec)
    with pytest.raises(DeviceSpecError) as by_device:
        request_for(preferred)

    assert spec == by_device.value.spec
    assert str(by_text.value) == str(by_device.value)


def test_a_device_of_a_kind_that_a_package_has_named_is_a_request() -> None:
    """
    A backend out of torch's tree may have any name, by `torch.utils.rename_privateuse1_backend`.
    """
    assert Request(kind="accelerator", spec="my_npu:1", type="my_npu", ordinal=1) == request_for(device("my_npu", 1))


@pytest.mark.parametrize(
    "preferred",
    [
        pytest.param(True, id="true"),
        pytest.param(False, id="false"),
        pytest.param(1.0, id="float"),
        pytest.param(float("nan"), id="nan"),
        pytest.param(b"cuda", id="bytes"),
        pytest.param([0], id="list"),
        pytest.param((0,), id="tuple"),
        pytest.param({}, id="dict"),
        pytest.param(object(), id="object"),
        pytest.param(int, id="class"),
        pytest.param(device(7), id="type-is-no-text"),
        pytest.param(device("cuda", "0"), id="index-is-no-number"),
        pytest.param(SimpleNamespace(type="cuda", index=0), id="what-only-looks-like-a-device"),
        pytest.param(Truths("torch.bool"), id="tensor-of-a-truth-value"),
        pytest.param(Truths("bool"), id="array-of-a-truth-value"),
    ],
)
def test_what_is_no_device_is_a_type_error(preferred: object) -> None:
    """
    The error names the forms that are taken, in one line.
    """
    with pytest.raises(TypeError, match=r"^[ -~]+ is no device: give an ordinal [ -~]+$"):
        request_for(preferred)


@pytest.mark.parametrize(
    ("preferred", "shown"),
    [
        pytest.param(True, "True", id="true"),
        pytest.param(1.5, "1.5", id="float"),
        pytest.param([0], "a value of type list", id="list"),
    ],
)
def test_what_is_no_device_is_shown(preferred: object, shown: str) -> None:
    """
    A number or a truth value as it is; of anything else the type, since it may be large or secret.
    """
    with pytest.raises(TypeError, match=rf"^{shown} is no device: "):
        request_for(preferred)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(" ", id="blank"),
        pytest.param("cuda:x", id="word-for-ordinal"),
        pytest.param("cuda:", id="no-ordinal"),
        pytest.param("cuda:-1", id="negative"),
        pytest.param("-1", id="negative-digits"),
        pytest.param("cuda:+1", id="sign"),
        pytest.param("cuda:01", id="leading-zero"),
        pytest.param("00", id="zeros"),
        pytest.param("cuda :0", id="blank-inside"),
        pytest.param(" cuda", id="blank-before"),
        pytest.param("cuda\n", id="line-break"),
        pytest.param("3\n", id="line-break-behind-digits"),
        pytest.param("cuda:0,1", id="list"),
        pytest.param("0,1", id="list-of-digits"),
        pytest.param("CUDA:0", id="capitals"),
        pytest.param("gpu0", id="gpu"),
        pytest.param("gpu:0", id="gpu-with-ordinal"),
        pytest.param("1.0", id="fraction"),
        pytest.param("\uff13", id="digit-of-another-script"),
        pytest.param("\u00b2", id="superscript"),
        pytest.param("cpu:x", id="cpu-with-word"),
        pytest.param("tpu", id="unknown-kind"),
        pytest.param("meta", id="no-real-device"),
        pytest.param("vulkan", id="kind-that-torch-counts-no-devices-of"),
        pytest.param("GPU-", id="uuid-without-digits"),
        pytest.param("gpu-1c55", id="uuid-in-small-letters"),
        pytest.param("GPU-1c55 ", id="uuid-with-blank"),
        pytest.param("GPU-1c55,GPU-2", id="several-uuids"),
        pytest.param("GPU-" + "a" * 121, id="uuid-too-long"),
        pytest.param("1" * 5000, id="too-many-digits"),
        pytest.param("cuda:" + "9" * 10**6, id="a-million-digits"),
        pytest.param("x" * 10**6, id="a-million-letters"),
        pytest.param("cuda" + " " * 100_000 + "x", id="a-hundred-thousand-blanks"),
        pytest.param("gpu" + " " * 10**6, id="a-million-blanks-at-the-end"),
        pytest.param("\x00\x1b[31m\ud800", id="control-characters"),
    ],
)
def test_text_that_names_no_device_is_refused(text: str) -> None:
    """
    The error keeps the text, names the forms that are taken, and is one line of printable ASCII.
    """
    with pytest.raises(DeviceSpecError, match="is no device") as caught:
        request_for(text)

    assert text == caught.value.spec
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert 600 > len(str(caught.value))
    assert "'cuda:3'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        pytest.param("gpu0", "'cuda:0'", id="gpu"),
        pytest.param("gpu:12", "'cuda:12'", id="gpu-with-colon"),
        pytest.param("CUDA:1", "'cuda:1'", id="capitals"),
        pytest.param("cuda 1", "'cuda:1'", id="blank-for-colon"),
        pytest.param("cuda1", "'cuda:1'", id="no-colon"),
        pytest.param("cuda:007", "'cuda:7'", id="leading-zeros"),
        pytest.param("cuda:00", "'cuda:0'", id="zeros"),
        pytest.param("gpu", "'cuda'", id="gpu-alone"),
        pytest.param("gpu:", "'cuda'", id="gpu-alone-with-a-colon"),
        pytest.param(" cuda ", "'cuda'", id="blanks-around"),
        pytest.param("cuda:", "'cuda'", id="colon-alone"),
        pytest.param("-1", "a negative one is not counted", id="minus-one"),
        pytest.param("cuda:-2", "a negative one is not counted", id="negative-ordinal"),
        pytest.param("-1", "give 'cpu' if no GPU was meant", id="minus-one-for-no-gpu"),
        pytest.param("0,1", "names several", id="list"),
        pytest.param("cuda:0,1", "names several", id="cuda-list"),
    ],
)
def test_what_was_meant_is_named(text: str, hint: str) -> None:
    """
    Where it is plain what was meant, the error says it.
    """
    with pytest.raises(DeviceSpecError) as caught:
        request_for(text)

    assert hint in str(caught.value).partition(": give")[0]


def test_what_was_meant_is_not_guessed() -> None:
    """
    A word that is like nothing gets no advice.
    """
    with pytest.raises(DeviceSpecError, match=r"^'warp drive' is no device: give"):
        request_for("warp drive")


@given(text=st.text(max_size=12))
def test_any_text_is_a_request_or_a_spec_error(text: str) -> None:
    """
    No text leads to another error.
    """
    with contextlib.suppress(DeviceSpecError):
        assert request_for(text).spec.isprintable()


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TypeError("only size-1 arrays can be converted"), id="type-error"),
        pytest.param(ValueError("not now"), id="value-error"),
        pytest.param(RuntimeError("Boolean value of Tensor is ambiguous"), id="runtime-error"),
        pytest.param(ZeroDivisionError(), id="arithmetic"),
    ],
)
def test_an_index_that_fails_is_a_type_error(error: Exception) -> None:
    """
    Whatever an object's own `__index__` raises: it is no ordinal, and the error is the one that lists the forms.
    """

    class Broken:
        def __index__(self) -> int:
            raise error

    with pytest.raises(TypeError, match=r"^a value of type Broken is no device: give an ordinal"):
        request_for(Broken())


@pytest.mark.parametrize(
    "number", [7, -7, 2**127, 10**5000], ids=["small", "negative", "long", "longer-than-python-prints"]
)
def test_an_ordinal_of_any_size_is_a_request(number: int) -> None:
    """
    Whether it can be had is decided later; it is shown in few characters.
    """
    request = request_for(number)

    assert number == request.ordinal
    assert f"cuda:{quoted_number(number)}" == request.spec


def test_a_request_survives_pickling() -> None:
    """
    It is data.
    """
    request = request_for("xpu:1")

    assert request == pickle.loads(pickle.dumps(request))
