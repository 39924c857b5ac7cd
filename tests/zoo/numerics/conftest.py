"""Numerics of the zoo's kernels: real launches, compared with plain numpy.

The same tests run in one of two ways, each in a process of its own:

* in Triton's interpreter on CPU tensors: `TRITON_INTERPRET=1 pytest tests/zoo/numerics`
  (read when a kernel is decorated, so it has to be in the environment from the start);
* on a GPU: `pytest tests/zoo/numerics` where torch sees one and TRITON_INTERPRET is not set.

Anywhere else nothing can run a kernel and the run is refused: a skipped test looks like a passed
one. Tests marked `gpu` use what the interpreter gets wrong (bfloat16, 8-bit floats); only they are
skipped there.

Fixtures: `device`, `to_device`, `poison`, `untouched`, `at_offset`, `rng`.
References stand beside the tests (`references_<kernel>.py`) and are imported by that name.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton

HERE = Path(__file__).parent
POISON = 0xA5  # each byte of an output before a launch
GUARD = 16  # elements around a tensor of `at_offset`, at least

if str(HERE) not in sys.path:  # so that references import under any of pytest's import modes
    sys.path.insert(0, str(HERE))

INTERPRETED = bool(triton.knobs.runtime.interpret)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: cannot run in Triton's interpreter; needs a real GPU")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    if not ours:
        return
    if not INTERPRETED and not torch.cuda.is_available():
        raise pytest.UsageError(
            f"{len(ours)} tests of tests/zoo/numerics launch kernels, and this process can launch "
            "none: no GPU is visible and Triton's interpreter is off. Run them apart: "
            "TRITON_INTERPRET=1 python -m pytest tests/zoo/numerics; "
            "leave them out of another run with --ignore=tests/zoo/numerics"
        )
    if INTERPRETED:
        for item in ours:
            if item.get_closest_marker("gpu"):
                item.add_marker(
                    pytest.mark.skip(reason="the interpreter gets this dtype wrong: run on a GPU")
                )


@pytest.fixture(scope="session")
def device() -> str:
    """`"cpu"` in the interpreter, else `"cuda"`."""
    return "cpu" if INTERPRETED else "cuda"


@pytest.fixture(scope="session")
def to_device(device: str) -> Callable[..., torch.Tensor]:
    """`to_device(values, dtype=None)`: a fresh contiguous tensor of an array, list or tensor."""

    def move(values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        tensor = values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))
        return tensor.to(dtype=dtype or tensor.dtype, device=device, copy=True).contiguous()

    return move


@pytest.fixture(scope="session")
def poison() -> Callable[[torch.Tensor], torch.Tensor]:
    """`poison(tensor)`: fills it with a byte pattern, whatever its strides, and returns it."""
    return _poison


@pytest.fixture(scope="session")
def untouched() -> Callable[[torch.Tensor], np.ndarray]:
    """`untouched(tensor)`: a boolean array of its shape, true where the poison is still there."""

    def mask(tensor: torch.Tensor) -> np.ndarray:
        raw = tensor.detach().to("cpu", copy=True).contiguous().view(-1).view(torch.uint8).numpy()
        same: np.ndarray = (raw.reshape(*tensor.shape, tensor.dtype.itemsize) == POISON).all(
            axis=-1
        )
        return same

    return mask


@pytest.fixture
def at_offset(
    to_device: Callable[..., torch.Tensor], untouched: Callable[[torch.Tensor], np.ndarray]
) -> Iterator[Any]:
    """`at_offset(values, offset, dtype=None)`: a contiguous view into a larger poisoned buffer.

    An odd `offset` (in elements) gives a pointer that is not divisible by 16 bytes, as
    `seq_lens[num_decodes:]` does in an engine. When the test ends, the poison around each view
    must be intact: nothing was written before or after it.
    """
    guards: list[torch.Tensor] = []

    def place(values: Any, offset: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        tensor = to_device(values, dtype)
        before = GUARD + offset  # 16 elements keep the offset's own residue for every item size
        buffer = _poison(
            torch.empty(before + tensor.numel() + GUARD, dtype=tensor.dtype, device=tensor.device)
        )
        view = buffer[before : before + tensor.numel()].view(tensor.shape)
        view.copy_(tensor)
        guards.extend((buffer[:before], buffer[before + tensor.numel() :]))
        return view

    yield place
    for guard in guards:
        assert untouched(guard).all(), "a kernel wrote outside its output"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator whose seed depends on the test's name only."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


def _poison(tensor: torch.Tensor) -> torch.Tensor:
    pattern = torch.full((tensor.dtype.itemsize,), POISON, dtype=torch.uint8).view(tensor.dtype)
    return tensor.copy_(pattern.to(tensor.device).expand(tensor.shape))
