"""Two layers: each registers the kernel while it is built; a step launches it natively."""

import torch

import jitwarm
from examples.own_kernel.kernel import ScaleRows, scale_rows


class TwoLayers:
    layers = 2

    def __init__(self, config, device):
        rows = config.scheduler_config.max_num_batched_tokens
        self.x = torch.ones(rows * 256, device=device.torch_device)
        self.out = torch.empty_like(self.x)
        for layer in range(self.layers):
            with jitwarm.owner(f"layers.{layer}"):
                ScaleRows.register_warmup()

    def step(self, batch):
        rows, skip = batch.num_tokens, batch.num_decodes % 4
        for _ in range(self.layers):
            for width in (1, 48, 250):
                x = self.x[skip : skip + rows * width]
                scale_rows[(rows,)](x, self.out, width, 0.5, BLOCK=256, num_warps=4)
