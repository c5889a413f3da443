"""Requests about Python jobs: the text under which their answers are stored stays the same."""

from __future__ import annotations

import json

from penstock.catalogue.code import bundle_source
from penstock.catalogue.code_requests import CreateOrAlterFrom, Deploy, request_text

CODE = bundle_source("hits.py", "query = None")


def test_a_request_is_stored_under_the_text_of_earlier_versions() -> None:
    request = CreateOrAlterFrom("hits", CODE, "query")
    assert json.loads(request_text(request)) == {
        "request": "HaveFrom",
        "code": CODE.digest,
        "name": "hits",
        "attribute": "query",
        "rebuild": False,
    }
    assert json.loads(request_text(Deploy(CODE))) == {
        "request": "Deploy",
        "code": CODE.digest,
        "prune": False,
    }
