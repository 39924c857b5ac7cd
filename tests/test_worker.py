"""What a measuring process says of its first steps."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

from jitwarm.worker import _replay


class Model:
    """Imports modules in the first step of each kind, as a lazy library does."""

    def step(self, batch):
        for name in batch:
            importlib.import_module(name)


def test_modules_that_the_first_steps_import_are_counted(tmp_path, monkeypatch):
    names = [f"lazily_imported_{number}" for number in range(3)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    device = SimpleNamespace(synchronize=lambda: None)
    monitor = SimpleNamespace(step=-1, launches=lambda: {"k": 2}, seen=lambda: 2)
    batches = [names[:1], names[1:], names, []]
    plan = SimpleNamespace(batches=batches, first_prefill=0, first_decode=1, later_prefill=(2,),
                           later_decode=(3,))  # fmt: skip
    times = _replay(Model(), device, monitor, plan)
    assert (times.imports, times.first_prefill_step, monitor.step) == ((1, 2), 0, 3)
    plan.first_prefill = None
    assert _replay(Model(), device, monitor, plan).imports == (0, 0)  # they are there by now
