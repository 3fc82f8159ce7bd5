"""`flatout`: finds the command, runs it, and turns every way it can end into a message and an exit code.

Commands are imported when they are used, and what they need inside them: `flatout --help` draws nothing and
measures nothing, so it imports neither rich nor psutil.
"""

import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from flatout import __version__
from flatout.cli.streams import is_full, let_go_of_stdout, open_streams
from flatout.errors import FlatoutError, UsageError
from flatout.schema.secrets import masked, masked_words, remember, remember_environment

__all__ = ["COMMANDS", "cli", "main", "run"]

COMMANDS = {
    "diagnose": "flatout.cli.diagnose:diagnose",
    "tune": "flatout.cli.tune:tune",
    "run": "flatout.cli.run:run",
    "patch": "flatout.cli.patch:patch",
    "explain": "flatout.cli.explain:explain",
    "report": "flatout.cli.report:report",
    "compare": "flatout.cli.compare:compare",
    "demo": "flatout.cli.demo:demo",
}
"""Every command and where it is, in the order in which `--help` tells the story."""

INTERRUPTED = 130
INTERNAL_ERROR = 70


class Commands(click.Group):
    """The commands of `COMMANDS`, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one command, None when there is none of that name."""
        module, _, attribute = COMMANDS.get(cmd_name, "").partition(":")
        return getattr(importlib.import_module(module), attribute) if module else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the command that was left out when a script stands in its place."""
        if args[0].endswith(".py") and args[0] not in COMMANDS:
            raise click.UsageError(f"{args[0]!r} is a script, not a command. Try: flatout diagnose {args[0]}", ctx=ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flatout")
def cli() -> None:
    """Make PyTorch training run flat out: find what slows a script down, and prove what makes it faster."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; whatever went wrong has been told on stderr."""
    remember(sys.argv if arguments is None else arguments)
    remember_environment(os.environ)
    with open_streams():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = cli.main(None if arguments is None else list(arguments), prog_name="flatout", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except FlatoutError as error:
        _tell(error)
        return error.exit_code
    except click.ClickException as error:
        vars(error)["message"] = masked(error.message)
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        let_go_of_stdout()
        return 1
    except OSError as error:
        if not is_full(error):
            _confess(error)
            return INTERNAL_ERROR
        let_go_of_stdout()
        _tell(UsageError(f"The output could not be written to stdout ({error.strerror})."))
        return UsageError.exit_code
    except Exception as error:
        _confess(error)
        return INTERNAL_ERROR


def _tell(error: FlatoutError) -> None:
    """Print the three parts of an error, each on lines of its own; they may quote the script."""
    from flatout.report.visible import visible

    fact, *more = [line for part in (error.fact, error.meaning, error.advice) for line in part.splitlines()] or [""]
    click.echo(click.style("error: ", fg="red", bold=True) + visible(fact), err=True)
    for line in more:
        click.echo(f"  {visible(line)}", err=True)


def _confess(error: Exception) -> None:
    """Say in one line that flatout is at fault, and where the traceback lies."""
    from flatout.report.visible import visible

    told = visible(f"{type(error).__name__}: {error}")
    trace = "".join(traceback.format_exception(error))
    text = f"flatout {__version__}, Python {sys.version}\n{masked_words(sys.argv)}\n\n{masked(trace)}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="flatout-", suffix=".txt", encoding="utf-8", errors="backslashreplace", delete=False
        ) as file:
            file.write(text)
        where = f"The traceback is in {file.name}; please report it."
    except OSError as reason:
        where = f"The traceback could not be written ({reason})."
    click.echo(f"flatout itself failed: {told} {where}", err=True)
