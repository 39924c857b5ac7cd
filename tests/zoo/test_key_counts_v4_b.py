"""Declared keys of CombineTopkSwaIndices and of the Triton twin of the stable top-k.

How many, that each reproduces, and what realistic calls have. Nothing is compiled or launched: keys
come from `get_warmup_keys`, Triton's classes from its own binder, and calls are caught where they
would launch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton

from jitwarm.backends.triton.binder import bind, bind_recipe
from jitwarm.backends.triton.stub import StubDriver
from jitwarm.config import (
    EngineConfig,
    HFConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
)
from jitwarm.contract import TritonPointerInputVariant
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError, DeclarationError
from jitwarm.zoo.kernels.combine_topk_swa_indices import combine_topk_swa_indices, row_width
from jitwarm.zoo.kernels.stable_topk_triton import stable_topk_triton

KERNELS: list[Any] = [combine_topk_swa_indices, stable_topk_triton]
DEVICE_INDEX = 95  # no other test binds kernels there, whatever architecture it uses
MILLION = 1_048_576
V4_PRO = (128, 128, *(4, 128) * 29, 4, 0)
V4_FLASH = (0, 0, *(4, 128) * 20, 4, 0)


def v4(
    ratios: tuple[int, ...] = V4_PRO,
    max_model_len: int = MILLION,
    *,
    tokens: int = 8192,
    **model: Any,
) -> EngineConfig:
    """DeepSeek-V4-Pro, or another of its family."""
    numbers = {"index_topk": 1024, "sliding_window": 128} | model
    return EngineConfig(
        ModelConfig(
            max_model_len=max_model_len, hf_config=HFConfig(compress_ratios=ratios, **numbers)
        ),
        scheduler_config=SchedulerConfig(256, tokens),
    )


def v32(dcp: int, **model: Any) -> EngineConfig:
    """DeepSeek-V3.2 with decode context parallelism."""
    return EngineConfig(
        ModelConfig(hf_config=HFConfig(**{"index_topk": 2048} | model)),
        ParallelConfig(decode_context_parallel_size=dcp),
    )


def vision(config: EngineConfig, most_tokens: int = 1024) -> EngineConfig:
    """The same model with a vision tower."""
    model = config.model_config
    images = dataclasses.replace(
        model.hf_config, vision_n_layers=27, vision_max_n_token=most_tokens
    )
    return dataclasses.replace(config, model_config=dataclasses.replace(model, hf_config=images))


def declared(kernel: Any, config: EngineConfig, **kwargs: Any) -> list[Any]:
    """The keys that a model of this configuration registers; none where the kernel says so."""
    keys = kernel.get_warmup_keys(config, **kwargs)
    return [] if isinstance(keys, NoKeys) else list(keys)


def published(config: EngineConfig) -> list[Any]:
    """The space of the engine that CombineTopkSwaIndices comes from."""
    return declared(combine_topk_swa_indices, config, as_published=True)


# Counts.


@pytest.mark.parametrize(
    ("max_model_len", "widths"),
    [
        (MILLION, [128, 256, 512, 1024, 2048, 4096, 8192]),
        (163_840, [128, 256, 512, 1024, 1280]),
        (131_072, [128, 256, 512, 1024]),
        (131_073, [128, 256, 512, 1024, 1152]),
        (65_536, [128, 256, 512]),
        (16_385, [128, 256]),
        (16_384, [128]),
        (1, [128]),
    ],
)
@pytest.mark.parametrize("ratios", [(1, 4, 128), V4_PRO, V4_FLASH], ids=["plain", "pro", "flash"])
def test_combine_counts(max_model_len: int, widths: list[int], ratios: tuple[int, ...]) -> None:
    config = v4(ratios, max_model_len)
    keys = published(config)
    assert len(keys) == len(set(keys)) == 3 * (2 + len(widths))
    assert [key.top_k for key in keys[::3]] == [0, 1024, *widths]
    assert [key.compress_ratio for key in keys[::3]] == [1, 4, *[128] * len(widths)]
    assert [key.padded_top_k for key in keys[::3]] == [
        1024,
        1024,
        *(1 << (width - 1).bit_length() for width in widths),
    ]
    assert len(published(vision(config))) == 2 * len(keys)


def test_the_counts_of_real_limits() -> None:
    for count, alignments in ((published, 3), (declared_combined, 2)):
        counts = {
            length: len(count(v4((1, 4, 128), length)))
            for length in (MILLION, 163_840, 131_072, 65_536)
        }
        selections = {MILLION: 9, 163_840: 7, 131_072: 6, 65_536: 5}
        assert counts == {length: alignments * n for length, n in selections.items()}


def declared_combined(config: EngineConfig) -> list[Any]:
    """What our own steps can reach."""
    return declared(combine_topk_swa_indices, config)


def test_only_the_ratios_of_layers_that_are_there_are_reached() -> None:
    """Pro's list ends with the 0 of a drafting head that is not built."""
    config = v4(V4_PRO)
    assert {key.compress_ratio for key in declared_combined(config)} == {1, 4, 128}
    keys = declared(combine_topk_swa_indices, config, ratios=(4, 128))
    assert {key.compress_ratio for key in keys} == {4, 128}
    assert len(keys) == 2 * (1 + 7)
    assert set(keys) < set(published(config))


