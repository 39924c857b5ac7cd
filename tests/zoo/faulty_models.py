"""DeepSeek-V3.2 with a hole in one kernel's declared space: what a reviewer would have to find."""

from __future__ import annotations

from jitwarm.zoo.kernels.compute_prefill_metadata import ComputePrefillMetadataKernel
from jitwarm.zoo.models.deepseek_v32 import DeepSeekV32

_complete = ComputePrefillMetadataKernel.get_warmup_keys


class WithoutBlocksOfFour(DeepSeekV32):
    """One value of one axis is gone: steps with 3 or 4 prefills."""

    def __init__(self, config, device):
        ComputePrefillMetadataKernel.get_warmup_keys = lambda self, config: [
            key for key in _complete(self, config) if key.block_size != 4
        ]
        super().__init__(config, device)


class WithAKernelThatCannotEnumerate(DeepSeekV32):
    """One kernel's declaration raises; everything else must be warmed all the same."""

    def __init__(self, config, device):
        def broken(self, config):
            raise ZeroDivisionError("no prefills at all")

        ComputePrefillMetadataKernel.get_warmup_keys = broken
        super().__init__(config, device)


class WithAKernelThatCannotEnumerateAtRankOne(DeepSeekV32):
    """Only rank 1 cannot enumerate one kernel: a green rank 0 must not hide it."""

    def __init__(self, config, device):
        def broken(self, config):
            raise ZeroDivisionError("no prefills at all")

        at_rank_one = config.parallel_config.dcp_rank == 1
        ComputePrefillMetadataKernel.get_warmup_keys = broken if at_rank_one else _complete
        super().__init__(config, device)
