"""CombineTopkSwaIndices against a plain reference: exact, with what must stay untouched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from references_combine_topk_swa_indices import Layer
from references_combine_topk_swa_indices import combine_topk_swa_indices as reference

from jitwarm.errors import BindingError
from jitwarm.zoo.kernels.combine_topk_swa_indices import combine_topk_swa_indices

Move = Callable[..., torch.Tensor]
Untouched = Callable[[torch.Tensor], np.ndarray]
Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

LAYER = Layer()
WINDOW_ONLY = Layer(top_k=0, compress_ratio=1, compressed_slots=0)
ALL_STATES = Layer(top_k=128, compress_ratio=128, slots_per_request=70, compressed_slots=9)


def random_case(
    rng: np.random.Generator,
    query_lens: Sequence[int],
    contexts: Sequence[int],
    layer: Layer,
    *,
    columns: int | None = None,
    chunk_start: int = 0,
) -> Case:
    """Ids of states, of which some are negative and some behind the last; the chunk's tensors."""
    query = np.array(query_lens, np.int64)
    seq_lens = query + np.array(contexts, np.int64)
    gathered = query + np.minimum(np.maximum(contexts, 0), layer.window_size - 1)
    ids = rng.integers(0, max(layer.compressed_slots, 1), (query.sum(), columns or layer.top_k))
    odd = rng.random(ids.shape) < 0.2
    ids[odd] = rng.choice(
        [-1, -2, -(2**31), layer.compressed_slots, layer.compressed_slots + 1, 2**31 - 1], odd.sum()
    )
    query_start_loc = chunk_start + np.concatenate([[0], np.cumsum(query)])
    ids, starts, lens, gather = (
        values.astype(np.int32) for values in (ids, query_start_loc, seq_lens, gathered)
    )
    return ids, starts, lens, gather