@pytest.mark.parametrize(
    ("max_model_len", "widths"),
    [(16_384, [128]), (16_511, [128]), (16_512, [128, 256]), (131_073, [128, 256, 512, 1024])],
)
def test_a_width_is_reached_by_whole_states_only(max_model_len: int, widths: list[int]) -> None:
    keys = declared_combined(v4((128,), max_model_len))
    assert [key.top_k for key in keys[::2]] == widths


@pytest.mark.parametrize(
    ("rows", "tokens", "drafts", "alignments"),
    [(1, 8192, 0, 1), (2, 8192, 0, 2), (2, 1, 0, 1), (2, 2, 0, 2), (9, 4, 3, 1), (9, 5, 3, 2)],
)
def test_a_step_without_room_for_both_slices_behind_no_decode(
    rows: int, tokens: int, drafts: int, alignments: int
) -> None:
    config = dataclasses.replace(
        v4((4,)),
        scheduler_config=SchedulerConfig(rows, tokens),
        speculative_config=SpeculativeConfig("dspark", drafts) if drafts else None,
    )
    assert len(declared_combined(config)) == alignments


def test_combine_of_other_ratios() -> None:
    def ratios_and_widths(*ratios: int) -> list[tuple[int, int]]:
        keys = published(v4(ratios, 2048))
        return list(dict.fromkeys((key.compress_ratio, key.top_k) for key in keys))

    assert ratios_and_widths(0) == ratios_and_widths(1, 0) == [(1, 0)]
    assert ratios_and_widths(4, 4) == [(4, 1024)]
    assert ratios_and_widths(128, 4) == [(4, 1024), (128, 128)]
    assert ratios_and_widths(2, 0) == [(1, 0), (2, 128), (2, 256), (2, 512), (2, 1024)]


def test_combine_takes_window_and_images_from_the_model() -> None:
    keys = declared(combine_topk_swa_indices, vision(v4(sliding_window=64), 576))
    assert {key.window_size for key in keys} == {64}
    assert {key.image_width for key in keys} == {0, 576}
    keys = declared(combine_topk_swa_indices, v4(sliding_window=0, vision_max_n_token=576))
    assert {(key.window_size, key.image_width) for key in keys} == {(128, 0)}


def test_combine_names_the_alignments() -> None:
    names = "topk_indices", "query_start_loc", "seq_lens", "gather_lens"
    variants = [
        TritonPointerInputVariant(tuple(zip(names, (row == "T" for row in rows), strict=True)))
        for rows in ("TTTT", "TFFT", "FFFF")
    ]
    assert [key.input_variant for key in published(v4())[:3]] == variants
    assert [key.input_variant for key in declared_combined(v4())[:2]] == variants[:2]


def test_combine_says_why_it_has_no_key() -> None:
    for config, reason in (
        (v4(tokens=0), "max_num_batched_tokens"),
        (v4(tokens=-1), "max_num_batched_tokens"),
        (v4(()), "compress_ratios"),
        (v4(index_topk=0), "index_topk"),
    ):
        keys = combine_topk_swa_indices.get_warmup_keys(config)
        assert isinstance(keys, NoKeys) and reason in keys.reason


def test_combine_refuses_a_window_that_is_no_power_of_two() -> None:
    with pytest.raises(BindingError, match="window 96"):
        declared(combine_topk_swa_indices, v4(sliding_window=96))


def test_the_width_of_a_row() -> None:
    assert row_width(1024, 128, 0) == row_width(1000, 128, 0) == 1152
    assert row_width(0, 128, 1024) == row_width(0, 128, 1000) == 1152
    assert (row_width(0, 128, 0), row_width(1, 128, 0)) == (128, 256)


