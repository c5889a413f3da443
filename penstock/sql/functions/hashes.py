"""Hashes of text in hexadecimal digits, and other encodings of bytes."""

from __future__ import annotations

import polars as pl
import polars_hash  # noqa: F401 - adds to expressions `chash` and `nchash`

from penstock.sql.functions.contract import Arguments, Family

HASHES = Family("Hashes and encodings")

_SHA2 = {0: "sha2_256", 224: "sha2_224", 256: "sha2_256", 384: "sha2_384", 512: "sha2_512"}
_HEX = "0123456789ABCDEF"
_BITS = "".join(f"{digit:04b}" for digit in range(16))


@HASHES.add("md5", (1, 1), "MD5 digest of a string.", "md5('penstock')", "'f42fda1779d988af1b9d70ab49258b21'")
def _md5(args: Arguments) -> pl.Expr:
    return _hash(args.text(0), "nchash", "md5")


@HASHES.add(
    "sha1 sha",
    (1, 1),
    "SHA-1 digest of a string.",
    "sha1('penstock')",
    "'b8520015a39ef98625f2c9a0d429c3f68d8f1f7b'",
)
def _sha1(args: Arguments) -> pl.Expr:
    return _hash(args.text(0), "nchash", "sha1")


@HASHES.add(
    "sha2",
    (2, 2),
    "SHA-2 digest of a string with 224, 256, 384 or 512 bits (0: 256).",
    "sha2('penstock', 256)",
    "'539508beacbe5cd12935e2b721557239652992a7f89de0408224d61fca3f61a8'",
)
def _sha2(args: Arguments) -> pl.Expr:
    method = _SHA2.get(args.literal_integer(1))
    if method is None:
        raise args.error(1, "0, 224, 256, 384 or 512")
    return _hash(args.text(0), "chash", method)


@HASHES.add(
    "xxhash64",
    (1, 1),
    "64-bit xxHash of a string with Spark's seed.",
    "xxhash64('penstock')",
    "-6719214600687981513",
)
def _xxhash64(args: Arguments) -> pl.Expr:
    text = args.text(0)
    number: pl.Expr = text.nchash.xxhash64(seed=42)  # type: ignore[attr-defined]
    return number.reinterpret(signed=True).fill_null(42)


def _hash(text: pl.Expr, space: str, method: str) -> pl.Expr:
    made: pl.Expr = getattr(getattr(text, space), method)()
    return made


@HASHES.add(
    "base64",
    (1, 1),
    "Base 64 of the UTF-8 bytes of a string, in lines of 76 characters.",
    "base64('penstock')",
    "'cGVuc3RvY2s='",
)
def _base64(args: Arguments) -> pl.Expr:
    lines = args.text(0).str.encode("base64").str.replace_all(r"(.{76})", "${1}\r\n")
    return lines.str.strip_suffix("\r\n")


@HASHES.add(
    "hex", (1, 1), "Hexadecimal form of an integer, or of the UTF-8 bytes of a string.", "hex(255)", "'FF'"
)
def _hex(args: Arguments) -> pl.Expr:
    if args.dtype(0) == pl.String:
        return args.text(0).str.encode("hex").str.to_uppercase()
    return _digits(args.integer(0), _HEX, 1)


@HASHES.add("bin", (1, 1), "Binary form of an integer.", "bin(10)", "'1010'")
def _bin(args: Arguments) -> pl.Expr:
    return _digits(args.integer(0), _BITS, 4)


def _digits(number: pl.Expr, spelling: str, wide: int) -> pl.Expr:
    """Sixteen groups of four bits from the top, each as `wide` characters of `spelling`, without leading zeros."""
    fours = [(number // 16**place) & 15 for place in reversed(range(16))]
    parts = [pl.lit(spelling).str.slice(four * wide, wide) for four in fours]
    text = pl.concat_str(parts).str.strip_chars_start("0")
    return pl.when(number == 0).then(pl.lit("0")).when(number.is_not_null()).then(text)


@HASHES.add("ascii", (1, 1), "Code point of the first character; 0 for an empty string.", "ascii('a')", "97")
def _ascii(args: Arguments) -> pl.Expr:
    text = args.text(0)
    first = text.str.head(1)
    code = first.str.encode("hex").str.to_integer(base=16, strict=False)
    two = (code // 2**8 & 31) * 2**6
    three = (code // 2**16 & 15) * 2**12 + (code // 2**8 & 63) * 2**6
    four = (code // 2**24 & 7) * 2**18 + (code // 2**16 & 63) * 2**12 + (code // 2**8 & 63) * 2**6
    size, last = first.str.len_bytes(), code & 63
    return (
        pl.when(size == 0)
        .then(pl.lit(0, pl.Int64))
        .when(size == 1)
        .then(code)
        .when(size == 2)
        .then(two + last)
        .when(size == 3)
        .then(three + last)
        .otherwise(four + last)
    )


@HASHES.add(
    "chr char", (1, 1), "The character of a code, modulo 256; empty for a negative code.", "chr(97)", "'a'"
)
def _chr(args: Arguments) -> pl.Expr:
    code = args.integer(0)
    spelling = "".join(map(chr, range(256)))
    letter = pl.lit(spelling).str.slice(code & 255, 1)
    return pl.when(code < 0).then(pl.lit("")).when(code >= 0).then(letter)
