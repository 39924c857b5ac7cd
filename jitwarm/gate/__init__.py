"""Judging a change: what `check` and `compare` conclude, by which rule, from which numbers.

Counts are exact: any difference from the reviewed expectation fails. Times are noisy: base and head
are measured in pairs and judged by a calibrated rule. Both end in one `Verdict`.
"""
