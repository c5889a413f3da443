"""Functions of URLs."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping

import polars as pl

from penstock.sql.functions.contract import Arguments, Family, map_batches

WEB = Family("URLs")

_URL = r"^(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?$"
#: what java.net.URI refuses: blanks, quotes, braces, a percent sign without two digits, a bare scheme
_WRONG = r"[\x00-\x20\x7F\"<>\\^`{|}]|%(?:[^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)|^[A-Za-z][A-Za-z0-9+.-]*:$"
_OPAQUE = r"^[A-Za-z][A-Za-z0-9+.-]*:[^/]"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_TOP = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"^(?:[^@]*@)?((?:{_LABEL}\.)*{_TOP}\.?|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|\[[0-9A-Fa-f:.]+\])(?::\d*)?$"
_PIECES = ("scheme", "authority", "path", "query", "ref")
_PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")
_UNRESERVED = string.ascii_letters + string.digits + ".-_*"
#: ASCII characters to their codes, and codes to characters
_CODES = {chr(code): f"%{code:02X}" for code in range(128) if chr(code) not in _UNRESERVED} | {" ": "+"}
_CHARACTERS = {f"%{digits}": chr(code) for code in range(128) for digits in {f"{code:02X}", f"{code:02x}"}}
_NO_CODE = r"%(?:[^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)"
_DIGITS = "0123456789abcdefABCDEF"
#: UTF-8 as pairs of digits with a blank after each, so that matches start at a byte
_UTF8 = (
    r"^(?:[0-7]. |(?:c[2-9a-f]|d.) [89ab]. |e0 [ab]. [89ab]. |e[1-9a-cef] [89ab]. [89ab]. |ed [89]. [89ab]. "
    r"|f0 [9ab]. [89ab]. [89ab]. |f[1-3] [89ab]. [89ab]. [89ab]. |f4 8. [89ab]. [89ab]. )*$"
)


@WEB.add(
    "parse_url",
    (2, 3),
    f"A part of a URL ({', '.join(_PARTS)}), or a parameter of its query; NULL if absent.",
    "parse_url('https://penstock.org/docs?page=2', 'QUERY', 'page')",
    "'2'",
)
def _parse_url(args: Arguments) -> pl.Expr:
    text, part = args.text(0), args.literal_text(1)
    if part not in _PARTS:
        raise args.error(1, f"one of {', '.join(_PARTS)}")
    if len(args) > 2 and part != "QUERY":
        raise args.error(1, "QUERY, because a parameter is requested")
    address = pl.when(~text.str.contains(_WRONG)).then(text)
    bound = pl.struct(parts=address.str.extract_groups(_URL), opaque=address.str.contains(_OPAQUE)).struct
    pieces = {name: pl.field("parts").struct.field(str(at)) for at, name in enumerate(_PIECES, 1)}
    sound = ~pieces["path"].str.contains(r"[\[\]]")
    value = _extract_part(args, part, pieces, ~pl.field("opaque"))
    return bound.with_fields(it=pl.when(sound).then(value)).struct.field("it")


def _extract_part(args: Arguments, part: str, pieces: Mapping[str, pl.Expr], open_: pl.Expr) -> pl.Expr:
    """One part of a URL from its pieces; only where `open_` holds has it a path and a query."""
    authority = pl.when(pieces["authority"] != "").then(pieces["authority"])
    path, query = (pl.when(open_).then(pieces[name]) for name in ("path", "query"))
    match part:
        case "HOST":
            return authority.str.extract(_HOST, 1)
        case "PATH":
            return path
        case "QUERY" if len(args) > 2:
            return query.str.extract(rf"(?:^|&){re.escape(args.literal_text(2))}=([^&]*)", 1)
        case "QUERY":
            return query
        case "REF":
            return pieces["ref"]
        case "PROTOCOL":
            return pieces["scheme"]
        case "FILE":
            return pl.when(query.is_null()).then(path).otherwise(path + pl.lit("?") + query)
        case "AUTHORITY":
            return authority
        case _:
            return pl.when(authority.str.contains(_HOST)).then(authority.str.extract(r"^([^@]*)@", 1))


@WEB.add(
    "url_encode",
    (1, 1),
    "Encodes a string as form data: a space becomes +, other special characters % and hexadecimal digits.",
    "url_encode('a b&c')",
    "'a+b%26c'",
)
def _url_encode(args: Arguments) -> pl.Expr:
    return map_batches("url_encode", _encode, pl.String, args.text(0))


def _encode(text: pl.Series) -> pl.Series:
    """Encode ASCII character by character; other texts, which are fewer, byte by byte."""
    easy = text.str.replace_many(list(_CODES), list(_CODES.values()))
    hard = text.str.contains(r"[^\x00-\x7F]").fill_null(False)
    if not hard.any():
        return easy
    codes = text.filter(hard).str.encode("hex").str.to_uppercase().str.replace_all(r"(..)", "%${1}")
    table = {f"%{ord(letter):02X}": letter for letter in _UNRESERVED} | {"%20": "+"}
    return easy.scatter(hard.arg_true(), codes.str.replace_many(list(table), list(table.values())))


@WEB.add(
    "url_decode try_url_decode",
    (1, 1),
    "Decodes what `url_encode` encodes; NULL for malformed input.",
    "url_decode('a+b%26c')",
    "'a b&c'",
)
def _url_decode(args: Arguments) -> pl.Expr:
    return map_batches("url_decode", _decode, pl.String, args.text(0))


def _decode(encoded: pl.Series) -> pl.Series:
    """Decode codes of ASCII one by one; texts with others, which are fewer, byte by byte. NULL for a malformed code."""
    text = encoded.str.replace_all("+", " ", literal=True)
    easy = text.str.replace_many(list(_CHARACTERS), list(_CHARACTERS.values()))
    wrong = text.str.contains(_NO_CODE).fill_null(False)
    hard = text.str.contains("%[89A-Fa-f]").fill_null(False) & ~wrong
    if wrong.any():
        easy = easy.scatter(wrong.arg_true(), None)
    if hard.any():
        easy = easy.scatter(hard.arg_true(), _from_bytes(text.filter(hard)))
    return easy


def _from_bytes(text: pl.Series) -> pl.Series:
    codes = text.str.encode("hex").str.replace_all(r"(..)", "${1} ")
    table = {
        f"25 {ord(high):02x} {ord(low):02x} ": f"{high}{low} ".lower() for high in _DIGITS for low in _DIGITS
    }
    decoded = codes.str.replace_many(list(table), list(table.values()))
    sound = decoded.set(~decoded.str.contains(_UTF8), None)
    return sound.str.replace_all(" ", "", literal=True).str.decode("hex").cast(pl.String)
