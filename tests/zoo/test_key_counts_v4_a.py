"""The declared keys of the compressed slot mapping and of the two window kernels of DeepSeek-V4:
how many, that each reproduces, what calls have.

Keys come from `get_warmup_keys`, Triton's classes from its own binder, and calls are caught where
they would launch; the last test compiles and launches on the stub device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton

from jitwarm.backends.triton.binder import bind, bind_recipe
from jitwarm.backends.triton.stub import StubDriver
from jitwarm.config import (
    CacheConfig,
    EngineConfig,
    HFConfig,
    ModelConfig,
    ParallelConfig,
)
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError
from jitwarm.registry import JitWarmupRegistry
from jitwarm.zoo.kernels.compressed_slot_mapping import compressed_slot_mapping
from jitwarm.zoo.kernels.compute_dspark_noncausal_swa_indices import (
    compute_dspark_noncausal_swa_indices,
)
from jitwarm.zoo.kernels.compute_swa_indices_and_lens import compute_swa_indices_and_lens

KERNELS: list[Any] = [
    compressed_slot_mapping,
    compute_swa_indices_and_lens,
    compute_dspark_noncausal_swa_indices,
]
DEVICE_INDEX = 98  # no other test binds kernels there, whatever architecture it uses
FLASH = (0, 0, *(4, 128) * 20, 4, 0)  # ratios of 43 layers and the drafting head
TEXT = {"window_size": 128, "block_size": 64}
VISION = TEXT | {"max_image_tokens": 1024}
DSPARK = TEXT | {"num_speculative_tokens": 3}


def engine(dcp: int = 1, interleave: int = 1, *, block: int = 256, **model: Any) -> EngineConfig:
    """DeepSeek-V4-Flash on 8 GPUs."""
    numbers = {"compress_ratios": FLASH} | model
    return EngineConfig(
        ModelConfig(max_model_len=1_048_576, hf_config=HFConfig(num_hidden_layers=43, **numbers)),
        ParallelConfig(8, dcp, 1, interleave),
        CacheConfig(block_size=block),
    )


CompressedKey = compressed_slot_mapping.CompileKey
SWAKey = compute_swa_indices_and_lens.CompileKey
DSparkKey = compute_dspark_noncausal_swa_indices.CompileKey


# Counts.


@pytest.mark.parametrize("ratios", [FLASH, (128, *(128, 4) * 30, 0), (1, 4, 128)])
def test_compressed_has_a_key_for_each_ratio(ratios: tuple[int, ...]) -> None:
    """4 tokens a state: 64 states in a block; 128: 2 states."""
    keys = compressed_slot_mapping.get_warmup_keys(engine(compress_ratios=ratios))
    first = next(ratio for ratio in ratios if ratio > 1)
    assert set(keys) == {CompressedKey(4, 1024, 16, 1, 1), CompressedKey(128, 1024, 2, 1, 1)}
    assert keys[0].compress_ratio == first and len(keys) == 2


@pytest.mark.parametrize(
    ("ratios", "pool", "expected"),
    [
        ((), 32, [(32, 2)]),
        ((0, 4, 128), 32, [(4, 16), (128, 2), (32, 2)]),
        ((4, 32), 32, [(4, 16), (32, 2)]),
        ((256, 16), 1, [(256, 1), (16, 16)]),
    ],
)
def test_compressed_keys_of_a_pooled_indexer_come_last(
    ratios: tuple[int, ...], pool: int, expected: list[tuple[int, int]]
) -> None:
    config = engine(compress_ratios=ratios, index_kpool=pool)
    keys = compressed_slot_mapping.get_warmup_keys(config)
    assert [(key.compress_ratio, key.block_size) for key in keys] == expected


@pytest.mark.parametrize(
    ("dcp", "interleave", "classes"),
    [(1, 1, (1, 1)), (1, 12, (1, 2)), (2, 128, (2, 16)), (8, 256, (2, 16)), (16, 128, (16, 16))],
)
def test_compressed_keys_have_the_classes_of_the_group(
    dcp: int, interleave: int, classes: tuple[int, int]
) -> None:
    keys = compressed_slot_mapping.get_warmup_keys(engine(dcp, interleave))
    assert {(key.dcp_world_size, key.cp_interleave) for key in keys} == {classes}
    assert len(keys) == 2


def test_compressed_keys_of_a_short_interleave() -> None:
    keys = compressed_slot_mapping.get_warmup_keys(engine(2, 12, compress_ratios=(0, 4)))
    assert keys == [CompressedKey(4, 1024, 16, 2, 2)]


@pytest.mark.parametrize("ratios", [(), (0, 0), (0, 1)])
def test_compressed_says_why_it_has_no_key(ratios: tuple[int, ...]) -> None:
    given = compressed_slot_mapping.get_warmup_keys(engine(compress_ratios=ratios))
    assert isinstance(given, NoKeys) and given.reason.startswith("no compressed layer: ")


def test_compressed_refuses_what_cannot_run() -> None:
    with pytest.raises(BindingError, match="64 tokens tear states of 128 tokens apart"):
        compressed_slot_mapping.get_warmup_keys(engine(2, 64))
    with pytest.raises(BindingError, match="a cache block must hold at least one state"):
        compressed_slot_mapping.get_warmup_keys(engine(block=64))


def test_swa_has_one_key_of_text_and_three_of_vision() -> None:
    assert compute_swa_indices_and_lens.get_warmup_keys(**TEXT) == [
        SWAKey(128, 128, False, 64, 1024)
    ]
    assert compute_swa_indices_and_lens.get_warmup_keys(**VISION) == [
        SWAKey(128, 128, False, 64, 1024),
        SWAKey(128, 1152, False, 64, 1024),
        SWAKey(128, 1152, True, 64, 1024),
    ]


@pytest.mark.parametrize(
    ("window", "spec", "width"),
    [(128, 1, 192), (128, 3, 192), (128, 64, 192), (128, 65, 256), (100, 0, 128), (128, 0, 128)],
)
def test_dspark_has_one_key(window: int, spec: int, width: int) -> None:
    keys = compute_dspark_noncausal_swa_indices.get_warmup_keys(
        window_size=window, num_speculative_tokens=spec, block_size=64
    )
    assert keys == [DSparkKey(window, width, 64, 1024)]


def test_names_and_fields() -> None:
    assert [kernel.kernel_name for kernel in KERNELS] == [
        "CompressedSlotMapping",
        "ComputeSWAIndicesAndLens",
        "ComputeDSparkNoncausalSWAIndices",
    ]
    assert [tuple(kernel.CompileKey.__dataclass_fields__) for kernel in KERNELS] == [
        ("compress_ratio", "tile", "block_size", "dcp_world_size", "cp_interleave"),
        ("window_size", "index_width", "has_image", "block_size", "tile"),
        ("window_size", "index_width", "block_size", "tile"),
    ]


def test_the_layers_of_a_model_register_once_each() -> None:
    registry = JitWarmupRegistry(engine())
    with registry.activate():
        for ratio in FLASH[:43]:
            compute_swa_indices_and_lens.register_warmup(**TEXT)
            compute_dspark_noncausal_swa_indices.register_warmup(**DSPARK)
            if ratio > 1:
                compressed_slot_mapping.register_warmup()
    assert len(registry) == 3


# Keys and Triton's classes.

SPACES: dict[str, tuple[Any, list[Any]]] = {
    "flash": (compressed_slot_mapping, compressed_slot_mapping.get_warmup_keys(engine())),
    "pooled": (
        compressed_slot_mapping,
        compressed_slot_mapping.get_warmup_keys(engine(4, 128, index_kpool=32)),
    ),
    "short-turns": (
        compressed_slot_mapping,
        compressed_slot_mapping.get_warmup_keys(engine(16, 36, block=36, compress_ratios=(4, 36))),
    ),
    "text": (compute_swa_indices_and_lens, compute_swa_indices_and_lens.get_warmup_keys(**TEXT)),
    "vision": (
        compute_swa_indices_and_lens,
        compute_swa_indices_and_lens.get_warmup_keys(**VISION),
    ),
    "odd-window": (
        compute_swa_indices_and_lens,
        compute_swa_indices_and_lens.get_warmup_keys(
            window_size=100, block_size=32, max_image_tokens=28
        ),
    ),
    "dspark": (
        compute_dspark_noncausal_swa_indices,
        compute_dspark_noncausal_swa_indices.get_warmup_keys(**DSPARK),
    ),
    "dspark-odd-window": (
        compute_dspark_noncausal_swa_indices,
        compute_dspark_noncausal_swa_indices.get_warmup_keys(
            window_size=100, num_speculative_tokens=1, block_size=1
        ),
    ),
}
each_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


@each_space
def test_warmup_inputs_give_the_key_back(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, keys = space
    seen: list[Any] = []
    dispatch = kernel.dispatch

    def spy(**inputs: Any) -> Any:
        seen.append(dispatch(**inputs))
        return seen[-1]

    monkeypatch.setattr(kernel, "dispatch", spy)
    for key in keys:
        kernel.bound_launch(key)
        assert seen.pop() == key and not seen


@pytest.fixture
def binder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton's binder without a device of the process."""
    if triton.knobs.runtime.interpret:
        pytest.skip("the interpreter has no binder")

    class Driver(StubDriver):
        def get_current_device(self) -> int:
            return DEVICE_INDEX

    monkeypatch.setattr(triton.runtime.driver, "_active", Driver(90))
    yield
    for kernel in KERNELS:
        kernel.kernel.device_caches.pop(DEVICE_INDEX, None)


