"""Host time of one warmed launch, by style.

    python -m measurements.launch_cost [--device stub|cuda] [--json]

All styles launch the same kernel with the same grid and arguments in one process:

    native            hand-written kernel[grid](...); jitwarm has never seen the kernel
    native, with key  the same, through a key that it makes on each call as the class does
    declared          the native launch of a kernel that is declared and warmed
    declared, counted the same while a Monitor counts hits
    class             a TritonJitKernel with kernel_launcher

A round is `--launches` launches of each style in bursts that alternate between the styles, so that
drift of the machine meets all alike. The figure of a round is its median burst, the figure shown
the median round; spread is (largest - smallest) / median over the rounds. Ratios and differences
are taken within a round first. The device's queue is empty when a burst begins; no garbage is
collected in one. On a stub device the launcher is a no-op: what is left is Triton's and our Python.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tabulate import tabulate

from jitwarm import __version__
from jitwarm.device import Device, activate
from jitwarm.observe.monitor import Monitor
from jitwarm.plan import make_plan
from jitwarm.registry import JitWarmupRegistry
from jitwarm.warm import warm

BURST = 500
NATIVE, KEYED, DECLARED, COUNTED, CLASS = (
    "native",
    "native, with key",
    "declared",
    "declared, counted",
    "class",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One style: microseconds a launch, spread of its rounds, ratios to the hand-written styles,
    microseconds above `native`.
    """

    style: str
    us: float
    spread: float
    to_native: float
    to_keyed: float
    added_us: float


@dataclass(frozen=True, slots=True)
class Target:
    """A limit that the figures should keep."""

    text: str
    limit: float
    value: float

    @property
    def met(self) -> bool:
        """Whether it is kept."""
        return self.value <= self.limit


def measure(device: Device, rounds: int, launches: int) -> dict[str, list[float]]:
    """Microseconds a launch of each style in each round. Raises if a timed launch compiled."""
    import torch

    from measurements import launch_subject as subject

    x, y, out = (
        torch.ones((subject.ROWS, subject.COLS), device=device.torch_device) for _ in range(3)
    )
    arguments = (x, y, out, 0.5, 0.25, 1.0, True, False)
    declared = subject.hand_written(subject.declared_kernel)
    styles: dict[str, Any] = {
        NATIVE: subject.hand_written(subject.native_kernel),
        KEYED: subject.hand_written_with_key(subject.native_kernel),
        DECLARED: declared,
        COUNTED: declared,
        CLASS: subject.Scale,
    }
    styles[NATIVE](*arguments)  # compiles
    expected = out.clone()
    _warm_up(subject)
    with Monitor("record") as monitor:
        for style, call in styles.items():
            call(*arguments)
            device.synchronize()
            if not torch.equal(out, expected):
                raise RuntimeError(f"{style} computed something else than {NATIVE}")
        figures = _rounds(styles, arguments, device, rounds, launches)
    if monitor.events:
        raise RuntimeError(f"not warmed: {monitor.events[0].kind} of {monitor.events[0].kernel}")
    return figures


def _warm_up(subject: Any) -> None:
    registry = JitWarmupRegistry()
    with registry.activate():
        subject.Declared.register_warmup()
        subject.Scale.register_warmup()
    warm(make_plan(registry)).raise_failures()


def _rounds(
    styles: dict[str, Any], arguments: Sequence[Any], device: Device, rounds: int, launches: int
) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {style: [] for style in styles}
    names = list(styles)
    for turn in range(rounds):
        bursts: dict[str, list[float]] = {style: [] for style in styles}
        order = names[turn % len(names) :] + names[: turn % len(names)]
        gc.collect()
        gc.disable()
        burst = min(launches, BURST)
        for _ in range(max(launches // BURST, 1)):
            for style in order:
                # A monitor without hit counting is on throughout: hits pass no hook of it.
                with Monitor("record", count_hits=style == COUNTED) as inner:
                    device.synchronize()
                    bursts[style].append(_burst(styles[style], arguments, burst))
                    if style == COUNTED and sum(inner.launches().values()) != burst:
                        raise RuntimeError(
                            f"{burst} launches were made, {inner.launches()} counted"
                        )
        gc.enable()
        for style, spent in bursts.items():
            figures[style].append(statistics.median(spent))
    return figures


def _burst(call: Any, arguments: Sequence[Any], count: int) -> float:
    start = time.perf_counter()
    for _ in itertools.repeat(None, count):
        call(*arguments)
    return (time.perf_counter() - start) * 1e6 / count


def summarise(figures: dict[str, list[float]]) -> tuple[list[Row], list[Target]]:
    """The table and the targets."""

    def ratio(style: str, reference: str) -> float:
        pairs = zip(figures[style], figures[reference], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def above(style: str, reference: str) -> float:
        pairs = zip(figures[style], figures[reference], strict=True)
        return statistics.median(a - b for a, b in pairs)

    rows = []
    for style, values in figures.items():
        middle = statistics.median(values)
        spread = (max(values) - min(values)) / middle
        rows.append(
            Row(
                style,
                middle,
                spread,
                ratio(style, NATIVE),
                ratio(style, KEYED),
                above(style, NATIVE),
            )
        )
    return rows, [
        Target("declared / native", 1.05, ratio(DECLARED, NATIVE)),
        Target("counting hits, us a launch", 0.5, above(COUNTED, DECLARED)),
        Target("class / native, with key", 1.3, ratio(CLASS, KEYED)),
    ]


def _text(header: dict[str, Any], rows: list[Row], targets: list[Target]) -> str:
    device = header["device"]
    where = f"{device['name']} {device['arch']}" if device["kind"] == "cuda" else device["name"]
    versions = ", ".join(f"{name} {value}" for name, value in header["versions"].items())
    table = tabulate(
        [
            (r.style, f"{r.us:.2f}", f"{r.spread:.0%}", r.to_native, r.to_keyed, r.added_us)
            for r in rows
        ],
        headers=["style", "us", "spread", "/ native", "/ with key", "+ us"],
        floatfmt=".2f",
        colalign=("left", "right", "right", "right", "right", "right"),
    )
    lines = [
        f"host time of a warmed launch: {where}; {versions}; {header['cores']} cores",
        f"medians of {header['rounds']} rounds of {header['launches']} launches",
        "kernel with 11 run-time and 4 constexpr arguments",
        "",
        table,
        "",
    ]
    lines += [
        f"{'met   ' if t.met else 'MISSED'}  {t.text}: {t.value:.2f} (at most {t.limit:.2f})"
        for t in targets
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 0 whether or not a target is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("stub", "cuda"), default="stub")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--launches", type=int, default=3000, help="launches a style and round")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    import torch
    import triton

    device = activate(options.device, "sm90" if options.device == "stub" else None)
    figures = measure(device, max(options.rounds, 1), max(options.launches, 1))
    rows, targets = summarise(figures)
    header = {
        "device": asdict(device),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "jitwarm": __version__,
        },
        "cores": os.cpu_count(),
        "rounds": options.rounds,
        "launches": options.launches,
    }
    if options.json:
        told = [asdict(target) | {"met": target.met} for target in targets]
        print(
            json.dumps(
                header | {"rows": [asdict(row) for row in rows], "targets": told, "raw_us": figures}
            )
        )
    else:
        print(_text(header, rows, targets))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
