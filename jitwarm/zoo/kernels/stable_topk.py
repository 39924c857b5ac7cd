"""StableTopKFromGatheredCandidates: which of its two twins runs.

Both give the ids of the K best gathered candidates of a row, -1 behind the last valid one. They
differ in the order of a row and in odd scores: `stable_topk_cutedsl` gives a set,
`stable_topk_triton` sorts; their texts say the rest. Shapes and arguments are the same.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from jitwarm.errors import BindingError, MissingExtraError
from jitwarm.zoo.kernels.stable_topk_cutedsl import stable_topk_cutedsl
from jitwarm.zoo.kernels.stable_topk_triton import stable_topk_triton

KERNELS = {"cutedsl": stable_topk_cutedsl, "triton": stable_topk_triton}


def stable_topk(implementation: str = "auto") -> Any:
    """The kernel object: `"cutedsl"`, `"triton"`, or `"auto"`, CuTe DSL where it is installed.

    CuTe DSL is looked for and not imported. Raises `BindingError` (a ValueError) for another name
    and `MissingExtraError` for `"cutedsl"` where it is not installed.
    """
    if implementation != "auto" and implementation not in KERNELS:
        raise BindingError(
            f"StableTopKFromGatheredCandidates: there is no implementation {implementation!r}; "
            f"choose auto, {' or '.join(KERNELS)}"
        )
    is_installed = importlib.util.find_spec("cutlass") is not None
    if implementation == "cutedsl" and not is_installed:
        raise MissingExtraError(
            "StableTopKFromGatheredCandidates in CuTe DSL", "nvidia-cutlass-dsl", "cutedsl"
        )
    if implementation == "auto":
        implementation = "cutedsl" if is_installed else "triton"
    return KERNELS[implementation]


def stable_topk_from_gathered_candidates(
    gathered: torch.Tensor,
    *,
    topk: int,
    out: torch.Tensor | None = None,
    implementation: str = "auto",
) -> torch.Tensor:
    """The ids of the best `topk` of gathered float32 [R, N, 2]: int32 [R, topk], `out` if given.

    Raises what `stable_topk` raises, and `BindingError` (a ValueError) for arguments that the
    chosen kernel does not take.
    """
    selected: torch.Tensor = stable_topk(implementation)(gathered, topk=topk, out=out)
    return selected