def binaries(kernel: Any, keys: list[Any]) -> set[str]:
    return {bind_recipe(kernel.kernel, kernel.recipe(key)).text for key in keys}


@each_space
def test_keys_and_binaries(space: Any, binder: None) -> None:
    """One each, but windows of the same classes share a binary: the image flag tells two apart."""
    kernel, keys = space
    shared = (
        kernel is compute_swa_indices_and_lens and len(keys) == 3 and keys[0].window_size == 128
    )
    assert len(binaries(kernel, keys)) == (2 if shared else len(keys))


@pytest.mark.triton
def test_every_width_of_dspark_is_one_binary(binder: None) -> None:
    keys = [
        key
        for spec in (1, 64, 65, 300)
        for key in compute_dspark_noncausal_swa_indices.get_warmup_keys(
            window_size=128, num_speculative_tokens=spec, block_size=64
        )
    ]
    assert len(set(keys)) == 3
    assert len(binaries(compute_dspark_noncausal_swa_indices, keys)) == 1


@pytest.fixture
def catch(binder: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[str]]:
    """`catch(kernel)`: the list that gets the key of each call from now on; nothing is launched."""

    def start(kernel: Any) -> list[str]:
        texts: list[str] = []

        def launch(spec: Any, inputs: dict[str, Any]) -> Any:
            if spec[0] is not None:
                call: Any = type(kernel).__call__
                bound = call.launcher.binding.bind(kernel, spec, tuple(inputs.values()))
                texts.append(bind(kernel.kernel, (), bound.arguments | bound.options).text)
            return spec[2]

        monkeypatch.setattr(kernel, "launch", launch, raising=False)
        return texts

    return start


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def longs(entries: int) -> torch.Tensor:
    return torch.zeros(entries, dtype=torch.int64)