def images(
    query_lens: Sequence[int], spans: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Visible counts of a chunk whose tokens `[start, stop)` are images."""
    left, right = np.zeros((2, sum(query_lens)), np.int32)
    for start, stop in spans:
        left[start:stop] = np.arange(stop - start)
        right[start:stop] = np.arange(stop - start)[::-1]
    return left, right


def check(
    case: Case,
    layer: Layer,
    to_device: Move,
    poison: Move,
    untouched: Untouched,
    *,
    visible: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Compare both outputs, find the rest of `indices` untouched, return lens."""
    width = layer.top_k + layer.window_size + layer.max_image_tokens + 5
    tokens = len(case[0])
    indices = poison(to_device(np.zeros((tokens, width), np.int32)))
    lens = poison(to_device(np.zeros(tokens, np.int32)))
    shown: dict[str, Any] = {}
    if visible is not None:
        shown = dict(zip(("left_visible", "right_visible"), map(to_device, visible), strict=True))
    result = combine_topk_swa_indices(
        *map(to_device, case),
        **dataclasses.asdict(layer),
        **shown,
        indices=indices,
        lens=lens,
    )
    assert result == (indices, lens)
    rows, expected_lens = reference(*case, layer, *(visible or ()))
    np.testing.assert_array_equal(lens.cpu().numpy(), expected_lens)
    found, kept = indices.cpu().numpy(), untouched(indices)
    for token, row in enumerate(rows):
        np.testing.assert_array_equal(found[token, : len(row)], row)
        assert kept[token, len(row) :].all()
    return expected_lens


@pytest.fixture
def compare(to_device: Move, poison: Move, untouched: Untouched) -> Callable[..., np.ndarray]:
    """`check` of cases in fresh tensors."""

    def run(case: Case, layer: Layer, **more: Any) -> np.ndarray:
        return check(case, layer, to_device, poison, untouched, **more)

    return run


def test_an_example_by_hand(to_device: Move) -> None:
    """Two requests: the second has 6 tokens of context, of which the window reaches 3."""
    indices, lens = combine_topk_swa_indices(
        to_device(np.array([[0, 5], [1, 0], [2, 1]], np.int32)),
        to_device(np.array([7, 9, 10], np.int32)),
        to_device(np.array([2, 7], np.int32)),
        to_device(np.array([2, 4], np.int32)),
        top_k=2,
        compress_ratio=2,
        window_size=4,
        slots_per_request=10,
        compressed_slots=3,
    )
    assert indices.shape == (3, 128)
    assert lens.tolist() == [1, 3, 6]
    assert indices[0, :2].tolist() == [3, -1]
    assert indices[1, :4].tolist() == [1, 3, 4, -1]
    assert indices[2, :7].tolist() == [12, 11, 13, 14, 15, 16, -1]
    assert (indices[:, 7:] == -1).all()


@pytest.mark.parametrize("layer", [LAYER, WINDOW_ONLY, ALL_STATES], ids=["c4", "swa", "c128"])
@pytest.mark.parametrize("query_len", [1, 15, 16, 17])
@pytest.mark.parametrize("context", [0, 1, 14, 15, 16, 17, 40])
def test_contexts_around_the_window(
    rng: np.random.Generator, compare: Any, layer: Layer, query_len: int, context: int
) -> None:
    case = random_case(rng, [query_len, 3], [context, 1000], layer, columns=layer.top_k or 8)
    compare(case, layer)


@pytest.mark.parametrize("top_k", [1, 2, 15, 16, 17])
@pytest.mark.parametrize("ratio", [1, 2, 4, 128])
def test_selections_that_fill_up(
    rng: np.random.Generator, compare: Any, top_k: int, ratio: int
) -> None:
    """Few tokens have few states; the tensor may be wider than the selection."""
    layer = dataclasses.replace(LAYER, top_k=top_k, compress_ratio=ratio)
    edge = ratio * top_k
    lens = compare(
        random_case(rng, [9, 9, 9], [0, max(edge - 5, 0), 3 * edge], layer, columns=19), layer
    )
    assert lens[-1] == top_k + layer.window_size if edge > 6 else lens[-1] > top_k


@pytest.mark.parametrize("window", [1, 2, 8, 64, 128])
def test_windows(rng: np.random.Generator, compare: Any, window: int) -> None:
    layer = dataclasses.replace(LAYER, window_size=window)
    compare(random_case(rng, [window + 1, 5], [0, window], layer), layer)


def test_real_sizes(rng: np.random.Generator, compare: Any) -> None:
    """A wide selection and a window of 128, more tokens than workers."""
    layer = Layer(1024, 4, 128, 2600, 1300)
    compare(random_case(rng, [2, 300], [5100, 0], layer), layer)


@pytest.mark.parametrize("query_lens", [[], [0], [0, 0, 0], [1], [3, 0, 2], [0, 4, 0]])
def test_requests_without_tokens(
    rng: np.random.Generator, compare: Any, query_lens: list[int]
) -> None:
    case = random_case(rng, query_lens, [7] * len(query_lens), LAYER)
    compare(case, LAYER)


@pytest.mark.parametrize("chunk_start", [1, 5, 1000])
def test_a_chunk_anywhere_in_the_step(
    rng: np.random.Generator, compare: Any, chunk_start: int
) -> None:
    """Every tensor of tokens counts from the chunk's first."""
    layer = dataclasses.replace(LAYER, max_image_tokens=8)
    case = random_case(rng, [4, 6, 1], [0, 33, 9], layer, chunk_start=chunk_start)
    compare(case, layer)
    compare(case, layer, visible=images([4, 6, 1], [(5, 9)]))


@pytest.mark.parametrize("decodes", [0, 1, 2, 3, 4])
def test_slices_of_the_steps_tensors(
    rng: np.random.Generator, to_device: Move, poison: Move, untouched: Untouched, decodes: int
) -> None:
    """As an attention layer slices them, behind this many decode requests."""
    query_lens, contexts = [1] * decodes + [5, 9, 2], [20 + i for i in range(decodes + 3)]
    case = random_case(rng, query_lens, contexts, LAYER)
    topk, starts, lens, gather = map(to_device, case)
    out = poison(to_device(np.zeros((16, 24), np.int32)))
    combine_topk_swa_indices(
        topk[decodes:],
        starts[decodes:],
        lens[decodes:],
        gather[decodes:].clone(),
        **dataclasses.asdict(LAYER),
        indices=out,
    )
    chunk = case[0][decodes:], case[1][decodes:], case[2][decodes:], case[3][decodes:]
    for token, row in enumerate(reference(*chunk, LAYER)[0]):
        assert out[token, : len(row)].tolist() == row
        assert untouched(out)[token, len(row) :].all()


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
@pytest.mark.parametrize("layer", [LAYER, WINDOW_ONLY], ids=["c4", "swa"])
@pytest.mark.parametrize("image", [False, True])
def test_slices_at_any_offset(
    rng: np.random.Generator,
    at_offset: Move,
    poison: Move,
    untouched: Untouched,
    offset: int,
    layer: Layer,
    image: bool,
) -> None:
    layer = dataclasses.replace(layer, max_image_tokens=12)
    query_lens = [4, 0, 21]
    case = random_case(rng, query_lens, [3, 5, 50], layer, columns=9)
    visible = images(query_lens, [(4, 16)]) if image else None
    move = lambda values: at_offset(values, offset)
    check(case, layer, move, poison, untouched, visible=visible)


@pytest.mark.parametrize("image", [1, 2, 15, 16, 17, 32, 33, 40])
@pytest.mark.parametrize("layer", [LAYER, WINDOW_ONLY], ids=["c4", "swa"])
def test_images(rng: np.random.Generator, compare: Any, layer: Layer, image: int) -> None:
    """Text before and behind; the last token of an image looks back furthest."""
    layer = dataclasses.replace(layer, max_image_tokens=40, slots_per_request=90)
    query_lens = [image + 30, image + 2]
    spans = [(20, 20 + image), (image + 30, 2 * image + 30)]
    case = random_case(rng, query_lens, [2, 25], layer, columns=8)
    visible = images(query_lens, spans)
    lens = compare(case, layer, visible=visible)
    within = [lens[start:stop] for start, stop in spans]
    assert max(window.max() for window in within) - layer.top_k <= layer.window_size + image
    text = compare(case, layer)  # the same rows without what is visible
    outside = np.ones(len(text), bool)
    for start, stop in spans:
        outside[start:stop] = False
    np.testing.assert_array_equal(lens[outside], text[outside])
    assert image == 1 or (lens != text).any()


def test_an_image_ends_at_its_request(rng: np.random.Generator, compare: Any) -> None:
    """It starts with the request's first token of this step: nothing before position 0 is seen."""
    layer = dataclasses.replace(LAYER, max_image_tokens=32)
    case = random_case(rng, [32, 5], [0, 0], layer)
    assert (compare(case, layer, visible=images([32, 5], [(0, 32)]))[:32] >= 32).all()


def test_counts_of_more_than_the_largest_image(
    rng: np.random.Generator, to_device: Move, poison: Move, untouched: Untouched
) -> None:
    """lens counts everything, the row ends behind the window and the largest image."""
    layer = dataclasses.replace(WINDOW_ONLY, max_image_tokens=8)
    case = random_case(rng, [60], [0], layer, columns=8)
    indices = poison(to_device(np.zeros((60, 70), np.int32)))
    left, right = (to_device(counts) for counts in images([60], [(0, 60)]))
    _, lens = combine_topk_swa_indices(
        *map(to_device, case),
        **dataclasses.asdict(layer),
        left_visible=left,
        right_visible=right,
        indices=indices,
    )
    assert (lens == 60).all()
    assert not untouched(indices)[:, :24].any() and untouched(indices)[:, 24:].all()


@pytest.mark.parametrize("gathered", [0, 1, 3, 5, 8])
def test_less_gathered_than_the_window(
    rng: np.random.Generator, compare: Any, gathered: int
) -> None:
    """Nothing below the first gathered key is seen; a token below it sees no key at all."""
    ids, starts, lens, gather = random_case(rng, [5, 2], [30, 12], LAYER)
    gather[0] = gathered
    found = compare((ids, starts, lens, gather), LAYER)
    assert (found[0], found[4]) == (7 + max(gathered - 4, 0), 8 + gathered)


@pytest.mark.parametrize("seq_len", [0, 1, 3])
def test_positions_below_zero(compare: Any, seq_len: int) -> None:
    """A padded request: its first tokens stand at -5 and on, and attend to nothing."""
    ids = np.zeros((5, 8), np.int32)
    case = ids, np.array([0, 5], np.int32), np.array([seq_len], np.int32), np.array([9], np.int32)
    layer = dataclasses.replace(LAYER, compress_ratio=1)
    lens = compare(case, layer)
    assert (lens[: 5 - seq_len] == 0).all() and (lens[5 - seq_len :] > 0).all()


def test_ids_outside_of_the_states(to_device: Move) -> None:
    """They are no slot at all, least of all one of the neighbour's."""
    ids = np.array([[0, -1, 4, 5, -6, 3, 2**31 - 1, -(2**31)]] * 2, np.int32)
    layer = Layer(8, 1, 1, 7, 5)
    indices, lens = combine_topk_swa_indices(
        to_device(ids),
        to_device(np.array([0, 1, 2], np.int32)),
        to_device(np.array([50, 50], np.int32)),
        to_device(np.array([1, 1], np.int32)),
        **dataclasses.asdict(layer),
    )
    assert lens.tolist() == [9, 9]
    assert indices[0, :9].tolist() == [0, -1, 4, -1, -1, 3, -1, -1, 5]
    assert indices[1, :9].tolist() == [7, -1, 11, -1, -1, 10, -1, -1, 12]


def test_a_selection_out_of_a_wider_buffer(
    rng: np.random.Generator, to_device: Move, poison: Move, untouched: Untouched
) -> None:
    """As layers slice it that attend to all their states; rows of outputs have gaps too."""
    case = random_case(rng, [6, 7], [2000, 0], LAYER, columns=40)
    narrow = case[0][:, :8]
    wide = poison(to_device(np.zeros((13, 60), np.int32)))
    combine_topk_swa_indices(
        to_device(case[0])[:, :8],
        *map(to_device, case[1:]),
        **dataclasses.asdict(LAYER),
        indices=wide[:, 3:40],
    )
    for token, row in enumerate(reference(narrow, *case[1:], LAYER)[0]):
        assert wide[token, 3 : 3 + len(row)].tolist() == row
        assert untouched(wide)[token, :3].all() and untouched(wide)[token, 3 + len(row) :].all()


@pytest.mark.parametrize("seed", range(20))
def test_random_chunks(at_offset: Move, poison: Move, untouched: Untouched, seed: int) -> None:
    """Everything at once, with images that start at their request's first token or later."""
    rng = np.random.default_rng(seed)
    window, ratio = int(2 ** rng.integers(0, 6)), int(rng.choice([0, 1, 2, 4, 128]))
    top_k = 0 if ratio < 2 else int(rng.integers(1, 24))
    query_lens = rng.integers(0, 20, rng.integers(1, 6)).tolist()
    contexts = (rng.integers(0, 4, len(query_lens)) * rng.integers(0, 300)).tolist()
    layer = Layer(top_k, ratio, window, int(rng.integers(20, 500)), int(rng.integers(0, 30)), 20)
    spans = []
    for end, length in zip(np.cumsum(query_lens), query_lens, strict=True):
        start, stop = np.sort(rng.integers(0, length + 1, 2))
        spans.append((int(end) - length + int(start), int(end) - length + int(stop)))
    case = random_case(
        rng, query_lens, contexts, layer, columns=top_k + int(rng.integers(1, 4)), chunk_start=seed
    )
    move = lambda values: at_offset(values, int(rng.integers(0, 5)))
    visible = images(query_lens, spans) if seed % 3 else None
    check(case, layer, move, poison, untouched, visible=visible)


def test_ratio_zero_is_ratio_one(rng: np.random.Generator, compare: Any) -> None:
    layer = dataclasses.replace(WINDOW_ONLY, compress_ratio=0)
    compare(random_case(rng, [5], [9], layer, columns=8), layer)


def test_what_does_not_fit_is_refused(to_device: Move) -> None:
    def call(**changed: Any) -> Any:
        zeros = {
            "topk_indices": (5, 8),
            "query_start_loc": (3,),
            "seq_lens": (2,),
            "gather_lens": (2,),
            "indices": (5, 24),
            "lens": (5,),
        }
        tensors = {name: to_device(np.zeros(shape, np.int32)) for name, shape in zeros.items()}
        return combine_topk_swa_indices(**tensors | dataclasses.asdict(LAYER) | changed)

    def ints(*shape: int) -> torch.Tensor:
        return to_device(np.zeros(shape, np.int32))

    call()
    call(max_image_tokens=8, indices=ints(5, 32), left_visible=ints(5), right_visible=ints(5))
    for bad in (
        {"topk_indices": ints(5, 8).long()},
        {"topk_indices": ints(5, 16)[:, ::2]},
        {"query_start_loc": ints(2)},
        {"query_start_loc": ints(6)[::2]},
        {"gather_lens": ints(1)},
        {"seq_lens": ints(2).float()},
        {"indices": ints(5, 23)},
        {"indices": ints(4, 24)},
        {"lens": ints(4)},
        {"max_image_tokens": 8},
        {"left_visible": ints(5), "right_visible": ints(5)},
        {"max_image_tokens": 8, "indices": ints(5, 32), "left_visible": ints(5)},
        {
            "max_image_tokens": 8,
            "indices": ints(5, 32),
            "left_visible": ints(5),
            "right_visible": ints(4),
        },
    ):
        with pytest.raises(BindingError, match="int32 tensors without gaps"):
            call(**bad)
    for top_k, ratio in ((-1, 4), (9, 4), (8, -1)):
        with pytest.raises(BindingError, match="a top-k of 0 up to"):
            call(top_k=top_k, compress_ratio=ratio, indices=ints(5, 40))
    for window in (0, 3, 12):
        with pytest.raises(BindingError, match="no power of two"):
            call(window_size=window)
