"""
What a study shows while it runs: steps done, time and an estimate of what is left, and at the end what failed, with its log.

A plugin of Snakemake's logger. All else that Snakemake has to say is in its log, in ``.snakemake/log``.
"""

import logging
import re
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

interrupted = threading.Event()
"""Set by Ctrl-C: that steps end then is no failure."""


class LogHandler(LogHandlerBase):
    """Counts the steps; the queue of Snakemake's logger calls it from one thread."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self._left: Counter[str] = Counter()
        self._started: dict[int, tuple[str, str, float]] = {}
        self._took: dict[str, list[float]] = {}
        self._failed: dict[str, list[Path]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = record.__dict__
        event = fields.get("event")
        if event == LogEvent.RUN_INFO:
            self._left = Counter({name: n for name, n in fields["stats"].items() if name not in ("total", "all")})
        elif event == LogEvent.JOB_INFO:
            self._started[fields["jobid"]] = (fields["rule_name"], " ".join(fields["wildcards"].values()), time.monotonic())
            if self.common_settings.dryrun:
                reason = re.sub("Input files updated by another job: .*", "what it is made from will be new", fields["reason"])
                self._say(f"{' '.join(self._started[fields['jobid']][:2]).strip()}: {reason}")
        elif event == LogEvent.JOB_FINISHED:
            self._finished(fields["job_id"])
        elif event == LogEvent.PROGRESS:
            self._progress(fields["done"], fields["total"])
        elif interrupted.is_set():
            pass
        elif event == LogEvent.JOB_ERROR:
            rule, cell, _ = self._started.pop(fields["jobid"], (fields["rule_name"], "", 0.0))
            name = f"{rule} {cell}".strip()
            self._failed[name] = [Path(log).absolute() for log in fields["log"]]
            self._say(f"failed, the others go on: {name}")
        elif event == LogEvent.ERROR and fields.get("exception") in ("RuleException", "CalledProcessError"):
            pass  # of a step: said above
        elif (event is None and record.levelno >= logging.WARNING) or event == LogEvent.ERROR:
            self._say(record.getMessage())

    def _finished(self, job: int) -> None:
        rule, cell, start = self._started.pop(job, ("all", "", 0.0))
        if rule == "all":
            return
        seconds = time.monotonic() - start
        self._took.setdefault(rule, []).append(seconds)
        self._left[rule] -= 1
        self._say(f"{rule} {cell}".strip() + f": {_duration(seconds)}")

    def _progress(self, done: int, total: int) -> None:
        elapsed = time.monotonic() - self._begun
        at_once = max(sum(map(sum, self._took.values())) / elapsed, 1e-9)
        known = sum(n * sum(took) / len(took) for rule, n in self._left.items() if (took := self._took.get(rule)))
        unknown = any(n > 0 and rule not in self._took for rule, n in self._left.items())
        left = f", {'more than' if unknown else 'about'} {_duration(known / at_once)} left" if known else ""
        self._say(f"{done} of {total} steps, {_duration(elapsed)}{left}")

    def close(self) -> None:
        for name, logs in self._failed.items():
            last, where = "", ""
            for log in logs:
                lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
                last, where = f": {lines[-1].strip()}" if lines else "", f" (log: {log})"
            self._say(f"failed, the same command tries again: {name}{last}{where}")
        self._failed = {}
        super().close()

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    """In the two largest units."""
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    whole = round(seconds)
    for (name, size), (lower, part) in pairwise(units):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}" + (f" {rest} {lower}" if rest else "")
    return f"{whole} s"
