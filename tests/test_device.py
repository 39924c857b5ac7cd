"""One device a process: what opens it, and what is refused."""

from __future__ import annotations

import pytest
import torch
from triton.runtime import driver

from jitwarm import device
from jitwarm.backends.triton.stub import ARCHES
from jitwarm.errors import DeviceError, InterpretedError


@pytest.fixture
def no_device(monkeypatch):
    """A process without a device yet; the one that other tests use comes back afterwards."""
    monkeypatch.setattr(device, "_active", None)
    monkeypatch.setattr(driver, "_active", None)


@pytest.fixture
def gpu(monkeypatch):
    """What the driver's tool says: set `answers[field]`; without any there is no GPU."""
    answers = {}
    monkeypatch.setattr(device, "_nvidia_smi", answers.get)
    return answers


@pytest.mark.parametrize("arch", ARCHES)
def test_the_stub_is_triton_s_driver_for_its_architecture(no_device, arch):
    opened = device.activate("stub", arch)
    assert opened == device.Device("stub", arch, "stub device (no GPU)", "none")
    target = driver.active.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", int(arch[2:]), 32)
    assert driver.active.utils.get_device_properties(0)["max_shared_mem"] > 48 * 1024
    assert device.torch_device() == torch.device("cpu")
    opened.synchronize()


def test_the_same_device_may_be_asked_for_again(no_device):
    opened = device.activate("stub", "sm90")
    assert device.activate("stub", "sm90") is opened
    assert device.activate("stub") is opened
    assert device.current() is opened


@pytest.mark.parametrize("second", [("stub", "sm100"), ("cuda", None), ("cuda", "sm90")])
def test_a_second_device_is_an_error(no_device, second):
    device.activate("stub", "sm90")
    with pytest.raises(DeviceError) as error:
        device.activate(*second)
    asked = f"{second[0]} {second[1] or ''}".strip()
    assert str(error.value) == (
        f"this process already has the device stub sm90, {asked} was asked for: "
        "a process has one device, start another process"
    )
    assert device.current().arch == "sm90"


def test_without_a_device(no_device):
    with pytest.raises(DeviceError, match="no device is active in this process: call jitwarm"):
        device.current()
    assert device.torch_device() == torch.device("cpu")


@pytest.mark.parametrize("arch", ["sm70", "90", "", None])
def test_an_unknown_architecture_is_an_error(no_device, arch):
    for ask in (device.activate, device.check_request):
        with pytest.raises(DeviceError) as error:
            ask("stub", arch)
        assert str(error.value) == (
            f"unknown arch {arch!r}: the stub device compiles for "
            "sm80, sm90, sm100, sm103, sm120, sm121"
        )


def test_an_unknown_kind_is_an_error(no_device, gpu):
    for ask in (device.activate, device.check_request):
        with pytest.raises(DeviceError, match="unknown device 'tpu': use cuda or stub"):
            ask("tpu", "sm90")


def test_a_missing_gpu_is_an_error(no_device, gpu):
    for ask in (device.activate, device.check_request):
        with pytest.raises(DeviceError, match="this machine has no usable NVIDIA GPU"):
            ask("cuda", None)
    assert device.gpu_arch() is None
    with pytest.raises(DeviceError):
        device.current()


def test_another_gpu_than_asked_for_is_an_error(no_device, gpu):
    gpu["compute_cap"] = "12.0"
    assert device.gpu_arch() == "sm120"
    with pytest.raises(
        DeviceError, match="the GPU here is sm120, sm90 was asked for: .*arch=sm120"
    ):
        device.activate("cuda", "sm90")
    device.check_request("cuda", "sm120")
    device.check_request("cuda", None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this torch can use a GPU")
def test_a_torch_that_cannot_use_the_gpu_is_an_error(no_device, gpu):
    gpu["compute_cap"] = "9.0"
    with pytest.raises(
        DeviceError, match="this machine has a GPU, but this torch .* cannot use it"
    ):
        device.activate("cuda")


@pytest.mark.gpu
def test_the_gpu_of_this_machine(no_device):
    opened = device.activate("cuda")
    assert opened.kind == "cuda"
    assert opened.arch == device.gpu_arch()
    assert device.torch_device().type == "cuda"


@pytest.mark.parametrize("kind", ["stub", "cuda"])
def test_with_the_interpreter_there_is_no_device(no_device, gpu, monkeypatch, kind):
    gpu["compute_cap"] = "9.0"
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for ask in (device.check_request, device.activate):
        with pytest.raises(InterpretedError, match="TRITON_INTERPRET is set, .*: unset it"):
            ask(kind, "sm90")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    device.check_request(kind, "sm90")