@pytest.mark.parametrize("dcp", [2, 4, 8])
def test_stable_topk_declares_one_key(dcp: int) -> None:
    (key,) = declared(stable_topk_triton, v32(dcp))
    assert (key.topk, key.num_candidates) == (2048, dcp * 2048)
    (key,) = declared(stable_topk_triton, v32(dcp, index_kpool=32))
    assert (key.topk, key.num_candidates) == (64, dcp * 64)


def test_stable_topk_says_why_it_has_no_key() -> None:
    for config, reason in (
        (v32(1), "no decode context parallelism"),
        (v32(8, index_topk=0), "index_topk"),
        (v32(8, index_topk=31, index_kpool=32), "index_topk"),
    ):
        keys = stable_topk_triton.get_warmup_keys(config)
        assert isinstance(keys, NoKeys) and reason in keys.reason


def test_stable_topk_refuses_a_number_that_is_no_power_of_two() -> None:
    with pytest.raises(BindingError, match="1536 of 3072"):
        declared(stable_topk_triton, v32(2, index_topk=1536))


def test_names() -> None:
    assert [kernel.kernel_name for kernel in KERNELS] == [
        "CombineTopkSwaIndices",
        "StableTopKFromGatheredCandidates",
    ]


# Keys and Triton's classes.

CASES = {
    "pro": (combine_topk_swa_indices, v4()),
    "flash": (combine_topk_swa_indices, v4(V4_FLASH, 163_840, index_topk=512)),
    "vision": (combine_topk_swa_indices, vision(v4(max_model_len=131_072))),
    "dcp2": (stable_topk_triton, v32(2)),
    "dcp8-pooled": (stable_topk_triton, v32(8, index_kpool=32)),
}
each_case = pytest.mark.parametrize(("kernel", "config"), CASES.values(), ids=CASES)


