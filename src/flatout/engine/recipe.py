"""`flatout.toml`: the recipe as a file that people read, edit and keep in their repository.

Nothing in it is executed: a fix must be in the catalog, its settings are plain values of the types that it declares.
"""

import inspect
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tomli_w

from flatout.engine.process.target import Target
from flatout.errors import BadRecording, UsageError
from flatout.fixes.core.catalog import find_fix, fixes
from flatout.schema.files import read_whole, write_whole
from flatout.schema.plain import from_plain, to_plain
from flatout.schema.recipe import SCHEMA, Kept, Proof, RankProof, Recipe
from flatout.schema.trial import EDITED_SOURCE, Selection
from flatout.schema.whole_training import WholeTraining

__all__ = ["RECIPE_FILE", "check_selection", "find_recipe", "read_recipe", "write_recipe"]

RECIPE_FILE = "flatout.toml"

_HEAD = """\
# What `flatout tune` kept for {script}: fixes that were measurably faster and kept training results as equal as stated.
# Train under it with `flatout run`; leave a fix out by deleting its [[fix]] table or with `flatout run --only FIX`.
# What a fix does and when it is wrong: `flatout explain NAME`. {executed}

"""
_NOTHING_EXECUTED = "Nothing in this file is executed."
_EDITS_EXECUTED = """\
An edit (`diff`) is code: where this file
# comes from somebody else, `flatout run` leaves it out until you have read it and said yes (`--allow-edits`)."""
_POSITIVE, _NOT_NEGATIVE = ("speedup", "low", "high"), ("num_cpus", "world_size", "num_pairs", "baseline_ms")
_PLAIN = (bool, int, float, str)
_DIGITS = 4
_MOST_RANKS = 4096
_MOST_BYTES = 1024 * 1024
_LONGEST = 300  # characters of what is quoted from a file
_INTERVAL = re.compile(r"^interval = \[\n *(\S+),\n *(\S+),\n\]$", re.MULTILINE)


def find_recipe(target: Target, given: Path | None) -> Path:
    """Return the file that was given, or else the one in the working folder, or else the one beside the script.

    Raises:
        UsageError: there is none.
    """
    script = Path(target.name)
    beside = [script.parent / RECIPE_FILE] if script.is_file() else []
    places = [given] if given is not None else [Path(RECIPE_FILE), *beside]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        where = " nor ".join(str(place) for place in dict.fromkeys(places))
        raise UsageError(
            f"There is no recipe: no file {where}.",
            "`flatout tune` writes a recipe.",
            f"Make one first: flatout tune {target.name}",
        )
    return found


# -- writing --------------------------------------------------------------------------------------------------------


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write `recipe` to `path`, first beside it and then in its place, so that no half file is ever seen.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        write_whole(path, _text(recipe).encode())
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}).", "The recipe is to be written there."
        ) from None


def _text(recipe: Recipe) -> str:
    script = recipe.script.encode("utf-8", "replace").decode()
    body: dict[str, Any] = {"schema": recipe.schema, "script": script}
    if recipe.fixes:
        body["fix"] = [_table(kept) for kept in recipe.fixes]
    if recipe.ranks is not None:
        body["ranks"] = _ranks_table(recipe.ranks)
    proof = recipe.proof
    told = {name: value for name, value in _plain(proof).items() if name not in ("speedup", "low", "high", "samples")}
    body["proven"] = {
        **told,
        "speedup": _round(proof.speedup),
        "interval": [_round(proof.low), _round(proof.high)],
        "samples": dict(proof.samples),
    }
    if recipe.whole is not None:
        body["whole"] = _rounded(_plain(recipe.whole))
    shown = "".join(letter if letter.isprintable() else "?" for letter in script)
    edits = [kept for kept in recipe.fixes if kept.selection.fix == EDITED_SOURCE]
    head = _HEAD.format(script=shown, executed=_EDITS_EXECUTED if edits else _NOTHING_EXECUTED)
    whole = not any(
        "\r" in str(kept.selection.settings.get("diff")) for kept in edits
    )  # the writer of readable texts does not keep other line ends
    return head + _INTERVAL.sub(r"interval = [\1, \2]", tomli_w.dumps(body, multiline_strings=bool(edits) and whole))


def _table(kept: Kept) -> dict[str, Any]:
    return {
        "name": kept.selection.fix,
        "equivalence": kept.equivalence.value,
        "speedup": _round(kept.speedup),
        "interval": [_round(kept.low), _round(kept.high)],
        **({"seal": kept.seal} if kept.seal else {}),
        "settings": to_plain(kept.selection.settings),
    }


def _ranks_table(ranks: RankProof) -> dict[str, Any]:
    return {
        "number": ranks.number,
        "equivalence": ranks.equivalence.value,
        "steps": ranks.steps,
        "speedup": _round(ranks.speedup),
        "interval": [_round(ranks.low), _round(ranks.high)],
        "efficiency": _round(ranks.efficiency),
    }


def _plain(value: object) -> dict[str, Any]:
    plain = to_plain(value)
    assert isinstance(plain, dict)
    return plain


def _round(value: float) -> float:
    return round(float(value), _DIGITS)


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _rounded(value) if isinstance(value, Mapping) else _round(value) if type(value) is float else value
        for name, value in values.items()
    }


