"""A command that is given a script with arguments of its own."""

from collections.abc import Sequence

import click

from flatout.cli.word_order import advice_on_order
from flatout.errors import ScriptFailed

__all__ = ["ScriptCommand"]


class ScriptCommand(click.Command):
    """A command whose options end where the script begins; everything from there on is the script's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option before the script that this command does not have, in place of handing it on."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words") or ()
        before = given[: len(given) - len(words)]
        if words and words[0].startswith("-") and words[0] != "-m" and before[-1:] != ["--"]:
            name = words[0].partition("=")[0]
            names = (name for one in self.params for name in (*one.opts, *one.secondary_opts))
            known = [name for name in names if name.startswith("--")]
            raise click.NoSuchOption(name, possibilities=_alike(name, known), ctx=ctx)
        return rest

    def invoke(self, ctx: click.Context) -> object:
        """Run it; where the script refuses an option that is one of this command's, say where that stands."""
        try:
            return super().invoke(ctx)
        except ScriptFailed as error:
            if error.refused_its_arguments:
                advice = advice_on_order(self, ctx.params["words"], error.meaning)
                error.advice = advice or error.advice
            raise


def _alike(name: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, known)