@pytest.mark.triton
@pytest.mark.parametrize(("dcp", "interleave"), [(1, 1), (2, 128), (8, 256)])
def test_compressed_calls_are_declared(dcp: int, interleave: int, catch: Any) -> None:
    seen = catch(compressed_slot_mapping)
    slots, out, starts, lens = longs(8192), longs(8192), ints(257), ints(256)
    for ratio in (4, 128):
        given = {
            "block_size": 256 // ratio,
            "compress_ratio": ratio,
            "dcp_world_size": dcp,
            "cp_interleave": interleave,
        }
        for rows, tokens in ((1, 1), (3, 17), (15, 513), (16, 16), (256, 8192)):
            for columns in (1, 16, 4097):
                table = ints(256, columns)
                batch = slots[:tokens], starts[: rows + 1], lens[:rows], table[:rows]
                assert compressed_slot_mapping(*batch, **given, out=out).shape == (tokens,)
                compressed_slot_mapping(*batch, **given, out=out[:tokens])
                assert compressed_slot_mapping(*batch, **given).shape == (tokens,)
    keys = compressed_slot_mapping.get_warmup_keys(engine(dcp, interleave))
    assert set(seen) == binaries(compressed_slot_mapping, keys)


def window_calls(kernel: Any, offsets: Any = (0, 1, 16, 4000), **given: Any) -> None:
    """Calls as the metadata builder makes them: whole buffers, a part of the tokens."""
    replay = (ints(256),) if kernel is compute_swa_indices_and_lens else ()
    batch = ints(8192), torch.zeros(8192, dtype=torch.bool), ints(257), ints(256)
    for columns in (4096, 4097, 1):
        for offset in offsets:
            for tokens in (1, 2, 16, 4000):
                indices, lens = kernel(
                    *batch, ints(256, columns), *replay,
                    num_tokens=tokens, token_offset=offset, **given,
                )  # fmt: skip
                assert indices.shape[:2] == (tokens, 1) and lens.shape == (tokens,)


