"""What the traffic needs: the golden file, every reachable class in it, nothing missed."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from jitwarm.backends.triton.keytext import parse_key

sys.path.insert(0, str(Path(__file__).parent))

from needed_keys import cases, golden, needed_text

SCENARIO = "deepseek-v3.2-dcp"
GOLDEN = golden(SCENARIO)

# For every specialised argument that varies at all: the classes that the callers of the model can
# pass, by hand from the docstrings of the kernels ("Callers and reachable classes"). Ranks 0, 1 and
# W-1 together; a rank of 0 is divisible by 16, rank 1 is a constant, any other is general.
DIV, ANY, ONE = "i32/D", "i32/", "constexpr=1"
REACHABLE = {
    ("build_prefill_chunk_metadata", "uncompressed_seq_lens_ptr"): {"*i32/D", "*i32/"},
    ("build_prefill_chunk_metadata", "query_slice_start"): {DIV, ANY},
    ("build_prefill_chunk_metadata", "query_slice_stop"): {DIV, ANY, ONE},
    ("build_prefill_chunk_metadata", "dcp_rank"): {DIV, ONE, ANY},
    ("build_prefill_chunk_metadata", "dcp_world_size"): {ONE, ANY},
    ("compute_prefill_metadata", "BLOCK_SIZE"): {f"constexpr={2**n}" for n in range(9)},
    ("correct_attn_cp_out", "lse_idx"): {DIV, ONE, ANY},
    ("correct_attn_cp_out", "N_ROUNDED"): {f"constexpr={w}" for w in (2, 4, 8)},
    ("pack_dcp_topk_candidates", "DCP_RANK"): {f"constexpr={r}" for r in (0, 1, 3, 7)},
    ("pack_dcp_topk_candidates", "DCP_WORLD_SIZE"): {f"constexpr={w}" for w in (2, 4, 8)},
    ("pack_dcp_topk_candidates", "HAS_ROW_STARTS"): {"constexpr=False", "constexpr=True"},
    ("stable_topk_triton", "NUM_CANDIDATES"): {f"constexpr={2048 * w}" for w in (2, 4, 8)},
    ("compute_slot_mapping", "TOTAL_CP_RANK"): {f"constexpr={r}" for r in (0, 1, 3, 7)},
    ("compute_slot_mapping", "TOTAL_CP_WORLD_SIZE"): {f"constexpr={w}" for w in (1, 2, 4, 8)},
    ("convert_req_index_to_global_index", "valid_count_ptr"): {"*i32/D", "constexpr=None"},
    ("convert_req_index_to_global_index", "BLOCK_N"): {"constexpr=128", "constexpr=2048"},
    ("convert_req_index_to_global_index", "COUNT_VALID"): {"constexpr=True", "constexpr=False"},
    ("convert_req_index_to_global_index", "SINGLE_TILE"): {"constexpr=True", "constexpr=False"},
    ("convert_req_index_to_global_index", "COMPACT_TO_FRONT"): {
        "constexpr=True",
        "constexpr=False",
    },
    ("convert_req_index_to_global_index", "DCP_SIZE"): {f"constexpr={w}" for w in (1, 2, 4, 8)},
    ("convert_req_index_to_global_index", "DCP_RANK"): {f"constexpr={r}" for r in (0, 1, 3, 7)},
    ("convert_req_index_to_global_index", "num_warps"): {"8", None},
}


def test_the_traffic_needs_exactly_the_golden_keys(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "20261")
    assert needed_text(cases(SCENARIO)) == GOLDEN.read_text()


@pytest.mark.triton
def test_another_architecture_needs_the_same_keys():
    chosen = cases(SCENARIO, "dcp=2,arch=sm100")
    (section,) = re.findall(r"# dcp=2 arch=sm90.*?\n\n", GOLDEN.read_text() + "\n", re.DOTALL)
    expected = section.replace("cuda:90", "cuda:100").replace("sm90", "sm100")
    assert needed_text(chosen).rstrip() == expected.rstrip()


def test_every_reachable_class_of_every_specialised_argument_occurs():
    seen: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    fields_of: dict[str, set[str]] = defaultdict(set)
    parsed = []
    for line in GOLDEN.read_text().splitlines():
        if line.startswith("rank"):
            path, fields = parse_key(line.partition(": ")[2])
            parsed.append((path.split(".")[-2], fields))
            fields_of[parsed[-1][0]].update(fields)
    assert len(fields_of) == 10
    for kernel, fields in parsed:
        for name in fields_of[kernel]:
            seen[kernel, name].add(fields.get(name))
    varying = {place: classes for place, classes in seen.items() if len(classes) > 1}
    assert varying == REACHABLE
