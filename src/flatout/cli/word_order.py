"""The order of words on a command line: options of flatout stand before the script, what follows it is its own."""

import shlex
from collections.abc import Mapping, Sequence

import click

from flatout.schema.secrets import masked_words

__all__ = ["advice_on_order", "behind_the_script"]


def behind_the_script(late: Sequence[str]) -> str:
    """Return the fact: which options stand behind the script."""
    return f"{' and '.join(late)} {'stands' if len(late) == 1 else 'stand'} behind the script."


def advice_on_order(command: click.Command, words: Sequence[str], complaint: str = "") -> str:
    """Return one line where options of `command` stand among the arguments of the script, with the right command.

    `complaint`: what the script said, empty where that is not known; options that it does not name are its own. An
    empty string where there is none, or where a launcher line is started, whose parts are not told apart here.
    """
    start = 2 if words[0] == "-m" else 1
    if start == 1 and not words[0].endswith(".py"):
        return ""
    refused = complaint.rpartition("rror:")[2]  # of argparse and click; above it argparse lists what it knows
    options = [each for each in command.params if isinstance(each, click.Option)]
    known = {name: each for each in options for name in (*each.opts, *each.secondary_opts) if name.startswith("--")}
    named = {name: each for name, each in known.items() if not complaint or name in refused}
    ours, theirs = _sorted(words[start:], named)
    if not ours:
        return ""
    late = [word.partition("=")[0] for word in ours if word.startswith("--")]
    command_line = shlex.join(["flatout", command.name or "", *masked_words([*ours, *words[:start], *theirs])])
    return (
        f"{behind_the_script(late)} What follows a script is its own: put options of flatout before it: {command_line}"
    )


def _sorted(words: Sequence[str], known: Mapping[str, click.Option]) -> tuple[list[str], list[str]]:
    """Return the words that are options of ours with their values, and the others."""
    ours: list[str] = []
    theirs: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        if name not in known:
            theirs.append(word)
            continue
        ours.append(word)
        if not equals and not known[name].is_flag and rest:
            ours.append(rest.pop(0))
    return ours, theirs