@pytest.mark.triton
def test_swa_calls_are_declared(catch: Any) -> None:
    seen = catch(compute_swa_indices_and_lens)
    window_calls(compute_swa_indices_and_lens, **TEXT)
    gaps = ints(8192, 1, 129)[:, :, :128]
    window_calls(compute_swa_indices_and_lens, **TEXT, offsets=(0,), indices=gaps)
    keys = compute_swa_indices_and_lens.get_warmup_keys(**TEXT)
    assert set(seen) == binaries(compute_swa_indices_and_lens, keys)


@pytest.mark.triton
def test_swa_calls_with_images_are_declared(catch: Any) -> None:
    seen = catch(compute_swa_indices_and_lens)
    image = {"left_visible": ints(8192), "right_visible": ints(8192)}
    wide = TEXT | {"index_width": 1152}
    window_calls(compute_swa_indices_and_lens, **TEXT, offsets=(0,))
    window_calls(compute_swa_indices_and_lens, **wide)
    assert len(set(seen)) == 1  # the width is divisible by 16 both times
    buffers = {"indices": ints(8192, 1, 1152), "lens": ints(8192)}
    window_calls(compute_swa_indices_and_lens, **wide, **image, **buffers)
    keys = compute_swa_indices_and_lens.get_warmup_keys(**VISION)
    assert set(seen) == binaries(compute_swa_indices_and_lens, keys)


@pytest.mark.triton
def test_dspark_calls_are_declared(catch: Any) -> None:
    seen = catch(compute_dspark_noncausal_swa_indices)
    window_calls(compute_dspark_noncausal_swa_indices, **DSPARK)
    buffers = {"indices": ints(8192, 1, 192), "lens": ints(8192)}
    window_calls(compute_dspark_noncausal_swa_indices, **DSPARK, **buffers)
    buffers["indices"] = ints(8192, 1, 193)[:, :, :192]
    window_calls(compute_dspark_noncausal_swa_indices, **DSPARK, **buffers, offsets=(0,))
    keys = compute_dspark_noncausal_swa_indices.get_warmup_keys(**DSPARK)
    assert set(seen) == binaries(compute_dspark_noncausal_swa_indices, keys)


@pytest.mark.triton
@pytest.mark.parametrize("offset", range(1, 9))
def test_compressed_slices_at_odd_offsets_are_not_declared(offset: int, catch: Any) -> None:
    """16 bytes are 2 slots and 4 of the int32 entries."""
    seen = catch(compressed_slot_mapping)
    planned = binaries(compressed_slot_mapping, compressed_slot_mapping.get_warmup_keys(engine()))
    whole = [longs(64), ints(17), ints(16), ints(16, 40), longs(64)]
    for index, step in enumerate((2, 4, 4, None, 2)):
        if step is None:
            continue
        tensors = [*whole]
        buffer = torch.cat([whole[index], whole[index]])
        tensors[index] = buffer[offset : offset + len(whole[index])]
        *batch, out = tensors
        compressed_slot_mapping(*batch, block_size=64, compress_ratio=4, out=out)
        assert (seen.pop() in planned) == (offset % step == 0)


