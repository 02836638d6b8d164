"""Published results computed again, one file each; `presilicon.study.reproduce` runs them.

A reproduction is a function `reproduce()` that returns a `Reproduction`. One that trains takes `on_event` and calls it
with the events of its training, so that they can be recorded.

Its verdict is `conclude(statements, rows)` (`verdicts`): every statement is decided by the rows that are reported, and
can come out either way (docs/decisions/verdicts.md).
"""
