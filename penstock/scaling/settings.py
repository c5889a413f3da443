"""Declares every setting of the elastic loop once, with its unit and meaning; rejects contradictions.

Receives keywords or `key=value` texts; returns validated `ElasticSettings`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any

from penstock.duration import microseconds
from penstock.errors import UserError


def _setting(default: Any, unit: str, meaning: str) -> Any:
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


@dataclass(frozen=True)
class ElasticSettings:
    """When the fleet or a bucket map is changed, and how far."""

    upper_utilisation: float = _setting(
        0.8, "share", "above it executors are provisioned (StreamCloud's UUT)"
    )
    lower_utilisation: float = _setting(0.4, "share", "below it executors are decommissioned (LUT)")
    target_utilisation: float = _setting(0.6, "share", "what both of these aim at (TUT)")
    upper_imbalance: float = _setting(
        0.1, "share", "standard deviation of the slices' utilisation above which buckets are moved (UIT)"
    )
    minimum_improvement: float = _setting(
        0.05, "share", "by how much of it the imbalance must fall for a move to be made (MIT)"
    )
    cool_down_seconds: float = _setting(60.0, "seconds", "after a change nothing is decided for this long")
    largest_step: int = _setting(1000, "executors", "the most that are added or removed at once")
    least_executors: int = _setting(1, "executors", "the fleet is never smaller")
    most_executors: int = _setting(100, "executors", "the fleet is never larger, spare ones included")
    spare_executors: int = _setting(
        0, "executors", "kept warm beside the active ones: they are ready at once"
    )
    horizon_seconds: float = _setting(600.0, "seconds", "within it a change must gain more than it costs")
    dry_run: bool = _setting(False, "", "decide and record, but change nothing")
    window_seconds: float = _setting(30.0, "seconds", "measurements are smoothed over this long")
    patience_seconds: float = _setting(
        300.0, "seconds", "a utilisation must be too high or too low for this long, unless a backlog grows"
    )
    tolerated_backlog_seconds: float = _setting(
        10.0, "seconds", "with a longer backlog than this, `patience_seconds` does not count"
    )
    drain_seconds: float = _setting(300.0, "seconds", "a backlog should be drained within this long")
    slow_factor: float = _setting(
        1.5, "times", "an executor that needs this many times the usual seconds an event is a slow worker"
    )
    start_timeout_seconds: float = _setting(
        120.0, "seconds", "an executor that takes longer to start is requested again"
    )
    move_timeout_seconds: float = _setting(
        60.0, "seconds", "a move that takes longer is awaited `retries` times more, then withdrawn"
    )
    retries: int = _setting(2, "times", "how often a failed step is retried before the change is undone")

    def __post_init__(self) -> None:
        for one in fields(self):
            _check_range(one, getattr(self, one.name))
        self._less("lower_utilisation", "target_utilisation", "or the fleet would shrink right after it grew")
        self._less("target_utilisation", "upper_utilisation", "or the fleet would grow at its target")
        self._at_most("least_executors", "most_executors", "or no size would be allowed")
        self._at_most("window_seconds", "patience_seconds", "the patience must cover a window")
        if self.least_executors + self.spare_executors > self.most_executors:
            raise contradiction(
                f"least_executors={self.least_executors} and spare_executors={self.spare_executors} "
                f"together are more than most_executors={self.most_executors}",
                "The budget counts spare executors too: raise most_executors or keep fewer spare ones.",
            )

    def _less(self, low: str, high: str, why: str) -> None:
        if getattr(self, low) >= getattr(self, high):
            raise contradiction(
                f"{low}={getattr(self, low)} must be less than {high}={getattr(self, high)}, {why}",
                f"Lower {low} or raise {high}.",
            )

    def _at_most(self, low: str, high: str, why: str) -> None:
        if getattr(self, low) > getattr(self, high):
            raise contradiction(
                f"{low}={getattr(self, low)} must not be more than {high}={getattr(self, high)}: {why}",
                f"Lower {low} or raise {high}.",
            )


#: setting: (least, most, the allowed values in words)
_RANGES: dict[str, tuple[float, float, str]] = {
    "upper_utilisation": (1e-3, 1.0, "a share above 0 and up to 1"),
    "lower_utilisation": (1e-3, 1.0, "a share above 0 and up to 1"),
    "target_utilisation": (1e-3, 1.0, "a share above 0 and up to 1"),
    "upper_imbalance": (1e-3, 1.0, "a share above 0 and up to 1"),
    "minimum_improvement": (0.0, 0.99, "a share from 0 to below 1"),
    "cool_down_seconds": (0.0, 1e6, "a time, or 0 for none"),
    "largest_step": (1, 1e6, "at least 1"),
    "least_executors": (1, 1e6, "at least 1"),
    "most_executors": (1, 1e6, "at least 1"),
    "spare_executors": (0, 1e6, "0 or more"),
    "slow_factor": (1.05, 1e3, "more than 1, such as 1.5"),
    "retries": (0, 100, "0 to 100"),
}
_TIME = (1e-3, 1e7, "a time longer than nothing")


def _check_range(one: Field[Any], value: Any) -> None:
    if isinstance(one.default, bool):
        if not isinstance(value, bool):
            raise contradiction(
                f"{one.name} is yes or no, not {value!r}", f"Set {one.name}=true or {one.name}=false."
            )
        return
    least, most, allowed = _RANGES.get(one.name, _TIME)
    whole = isinstance(one.default, int)
    right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not right or not least <= value <= most:
        kind = "a whole number, " if whole else ""
        raise contradiction(f"{one.name}={value!r} is not possible", f"It is {kind}{allowed}.")


def contradiction(primary: str, hint: str) -> UserError:
    """The error for settings that contradict each other or are not possible."""
    return UserError("BAD_ELASTIC_SETTINGS", primary, hint=hint)


def parse_settings(texts: Iterable[str], base: ElasticSettings | None = None) -> ElasticSettings:
    """Parse settings from `key=value` texts, several separated by commas; times may be `5m`, shares `80%`."""
    known = {one.name: one for one in fields(ElasticSettings)}
    given: dict[str, Any] = {}
    for text in (part for several in texts for part in several.split(",") if part.strip()):
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or key not in known:
            raise UserError(
                "BAD_ELASTIC_SETTINGS",
                f"there is no setting {key!r}" if equals else f"{text!r} is not a setting",
                hint=f"Write key=value with one of {', '.join(known)}.",
            )
        given[key] = _value(known[key], value)
    return replace(base or ElasticSettings(), **given)


def _value(one: Field[Any], text: str) -> Any:
    try:
        if isinstance(one.default, bool):
            return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
        if isinstance(one.default, int):
            return int(text)
        if text.endswith("%"):
            return float(text[:-1]) / 100
        return float(text)
    except (KeyError, ValueError):
        if one.metadata["unit"] == "seconds":
            return microseconds(text) / 1e6
        example = {"": "true", "share": "0.6 or 60%"}.get(one.metadata["unit"], "2")
        raise contradiction(f"{one.name}={text} cannot be parsed", f"Write {one.name}={example}.") from None
