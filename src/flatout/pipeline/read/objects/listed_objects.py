"""The objects that a folder or a pattern names, in the order of their names."""

import os
import re
from typing import Any

from flatout.errors import BadObject
from flatout.pipeline.read.objects.fsspec_reads import file_system
from flatout.pipeline.read.objects.object_reads import unreachable
from flatout.pipeline.read.objects.object_urls import LOCAL, Location, location_of
from flatout.pipeline.read.objects.process_readers import can_list, listed

__all__ = ["found_objects"]

_SIGNS = re.compile(r"[*?\[]")


def found_objects(named: str, options: dict[str, Any]) -> list[str]:
    """Return the objects below a folder (`s3://bucket/photos/`), or those that fit a pattern, or the one that is named.

    `*` stands for anything but a slash, `**` for anything.

    Raises:
        BadObject: there is none, or they cannot be listed.
    """
    scheme, mark, rest = named.partition("://")
    begin, path = (f"{scheme}{mark}", rest) if mark else ("", os.path.abspath(os.path.expanduser(named)))
    is_folder = named.endswith("/") or (location_of(named).reader == LOCAL and os.path.isdir(location_of(named).key))
    has_signs = bool(_SIGNS.search(path)) and not scheme.startswith("http")
    if not is_folder and not has_signs:
        return [named]
    above = path if is_folder else _SIGNS.split(path)[0].rpartition("/")[0]
    names = _below(begin, above.rstrip("/"), options)
    if has_signs and not is_folder:
        fits = re.compile(_expression(path)).fullmatch
        names = [name for name in names if fits(name)]
    if not names:
        raise BadObject(
            f"0 objects found: {named}.",
            "The folder is empty, or the pattern fits no name.",
            "Check the URL, or name the objects themselves.",
        )
    return [begin + name for name in names]


def _below(begin: str, folder: str, options: dict[str, Any]) -> list[str]:
    """Return the paths of all objects below a folder, as they stand behind `begin`."""
    bucket, _, inner = folder.partition("/")
    place = location_of(f"{begin}{bucket}/{inner or 'x'}")
    if begin and can_list(place):
        keys = listed(Location(place.reader, place.root, f"{inner}/" if inner else ""), options)
        return [f"{bucket}/{key}" for key in keys if not inner or key.startswith(f"{inner}/")]
    if place.reader == LOCAL:
        top = location_of(f"{begin}{folder}").key
        return sorted(os.path.join(above, name) for above, _, names in os.walk(top) for name in names)
    system, path = file_system(f"{begin}{folder}", options)
    try:
        found = sorted(system.find(path))
    except OSError as error:
        raise unreachable(f"{begin}{folder}", error, "Check that it may be listed, or name the objects.") from error
    cut = len(path.rstrip("/"))
    return [folder + name[cut:] for name in found if name.startswith(path.rstrip("/") + "/")]


def _expression(pattern: str) -> str:
    """Return a pattern as a regular expression."""
    signs = re.compile(r"\*\*/?|\*|\?|\[[^\]]+\]")
    made, at = "", 0
    for sign in signs.finditer(pattern):
        made += re.escape(pattern[at : sign.start()])
        text = sign.group()
        if text.startswith("["):
            inner = re.escape(text[1:-1].lstrip("!^")).replace("\\-", "-")
            made += f"[^{inner}]" if text[1] in "!^" else f"[{inner}]"
        else:
            made += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[text]
        at = sign.end()
    return made + re.escape(pattern[at:])
