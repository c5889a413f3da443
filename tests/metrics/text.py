"""Reads Prometheus' text format, strictly, for tests."""

from __future__ import annotations

import math
import re
from typing import Any

from penstock.metrics import Registry, expose

Sample = tuple[str, tuple[tuple[str, str], ...]]
_LINE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:\\.|[^"\\])*",?)*)\})? (\S+)$')
_LABEL = re.compile(r'([a-z_]+)="((?:\\.|[^"\\])*)"')


def parse(text: str) -> dict[Sample, float]:
    """Samples by name and labels. Every family is declared once, before its samples; histograms are cumulative."""
    found: dict[Sample, float] = {}
    kinds: dict[str, str] = {}
    family, helped = "", ""
    assert not text or text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split()[2]
            assert len(line.split()) > 3, line
        elif line.startswith("# TYPE "):
            _, _, family, kind = line.split()
            assert family not in kinds, f"{family} is declared twice"
            assert family == helped, f"{family} has no help"
            assert kind in ("counter", "gauge", "histogram")
            kinds[family] = kind
        else:
            match = _LINE.match(line)
            assert match is not None, line
            name, labels, value = match[1], tuple(_LABEL.findall(match[2] or "")), float(match[3])
            suffix = name.removeprefix(family)
            assert suffix in (("_bucket", "_sum", "_count") if kinds[family] == "histogram" else ("",)), line
            assert (name, labels) not in found, f"{line} is there twice"
            found[name, labels] = value
    for (name, labels), value in found.items():
        if name.endswith("_bucket") and dict(labels)["le"] == "+Inf":
            rest = tuple(label for label in labels if label[0] != "le")
            assert value == found[name.replace("_bucket", "_count"), rest]
            counts = [v for (n, of), v in found.items() if n == name and of[:-1] == rest]
            assert counts == sorted(counts)
            assert not math.isnan(value)
    return found


def exported(registry: Registry) -> dict[Any, float]:
    """Samples by name and values of labels."""
    return {
        (name.removeprefix("penstock_"), *(value for _, value in labels)): one
        for (name, labels), one in parse(expose(registry)).items()
    }