# -- reading --------------------------------------------------------------------------------------------------------


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in `path`, with every fix in the catalog and every setting of a type that its fix takes.

    Raises:
        UsageError: the file cannot be read, or names a fix or a setting that does not exist.
        BadRecording: it is no recipe, or one of another schema.
    """
    try:
        body = tomllib.loads(read_whole(path, _MOST_BYTES).decode())
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:  # ValueError: no TOML, no text, a number of thousands of digits
        raise BadRecording(f"{path} is not a TOML file: {_shortened(error)}.", advice=_AGAIN) from None
    if "schema" not in body:
        raise BadRecording(f"{path} is not a recipe: it has no schema.", advice=_AGAIN)
    if body["schema"] != SCHEMA:
        found = body["schema"]
        raise BadRecording(
            f"{path} has schema {_shortened(repr(found))}; this version of flatout reads schema {SCHEMA}.",
            advice=_AGAIN,
        )
    try:
        recipe = _recipe(body)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        told = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise BadRecording(f"{path} is not a valid recipe: {_shortened(told)}.", advice=_AGAIN) from None
    for kept in recipe.fixes:
        check_selection(kept.selection, path)
    return recipe


def _shortened(told: object) -> str:
    text = str(told)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_AGAIN = "Write it again with `flatout tune`."


def _recipe(body: Mapping[str, Any]) -> Recipe:
    tables = body.get("fix", [])
    if not isinstance(tables, list):
        raise ValueError("`fix` is not a list of [[fix]] tables")
    proven = {name: value for name, value in body["proven"].items() if name != "interval"}
    proof = from_plain(Proof, {**proven, **_interval(body["proven"])})
    _checked(proof)
    return Recipe(
        script=from_plain(str, body["script"]),
        fixes=tuple(_kept(table) for table in tables),
        proof=proof,
        ranks=_ranks(body["ranks"]) if "ranks" in body else None,
        whole=_whole(body["whole"]) if "whole" in body else None,
    )


def _ranks(table: Mapping[str, Any]) -> RankProof:
    told = {name: value for name, value in table.items() if name not in ("interval", "efficiency")}
    ranks: RankProof = from_plain(RankProof, {**told, **_interval(table)})
    if not 2 <= ranks.number <= _MOST_RANKS or ranks.steps < 0:
        raise ValueError(f"`ranks` holds {ranks.number} ranks and {ranks.steps} steps")
    _checked(ranks)
    return ranks


def _whole(table: Mapping[str, Any]) -> WholeTraining:
    whole: WholeTraining = from_plain(WholeTraining, table)
    parts = [getattr(times, each.name) for times in (whole.plain, whole.tuned) for each in fields(times)]
    wrong = next((value for value in (whole.epochs, whole.steps, *parts) if not 0 <= value < math.inf), None)
    if wrong is not None:
        raise ValueError(f"`whole` holds {wrong}")
    return whole


def _kept(table: Mapping[str, Any]) -> Kept:
    selection = {"fix": table["name"], "settings": table.get("settings", {})}
    kept: Kept = from_plain(
        Kept,
        {
            "selection": selection,
            "equivalence": table["equivalence"],
            "speedup": table.get("speedup", 1.0),
            "seal": table.get("seal", ""),
            **_interval(table),
        },
    )
    _checked(kept)
    return kept


def _checked(figures: Kept | Proof | RankProof) -> None:
    """Refuse figures that no measurement gives.

    Raises:
        ValueError: naming the first of them.
    """
    for name in _POSITIVE:
        value = getattr(figures, name, 1.0)
        if not value > 0:  # nor NaN; an interval may have no end
            raise ValueError(f"`{name}` is {value}")
    for name in _NOT_NEGATIVE:
        value = getattr(figures, name, 0)
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"`{name}` is {value}")


def _interval(table: Mapping[str, Any]) -> dict[str, float]:
    low, high = from_plain(tuple[float, float], table.get("interval", [1.0, 1.0]))
    if math.isnan(low) or math.isnan(high):
        raise ValueError("`interval` holds no numbers")
    return {"low": low, "high": high}


# -- what it names --------------------------------------------------------------------------------------------------


def check_selection(selection: Selection, path: Path) -> None:
    """Refuse a fix that is not in the catalog, and settings that it does not take.

    Raises:
        UsageError: the fix, or one of its settings.
    """
    fix = find_fix(selection.fix)
    if fix is None:
        close = get_close_matches(selection.fix[:_LONGEST], [known.name for known in fixes()])
        advice = f"Did you mean {' or '.join(close)}?" if close else f"Delete its [[fix]] table. {_AGAIN}"
        raise UsageError(
            f"{path} names the fix {_shortened(repr(selection.fix))}, which does not exist.", advice=advice
        )
    _, *parameters = inspect.signature(fix.patch).parameters.values()
    known = {each.name: each for each in parameters if each.kind is not each.VAR_KEYWORD}
    takes = ", ".join(known) or "none"
    for name, value in selection.settings.items():
        if name not in known:
            raise UsageError(
                f"{path}: {fix.name} has no setting {_shortened(repr(name))}.", f"Its settings: {takes}.", _AGAIN
            )
        if not _fits(known[name].annotation, value):
            kind = getattr(known[name].annotation, "__name__", str(known[name].annotation))
            shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}..."
            raise UsageError(f"{path}: {fix.name} takes {name} = {shown} as {kind} only.", advice=_AGAIN)
        if name in fix.bounds and not fix.bounds[name].holds(value):
            raise UsageError(f"{path}: {fix.name} cannot have {fix.bounds[name].refusal(name, value)}.", advice=_AGAIN)
    missing = [name for name, each in known.items() if each.default is each.empty and name not in selection.settings]
    if missing:
        raise UsageError(f"{path}: {fix.name} needs the setting {missing[0]!r}.", f"Its settings: {takes}.", _AGAIN)


def _fits(annotation: Any, value: object) -> bool:
    """Return whether a plain value is of the type that a parameter declares; undeclared ones take any plain value."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return any(_fits(part, value) for part in typing.get_args(annotation))
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation in _PLAIN:
        return type(value) is annotation
    if annotation is types.NoneType:
        return value is None
    return isinstance(value, (*_PLAIN, list, dict))
