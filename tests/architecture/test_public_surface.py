"""What others may rely on: the names of the package, and the options of the command line, as a list."""

import json
from pathlib import Path
from types import ModuleType

import click
import pytest

import flatout
from tests.architecture.source import modules

MAX_NAMES = 16
MAX_OPTIONS = 12
FROZEN = Path(__file__).with_name("options.json")


def commands() -> dict[str, click.Command]:
    if "flatout.cli.main" not in modules():
        pytest.skip("flatout.cli.main does not exist yet")
    from flatout.cli.main import cli

    context = click.Context(cli)
    return {name: cli.get_command(context, name) for name in cli.list_commands(context)}


def options(command: click.Command) -> list[str]:
    """Return the long names of a command's options, `--help` aside; of one with two names both: `--a/--b`."""
    named = [p for p in command.params if isinstance(p, click.Option)]
    both = [(*p.opts, *p.secondary_opts) for p in named if "--help" not in p.opts]
    return sorted("/".join(name for name in names if name.startswith("--")) for names in both)


def test_the_public_names_are_sorted_and_few():
    assert list(flatout.__all__) == sorted(set(flatout.__all__))
    assert len(flatout.__all__) <= MAX_NAMES


def test_every_public_name_is_there_and_nothing_else_looks_public():
    missing = [name for name in flatout.__all__ if not hasattr(flatout, name)]
    assert not missing
    bound = {name for name, value in vars(flatout).items() if not isinstance(value, ModuleType) and name[0] != "_"}
    assert bound <= set(flatout.__all__)


def test_the_options_of_every_command_are_the_frozen_ones():
    """A new option is a promise: add it to options.json by hand, with a reason in the commit."""
    assert {name: options(command) for name, command in commands().items()} == json.loads(FROZEN.read_text())


def test_no_option_has_a_second_name():
    """Under a cap of 8, options that do different things shared one, and read in `--help` as names for the same."""
    assert not [name for command in commands().values() for name in options(command) if "/" in name]


def test_no_command_has_more_than_12_options():
    counts = {name: len(options(command)) for name, command in commands().items()}
    assert not {name: n for name, n in counts.items() if n > MAX_OPTIONS}


def test_every_command_and_option_says_what_it_does():
    silent = [name for name, command in commands().items() if not command.help]
    for name, command in commands().items():
        silent += [f"{name} {p.opts[0]}" for p in command.params if isinstance(p, click.Option) and not p.help]
    assert not silent
