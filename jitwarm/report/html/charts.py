"""The charts, as Vega-Lite specifications that Altair makes. Data comes to them on the page.

Colours are the page's own (`var(--...)`), so that dark mode and print need no other charts.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from jitwarm.errors import MissingExtraError

if TYPE_CHECKING:
    import altair as alt

PHASES = ("imports", "enumerate", "rest of planning", "compile", "from disk", "load", "warm-up")
COVERAGE = ("used", "missed", "never used")
STEPS = ("prefill", "decode")
MARKS = ("worse", "better", "changed", "open", "differs", "failed")
_MARK_COLOURS = ("worse", "better", "changed", "open", "worse", "worse")
_MARK_SHAPES = ("triangle-up", "triangle-down", "square", "diamond", "square", "cross")
BAR_STEP = 20


def check_extra() -> None:
    """Raise `MissingExtraError` unless the plots can be made."""
    for module, what in (("altair", "altair"), ("vl_convert", "vl-convert-python")):
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError("jitwarm report", what, "report")


def specifications() -> dict[str, dict[str, Any]]:
    """All charts by name. Raises `MissingExtraError` without the extra `report`."""
    check_extra()
    made = {
        "counts": _history(exact=True),
        "times": _history(exact=False),
        "phases": _phases(),
        "kernels": _kernels(),
        "funnel": _funnel(),
        "coverage": _coverage(),
        "arms": _arms(),
    }
    return {name: _specification(chart) for name, chart in made.items()}


def bundle() -> str:
    """The one JavaScript library that draws them: Vega, Vega-Lite and Vega-Embed, no network."""
    check_extra()
    import altair as alt
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    # No snippet of ours goes into it: its type stub wants one, its documentation does not.
    make: Any = vl_convert.javascript_bundle
    return str(make(vl_version=version))


def _specification(chart: Any) -> dict[str, Any]:
    made: dict[str, Any] = chart.properties(width="container").to_dict()
    # Altair's own frame and font sizes; the page has its own.
    made.pop("config", None)
    made.pop("$schema", None)
    return made


def _chart() -> alt.Chart:
    import altair as alt

    return alt.Chart(alt.NamedData("rows"))


def _var(name: str) -> str:
    return f"var(--{name})"


def _history(*, exact: bool) -> Any:
    """A number over commits: measured points, levels of a time, and the marks."""
    import altair as alt

    axis = alt.Axis(labelAngle=-40, labelOverlap="greedy", title=None, labelLimit=90)
    base = _chart().encode(x=alt.X("label:O", sort=None, axis=axis))
    axis_y = alt.Axis(title=None, tickMinStep=1) if exact else alt.Axis(title=None)
    value = alt.Y("value:Q", scale=alt.Scale(zero=False, padding=12), axis=axis_y)
    tips = [alt.Tooltip(f"{name}:N") for name in ("commit", "date", "shown", "what")]
    layers: list[Any] = []  # an axis of its own for none of them: they would be merged
    if exact:
        line = base.mark_line(interpolate="step-after", strokeWidth=1.5, color=_var("c1"))
        layers.append(line.encode(y=value, detail="stretch:N"))
    else:
        spread = base.mark_rule(color=_var("muted"), strokeWidth=3, opacity=0.45)
        layers.append(spread.encode(y=alt.Y("low:Q", axis=axis_y), y2="high:Q"))
        level = base.mark_line(color=_var("c1"), strokeWidth=2)
        layers.append(level.encode(y=alt.Y("level:Q", axis=axis_y), detail="segment:N"))
    points = base.mark_point(filled=True, size=22, color=_var("ink"), opacity=0.8)
    layers.append(points.encode(y=value, tooltip=tips))
    anew = base.transform_filter("datum.mark === 'anew'").mark_rule(
        color=_var("muted"), strokeWidth=1.5, strokeDash=[4, 3]
    )
    layers.append(anew.encode(tooltip=tips))
    happened = base.transform_filter("isValid(datum.mark) && datum.mark !== 'anew'")
    marks = happened.mark_point(filled=True, size=110, opacity=1, stroke=_var("card"))
    layers.append(
        marks.encode(
            y=alt.Y("place:Q", axis=axis_y),
            color=_scaled("mark", MARKS, _MARK_COLOURS, legend=False),
            shape=alt.Shape(
                "mark:N", scale=alt.Scale(domain=list(MARKS), range=list(_MARK_SHAPES)), legend=None
            ),
            tooltip=tips,
        )
    )
    return alt.layer(*layers).properties(height=130)


def _phases() -> Any:
    import altair as alt

    colours = ("c5", "c3", "c4", "c1", "c2", "c6", "c1")
    return (
        _chart()
        .mark_bar()
        .encode(
            y=alt.Y("label:O", sort=None, axis=alt.Axis(title=None)),
            x=alt.X("s:Q", title="seconds", stack="zero"),
            color=_scaled("phase", PHASES, colours, legend=True),
            order=alt.Order("order:Q"),
            tooltip=["label:N", "phase:N", "shown:N"],
        )
        .properties(height=alt.Step(BAR_STEP))
    )


def _kernels() -> Any:
    import altair as alt

    base = _chart().encode(
        y=alt.Y("kernel:O", sort=None, axis=alt.Axis(title=None)), tooltip=["kernel:N", "shown:N"]
    )
    bars = base.mark_bar(color=_var("c1")).encode(x=alt.X("s:Q", title="worker seconds"))
    before = base.mark_tick(color=_var("ink"), thickness=2.5, size=16)
    return alt.layer(bars, before.encode(x="before:Q")).properties(height=alt.Step(BAR_STEP))


def _funnel() -> Any:
    import altair as alt

    scale = alt.Scale(type="symlog", domainMin=0, nice=False, padding=28)
    base = _chart().encode(y=alt.Y("stage:O", sort=None, axis=alt.Axis(title=None)))
    ticks = [0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000]
    # Not format="~s": a scale gives all its ticks one prefix, and 1 becomes 0k.
    short = "datum.value < 1000 ? datum.value : format(datum.value, '~s')"
    axis = alt.Axis(title=None, values=ticks, labelExpr=short)
    x = alt.X("n:Q", scale=scale, axis=axis)
    rules = base.mark_rule(color=_var("c1"), strokeWidth=3).encode(x=x, x2=alt.datum(0))
    points = base.mark_point(filled=True, size=90, color=_var("c1"), opacity=1)
    labels = base.mark_text(align="left", dx=8, color=_var("ink"), fontWeight="bold")
    points = points.encode(x=x, tooltip=["stage:N", "shown:N"])
    layers = alt.layer(rules, points, labels.encode(x=x, text="shown:N"))
    return layers.properties(height=alt.Step(24))


def _coverage() -> Any:
    import altair as alt

    return (
        _chart()
        .mark_bar()
        .encode(
            y=alt.Y("kernel:O", sort=None, axis=alt.Axis(title=None)),
            x=alt.X("n:Q", title="backend keys", stack="zero", axis=alt.Axis(tickMinStep=1)),
            color=_scaled("state", COVERAGE, ("c3", "worse", "c5"), legend=True),
            order=alt.Order("order:Q"),
            tooltip=["kernel:N", "state:N", "n:Q"],
        )
        .properties(height=alt.Step(BAR_STEP))
    )


def _arms() -> Any:
    """First steps and their repeats, on a logarithmic scale, with what stalled them."""
    import altair as alt

    scale = alt.Scale(type="log", nice=True, padding=8)
    base = _chart().encode(y=alt.Y("row:O", sort=None, axis=alt.Axis(title=None)))
    x = alt.X("first:Q", scale=scale, axis=alt.Axis(title="ms, logarithmic", tickCount=5))
    colour = _scaled("step", STEPS, ("c1", "c2"), legend=True)
    tips = [alt.Tooltip(f"{name}:N") for name in ("row", "shown", "repeats", "events")]
    rules = base.mark_rule(strokeWidth=2.5, opacity=0.7).encode(x="later:Q", x2="first:Q")
    later = base.mark_tick(thickness=2.5, size=14).encode(x=alt.X("later:Q"), tooltip=tips)
    first = base.mark_point(filled=True, size=110, opacity=1).encode(x=x, tooltip=tips)
    layers = [one.encode(color=colour) for one in (rules, later, first)]
    for side, mark in (
        ("right", alt.MarkDef(type="text", align="left", dx=10, dy=-9, fontSize=11)),
        ("left", alt.MarkDef(type="text", align="right", dx=-10, dy=-9, fontSize=11)),
    ):
        label = base.transform_filter(f"datum.side === '{side}'")
        label.mark = mark
        layers.append(label.encode(x=x, text="label:N", color=alt.value(_var("ink"))))
    return alt.layer(*layers).properties(height=alt.Step(34))


def _scaled(field: str, names: tuple[str, ...], colours: tuple[str, ...], *, legend: bool) -> Any:
    import altair as alt

    shown: Any = alt.Legend(title=None, orient="top", columns=3) if legend else None
    scale = alt.Scale(domain=list(names), range=[_var(one) for one in colours])
    return alt.Color(f"{field}:N", scale=scale, legend=shown)
