"""The functions that keep what a file gives, as text: one that reads and decodes, and one that asks it or memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flatout.edits.cures.kept_files.block_bounds import free_name
from flatout.edits.cures.kept_files.file_blocks import FileBlock
from flatout.edits.cures.kept_files.value_kinds import Value, ValueKind

__all__ = ["KeptNames", "functions", "state_function"]

_MIB = 1024**2
_MOST = ((16, 64 * _MIB), (32, 32 * _MIB))  # files and bytes of each: of text and lists the second; 1 GiB in all
_OF_TEXT, _OF_NUMBERS, _OF_OBJECTS = 4, 32, 64  # bytes that one byte of a file may take
_SLOT, _NUMBER = 8, 64  # bytes of one item of a list
_ARRAYS = (ValueKind.ARRAY, ValueKind.MEMBER, ValueKind.FROZEN, ValueKind.TENSOR)

_STATE = '''\
def {name}(path, largest, *settings):
    """Return what changes whenever a file is written, None for what should be read each time."""
    if type(path) not in (str, type({pathlib}.Path())) or not {os}.path.isfile(path):
        return None
    if not {{type(each) for each in settings}} <= {{bool, int, str, type(None)}}:
        return None
    try:
        with open(path, "rb") as file:
            status = {os}.fstat(file.fileno())
    except OSError:
        return None
    newest = max(status.st_mtime_ns, status.st_ctime_ns)
    if not 0 < status.st_size <= largest or abs({time}.time_ns() - newest) < 3_000_000_000:
        return None  # a file that is being written may change again without another time
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
'''


@dataclass(frozen=True)
class KeptNames:
    """What the new functions are called."""

    state: str
    reads: str
    keeps: str


def state_function(name: str, modules: Mapping[str, str]) -> str:
    """Return the function that looks whether a file was written; `modules`: what those it needs are called."""
    return _STATE.format(name=name, **modules)


def functions(block: FileBlock, names: KeptNames, body: Sequence[str], modules: Mapping[str, str]) -> list[str]:
    """Return the lines of the two functions; `body`: those of the block, without indentation."""
    gives = [each for each in block.gives if each != "return"] or ["what is read"]
    shown = ", ".join(f"`{each}`" for each in gives) if not block.returns and block.expression is None else "what"
    about = f"{shown} of a file" if shown != "what" else "what a file holds"
    num_files, num_bytes = _MOST[all(each.kind in (ValueKind.ATOM, ValueKind.LIST) for each in block.gives.values())]
    given = ", ".join((block.path, *block.inputs))
    state = free_name("written", {block.path, *block.inputs})
    largest = min(_largest(each, num_bytes) for each in block.gives.values())
    results = [each for each in block.gives if each != "return"] or ["found"]
    found = ", ".join(free_name(each, {block.path, *block.inputs, state}) for each in results)
    parts = found.split(", ")
    tests = [_is_large(part, value, num_bytes) for part, value in zip(parts, block.gives.values(), strict=True)]
    test = " or ".join(each for each in tests if each)
    return [
        f"@{modules['functools']}.lru_cache(maxsize={num_files}, typed=True)",
        f"def {names.reads}({given}, {state}):",
        f'    """Read and decode {about}; `{state}` tells apart what stood in it."""',
        *(f"    {line}" if line else "" for line in body),
        "",
        "",
        f"def {names.keeps}({given}):",
        f'    """Return {about}, from memory while it stays as it is: {num_files} times {num_bytes // _MIB} MiB."""',
        f"    {state} = {names.state}({', '.join((block.path, _number(largest), *block.inputs))})",
        f"    if {state} is None:",
        f"        return {names.reads}.__wrapped__({given}, {state})",
        *(
            [
                f"    {found} = {names.reads}({given}, {state})",
                f"    if {test}:",
                f"        {names.reads}.cache_clear()",
                f"    return {found}",
            ]
            if test
            else [f"    return {names.reads}({given}, {state})"]
        ),
    ]


def _largest(value: Value, num_bytes: int) -> int:
    """Return the size of the largest file whose value is kept."""
    if value.kind in (ValueKind.DEEP, ValueKind.TABLE):
        return num_bytes // (_OF_NUMBERS if value.numbers else _OF_OBJECTS)
    return num_bytes if value.kind in (*_ARRAYS, ValueKind.IMAGE) else num_bytes // _OF_TEXT


def _is_large(name: str, value: Value, num_bytes: int) -> str:
    """Return the test whether a value is too large to be kept, "" where the size of the file tells."""
    if value.kind in _ARRAYS:
        return f"{name}.nbytes > {_number(num_bytes)}"
    if value.kind is ValueKind.IMAGE:
        return f"{name}.width * {name}.height > {_number(num_bytes // 4)}"
    if value.kind is ValueKind.LIST:
        return f"len({name}) > {_number(num_bytes // (_SLOT if value.slots else _NUMBER))}"
    return ""


def _number(value: int) -> str:
    return f"{value:_}"
