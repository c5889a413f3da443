"""How the user invoked Penstock, and the command that continues a run: the same without one-time options."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import typer

_NAME = "penstock"


def program_name() -> str:
    """Penstock's name as the user can type it again: `./run`, a path, or a name on the PATH."""
    own = sys.argv[0] if Path(sys.argv[0]).name == _NAME else ""
    typed = os.environ.get("PENSTOCK_CALLED_AS", own)
    if not Path(typed).is_file():
        return _NAME
    name = Path(typed).name
    on_path = shutil.which(name)
    if on_path is not None and Path(on_path).samefile(typed):
        return name
    return typed if os.sep in typed else os.path.join(os.curdir, typed)


def resume_command(context: typer.Context, *one_time: str) -> str:
    """The command with every parameter that the user gave, except those named in `one_time`."""
    words = [program_name(), str(context.info_name)]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in one_time:
            continue
        value = context.params[name]
        if isinstance(value, bool):
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            is_argument = parameter.param_type_name == "argument"
            words += [str(each)] if is_argument else [parameter.opts[0], str(each)]
    return shlex.join(words)
