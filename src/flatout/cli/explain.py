"""`flatout explain`: the page of a rule or a fix, or the list of all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from flatout.fixes.core.fix import Fix
    from flatout.rules.core.rule import Rule

__all__ = ["explain"]

WIDEST = 100
GAP = 2
NARROWEST = 24
"""A sentence with less room than this stands better on a line of its own."""


@click.command()
@click.argument("name", required=False)
def explain(name: str | None) -> None:
    """Show the page of a rule or a fix, or list them all."""
    if name is None:
        _list()
    else:
        _page(name)


def _list() -> None:
    """Print name and first sentence of every rule and every fix."""
    from flatout.fixes.core.catalog import fixes
    from flatout.rules.core.catalog import catalog

    rules, cures = catalog(), fixes()
    click.echo("Rules: what flatout looks for\n")
    names = [rule.name + (" (preview)" if rule.preview else "") for rule in rules]
    _table([(f"{rule.code}  ", name, rule.summary) for rule, name in zip(rules, names, strict=True)])
    if cures:
        click.echo("\nFixes: what `flatout tune` tries\n")
        _table([("", fix.name + (" (on request)" if fix.on_request else ""), fix.summary) for fix in cures])
    click.echo("\nflatout explain NAME shows the page of a rule or a fix.")


def _table(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print rows of code, name and sentence, the sentences below each other, or on lines of their own."""
    from rich.console import Console

    from flatout.report.visible import wrap

    width = min(WIDEST, Console().width)
    column = max((len(name) for _, name, _ in rows), default=0) + GAP
    for code, name, sentence in rows:
        narrow = width - len(code) - column < NARROWEST
        margin = " " * (max(len(code), 2) if narrow else len(code) + column)
        lines = wrap(sentence, width - len(margin))
        first = f"{code}{name:<{column}}"
        click.echo(first.rstrip() + "\n" + margin + lines[0] if narrow else first + lines[0])
        for line in lines[1:]:
            click.echo(margin + line)


def _page(name: str) -> None:
    """Print one page: laid out on a terminal, as it is written in a pipe."""
    from rich.console import Console
    from rich.markdown import Markdown

    from flatout.cli.names import page_named
    from flatout.rules.core.rule import Rule

    page = page_named(name)
    text = _rule_page(page) if isinstance(page, Rule) else _fix_page(page)
    console = Console(width=min(WIDEST, Console().width), highlight=False, emoji=False)
    if console.is_terminal and console.encoding.lower().startswith("utf"):
        console.print(Markdown(text))
    else:
        click.echo(text)


def _rule_page(rule: "Rule") -> str:
    """Return the page of a rule."""
    note = (
        "\n\nPreview: no recording on the hardware that this rule is about has confirmed it yet."
        if rule.preview
        else ""
    )
    return "\n\n".join(filter(None, (f"# {rule.code} {rule.name}", rule.page, rule.measured, _cures(rule)))) + note


def _cures(rule: "Rule") -> str:
    """Return what `flatout tune` tries where the rule finds its fault, each with its class, or why nothing."""
    from flatout.edits.finding_cures import edits_in_words
    from flatout.fixes.core.catalog import fixes

    addressing = [fix for fix in fixes() if rule.code in fix.addresses]
    cures = [f"{fix.name} ({fix.equivalence}{', on request' if fix.on_request else ''})" for fix in addressing]
    cures += [f"an edit of the source: {words}" for words in edits_in_words(rule)]
    if cures:
        return f"`flatout tune` tries: {', '.join(cures)}."
    return " ".join(filter(None, ("`flatout tune` has no cure for it.", rule.no_cure)))


def _fix_page(fix: "Fix") -> str:
    """Return the page of a fix, with the class that it claims and the rules whose findings it addresses."""
    facts = [f"Class: {fix.equivalence}."]
    if fix.addresses:
        facts.append(f"Addresses: {', '.join(fix.addresses)}.")
    if fix.on_request:
        facts.append(f"Tried only on request: `flatout tune --also {fix.name} SCRIPT`.")
    return f"# {fix.name}\n\n{fix.page}\n\n{' '.join(facts)}"
