"""Texts of statements as a whole: the plans of their jobs. Nothing is run.

Receives the texts and what Python gives; hands what EXPLAIN says of every job in them.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import Reply
from penstock.catalogue.job_builder import JobBuilder, PythonDeclarations
from penstock.catalogue.script import Script
from penstock.catalogue.statement_checker import StatementChecker
from penstock.sql.statements import Explain


def explain_scripts(
    scripts: Sequence[Script], given: PythonDeclarations, *, all_jobs: bool = True
) -> list[Reply]:
    """What EXPLAIN says of the jobs of texts (or only of those they ask about themselves), each under its name."""
    builder = JobBuilder(given)
    checker = StatementChecker(
        builder, given, sum(len(one.statements) for one in scripts) + len(given.queries)
    )
    catalogue = checker.check_initial(Script("", ()), Catalogue(), first=True).catalogue
    told: list[Reply] = []
    for one in scripts:
        accepted = checker.check_initial(one, catalogue, first=True)
        catalogue = accepted.catalogue
        told += [answer for answer in accepted.replies if answer.question and answer.name]
    if all_jobs:
        asked = [Explain(name, "") for name in catalogue.jobs]
        told = checker.check_statements(Script("", asked), catalogue).replies + told
    return told
