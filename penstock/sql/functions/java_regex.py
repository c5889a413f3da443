"""Translate Java's regular expressions to the dialect of Polars' engine, or refuse them.

Most patterns mean the same in both. Translated are classes that mean ASCII in Java and all of Unicode in Polars (`\\d`,
`\\w`, `\\s`, `\\p{Alpha}`), the dot, which excludes more line ends in Java, and quotations (`\\Q...\\E`).
Refused is what an engine without backtracking cannot match: look-around, back-references, possessive quantifiers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import polars as pl

from penstock.query.purity import matches_empty, try_pattern
from penstock.sql.functions.contract import Arguments

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
class _Translation:
    """A pattern, how far it has been read, and what it became."""

    args: Arguments
    at: int
    text: str
    place: int = 0
    out: list[str] = field(default_factory=list)
    #: whether the dot matches line ends, for each open group
    dots: list[bool] = field(default_factory=lambda: [False])

    def refuse(self, what: str) -> Exception:
        return self.args.error(
            self.at, f"a regular expression without {what}", hint="Polars' engine has none."
        )

    def peek(self, many: int = 1) -> str:
        return self.text[self.place : self.place + many]

    def take(self, many: int = 1) -> str:
        text = self.peek(many)
        self.place += many
        return text


def translate_regex(args: Arguments, at: int) -> str:
    """Translate the regular expression of a literal argument; BAD_ARGUMENT if that is impossible."""
    translation = _Translation(args, at, args.literal_text(at))
    while translation.place < len(translation.text):
        _step(translation)
    pattern = "".join(translation.out)
    try:
        try_pattern(matches_empty, pattern)
    except pl.exceptions.PolarsError as failure:
        raise args.error(at, "a regular expression", hint=str(failure).strip().splitlines()[-1]) from None
    return pattern


def groups(pattern: str) -> list[str]:
    """The groups of a translated pattern, by name or number."""
    return try_pattern(_find_groups, pattern)


def _find_groups(pattern: str) -> list[str]:
    frame = pl.LazyFrame(schema={"text": pl.String}).select(pl.col("text").str.extract_groups(pattern))
    struct = frame.collect_schema()["text"]
    return [field.name for field in struct.fields] if isinstance(struct, pl.Struct) else []


def can_be_empty(pattern: str) -> bool:
    """Whether a translated pattern matches the empty text."""
    return try_pattern(matches_empty, pattern)


def _step(translation: _Translation) -> None:
    sign = translation.take()
    if sign == "\\":
        _escape(translation, inside=False)
    elif sign == "[":
        _class(translation)
    elif sign == "(":
        _group(translation)
    elif sign == ")":
        if len(translation.dots) > 1:
            translation.dots.pop()
        translation.out.append(sign)
    elif sign == ".":
        translation.out.append(_ANY if translation.dots[-1] else _DOT)
    elif sign in "*+?}" and translation.peek() == "+":
        raise translation.refuse("possessive quantifiers")
    else:
        translation.out.append(sign)


def _group(translation: _Translation) -> None:
    dots = translation.dots[-1]
    if translation.peek() != "?":
        translation.out.append("(")
    elif translation.peek(2) == "?:":
        translation.out.append("(" + translation.take(2))
    elif translation.peek(2) in ("?=", "?!") or translation.peek(3) in ("?<=", "?<!"):
        raise translation.refuse("look-around")
    elif translation.peek(2) == "?>":
        raise translation.refuse("atomic groups")
    elif name := re.match(r"\?<[A-Za-z][A-Za-z0-9]*>", translation.text[translation.place :]):
        translation.out.append("(" + translation.take(name.end()))
    elif flags := re.match(r"\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])", translation.text[translation.place :]):
        translation.take(flags.end())
        on, off = flags[1], flags[2] or ""
        if set(on + off) - set("ims"):
            raise translation.refuse("other flags than i, m and s")
        dots = ("s" in on or dots) and "s" not in off
        rest = on.replace("s", "") + (f"-{off.replace('s', '')}" if off.replace("s", "") else "")
        if flags[3] == ")":
            translation.dots[-1] = dots
            translation.out.append(f"(?{rest})" if rest else "")
            return
        translation.out.append(f"(?{rest}:")
    else:
        raise translation.args.error(translation.at, "a regular expression")
    translation.dots.append(dots)


def _escape(translation: _Translation, inside: bool) -> None:
    """Translate what follows a backslash, in a class (`inside`) or outside."""
    sign = translation.take()
    if sign in _CLASSES:
        translation.out.append(_CLASSES[sign] if inside else f"[{_CLASSES[sign]}]")
    elif sign in "DWSH" and sign:
        translation.out.append(f"[^{_CLASSES[sign.lower()]}]")
    elif sign == "Q":
        quoted, _, _ = translation.text[translation.place :].partition("\\E")
        translation.place = min(translation.place + len(quoted) + 2, len(translation.text))
        translation.out.append(re.escape(quoted))
    elif sign in "bB" and sign and not inside:
        translation.out.append(f"\\{sign}")
    elif sign in "pP" and sign:
        _property(translation, sign, inside)
    elif sign == "u" and re.fullmatch("[0-9A-Fa-f]{4}", translation.peek(4)):
        translation.out.append(rf"\x{{{translation.take(4)}}}")
    elif sign == "e":
        translation.out.append(r"\x1B")
    elif sign.isdigit() or sign == "k":
        raise translation.refuse("back-references" if sign != "0" else "octal codes")
    elif sign in _SAME and sign:
        translation.out.append(re.escape(sign) if not sign.isalnum() else f"\\{sign}")
    else:
        raise translation.refuse(f"\\{sign}" if sign else "a backslash at its end")


def _property(translation: _Translation, sign: str, inside: bool) -> None:
    match = re.match(r"\{(\w+)\}|(\w)", translation.text[translation.place :])
    if match is None:
        raise translation.args.error(translation.at, "a regular expression")
    translation.take(match.end())
    name = match[1] or match[2]
    if name in _POSIX:
        members = _POSIX[name]
        translation.out.append(f"[^{members}]" if sign == "P" else members if inside else f"[{members}]")
        return
    if name.startswith(("java", "In")):
        raise translation.refuse(f"\\{sign}{{{name}}}")
    translation.out.append(rf"\{sign}{{{name.removeprefix('Is')}}}")


def _class(translation: _Translation) -> None:
    """Translate a class in brackets, and classes in it."""
    translation.out.append("[")
    if translation.peek() == "^":
        translation.out.append(translation.take())
    first = True
    while translation.place < len(translation.text):
        sign = translation.take()
        if sign == "]" and not first:
            translation.out.append("]")
            return
        if sign == "[":
            _class(translation)
        elif sign == "\\":
            _escape(translation, inside=True)
        elif sign == "&" and translation.peek() == "&":
            translation.out.append("&" + translation.take())
        else:
            translation.out.append(f"\\{sign}" if sign in "]&~" else sign)
        first = False
    raise translation.args.error(translation.at, "a regular expression", hint="A bracket is not closed.")


def replacement(args: Arguments, at: int, captured: list[str]) -> str:
    """Translate Java's replacement ($1, ${name}, \\$) to that of Polars (${1}, $$)."""
    text, out, place = args.literal_text(at), [], 0
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
                raise args.error(at, "text with names of groups")
            out.append(f"${name[0]}")
            place += name.end()
        else:
            number, place = _number(args, at, len(captured), place)
            out.append(f"${{{number}}}")
    return "".join(out)


def _number(args: Arguments, at: int, captured: int, place: int) -> tuple[int, int]:
    """Read a group number: as many digits as there is a group for."""
    text = args.literal_text(at)
    if not text[place : place + 1].isdigit() or int(text[place]) > captured:
        raise args.error(
            at, f"text in which $ precedes the number of a group up to {captured}, or follows \\"
        )
    end = place + 1
    while text[end : end + 1].isdigit() and int(text[place : end + 1]) <= captured:
        end += 1
    return int(text[place:end]), end
