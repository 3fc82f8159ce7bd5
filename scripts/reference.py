"""The pages of docs/reference: every command with its options, and the JSON with the comments beside its keys."""

import ast
import dataclasses
import inspect
import io
import tokenize
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from flatout.cli.main import INTERNAL_ERROR, INTERRUPTED, cli
from flatout.report import difference as difference_json
from flatout.report import json as report_json
from flatout.schema import codec, facts, finding, phase, recipe, run

__all__ = ["commands_page", "json_page"]

MARK = "<!-- Written by scripts/docs from {what}: change that. -->"


def _joined(blocks: Iterator[str] | list[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"


# -- commands -----------------------------------------------------------------------------------------------------

EXIT_CODES = f"""\
| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the script failed; of `compare --limit`: slower than the limit allows |
| 2 | wrong usage, or a file that is no recording of this version |
| 3 | nothing could be measured, or nothing could be written by `patch`; of `compare --limit`: it cannot be told |
| {INTERNAL_ERROR} | flatout itself failed; stderr says where the traceback is |
| {INTERRUPTED} | Ctrl-C; what was measured is kept |

`flatout run` ends with the exit code of the script."""


def commands_page() -> str:
    """Return the page of all commands, with their options as `--help` shows them."""
    context = click.Context(cli, info_name="flatout")
    commands = [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]
    listed = [
        f"| [flatout {name}](#flatout-{name}) | {command.get_short_help_str(200)} |" for name, command in commands
    ]
    head = [
        MARK.format(what="the options of the commands"),
        "# Commands",
        (cli.help or "").strip(),
        "\n".join(["| command | what it does |", "|---|---|", *listed]),
        "Every command has `--help`. Options of flatout stand before the script; what follows it is the script's own.",
        "## Exit codes",
        EXIT_CODES,
    ]
    return _joined([*head, *(_command(name, command, context) for name, command in commands)])


def _command(name: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([f"flatout {name}", *command.collect_usage_pieces(context)])
    rows = [
        f"| `{_cell(declared)}` | {_cell(told)} |"
        for option in command.params
        if isinstance(option, click.Option)
        for declared, told in [option.get_help_record(context) or ("", "")]
    ]
    table = "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else "It has no options."
    return _joined([f"## flatout {name}", f"    {usage}", inspect.cleandoc(command.help or ""), table]).rstrip()


def _cell(text: str) -> str:
    """Return text for a cell of a table: on one line, and no end of the cell in it."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


# -- JSON ---------------------------------------------------------------------------------------------------------

PLACES = {
    "": "The report",
    "steps": "`steps`",
    "trials[].checks[]": "A row of `checks` in a trial",
    "recipe": "`recipe`",
    "recipe.fixes[]": "A row of `fixes` in the recipe",
}
NOTE_ON_NUMBERS = (
    "Times are in the unit that their key ends with (`_ms`, `_s`); shares are of 1. A number that is infinite is "
    "written as 1e9, one that is none as 0: JSON has neither."
)
RECORDING = """\
Each line is one JSON object; `kind` says which. The first is `{"kind":"flatout","schema":1}`. Steps are stored in
columns: a record of kind `steps` has a list for each field. A kind that a reader does not know is passed over. A last
line that was cut off is left out. Nothing in the file is executed. The form is for flatout's own commands:
programs read the report."""


def json_page() -> str:
    """Return the page of the JSON that programs can rely on, and of the files beside it."""
    head = [
        MARK.format(what="the code that writes the JSON"),
        "# JSON",
        "`--json FILE` of `diagnose`, `tune`, `report` and `demo` writes the report; `report.json` beside a recording "
        "is the same. `--json -` writes it to stdout, and the text to stderr.",
        inspect.cleandoc(report_json.__doc__ or ""),
        NOTE_ON_NUMBERS,
    ]
    told = _comments(report_json.__file__)
    parts = [_contract(place, keys, told) for place, keys in report_json.CONTRACT.items()]
    classes = [
        ("`environment`", run.Environment),
        ("`location` of a finding", facts.Frame),
        ("A row of `evidence` in a finding", finding.Evidence),
        ("`proven` of a recipe", recipe.Proof),
    ]
    return _joined([*head, *parts, *(_fields(title, kind) for title, kind in classes), *_comparison(), *_recording()])


def _contract(place: str, keys: Mapping[str, object], told: Mapping[tuple[str, str], str]) -> str:
    title = PLACES.get(place, f"A row of `{place.removesuffix('[]')}`")
    names = {
        "": "_KEYS",
        "steps": "_STEPS",
        "trials[].checks[]": "_CHECK",
        "recipe": "_RECIPE",
        "recipe.fixes[]": "_KEPT",
    }
    within = names.get(place, f"_ROWS.{place.removesuffix('[]')}")
    rows = [f"| `{key}` | {_kinds(kind)} | {_cell(told.get((within, key), ''))} |" for key, kind in keys.items()]
    return "\n".join(
        [f"## {title}" if place == "" else f"### {title}", "", "| key | type | meaning |", "|---|---|---|", *rows]
    )


def _kinds(kind: object) -> str:
    """Return the types that a value may have, in the words of JSON."""
    words = {str: "string", int: "integer", bool: "boolean", dict: "object", list: "array", type(None): "null"}
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if float in kinds:
        return " or ".join(["number", *(words[each] for each in kinds if each not in (int, float))])
    return " or ".join(words[each] for each in kinds)


def _fields(title: str, kind: type, level: str = "###") -> str:
    """Return the table of the fields of a dataclass or named tuple, with the comments beside them in its source."""
    told = _comments(inspect.getfile(kind))
    names = [each.name for each in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
    hints = kind.__annotations__
    rows = [f"| `{name}` | {_hint(hints[name])} | {_cell(told.get((kind.__name__, name), ''))} |" for name in names]
    return "\n".join([f"{level} {title}", "", "| key | type | meaning |", "|---|---|---|", *rows])


def _hint(hint: object) -> str:
    """Return a type as JSON has it, from the annotation."""
    if isinstance(hint, types.UnionType):
        return " or ".join(_hint(part) for part in hint.__args__)
    words = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", phase.Phase: "string"}
    origin = getattr(hint, "__origin__", hint)
    if origin is tuple:
        return f"array of {_hint(hint.__args__[0])}"
    if origin is Mapping:
        return f"object of {_hint(hint.__args__[1])}"
    return words.get(hint, f"`{getattr(hint, '__name__', hint)}`")


def _comparison() -> Iterator[str]:
    told_first = inspect.cleandoc(difference_json.difference_row.__doc__ or "").partition(": ")[2]
    yield "## The comparison"
    yield "`flatout compare A B --json FILE` writes it. " + told_first
    told = _comments(difference_json.__file__)
    for place, title in (("difference_row", "The document"), ("_phase_row", "A row of `phases`")):
        rows = [f"| `{key}` | {_cell(comment)} |" for (within, key), comment in told.items() if within == place]
        yield "\n".join([f"### {title}", "", "| key | meaning |", "|---|---|", *rows])


def _recording() -> Iterator[str]:
    yield f"## The recording: `{codec.RUN_FILE}`"
    yield RECORDING
    order = ", ".join(f"`{each.value}`" for each in phase.STEP_PHASES)
    yield f"`phases_ns` of a step holds nanoseconds in this order: {order}."
    kinds = (run.Header, run.Step, run.Outside, run.Utilization, facts.LoaderFacts, facts.ModelFacts)
    kinds += (facts.OptimizerFacts, facts.WorkerFacts, run.RankSummary, run.Causes, run.LineCost, run.End)
    for kind in kinds:
        yield _fields(f"{kind.__name__}", kind)


def _comments(file: str) -> dict[tuple[str, str], str]:
    """Return the comment beside every field of a class and every key of a dict in a source file.

    The first part of the name is the class, the function, or the variable with the keys that lead there.
    """
    text = Path(file).read_text(encoding="utf-8")
    lines = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    found[node.name, each.target.id] = lines.get(each.end_lineno or 0, "")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            _keys(node.value, node.target.id, lines, found)
        elif isinstance(node, ast.FunctionDef):
            for each in ast.walk(node):
                if isinstance(each, ast.Return):
                    _keys(each.value, node.name, lines, found)
    return found


def _keys(node: ast.expr | None, name: str, lines: Mapping[int, str], found: dict[tuple[str, str], str]) -> None:
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            found[name, key.value] = lines.get(key.lineno, "")
            _keys(value, f"{name}.{key.value}", lines, found)
