"""A Triton driver without a GPU: Triton's binder, compiler and cache are real, only the launcher
does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

# Facts of the part that each architecture stands for: shared memory a block can opt in to (bytes),
# multiprocessors.
_PROPERTIES = {
    80: (166_912, 108),
    90: (232_448, 132),
    100: (232_448, 148),
    103: (232_448, 148),
    120: (101_376, 188),
    121: (101_376, 48),
}
ARCHES = tuple(f"sm{arch}" for arch in _PROPERTIES)


class StubLauncher:
    """Takes the place of the C launcher: it calls the launch hooks, as the C launcher does, and
    returns.
    """

    def __init__(self, src: Any, metadata: Any) -> None:
        """Same arguments as Triton's launcher; neither is needed to launch nothing."""

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,
        function: Any,
        packed_metadata: Any,
        launch_metadata: Any,
        enter_hook: Any,
        exit_hook: Any,
        *args: Any,
    ) -> None:
        """One launch. The argument list is Triton's."""
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if exit_hook is not None:
            exit_hook(launch_metadata)


class StubUtils:
    """The part of the driver that would touch the GPU when a module is loaded."""

    def __init__(self, arch: int) -> None:
        """`arch` chooses the limits that Triton checks a kernel against."""
        self._shared, self._multiprocessors = _PROPERTIES[arch]

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spills and the most threads a block may have."""
        return (1, 2, 0, 0, 1024)

    def unload_module(self, module: int) -> None:
        """Called by Triton 3.8 and later when a compiled kernel is collected."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """The limits that loading checks."""
        return {
            "max_shared_mem": self._shared,
            "multiprocessor_count": self._multiprocessors,
            "warpSize": 32,
        }


class StubDriver:
    """Everything that Triton 3.6 to 3.9 asks of a driver for warm-up and launches."""

    launcher_cls = StubLauncher

    def __init__(self, arch: int) -> None:
        """`arch` as in 90 for sm90."""
        from triton.backends.compiler import GPUTarget

        self.utils = StubUtils(arch)
        self._target = GPUTarget("cuda", arch, 32)

    def get_current_target(self) -> Any:
        """The target that kernels are compiled for."""
        return self._target

    def get_current_device(self) -> int:
        """There is one device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one device."""

    def get_current_stream(self, device: int) -> int:
        """There is one stream."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Where this driver's tensors live."""
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., Any]:
        """What an autotuner times its configurations with."""
        return _benchmark


def _benchmark(
    kernel_call: Callable[[], Any], *, quantiles: Sequence[float] | None = None, **_options: Any
) -> list[float] | float:
    """Takes the place of Triton's `do_bench`: one call, and the same time whatever was called, so
    that an autotuner takes its first configuration.
    """
    kernel_call()
    return 1.0 if quantiles is None else [1.0] * len(quantiles)


class NullKernel:
    """Stands in Triton's kernel cache where a key replay wants to know which keys are asked for,
    and nothing else.
    """

    function = None
    packed_metadata = None

    def launch_metadata(self, grid: Any, stream: int, *args: Any) -> None:
        """Triton builds this for each launch; there is none."""

    def run(self, *args: Any) -> None:
        """The launch."""

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """The launch of a kernel that is kept at hand, as `kernel.warmup` returns it."""
        return self._launch

    def _launch(self, *args: Any, **kwargs: Any) -> None:
        pass

    def _init_handles(self) -> None:
        """The load, where somebody asks for it."""
