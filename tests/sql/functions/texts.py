"""Tricky texts: many alphabets, patterns, JSON, addresses."""

from __future__ import annotations

import polars as pl

from tests.sql.functions.case import Case, lines

_TEXTS = [
    ("penstock", "st", 3), ("", "", 0), (None, "a", 1), ("abc", None, 2), ("abc", "b", None),
    ("  two  words\t", " ", -2), ("Zürich ÄÖ", "ü", -4), ("日本語テキスト", "本", 2), ("a👩‍👩‍👧b", "👩", -1),
    ("www.apache.org", ".", -9), ("aaaa", "aa", 1), ("ÉCOLE école", "É", 5), ("x", "xyz", 100), ("a.b.c.", ".", 2),
    ("hello WORLD foo-bar", "o", -100), ("e\u0301", "\u0301", 1), ("a\nb\r\nc", "\n", 2), ("$1.50 (50%)", "%", 4),
]  # fmt: skip

TEXTS = Case(
    "texts",
    pl.DataFrame(_TEXTS, schema={"s": pl.String, "t": pl.String, "n": pl.Int32}, orient="row"),
    lines("""
        lower(s)
        lcase(s)
        upper(s)
        ucase(s)
        initcap(s)
        length(s)
        char_length(s)
        character_length(s)
        len(s)
        octet_length(s)
        trim(s)
        btrim(s)
        ltrim(s)
        rtrim(s)
        btrim(s, 'xpk ')
        trim('xpk ', s)
        ltrim('pZa日', s)
        rtrim('kbc.', s)
        lpad(s, 5, 'ab')
        rpad(s, 5, 'ab')
        lpad(s, n, t)
        rpad(s, n, t)
        lpad(s, 12)
        rpad(s, 12)
        lpad(s, 12, '')
        lpad(s, -1, 'x')
        substring(s, n)
        substring(s, n, 2)
        substring(s, 2, n)
        substring(s, 0, 3)
        substring(s, 1, 3)
        substring(s, -5, 3)
        substring(s, -3)
        substring(s, 2, -1)
        substr(s, n, n)
        left(s, n)
        right(s, n)
        left(s, 3)
        right(s, 3)
        substring_index(s, '.', 2)
        substring_index(s, '.', -2)
        substring_index(s, t, 1)
        substring_index(s, t, -1)
        substring_index(s, t, 0)
        substring_index(s, t, 99)
        substring_index(s, 'aa', -1)
        concat(s, t)
        concat(s, n, t)
        concat(s, '-', t, NULL)
        concat_ws('-', s, t, n)
        concat_ws(t, s, s)
        concat_ws('-')
        replace(s, t)
        replace(s, t, 'XY')
        replace(s, t, s)
        replace(s, '', 'x')
        translate(s, 'abcü', 'xy')
        translate(s, 'aab', 'xyz')
        translate(s, '', 'xyz')
        reverse(s)
        repeat(s, n)
        repeat(s, 2)
        repeat(s, 0)
        space(n)
        instr(s, t)
        instr(s, 'b')
        locate(t, s)
        locate(t, s, n)
        locate('', s, 3)
        locate('a', s, 2)
        position(t, s)
        position('b', s, 2)
        startswith(s, t)
        endswith(s, t)
        contains(s, t)
        format_string('%s|%d', s, n)
        format_string('%05d|%5d|%-5d|%%', n, n, n)
        ascii(s)
        hex(s)
        md5(s)
        sha(s)
        sha1(s)
        sha2(s, 0)
        sha2(s, 224)
        sha2(s, 256)
        sha2(s, 384)
        sha2(s, 512)
        xxhash64(s)
        url_encode(s)
        url_decode(url_encode(s))
        try_url_decode(s)
        coalesce(s, t)
        coalesce(NULL, s, 'none')
        nvl(s, t)
        ifnull(s, t)
        nvl2(s, t, 'none')
        if(startswith(s, 'a'), s, t)
        nullif(s, 'abc')
        nullif(s, t)
        isnull(s)
        isnotnull(s)
        equal_null(s, t)
        greatest(s, t)
        least(s, t, 'b')
    """),
)

