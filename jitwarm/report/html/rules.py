"""How the marks come to be, as the page says it; docs/report.md says it at more length."""

from __future__ import annotations

from jitwarm.history.steps import FEW, LEAST_CHANGE, LEAST_NOISE, LIMIT, SIDE

RULES = f"""
<section id="rules"><h2>How to read the marks</h2><ul>
<li><b>Counts</b> (keys, binaries, misses, compiles) are exact: every change is marked,
<i>worse</i> or <i>better</i>, however small. Two clean runs of one commit in one environment that
do not agree are marked <i>differs</i>: that count is not deterministic.</li>
<li><b>Times</b> are noisy. A step has at least {SIDE} runs on each side, changes the median by at
least {LEAST_CHANGE:.0%}, and by at least {LIMIT:g}&nbsp;(1&nbsp;+&nbsp;{FEW}&nbsp;/&nbsp;runs)
times the noise that medians of so many runs have. Noise is the usual distance from one run to the
next (its median, times 1.05), never taken below {LEAST_NOISE:.0%}; a step moves one of these
distances only, so it does not hide itself. The runs next to a step have to be nearer to their own
side's median.</li>
<li>Below {FEW} runs no time is judged. One or two newest runs that lie off are <i>open</i>: too
few to call it a step. A slow drift is no step.</li>
<li>Runs are ordered by the date of their commit, then by their start. A + behind a commit means
that files differed from it.</li>
<li><i>anew</i>: the case was asked otherwise, or asv has another version of the benchmark;
numbers before and after are not compared. Another device is another case. Another driver or
version is written beside a mark, because it may be the cause.</li>
<li><i>failed</i>: there was no number. <i>skipped</i>: asv has "n/a" where it had a number, which
can hide a loss.</li>
<li>In a chart of times the dots are runs and the line is the level; a bar behind a dot is the
range of its processes (asv: its quartiles). ▲ worse, ▼ better, ◆ open, ■ changed,
✚ failed; a dashed line: anew.</li>
</ul></section>
"""
