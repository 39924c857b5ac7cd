"""Two layers: each registers the kernel while it is built; a step launches it natively."""

import torch

import jitwarm
from examples.own_kernel.kernel import ScaleRows, scale_rows
from jitwarm import Envelope, Ints, Values
from jitwarm.declare import TensorSpec

WIDTHS = (1, 48, 250)


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
            for width in WIDTHS:
                x = self.x[skip : skip + rows * width]
                scale_rows[(rows,)](x, self.out, width, 0.5, BLOCK=256, num_warps=4)

    def envelopes(self):
        """Everything that `step` can launch: x starts at any row, and is as wide as a layer's."""

        def launch(skip, width):
            return {
                "x_ptr": TensorSpec("float32", aligned=skip % 4 == 0),
                "out_ptr": TensorSpec("float32"),
                "n_columns": width,
                "factor": 0.5,
                "BLOCK": 256,
                "num_warps": 4,
            }

        yield Envelope(ScaleRows, "step", {"skip": Ints(0, 3), "width": Values(*WIDTHS)}, launch)