PATTERNS = Case(
    "patterns",
    pl.DataFrame(
        {
            "s": [
                "GET /p7?x=1 HTTP/1.1",
                "",
                None,
                "a1b22c333",
                "Zürich 42",
                "foo_bar-baz",
                "line1\nline2\r\nend",
                "aAbB",
                "١٢٣ arabic",
                "x\u00a0y z\tw",
                "one,two;three,,four",
                "[tag] {brace}",
                "ab",
                "axb",
                "naïve café",
                "$5.00",
                "a\u2028b",
                "_été_ b",
                "1,2,3",
                ",,",
                "$1",
                "k\u212a",
            ]
        }
    ),
    lines(r"""
        regexp_like(s, '\d+')
        regexp(s, '^[a-c]')
        rlike(s, '(?i)^A')
        rlike(s, 'a.b')
        rlike(s, '(?s)a.b')
        rlike(s, '(?s:a.b)|l.*?2')
        rlike(s, '\bb')
        rlike(s, 'e\b')
        rlike(s, '\Bb\B')
        rlike(s, '\s\w')
        rlike(s, '\S\W\S')
        rlike(s, '[\s\d]$')
        rlike(s, '[^\w\s]')
        rlike(s, '\p{Punct}')
        rlike(s, '[\p{Lower}&&[^a-m]]+')
        rlike(s, '\p{L}\p{N}')
        rlike(s, '\p{Alpha}+\P{Alpha}')
        rlike(s, '\p{IsAlphabetic}{6}')
        rlike(s, '\Q[tag]\E')
        rlike(s, '\u0065\x20')
        rlike(s, '[]a]')
        rlike(s, '[\]a]')
        rlike(s, '[a&&b]')
        rlike(s, '(?m)^line2')
        rlike(s, '^$')
        rlike(s, '')
        regexp_extract(s, '(\w)(\d+)')
        regexp_extract(s, '(\w)(\d+)', 2)
        regexp_extract(s, '(\w)(\d+)', 0)
        regexp_extract(s, '(a)|(b)', 2)
        regexp_extract(s, '(?<word>\w+) ', 1)
        regexp_extract(s, '^(.*)$', 1)
        regexp_extract(s, 'a(x?)', 1)
        regexp_extract_all(s, '(\w)(\d)')
        regexp_extract_all(s, '(\w)(\d)', 2)
        regexp_extract_all(s, '\w+', 0)
        regexp_extract_all(s, '(a)|(b)', 2)
        regexp_extract_all(s, '\b([A-Z])', 1)
        regexp_substr(s, '\d+')
        regexp_substr(s, 'zz')
        regexp_count(s, '\w')
        regexp_count(s, 'ab|a')
        regexp_replace(s, '\d', '#')
        regexp_replace(s, '(\w)(\d)', '$2$1')
        regexp_replace(s, '(\w)(\d)', '$12')
        regexp_replace(s, '(?<a>\w)(\d)', '<${a}>')
        regexp_replace(s, '[a-z]', '\$')
        regexp_replace(s, '\$', '')
        regexp_replace(s, ' ', '$0$0')
        printf('%6s|%-30s|%.2s', s, s, s)
        split(s, ',')
        split(s, '[,;]')
        split(s, '\W', 2)
        split(s, '[,;]', 3)
        split(s, ',', 0)
        split(s, ',', 1)
        split(s, '')
    """),
)

JSON = Case(
    "json",
    pl.DataFrame(
        {
            "s": [
                '{"a": {"b": [1, 2.50, {"c": null}]}, "d": "té\\u00e9", "e f": true}',
                "[1, [2, 3], {}]",
                "[]",
                "[ ]",
                "{}",
                "",
                None,
                "x",
                '"s"',
                "12",
                "null",
                '{"a": [{"b": 5}, {"b": 6}]}',
                '{"a": "[1,2]", "d": null}',
                '["],[", "a\\"b", {"x": [1, 2]}]',
                '{"a": 1e5, "d": 12345678901234567890}',
                '{"a": {"b": 7}}',
                '{"a.b": 1, "d": {"z": 1, "y": [ ]}}',
                "[1, 2",
                '[{"a": 3}, 4]',
                '{"d": ""}',
                '{"d": -0.0, "a": 1.0}',
                '{"d": "line\\nbreak \\"q\\""}',
                '{"d": ["line\\nbreak", "é/"]}',
            ]
        }
    ),
    lines("""
        get_json_object(s, '$.a')
        get_json_object(s, '$.a.b')
        get_json_object(s, '$.a.b[1]')
        get_json_object(s, '$.a.b[2].c')
        get_json_object(s, '$.a[0].b')
        get_json_object(s, '$.d')
        get_json_object(s, '$.e f')
        get_json_object(s, '$[1]')
        get_json_object(s, '$[1][0]')
        get_json_object(s, '$[0].a')
        get_json_object(s, '$.none')
        get_json_object(s, '$[''e f'']')
        get_json_object(s, '$[''a.b'']')
        json_array_length(s)
    """),
)

WEB = Case(
    "web",
    pl.DataFrame(
        {
            "s": [
                "https://user:pw@www.penstock.org:8080/docs/a.html?page=2&q=a+b%20c&empty=#top",
                "http://localhost",
                "",
                None,
                "http://10.0.0.1/",
                "http://[::1]:80/x",
                "mailto:a@b.org",
                "/only/path?x=1",
                "http://my_host/path",
                "not a url",
                "http://a.b/%zz",
                "http://a.b/%41?x=%42",
                "http://a.b?x=1",
                "ftp://a.b/c;d",
                "//host/path",
                "http://é.org/ü?ö=1",
                "http://a.b/c?x=1&xx=2&x=3",
                "http://a.b/#",
                "http://a.b/?",
                "a%2Bb+c",
                "%E6%97%A5",
                "%",
                "http://a.b/[x]",
                "http://a.b/?a[0]=1",
                "http:",
                "http:///path",
                "http://a@b@c/",
                "?x=1",
                "#frag",
                "http://1a.b2/",
                "http://a.b:/",
            ]
        }
    ),
    lines("""
        parse_url(s, 'HOST')
        parse_url(s, 'PATH')
        parse_url(s, 'QUERY')
        parse_url(s, 'REF')
        parse_url(s, 'PROTOCOL')
        parse_url(s, 'FILE')
        parse_url(s, 'AUTHORITY')
        parse_url(s, 'USERINFO')
        parse_url(s, 'QUERY', 'x')
        parse_url(s, 'QUERY', 'page')
        parse_url(s, 'QUERY', 'empty')
        url_encode(s)
        try_url_decode(s)
        base64(s)
    """),
)
