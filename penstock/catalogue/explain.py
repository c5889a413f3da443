"""Explain texts of statements without running them: the plans of their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.command import Answered
from penstock.catalogue.commands import Desk
from penstock.catalogue.job_builder import JobBuilder, PythonDeclarations
from penstock.catalogue.script import Script
from penstock.sql.statements import Explain


def explain_scripts(
    scripts: Sequence[Script], declarations: PythonDeclarations, *, all_jobs: bool = True
) -> list[Answered]:
    """The text of EXPLAIN for every job of texts, or only for those that the texts themselves explain, by name."""
    statements = sum(len(script.statements) for script in scripts)
    desk = Desk(JobBuilder(declarations), declarations, statements + len(declarations.queries))
    catalogue = desk.begun(Script("", ()), Catalogue(), first=True).catalogue
    answers: list[Answered] = []
    for script in scripts:
        accepted = desk.begun(script, catalogue, first=True)
        catalogue = accepted.catalogue
        answers += [answer for answer in accepted.answers if answer.question and answer.name]
    if all_jobs:
        all_statements = [Explain(name, "") for name in catalogue.jobs]
        answers = desk.accepted(Script("", all_statements), catalogue).answers + answers
    return answers
