"""Templates and styles of the pages, read from this folder; what a template is given is made visible and escaped."""

import functools
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from flatout.report.visible import visible

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["asset", "template"]


@functools.cache
def template(name: str) -> "Template":
    """Return a template of this folder; every value in it is escaped, and a missing one is an error."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_made_visible,
    )
    return environment.from_string(asset(name))


def _made_visible(value: Any) -> Any:
    """Return text without control characters and direction overrides; what is markup already is ours."""
    return visible(value) if type(value) is str else value


@functools.cache
def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return files("flatout.report.html").joinpath(name).read_text(encoding="utf-8")
