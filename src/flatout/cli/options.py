"""Options that several commands share, and the kinds of values they take."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = [
    "STDOUT",
    "budget_option",
    "given_recipe_option",
    "json_option",
    "only_codes_option",
    "out_option",
    "price_option",
    "ranks_option",
    "recipe_option",
    "verbose_option",
    "writable",
]

STDOUT = Path("-")
"""What `--json -` asks for."""

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Return a duration written as `90`, `90s`, `5m` or `1h` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value.strip().lower())
    if match is None or match[2] not in _UNITS_S:
        raise click.BadParameter(
            f"{value!r} is not a duration. Write seconds, minutes or hours: 90, 90s, 5m, 1h.", ctx, param
        )
    seconds = float(match[1]) * _UNITS_S[match[2]]
    if not 0 < seconds < math.inf:
        raise click.BadParameter(
            f"{value} is too short to measure anything. Give at least a few seconds: 30s.", ctx, param
        )
    return seconds


def writable(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a file that cannot be written while nothing has been measured yet."""
    if value is not None and value != STDOUT and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder {str(value.absolute().parent)!r} does not exist.", ctx, param)
    return value


_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

budget_option: _Decorator = click.option(
    "--budget",
    "budget_s",
    default="5m",
    show_default=True,
    callback=_seconds,
    metavar="TIME",
    help="Longest time to take: 90, 90s, 5m, 1h.",
)

json_option: _Decorator = click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=Path),
    callback=writable,
    metavar="FILE",
    help="Write the report as JSON, too; - is stdout.",
)

out_option: _Decorator = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for recordings, in place of .flatout: this one goes to DIR/SCRIPT/TIME.",
)


def _price(ctx: click.Context, param: click.Parameter, value: str | None) -> float:
    """Return what an hour costs of `3.5/h`, `3.5` or `0.06/min`; 0 where it is not said."""
    if value is None:
        return 0.0
    match = re.fullmatch(r"[^\d.-]*(\d*\.?\d+)\s*(?:/\s*([a-z]+))?", value.strip().lower())
    per_s = _UNITS_S.get(match[2] or "h") if match else None
    if match is None or per_s is None:
        raise click.BadParameter(
            f"{value!r} is not a price. Write what an hour costs: 3.5, 3.5/h, 0.06/min.", ctx, param
        )
    return float(match[1]) * 3600 / per_s


price_option: _Decorator = click.option(
    "--price",
    "price_h",
    callback=_price,
    metavar="PRICE",
    help="Price of the machine, such as 3.5/h: adds the cost of an epoch and of its waiting time.",
)

given_recipe_option: _Decorator = click.option(
    "--recipe",
    "recipe_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The recipe, in place of flatout.toml here or beside the script.",
)

recipe_option: _Decorator = click.option(
    "--recipe",
    "recipe_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default="flatout.toml",
    show_default=True,
    callback=writable,
    metavar="FILE",
    help="Where the recipe is written.",
)


only_codes_option: _Decorator = click.option(
    "--only",
    multiple=True,
    metavar="CODE",
    help="Report these findings only; may be given again; loader: measure the loaders without training.",
)


def ranks_option(text: str) -> _Decorator:
    """Return the `--nproc-per-node` option with what it does in this command."""
    return click.option("--nproc-per-node", "ranks", metavar="N|gpu", help=text)


def verbose_option(text: str) -> _Decorator:
    """Return the `--verbose` option with what it does in this command."""
    return click.option("--verbose", is_flag=True, help=text)
