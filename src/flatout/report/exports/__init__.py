"""A Report for other programs: a browser, Perfetto, speedscope, a pull request."""

from collections.abc import Callable, Mapping

from flatout.report.exports.chrome import chrome_trace
from flatout.report.exports.markdown import markdown
from flatout.report.exports.speedscope import speedscope
from flatout.report.html.page import page
from flatout.schema.report import Report

__all__ = ["EXPORTS"]

EXPORTS: Mapping[str, Callable[[Report], str]] = {
    ".html": page,
    ".trace.json": chrome_trace,
    ".speedscope.json": speedscope,
    ".md": markdown,
}
"""How a file's name ends, and what makes its text."""
