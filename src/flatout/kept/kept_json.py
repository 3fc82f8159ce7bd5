"""Text of JSON, of which parts are kept: what was written before is not made into text again.

A value is cut into parts: the items of a large dictionary, runs of a large list's items. A part is known again by its
bytes in the format of `marshal`, which tells 1, 1.0, True and -0.0 apart, keeps the order of dictionaries, and is some
hundred times as fast as text. Only dict, list, tuple, str, int, float, bool and None are answered, no classes made from
them; for anything else, and for every error, json itself is asked from the start, before anything is written.
"""

import io
import json
import json.encoder
import marshal
from collections.abc import Callable
from typing import Any, TextIO

__all__ = ["KeptJson"]

_PLAIN = frozenset({str, int, float, bool, type(None)})
_SMALL = 512  # bytes of a value that is not worth it
_PART = 4096  # bytes of a part, about
_RUN = 16  # items of a list that are one part
_LARGEST = 2**24  # bytes of a value: a larger one is left to json
_MOST = 2**25  # bytes kept in each of two generations
_DEEPEST = 40
_TRIAL = 2**22  # bytes after which it has to be worth it
_OPTIONS = frozenset(
    {"skipkeys", "ensure_ascii", "check_circular", "allow_nan", "cls", "indent", "separators", "default", "sort_keys"}
)

Call = Callable[..., Any]


class _Left(Exception):
    """A value, or an option, is none that is answered."""


class _Style:
    """How text looks, as the options of a call say, with the parts that are kept of it."""

    def __init__(self, options: dict[str, Any]) -> None:
        indent, separators = options.get("indent"), options.get("separators")
        named = ("ensure_ascii", "allow_nan", "sort_keys")
        self.options: dict[str, Any] = {name: options[name] for name in named if name in options}
        self.options |= {"indent": indent, "separators": separators}
        self.indent = None if indent is None else indent if isinstance(indent, str) else " " * indent
        default = (", " if indent is None else ",", ": ")
        self.comma: str = default[0] if separators is None else separators[0]
        self.colon: str = default[1] if separators is None else separators[1]
        self.sorts = bool(options.get("sort_keys"))
        self.young: dict[tuple[int, bytes], str] = {}
        self.old: dict[tuple[int, bytes], str] = {}
        self.size = 0

    def line(self, level: int) -> str:
        """Return what stands before an item, or before the bracket that ends it."""
        return "" if self.indent is None else "\n" + self.indent * level


