"""The command that goes on with a run: as it was typed, without what is meant for one time only.

Receives the context of a command; hands a line that works where that one did.
"""

from __future__ import annotations

import shlex

import typer

from penstock.cli.formatting import program


def again(context: typer.Context, *once: str) -> str:
    """The command with all that was given but the parameters named in `once`."""
    words = [program(), str(context.info_name)]
    for one in context.command.params:
        name = one.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in once:
            continue
        value = context.params[name]
        if isinstance(value, bool):
            words.append((one.opts if value else one.secondary_opts)[0])
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [str(each)] if one.param_type_name == "argument" else [one.opts[0], str(each)]
    return shlex.join(words)
