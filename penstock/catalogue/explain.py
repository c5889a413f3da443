"""Explain texts of statements without running them: the plans of their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import Reply
from penstock.catalogue.job_builder import JobBuilder, PythonDeclarations
from penstock.catalogue.script import Script
from penstock.catalogue.statement_checker import StatementChecker
from penstock.sql.statements import Explain


def explain_scripts(
    scripts: Sequence[Script], declarations: PythonDeclarations, *, all_jobs: bool = True
) -> list[Reply]:
    """The text of EXPLAIN for every job of texts, or only for those that the texts themselves explain, by name."""
    statements = sum(len(script.statements) for script in scripts)
    max_jobs = statements + len(declarations.queries)
    checker = StatementChecker(JobBuilder(declarations), declarations, max_jobs)
    catalogue = checker.check_initial(Script("", ()), Catalogue(), first=True).catalogue
    replies: list[Reply] = []
    for script in scripts:
        acceptance = checker.check_initial(script, catalogue, first=True)
        catalogue = acceptance.catalogue
        replies += [reply for reply in acceptance.replies if reply.question and reply.name]
    if all_jobs:
        all_statements = [Explain(name, "") for name in catalogue.jobs]
        replies = checker.check_statements(Script("", all_statements), catalogue).replies + replies
    return replies