class KeptJson:
    """Answers `json.dump` and `json.dumps`."""

    def __init__(self, hit: Callable[[], None], stand_back: Callable[[str], None]) -> None:
        """Keep nothing yet; `hit` is called for each answer, `stand_back` with why it ends."""
        self._hit, self._stand_back = hit, stand_back
        self._styles: dict[tuple[Any, ...], _Style] = {}
        self._dumps: Call = json.dumps
        self._known = self._made = 0  # bytes of parts
        self._ended = False
        self._seen = _of_json()

    def dumping(self, original: Call) -> Call:
        """Return what stands in for `json.dump`."""

        def dump(obj: Any, fp: TextIO, **options: Any) -> None:
            text = self._text(obj, options) if type(fp) in (io.TextIOWrapper, io.StringIO) else None
            if text is None or not _takes(fp, text):
                original(obj, fp, **options)
            else:
                fp.write(text)
                self._hit()

        return _also_other_calls(dump, original, 2)

    def returning(self, original: Call) -> Call:
        """Return what stands in for `json.dumps`, which makes the text of each part."""
        self._dumps = original

        def dumps(obj: Any, **options: Any) -> str:
            text = self._text(obj, options)
            if text is None:
                return original(obj, **options)  # type: ignore[no-any-return]
            self._hit()
            return text

        return _also_other_calls(dumps, original, 1)

    # -- one call -----------------------------------------------------------------------------------------------

    def _text(self, obj: Any, options: dict[str, Any]) -> str | None:
        """Return the text of a value, None where json has to make it."""
        if self._ended or type(obj) not in (dict, list, tuple):
            return None
        try:
            data = marshal.dumps(obj, 2)
            if not _SMALL < len(data) < _LARGEST:
                return None
            style = self._style(options)
            text = self._whole(style, obj, data, 0)
        except (_Left, ValueError, TypeError, RuntimeError):
            return None
        self._weigh()
        return text

    def _style(self, options: dict[str, Any]) -> _Style:
        if self._seen != _of_json():
            raise _Left  # somebody has put something else into json
        indent, separators = options.get("indent"), options.get("separators")
        if options.keys() - _OPTIONS or any(options.get(name) for name in ("skipkeys", "cls", "default")):
            raise _Left
        if type(indent) not in (int, str, type(None)) or (type(indent) is str and "\n" in indent):
            raise _Left
        if separators is not None and not (type(separators) is tuple and [*map(type, separators)] == [str, str]):
            raise _Left
        if separators is not None and "\n" in "".join(separators):
            raise _Left
        flags = tuple(options.get(name, default) for name, default in _FLAGS)
        if any(type(flag) is not bool for flag in flags):
            raise _Left
        key = (type(indent), indent, separators, *flags)
        if key not in self._styles:
            if len(self._styles) >= 8:
                raise _Left
            self._styles[key] = _Style(options)
        return self._styles[key]

    def _weigh(self) -> None:
        """End where most of what comes is new."""
        if self._known + self._made > _TRIAL:
            if self._known < self._made:
                self._ended = True
                self._styles.clear()
                self._stand_back("most of what is written as JSON is new each time")
            self._known //= 2
            self._made //= 2

    # -- values and their parts ---------------------------------------------------------------------------------

    def _whole(self, style: _Style, value: Any, data: bytes, level: int) -> str:
        """Return the text of a value that stands `level` brackets deep; `data`: its bytes."""
        kind = type(value)
        if kind in (list, tuple) and len(data) > _PART:
            before, after = style.line(level + 1), style.line(level)
            between = style.comma + before
            runs = (self._run(style, list(value[at : at + _RUN]), level) for at in range(0, len(value), _RUN))
            return f"[{before}{between.join(runs)}{after}]"
        if kind is dict and len(data) > _PART and all(type(key) is str for key in value):
            return self._dictionary(style, value, level)
        return self._part(style, data, level)

    def _dictionary(self, style: _Style, value: dict[str, Any], level: int) -> str:
        before, after = style.line(level + 1), style.line(level)
        items = sorted(value.items()) if style.sorts else value.items()
        texts = []
        for key, each in items:
            name = self._dumps(key, **style.options)
            texts.append(f"{name}{style.colon}{self._whole(style, each, marshal.dumps(each, 2), level + 1)}")
        return f"{{{before}{(style.comma + before).join(texts)}{after}}}"

    def _run(self, style: _Style, items: list[Any], level: int) -> str:
        """Return the text of items of a list, without its brackets."""
        data = marshal.dumps(items, 2)
        if len(data) > 8 * _PART:
            texts = (self._whole(style, each, marshal.dumps(each, 2), level + 1) for each in items)
            return (style.comma + style.line(level + 1)).join(texts)
        text = self._part(style, data, level)
        return text[1 + len(style.line(level + 1)) : len(text) - 1 - len(style.line(level))]

    def _part(self, style: _Style, data: bytes, level: int) -> str:
        """Return the text of a part, as it was kept, or made of a copy that nobody else can change meanwhile."""
        key = (level, data)
        text = style.young.get(key)
        if text is not None:
            self._known += len(data)
            return text
        text = style.old.get(key)
        if text is None:
            copy = marshal.loads(data)
            _check(copy)  # what is of another class was no bytes of marshal's, or is one of bytes now
            text = self._dumps(copy, **style.options)
            if style.indent is not None and level:
                text = text.replace("\n", style.line(level))
            self._made += len(data)
        else:
            self._known += len(data)
        if style.size > _MOST:
            style.old, style.young, style.size = style.young, {}, 0
        style.young[key] = text
        style.size += len(data) + len(text) + 200
        return text


_FLAGS = (("ensure_ascii", True), ("check_circular", True), ("allow_nan", True), ("sort_keys", False))


def _of_json() -> tuple[Any, ...]:
    """Return what makes text in json, to see whether it is still that."""
    of, encoder = vars(json.encoder), json.encoder.JSONEncoder
    names = ("float", "int", "FLOAT_REPR", "INFINITY", "c_make_encoder", "encode_basestring_ascii", "encode_basestring")
    made = (*(of.get(name) for name in names), encoder.encode, encoder.iterencode, encoder.__init__)
    return (*made, of.get("_make_iterencode"), vars(json).get("_default_encoder"), encoder.item_separator)


def _check(value: Any, level: int = 0) -> None:
    """Look through a value.

    Raises:
        _Left: something in it is of another class, or it is too deep.
    """
    kind = type(value)
    if kind in _PLAIN:
        return
    if level > _DEEPEST or kind not in (dict, list, tuple):
        raise _Left
    if kind is dict and not _PLAIN.issuperset(map(type, value)):
        raise _Left
    inner = value.values() if kind is dict else value
    if not _PLAIN.issuperset(map(type, inner)):
        for each in inner:
            _check(each, level + 1)


def _takes(fp: TextIO, text: str) -> bool:
    """Return whether a file can hold a text whole: json would have written what comes before an error."""
    if "write" in getattr(fp, "__dict__", ()):
        return False
    if text.isascii() or type(fp) is io.StringIO:
        return True
    try:
        text.encode(fp.encoding, fp.errors or "strict")
    except (UnicodeError, LookupError, ValueError):
        return False
    return True


def _also_other_calls(answer: Call, original: Call, num: int) -> Call:
    """Return a function that hands calls in which arguments are spelt in another way to json."""

    def call(*args: Any, **options: Any) -> Any:
        if len(args) != num:
            return original(*args, **options)
        return answer(*args, **options)

    return call
