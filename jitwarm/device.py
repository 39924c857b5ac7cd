"""The one device of a process: a GPU, or a stub that compiles for real and launches nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from jitwarm import env
from jitwarm.errors import DeviceError, InterpretedError


@dataclass(frozen=True, slots=True)
class Device:
    """The device that this process plans, compiles and launches for.

    `kind` is `cuda` or `stub`; `arch` as in `sm90`; `name` and `driver` say what hardware it is.
    """

    kind: str
    arch: str
    name: str
    driver: str

    @property
    def torch_device(self) -> str:
        """Where this device's tensors are made: CUDA memory, or host memory under the stub."""
        return "cuda" if self.kind == "cuda" else "cpu"

    def synchronize(self) -> None:
        """Wait until everything that was launched has run; nothing to wait for on a stub."""
        if self.kind == "cuda":
            import torch

            torch.cuda.synchronize()


_lock = threading.Lock()
_active: Device | None = None


def activate(kind: str, arch: str | None = None) -> Device:
    """Make `kind` the device of this process and return it.

    `arch` is required for `stub`; on `cuda` it is checked against the GPU. Asking again for the
    same device returns it; asking for another raises `DeviceError`, because a kernel stubbed once
    would silently launch nothing on a GPU later. Raises `DeviceError` for an unknown architecture
    and for a GPU that is not there, `InterpretedError` where Triton compiles nothing.
    """
    global _active
    with _lock:
        if _active is not None:
            if (_active.kind, _active.arch) != (kind, arch or _active.arch):
                asked = f"{kind} {arch}" if arch else kind
                raise DeviceError(
                    f"this process already has the device {_active.kind} {_active.arch}, "
                    f"{asked} was asked for: a process has one device, start another process"
                )
            return _active
        check_request(kind, arch)
        _active = _open_cuda() if kind == "cuda" else _open_stub(str(arch))
        return _active


def current() -> Device:
    """The device of this process. Raises `DeviceError` before `activate`."""
    if _active is None:
        raise DeviceError(
            "no device is active in this process: call jitwarm.device.activate('cuda') or "
            "('stub', 'sm90') first"
        )
    return _active


def torch_device() -> Any:
    """The torch device of this process's tensors; `cpu` as long as no device was activated."""
    import torch

    return torch.device(_active.torch_device if _active is not None else "cpu")


def check_request(kind: str, arch: str | None) -> None:
    """Raise `DeviceError` if `activate` would refuse this request for lack of hardware or of a
    known architecture, `InterpretedError` where Triton compiles nothing.

    Starts no CUDA context, so a parent process can ask before it starts its workers.
    """
    check_compiles()
    if kind == "stub":
        _check_arch(arch)
        return
    if kind != "cuda":
        raise DeviceError(f"unknown device {kind!r}: use cuda or stub")
    found = gpu_arch()
    if found is None:
        raise DeviceError(
            "--device cuda: this machine has no usable NVIDIA GPU; use --device stub, or run on a "
            "GPU machine"
        )
    if arch is not None and arch != found:
        raise DeviceError(
            f"the GPU here is {found}, {arch} was asked for: select cases with --case arch={found}"
        )


def check_compiles() -> None:
    """Raise `InterpretedError` where Triton interprets kernels: no launch has a key then."""
    if env.triton_interprets():
        raise InterpretedError


def gpu_arch() -> str | None:
    """The architecture of the first GPU as in `sm90`, or None without one.

    Asks the driver's management tool rather than CUDA: a context in a parent process would cost
    memory for nothing.
    """
    answer = _nvidia_smi("compute_cap")
    return None if answer is None else "sm" + answer.replace(".", "")


def _check_arch(arch: str | None) -> None:
    from jitwarm.backends.triton.stub import ARCHES

    if arch not in ARCHES:
        raise DeviceError(
            f"unknown arch {arch!r}: the stub device compiles for {', '.join(ARCHES)}"
        )


def _open_stub(arch: str) -> Device:
    from triton.runtime import driver

    from jitwarm.backends.triton.stub import StubDriver

    driver.set_active(StubDriver(int(arch.removeprefix("sm"))))
    return Device("stub", arch, "stub device (no GPU)", "none")


def _open_cuda() -> Device:
    import torch

    if not torch.cuda.is_available():
        raise DeviceError(
            f"this machine has a GPU, but this torch ({torch.__version__}) cannot use it: "
            "install a torch built for CUDA, or use --device stub"
        )
    index = torch.cuda.current_device()
    major, minor = torch.cuda.get_device_capability(index)
    return Device("cuda", f"sm{major}{minor}", torch.cuda.get_device_name(index), _driver_version())


def _driver_version() -> str:
    return _nvidia_smi("driver_version") or "unknown"


def _nvidia_smi(field: str) -> str | None:
    import subprocess

    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.split()
    return lines[0] if lines else None
