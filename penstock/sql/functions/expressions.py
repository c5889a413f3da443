"""Java's regular expressions in the dialect of Polars' engine, or a clear refusal.

Both read most patterns alike. Written anew are: classes that mean ASCII in Java and all of Unicode here (`\\d`, `\\w`,
`\\s`, `\\p{Alpha}`), the dot, which stops at more ends of lines in Java, and quotations (`\\Q...\\E`).
Refused is what an engine that never goes back cannot do: look-around, back-references, possessive quantifiers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import polars as pl

from penstock.sql.functions.contract import Given

_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_ANY = r"[\s\S]"
_CLASSES = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": r" \t\n\x0B\f\r",
    "h": r" \t\xA0\x{1680}\x{180e}\x{2000}-\x{200a}",
}
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7F",
    "Alpha": "A-Za-z",
    "Digit": "0-9",
    "Alnum": "0-9A-Za-z",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1F\x7F",
    "XDigit": "0-9A-Fa-f",
    "Space": r" \t\n\x0B\f\r",
}
#: escapes that mean the same in both
_SAME = set("tnrfaAzDWSHpPxu0") | set(".^$*+?()[]{}|\\/-&~#<>:;,=!@%\"'`_ ")


@dataclass
class _Reading:
    given: Given
    at: int
    text: str
    place: int = 0
    out: list[str] = field(default_factory=list)
    #: whether the dot takes line ends, for each group that is open
    dots: list[bool] = field(default_factory=lambda: [False])

    def refuse(self, what: str) -> Exception:
        return self.given.bad(
            self.at, f"a regular expression without {what}", hint="Polars' engine has none."
        )

    def peek(self, many: int = 1) -> str:
        return self.text[self.place : self.place + many]

    def take(self, many: int = 1) -> str:
        taken = self.peek(many)
        self.place += many
        return taken


def translated(given: Given, at: int) -> str:
    """A literal's regular expression for Polars; `BAD_ARGUMENT` if there is no such."""
    reading = _Reading(given, at, given.said_text(at))
    while reading.place < len(reading.text):
        _step(reading)
    pattern = "".join(reading.out)
    try:
        pl.select(pl.lit("").str.contains(pattern))
    except pl.exceptions.PolarsError as failure:
        raise given.bad(at, "a regular expression", hint=str(failure).strip().splitlines()[-1]) from None
    return pattern


def groups(pattern: str) -> list[str]:
    """The groups a translated pattern captures: their names, or their numbers."""
    frame = pl.LazyFrame(schema={"text": pl.String}).select(pl.col("text").str.extract_groups(pattern))
    struct = frame.collect_schema()["text"]
    return [field.name for field in struct.fields] if isinstance(struct, pl.Struct) else []


def takes_nothing(pattern: str) -> bool:
    """Whether a pattern is found in a text without characters."""
    return bool(pl.select(pl.lit("").str.contains(pattern)).item())


def _step(reading: _Reading) -> None:
    sign = reading.take()
    if sign == "\\":
        _escape(reading, inside=False)
    elif sign == "[":
        _class(reading)
    elif sign == "(":
        _group(reading)
    elif sign == ")":
        if len(reading.dots) > 1:
            reading.dots.pop()
        reading.out.append(sign)
    elif sign == ".":
        reading.out.append(_ANY if reading.dots[-1] else _DOT)
    elif sign in "*+?}" and reading.peek() == "+":
        raise reading.refuse("possessive quantifiers")
    else:
        reading.out.append(sign)


def _group(reading: _Reading) -> None:
    dots = reading.dots[-1]
    if reading.peek() != "?":
        reading.out.append("(")
    elif reading.peek(2) == "?:":
        reading.out.append("(" + reading.take(2))
    elif reading.peek(2) in ("?=", "?!") or reading.peek(3) in ("?<=", "?<!"):
        raise reading.refuse("look-around")
    elif reading.peek(2) == "?>":
        raise reading.refuse("atomic groups")
    elif name := re.match(r"\?<[A-Za-z][A-Za-z0-9]*>", reading.text[reading.place :]):
        reading.out.append("(" + reading.take(name.end()))
    elif flags := re.match(r"\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])", reading.text[reading.place :]):
        reading.take(flags.end())
        on, off = flags[1], flags[2] or ""
        if set(on + off) - set("ims"):
            raise reading.refuse("other flags than i, m and s")
        dots = ("s" in on or dots) and "s" not in off
        said = on.replace("s", "") + (f"-{off.replace('s', '')}" if off.replace("s", "") else "")
        if flags[3] == ")":
            reading.dots[-1] = dots
            reading.out.append(f"(?{said})" if said else "")
            return
        reading.out.append(f"(?{said}:")
    else:
        raise reading.given.bad(reading.at, "a regular expression")
    reading.dots.append(dots)


