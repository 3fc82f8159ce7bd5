"""Templates escape and show what they are given."""

import jinja2
import pytest

from flatout.report.html import assets
from flatout.report.html.assets import asset, template


def rendered(monkeypatch, text, **values):
    monkeypatch.setattr(assets, "asset", lambda name: text)
    return template.__wrapped__("x").render(**values)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("<b>&", "&lt;b&gt;&amp;"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202eevil", "\\u202eevil"),
        (3.5, "3.5"),
        (jinja2.utils.markupsafe.Markup("<b>"), "<b>"),
    ],
)
def test_a_value_is_escaped_and_made_visible(monkeypatch, value, shown):
    assert rendered(monkeypatch, "{{ value }}", value=value) == shown


def test_a_missing_value_is_an_error(monkeypatch):
    with pytest.raises(jinja2.UndefinedError):
        rendered(monkeypatch, "{{ value }}")


def test_blocks_leave_no_lines(monkeypatch):
    assert rendered(monkeypatch, "a\n  {% if value %}\nb\n  {% endif %}\nc\n", value=1) == "a\nb\nc\n"


def test_files_of_the_folder_are_read():
    assert asset("uPlot-LICENSE").startswith("The MIT License")
    with pytest.raises(FileNotFoundError):
        asset("none.html")
