"""`flatout explain`: the page of a rule, or the list of all."""

import click

__all__ = ["explain"]

WIDEST = 100
GAP = 2


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Show the page of a rule by code or name, or list all rules."""
    if code is None:
        _list()
    else:
        _page(code)


def _list() -> None:
    """Print code, name and first sentence of every rule."""
    from rich.console import Console

    from flatout.report.visible import wrap
    from flatout.rules.catalog import catalog

    width = min(WIDEST, Console().width)
    rules = catalog()
    names = [rule.name + (" (preview)" if rule.preview else "") for rule in rules]
    column = max((len(name) for name in names), default=0) + GAP
    narrow = width - 7 - column < 24
    for rule, name in zip(rules, names, strict=True):
        margin = " " * (7 if narrow else 7 + column)
        lines = wrap(rule.summary, width - len(margin))
        first = f"{rule.code}  {name:<{column}}"
        click.echo(first.rstrip() + "\n" + margin + lines[0] if narrow else first + lines[0])
        for line in lines[1:]:
            click.echo(margin + line)
    click.echo("\nflatout explain CODE shows the page of one.")


def _page(code: str) -> None:
    """Print one page: laid out on a terminal, as it is written in a pipe."""
    from rich.console import Console
    from rich.markdown import Markdown

    from flatout.cli.names import rule_named

    rule = rule_named(code)
    note = "\n\nPreview: no recording on the hardware it speaks of has confirmed this rule yet." if rule.preview else ""
    text = f"# {rule.code} {rule.name}\n\n{rule.page}{note}"
    console = Console(width=min(WIDEST, Console().width), highlight=False, emoji=False)
    if console.is_terminal and console.encoding.lower().startswith("utf"):
        console.print(Markdown(text))
    else:
        click.echo(text)