def _escape(reading: _Reading, inside: bool) -> None:
    """What follows a backslash, in a class (`inside`) or out of one."""
    sign = reading.take()
    if sign in _CLASSES:
        reading.out.append(_CLASSES[sign] if inside else f"[{_CLASSES[sign]}]")
    elif sign in "DWSH" and sign:
        reading.out.append(f"[^{_CLASSES[sign.lower()]}]")
    elif sign == "Q":
        quoted, _, _ = reading.text[reading.place :].partition("\\E")
        reading.place = min(reading.place + len(quoted) + 2, len(reading.text))
        reading.out.append(re.escape(quoted))
    elif sign in "bB" and sign and not inside:
        reading.out.append(f"\\{sign}")
    elif sign in "pP" and sign:
        _property(reading, sign, inside)
    elif sign == "u" and re.fullmatch("[0-9A-Fa-f]{4}", reading.peek(4)):
        reading.out.append(rf"\x{{{reading.take(4)}}}")
    elif sign == "e":
        reading.out.append(r"\x1B")
    elif sign.isdigit() or sign == "k":
        raise reading.refuse("back-references" if sign != "0" else "octal codes")
    elif sign in _SAME and sign:
        reading.out.append(re.escape(sign) if not sign.isalnum() else f"\\{sign}")
    else:
        raise reading.refuse(f"\\{sign}" if sign else "a backslash at its end")


def _property(reading: _Reading, sign: str, inside: bool) -> None:
    named = re.match(r"\{(\w+)\}|(\w)", reading.text[reading.place :])
    if named is None:
        raise reading.given.bad(reading.at, "a regular expression")
    reading.take(named.end())
    name = named[1] or named[2]
    if name in _POSIX:
        taken = _POSIX[name]
        reading.out.append(f"[^{taken}]" if sign == "P" else taken if inside else f"[{taken}]")
        return
    if name.startswith(("java", "In")):
        raise reading.refuse(f"\\{sign}{{{name}}}")
    reading.out.append(rf"\{sign}{{{name.removeprefix('Is')}}}")


def _class(reading: _Reading) -> None:
    """A class in brackets, and those in it."""
    reading.out.append("[")
    if reading.peek() == "^":
        reading.out.append(reading.take())
    first = True
    while reading.place < len(reading.text):
        sign = reading.take()
        if sign == "]" and not first:
            reading.out.append("]")
            return
        if sign == "[":
            _class(reading)
        elif sign == "\\":
            _escape(reading, inside=True)
        elif sign == "&" and reading.peek() == "&":
            reading.out.append("&" + reading.take())
        else:
            reading.out.append(f"\\{sign}" if sign in "]&~" else sign)
        first = False
    raise reading.given.bad(reading.at, "a regular expression", hint="A bracket is not closed.")


def replacement(given: Given, at: int, captured: list[str]) -> str:
    """Java's replacement ($1, ${name}, \\$) as Polars writes it (${1}, $$)."""
    text, out, place = given.said_text(at), [], 0
    while place < len(text):
        sign = text[place]
        place += 1
        if sign == "\\":
            out.append(text[place : place + 1].replace("$", "$$"))
            place += 1
        elif sign != "$":
            out.append(sign)
        elif name := re.match(r"\{([A-Za-z][A-Za-z0-9]*)\}", text[place:]):
            if name[1] not in captured:
                raise given.bad(at, "text with names of groups")
            out.append(f"${name[0]}")
            place += name.end()
        else:
            number, place = _number(given, at, len(captured), place)
            out.append(f"${{{number}}}")
    return "".join(out)


def _number(given: Given, at: int, captured: int, place: int) -> tuple[int, int]:
    """The group's number that begins here: as many digits as there is a group for."""
    text = given.said_text(at)
    if not text[place : place + 1].isdigit() or int(text[place]) > captured:
        raise given.bad(at, f"text whose $ stand before the number of a group up to {captured}, or behind \\")
    end = place + 1
    while text[end : end + 1].isdigit() and int(text[place : end + 1]) <= captured:
        end += 1
    return int(text[place:end]), end
