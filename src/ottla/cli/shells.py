"""Shell completion: the script of each shell, and answers to its queries.

Invariant: the script is for the named shell. Bash passes the whole line, because it would cut it at
every `:` and `=`, and offers no files where names of a cluster belong.
"""

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import typer

from ottla.cli.bash_line import bash_line
from ottla.cli.completion import Offer

Shell: TypeAlias = Literal["bash", "zsh", "fish", "powershell", "pwsh"]

QUESTION: Final = "_OTTLA_COMPLETE"
_LINE, _BREAKS = "_OTTLA_COMPLETE_LINE", "_OTTLA_COMPLETE_BREAKS"
_SHOW, _INSTALL = "--show-completion", "--install-completion"

# The first line of the answer says whether file names may be offered.
BASH: Final = f"""\
_ottla_completion() {{
    local one
    COMPREPLY=()
    while IFS= read -r one; do
        COMPREPLY+=("$one")
    done <<< "$({_LINE}="${{COMP_LINE:0:COMP_POINT}}" {_BREAKS}="$COMP_WORDBREAKS" \\
        {QUESTION}=complete_bash "$1" 2> /dev/null)"
    if [ "${{COMPREPLY[0]}}" = names ]; then
        compopt +o default 2> /dev/null
    fi
    unset 'COMPREPLY[0]'
    COMPREPLY=("${{COMPREPLY[@]}}")
}}

complete -o default -F _ottla_completion ottla
"""


def _show(context: typer.Context, param: typer.CallbackParam, shell: Shell | None) -> None:
    from typer.completion import show_callback

    if shell is None or context.resilient_parsing:
        return
    if shell != "bash":
        show_callback(context, param, shell)
    typer.echo(BASH, nl=False)
    raise typer.Exit


def _install(context: typer.Context, param: typer.CallbackParam, shell: Shell | None) -> None:
    from typer.completion import install_callback

    if shell is None or context.resilient_parsing:
        return
    if shell != "bash":
        install_callback(context, param, shell)
    script = Path.home() / ".bash_completions" / "ottla.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(BASH, encoding="utf-8")
    start, line = Path.home() / ".bashrc", f"source '{script}'"
    known = start.read_text(encoding="utf-8", errors="surrogateescape") if start.exists() else ""
    if line not in known.splitlines():
        with start.open("a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")
    typer.echo(f"bash completes ottla in new shells: {start} loads {script}")
    raise typer.Exit


ShowOption = Annotated[
    Shell | None,
    typer.Option(
        _SHOW, metavar="[SHELL]", callback=_show, is_eager=True,
        help=(
            "Print the completion script for bash, zsh, fish, powershell or pwsh; default: the "
            "current shell."
        ),
    ),
]  # fmt: skip
InstallOption = Annotated[
    Shell | None,
    typer.Option(
        _INSTALL, metavar="[SHELL]", callback=_install, is_eager=True,
        help="Install the completion script for a shell; default: the current shell.",
    ),
]  # fmt: skip


def with_shell(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the arguments, with the current shell where a script is requested without one."""
    if arguments[-1:] not in ([_SHOW], [_INSTALL]):
        return [*arguments]
    import shellingham

    try:
        found: str = shellingham.detect_shell()[0]  # pyright: ignore[reportUnknownMemberType]
    except shellingham.ShellDetectionFailure:
        found = Path(environ.get("SHELL", "")).name
    return [*arguments, *filter(None, [found])]


def answer_shell(app: Callable[..., object]) -> None:
    """Answer the query of a completing shell, which is in the environment."""
    from typer.completion import (
        completion_init,  # pyright: ignore[reportPrivateImportUsage]
    )

    completion_init()
    question, text = os.environ[QUESTION], os.environ.get(_LINE)
    if question == "source_bash":
        sys.stdout.write(BASH)
        return
    if question != "complete_bash" or text is None:
        app(obj=Offer())
        return
    line, offer, found = bash_line(text, os.environ.get(_BREAKS, "")), Offer(), io.StringIO()
    os.environ["COMP_WORDS"] = shlex.join(line.words)
    os.environ["COMP_CWORD"] = str(len(line.words) - 1)
    with contextlib.redirect_stdout(found), contextlib.suppress(SystemExit):
        app(obj=offer)
    values = [value for value in found.getvalue().splitlines() if value]
    sys.stdout.write("names\n" if offer.is_of_names else "files\n")
    for offered in map(line.offered, values):
        sys.stdout.write("" if offered is None else f"{offered}\n")