@pytest.mark.triton
@pytest.mark.parametrize("offset", range(1, 9))
@pytest.mark.parametrize("kernel", KERNELS[1:], ids=lambda kernel: kernel.kernel_name)
def test_window_outputs_at_odd_offsets(kernel: Any, offset: int, catch: Any) -> None:
    """Prefill rows behind decode rows in one buffer: rows are aligned, lens every fourth time."""
    seen = catch(kernel)
    given = DSPARK if kernel is compute_dspark_noncausal_swa_indices else TEXT
    planned = binaries(kernel, kernel.get_warmup_keys(**given))
    width = kernel.get_warmup_keys(**given)[0].index_width
    indices, lens = ints(40, 1, width), ints(40)
    batch = [ints(40), torch.zeros(40, dtype=torch.bool), ints(17), ints(16), ints(16, 40)]
    batch += [ints(16)] if kernel is compute_swa_indices_and_lens else []
    rows = {"num_tokens": 20, "token_offset": offset, **given}
    kernel(*batch, **rows, indices=indices[offset:])
    assert seen.pop() in planned
    kernel(*batch, **rows, indices=indices[offset:], lens=lens[offset:])
    assert (seen.pop() in planned) == (offset % 4 == 0)


STUB = """
import torch
from jitwarm import device
from jitwarm.config import CacheConfig, EngineConfig, HFConfig, ModelConfig

device.activate("stub", "{arch}")
from jitwarm.zoo.kernels.compressed_slot_mapping import compressed_slot_mapping as states
from jitwarm.zoo.kernels.compute_dspark_noncausal_swa_indices import (
    compute_dspark_noncausal_swa_indices as drafts,
)
from jitwarm.zoo.kernels.compute_swa_indices_and_lens import compute_swa_indices_and_lens as windows

config = EngineConfig(
    ModelConfig(hf_config=HFConfig(compress_ratios=(0, 4, 128))), cache_config=CacheConfig(256)
)
text = dict(window_size=128, block_size=64)
spaces = [
    (states, states.get_warmup_keys(config)),
    (windows, windows.get_warmup_keys(**text, max_image_tokens=1024)),
    (drafts, drafts.get_warmup_keys(**text, num_speculative_tokens=3)),
]
for kernel, keys in spaces:
    for key in keys:
        kernel.compile(key)

def binaries():
    return [len(kernel.kernel.device_caches[0][0]) for kernel, _ in spaces]

compiled = binaries()

def ints(*shape):
    return torch.zeros(shape, dtype=torch.int32)

batch = ints(600), torch.ones(600, dtype=torch.bool), ints(9), ints(8), ints(8, 300)
image = dict(left_visible=ints(600), right_visible=ints(600))
for tokens, offset in ((1, 0), (7, 0), (512, 7), (16, 16)):
    part = dict(num_tokens=tokens, token_offset=offset, **text)
    windows(*batch, ints(8), **part)
    windows(*batch, ints(8), **part, index_width=1152)
    windows(*batch, ints(8), **part, index_width=1152, **image)
    drafts(*batch, **part, num_speculative_tokens=3)
    slots = torch.zeros(600, dtype=torch.int64)[:tokens]
    for ratio in (4, 128):
        states(slots, *batch[2:], block_size=256 // ratio, compress_ratio=ratio)
assert compiled == binaries(), "a launch compiled"
print(*compiled)
"""  # fmt: skip


@pytest.mark.triton
@pytest.mark.parametrize("arch", ["sm90", "sm100"])
def test_warmed_launches_compile_nothing(arch: str, fresh_process: Any) -> None:
    """For real, on the stub device: 2, 2 and 1 binaries, and none more after launches."""
    answer = fresh_process(STUB.format(arch=arch), TRITON_INTERPRET="0")
    assert answer.split() == ["2", "2", "1"]