@each_case
def test_warmup_inputs_give_the_key_back(
    kernel: Any, config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    dispatch = kernel.dispatch

    def spy(**inputs: Any) -> Any:
        seen.append(dispatch(**inputs))
        return seen[-1]

    keys = declared(kernel, config)
    monkeypatch.setattr(kernel, "dispatch", spy)
    for key in keys:
        kernel.bound_launch(key)
        assert seen.pop() == key and not seen


def test_a_key_that_does_not_come_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    key = declared(combine_topk_swa_indices, v4())[0]
    inputs = combine_topk_swa_indices.warmup_inputs(key) | {"window_size": 64}
    monkeypatch.setattr(
        combine_topk_swa_indices, "warmup_inputs", lambda key: inputs, raising=False
    )
    with pytest.raises(DeclarationError, match="window_size 64 instead of 128"):
        combine_topk_swa_indices.bound_launch(key)


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


@each_case
def test_each_key_is_one_binary(kernel: Any, config: EngineConfig, binder: None) -> None:
    assert len(planned(kernel, config)) == len(declared(kernel, config))


def planned(kernel: Any, config: EngineConfig, **kwargs: Any) -> dict[str, Any]:
    """The declared keys by their backend key."""
    return {
        bind_recipe(kernel.kernel, kernel.recipe(key)).text: key
        for key in declared(kernel, config, **kwargs)
    }


@pytest.fixture
def catch(binder: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[str]]:
    """`catch(kernel)`: the list that gets the key of each call from now on; nothing is launched."""

    def start(kernel: Any) -> list[str]:
        texts: list[str] = []

        def launch(spec: Any, inputs: dict[str, Any]) -> Any:
            call: Any = type(kernel).__call__
            bound = call.launcher.binding.bind(kernel, spec, tuple(inputs.values()))
            texts.append(bind(kernel.kernel, (), bound.arguments | bound.options).text)
            return spec[2] if len(spec) > 2 else None

        monkeypatch.setattr(kernel, "launch", launch, raising=False)
        return texts

    return start


def ints(*shape: int) -> torch.Tensor:
    """Fresh memory, never read. Aligned, as an allocation of torch is."""
    tensor = torch.empty(shape, dtype=torch.int32)
    assert tensor.data_ptr() % 16 == 0
    return tensor


class Prefill:
    """The tensors of steps, and the calls of the attention layers for one chunk of a step."""

    def __init__(self, config: EngineConfig) -> None:
        """Buffers for up to 300 tokens."""
        model = config.model_config.hf_config
        self.topk, self.states = ints(300, model.index_topk), ints(300, 1280)
        self.starts, self.lens, self.gather = ints(65), ints(64), ints(64)
        self.left, self.right = ints(300), ints(300)
        self.indices, self.combined_lens = ints(300 * 2560), ints(300)
        self.images = model.vision_max_n_token if model.vision_n_layers else 0

    def combine(
        self, decodes: int, chunk: int, tokens: tuple[int, int], top_k: int, ratio: int, **more: Any
    ) -> None:
        """A call for chunk number `chunk` of 4 requests behind `decodes`, of these tokens."""
        first, last = decodes + 4 * chunk, decodes + 4 * chunk + 3
        rows, count = slice(*tokens), tokens[1] - tokens[0]
        width = row_width(top_k, 128, self.images)
        combine_topk_swa_indices(
            self.states[rows, :top_k] if ratio == 128 else self.topk[rows],
            self.starts[first : last + 1],
            self.lens[first:last],
            self.gather[4 * chunk : 4 * chunk + 3],
            top_k=top_k,
            compress_ratio=ratio,
            window_size=128,
            slots_per_request=9000,
            compressed_slots=8192,
            max_image_tokens=self.images,
            indices=self.indices[: count * width].view(count, width),
            lens=self.combined_lens[:count],
            **more,
        )

    def visible(self, tokens: tuple[int, int]) -> dict[str, torch.Tensor]:
        """The slices of the step's visible counts."""
        rows = slice(*tokens)
        return {"left_visible": self.left[rows], "right_visible": self.right[rows]}


LAYERS = [(0, 0), (0, 1), (512, 4), *((width, 128) for width in (128, 256, 512, 1024, 1280))]


@pytest.mark.parametrize("images", [False, True])
def test_combine_calls_are_declared(images: bool, catch: Any) -> None:
    """Both alignments are reached, in each layer; no token offset matters."""
    config = v4(V4_FLASH, 163_840, index_topk=512)
    config = vision(config) if images else config
    seen, step = catch(combine_topk_swa_indices), Prefill(config)
    for decodes in range(6):
        for chunk in (0, 1, 2):
            for first in (decodes, 5 * decodes + 1, 100, 101, 102, 103):
                tokens = first, first + 17
                for top_k, ratio in LAYERS:
                    step.combine(decodes, chunk, tokens, top_k, ratio)
                    if images:
                        step.combine(decodes, chunk, tokens, top_k, ratio, **step.visible(tokens))
    keys = planned(combine_topk_swa_indices, config)
    assert set(seen) == set(keys)
    assert len(set(seen)) == (2 if images else 1) * 2 * 7


def test_combine_calls_at_every_row_of_the_variants(catch: Any) -> None:
    """A caller that slices everything at odd offsets reaches the third row, another one none."""
    seen, config = catch(combine_topk_swa_indices), v4((1,))
    step = Prefill(config)
    given = {"top_k": 0, "compress_ratio": 1, "window_size": 128, "slots_per_request": 9}
    odd = [tensor[1:] for tensor in (step.topk.view(-1), step.starts, step.lens, step.gather)]
    topk = odd[0][:-1023].view(-1, 1024)
    combine_topk_swa_indices(topk, *odd[1:], **given, compressed_slots=1)
    assert seen[0] not in planned(combine_topk_swa_indices, config)
    planned_keys = planned(combine_topk_swa_indices, config, as_published=True)
    assert {key.input_variant.is_aligned("topk_indices") for key in (planned_keys[seen[0]],)} == {
        False
    }
    combine_topk_swa_indices(step.topk, *odd[1:], **given, compressed_slots=1)  # TFFF
    assert seen[1] not in planned_keys


def test_combine_does_not_specialise_what_is_visible(catch: Any) -> None:
    seen, config = catch(combine_topk_swa_indices), vision(v4((0, 4), 16_384, index_topk=512))
    step = Prefill(config)
    for first in range(5):
        step.combine(0, 0, (8, 16), 512, 4, **step.visible((first, first + 8)))
    assert len(set(seen)) == 1


@pytest.mark.parametrize("dcp", [2, 4, 8])
def test_stable_topk_calls_are_declared(dcp: int, catch: Any) -> None:
    """A row of the output is 2048 ids: aligned from every row on."""
    seen, buffer = catch(stable_topk_triton), ints(40, 2048)
    for rows in (1, 2, 15, 16, 17):
        gathered = torch.empty(rows, dcp * 2048, 2)
        stable_topk_triton(gathered, topk=2048)
        for start in (0, 1, 2, 3):
            stable_topk_triton(gathered, topk=2048, out=buffer[start : start + rows])
    assert set(seen) == set(planned(stable_topk_triton, v32(dcp)))
