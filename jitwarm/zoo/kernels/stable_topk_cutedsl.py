"""StableTopKFromGatheredCandidates, the CuTe DSL twin: the best K of all ranks' candidates, a set.

Every rank of a decode-context-parallel group sends K pairs (score, id), see
pack_dcp_topk_candidates.py. For row r of the gathered pairs, out[r] holds the ids of the K best
pairs in NO defined order: higher score first, equal scores by lowest id. If there are fewer than K
valid pairs the rest of the row is -1; a negative id is invalid.

Scores compare by their bits: +0 is above -0; a NaN with sign bit 0 is above +inf and one with sign
bit 1 below -inf, the payload deciding between two; all of them are above an invalid pair. (The
Triton twin sorts, takes +0 and -0 as equal, and puts every NaN below -inf.)

Shapes: gathered float32 [R, N, 2], pairs contiguous, rows at any even stride from an address
divisible by 8; out int32 [R, K], elements contiguous, rows at any stride. N = W*K for W ranks,
a multiple of 512. R = 0 is legal and launches nothing.
Limits: ids are whole numbers below 2**31; float32 holds each of them up to 2**24. A pair that
occurs twice counts twice. Offsets of rows are 64-bit.

The device code is stable_topk_radix.py: one block of 512 threads a row. This module, registration
and key enumeration need no CuTe DSL; compiling and launching do.

Callers and reachable classes
-----------------------------
Every sparse indexer with W > 1, once a layer for the decode rows and once a layer and prefill
chunk for the prefill rows, right behind the all-gather. The compiled code is the same for every
number and stride of rows.

* gathered: the fresh result of the all-gather, float32.
* out: fresh; or `topk_buffer[:num_rows]`, or rows of it from `[start:stop]`.
* topk, num_candidates: fixed by the configuration: one pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from jitwarm.contract import CuTeDSLJitKernel, kernel_launcher
from jitwarm.declare import NoKeys
from jitwarm.errors import BindingError

THREADS = 512


class StableTopKCuTeDSLKernel(CuTeDSLJitKernel["StableTopKCuTeDSLKernel.CompileKey"]):
    """Selects among gathered candidates; see the module's text."""

    kernel_name = "StableTopKFromGatheredCandidates"

    @dataclass(frozen=True, slots=True)
    class CompileKey:
        """Both are constants of the compiled kernel."""

        topk: int
        num_candidates: int

    def dispatch(self, *, topk: int, num_candidates: int) -> CompileKey:
        """The key of rows of this many candidates.

        Raises `BindingError` (a ValueError) for a number that the kernel does not have.
        """
        if topk < 1 or num_candidates < 1 or num_candidates % THREADS:
            raise BindingError(
                f"{self.kernel_name}: needs one or more to select from a multiple of {THREADS} "
                f"candidates, got {topk} of {num_candidates}"
            )
        return self.CompileKey(topk, num_candidates)

    def get_warmup_keys(self, config: Any) -> list[CompileKey] | NoKeys:
        """The one key of a model: every rank's selection, once gathered."""
        model = config.model_config.hf_config
        world_size = config.parallel_config.decode_context_parallel_size
        if world_size <= 1:
            return NoKeys("no decode context parallelism: nothing is gathered")
        topk = getattr(model, "index_topk", 0) // getattr(model, "index_kpool", 1)
        if topk <= 0:
            return NoKeys("the model has no sparse indexer (index_topk)")
        return self._trace_dispatch(self.dispatch)(topk=topk, num_candidates=world_size * topk)

    def kernel(self, key: CompileKey) -> Any:
        """The function to compile; the key is in the shapes of its arguments."""
        from jitwarm.zoo.kernels.stable_topk_radix import radix_topk

        return radix_topk

    def warmup_inputs(self, key: CompileKey) -> tuple[Any, ...]:
        """Stand-ins for the arguments of a launch that has this key."""
        from jitwarm.zoo.kernels.stable_topk_radix import stand_ins

        return stand_ins(key.topk, key.num_candidates)

    def scratch_launch(self, key: CompileKey) -> tuple[torch.Tensor, torch.Tensor]:
        """Arguments of a launch that does no harm, on the current device: a row without a pair."""
        gathered = torch.full((1, key.num_candidates, 2), -1.0, device="cuda")
        return gathered, torch.empty((1, key.topk), dtype=torch.int32, device="cuda")

    @kernel_launcher
    def __call__(
        self, gathered: torch.Tensor, *, topk: int, out: torch.Tensor | None = None
    ) -> Any:
        """Fill `out` (allocated if absent) and return it.

        Raises `BindingError` (a ValueError) for dtypes, shapes, strides or a top-k that do not fit.
        """
        rows, num_candidates = gathered.shape[:2]
        key = self.dispatch(topk=topk, num_candidates=num_candidates)
        if not (
            gathered.dtype is torch.float32
            and gathered.shape == (rows, num_candidates, 2)
            and gathered.stride()[1:] == (2, 1)
            and gathered.stride(0) % 2 == 0
            and gathered.data_ptr() % 8 == 0
            and (out is None or (out.dtype is torch.int32 and out.shape == (rows, topk)))
            and (out is None or out.stride(1) == 1)
        ):
            raise BindingError(
                f"{self.kernel_name}: needs gathered float32 [R, N, 2] of whole pairs at addresses "
                "divisible by 8 and out int32 [R, K] of whole rows, got "
                + ", ".join(
                    f"{t.dtype} {tuple(t.shape)} of strides {tuple(t.stride())}"
                    for t in (gathered, out)
                    if t is not None
                )
            )
        if out is None:
            out = torch.empty((rows, topk), dtype=torch.int32, device=gathered.device)
        return key, (gathered, out), out

    def launch(self, spec: Any, inputs: Any = None) -> Any:
        """Launch `spec`, (key, arguments, out), unless it has no rows; returns out."""
        out = spec[-1]
        return super().launch(spec, inputs) if len(out) else out


stable_topk_cutedsl = StableTopKCuTeDSLKernel()
