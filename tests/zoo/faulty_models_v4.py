"""DeepSeek-V4 with a kernel whose declaration is empty: what a reviewer would have to find."""

from __future__ import annotations

from jitwarm.declare import NoKeys
from jitwarm.zoo.kernels.build_prefill_chunk_metadata import BuildPrefillChunkMetadataKernel
from jitwarm.zoo.models.deepseek_v4 import DeepSeekV4Flash
from jitwarm.zoo.steps import gather_plan


class WithoutChunkMetadata(DeepSeekV4Flash):
    """One kernel says that it needs nothing."""

    def __init__(self, config, device):
        def nothing(self, config, **_):
            return NoKeys("all chunks are alike")

        BuildPrefillChunkMetadataKernel.get_warmup_keys = nothing
        super().__init__(config, device)


class CutAtThree(DeepSeekV4Flash):
    """Its prefill is cut at three requests, where the gather lengths are not aligned."""

    def __init__(self, config, device):
        gather_plan.GROUP = 3
        super().__init__(config, device)
