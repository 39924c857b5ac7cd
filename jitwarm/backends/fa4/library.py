"""The installed library, told which device it compiles for.

On a GPU the library finds that out itself. On the stub device it is told, the number of SMs of the
GPU that is stood in for included, because some kernels have it built in.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

from jitwarm import device
from jitwarm.backends import imports, sinks
from jitwarm.errors import MissingExtraError

INTERFACE = "flash_attn.cute.interface"

# SMs of the GPU that the stub device stands for: H100 and H200; B200, B300; RTX 5090, DGX Spark.
_NUM_SMS = {"sm90": 132, "sm100": 148, "sm103": 148, "sm120": 170, "sm121": 48}


def imported() -> Any:
    """The library's interface module if this process has imported it to its end, else None."""
    return imports.complete(INTERFACE)


def interface(who: str = "this kernel") -> Any:
    """The library's interface module, imported for the current device.

    Raises `MissingExtraError`, which names `who` needs it, where the library is not installed, and
    `DeviceError` without a device.
    """
    found = _opened(device.current())
    if found is None:
        raise MissingExtraError(who, "flash-attn-4", "fa4")
    return found


def num_sms() -> int:
    """SMs of the GPU that binaries are for."""
    return _num_sms(device.current())


@functools.cache
def _num_sms(_current: device.Device) -> int:
    module = interface()
    return int(module.get_num_sms_for_selection(index(), module._get_device_arch()))


def target() -> str:
    """The compile target, as in `sm_90a`."""
    return f"sm_{device.current().arch.removeprefix('sm')}a"


@functools.cache
def _opened(current: device.Device) -> Any:
    """The interface module for a device; None where it is not installed."""
    try:
        module = importlib.import_module(INTERFACE)
    except ImportError as error:
        if (error.name or "").partition(".")[0] in {"flash_attn", "cutlass", "quack", "tvm_ffi"}:
            return None
        raise
    if current.kind == "stub":
        _retarget(module, current.arch)
    _spend_warning()
    sinks.refresh()  # whoever watches is to see this library's launches from now on
    return module


def _retarget(module: Any, arch: str) -> None:
    """Have the library and its compiler work for `arch`, and stand in for the driver.

    Not by the variables that the library documents for this: child processes would inherit them,
    and have devices of their own.
    """
    from cutlass.cutlass_dsl import CuTeDSL

    number = arch.removeprefix("sm")
    CuTeDSL._get_dsl().envar.arch = f"sm_{number}a"
    asked = module.get_num_sms_for_selection

    def count_sms(device_index: int, arch: int) -> int:
        """As the library, which looks at the user's FLASH_ATTENTION_NUM_SMS and for such a GPU."""
        try:
            return int(asked(device_index, arch))
        except RuntimeError:
            return _NUM_SMS.get(f"sm{arch}", 132)

    module._get_device_arch = functools.cache(lambda: int(number))
    module.get_num_sms_for_selection = count_sms
    module.maybe_contiguous = _copying(module.maybe_contiguous)
    stand_in_for_driver()


def stand_in_for_driver() -> None:
    """Have kernels that ask the driver while they are traced ask us: where there is no driver, and
    in a forked child, where it cannot be used.
    """
    for name in ("cutlass.utils", "flash_attn.cute.tile_scheduler"):
        vars(importlib.import_module(name))["HardwareInfo"] = HardwareStandIn


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop what the compiler warns of in the library's own code: nobody here can change that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", message="Argument aux_data .*cannot be converted")
        yield


def _copying(maybe_contiguous: Any) -> Any:
    """As the library's function, for fake tensors of a torch without CUDA: such a torch makes a
    contiguous copy of them by `clone` only.
    """

    @functools.wraps(maybe_contiguous)
    def copied(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return maybe_contiguous(tensor, *args, **kwargs)
        except RuntimeError:
            import torch

            return tensor.clone(memory_format=torch.contiguous_format)

    return copied


def _spend_warning() -> None:
    """Have torch give its only warning about addresses of fake tensors here, unheard: the compiler
    asks for one in each compile, at a place where the warning could only go to stderr.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    fake = FakeTensor(FakeTensorMode(), torch.empty(1, device="meta"), torch.device("cuda", 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fake.data_ptr()


class HardwareStandIn:
    """What kernels ask the driver for while they are traced, where there is no driver."""

    # How often the number of SMs was asked for: such a kernel is good for that number only.
    asked = 0

    def __init__(self, device_id: int = 0) -> None:
        """Any device: a process stands for one."""

    def get_device_multiprocessor_count(self) -> int:
        """As told to the library."""
        type(self).asked += 1
        return num_sms()

    def get_max_active_clusters(self, cluster_size: int, **_: Any) -> int:
        """As many as there is room for."""
        return num_sms() // cluster_size


def index() -> int:
    """Index of the GPU that binaries are for."""
    if device.current().kind == "stub":
        return 0
    import torch

    return int(torch.cuda.current_device())
