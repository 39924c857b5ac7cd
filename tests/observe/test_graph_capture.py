"""A real CUDA graph capture: noticed without being told, refused before it is spoiled, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

TEXT = """
import torch
from jitwarm import Monitor, device
from jitwarm.errors import CompileRefused
import launch_subjects as subjects

device.activate("cuda")
x = torch.arange(64, device="cuda", dtype=torch.float32)
out = torch.zeros_like(x)
launch = lambda n, block: subjects.scale[(1,)](x, out, n, BLOCK=block)
with Monitor():  # what is compiled before anybody watches is not counted
    launch(17, 32)  # compiled and loaded: start-up
torch.cuda.synchronize()

def captured(*launches, mode="record"):
    graph = torch.cuda.CUDAGraph()
    with Monitor(mode, count_hits=True) as monitor:
        with torch.cuda.graph(graph):
            for n, block in launches:
                launch(n, block)
    return graph, monitor

graph, monitor = captured((17, 32))
assert monitor.events == [], monitor.events
assert sum(monitor.launches().values()) == 1, monitor.launches()
out.zero_()
graph.replay()
torch.cuda.synchronize()
assert out[:17].tolist() == x[:17].tolist() and not out[17:].any()

refusal = None
with Monitor("error") as monitor:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(17, 32)
        try:
            launch(17, 64)
        except CompileRefused as error:
            refusal = error
assert refusal is not None
assert [(e.kind, e.phase) for e in monitor.events] == [("refused", "capture")], monitor.events
(finding,) = monitor.findings()
assert finding.kind == "CAPTURE-UNSAFE" and "BLOCK:constexpr=64" in finding.seen, finding
out.zero_()
graph.replay()  # the refusal left the capture whole
torch.cuda.synchronize()
assert out[:17].tolist() == x[:17].tolist()

graph, monitor = captured((17, 128))
kinds = [(e.kind, e.phase) for e in monitor.events]
assert kinds[0] == ("compile", "capture") and set(kinds) <= {kinds[0], ("load", "capture")}, kinds
assert [f.kind for f in monitor.findings()] == ["CAPTURE-UNSAFE"], monitor.findings()
print("captured")
"""


@pytest.mark.gpu
def test_a_graph_capture(fresh_process):
    subjects = Path(__file__).parents[1] / "backends" / "triton"
    assert fresh_process(TEXT, path=[subjects]) == "captured\n"
