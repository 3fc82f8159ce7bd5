"""What a price on the command line means, and which ones are refused."""

import click
import pytest
from click.testing import CliRunner

from flatout.cli.options import price_option


@click.command()
@price_option
def show(price_h):
    click.echo(f"{price_h:.4f}")


@pytest.mark.parametrize(
    ("given", "hour"),
    [
        ("3.5", 3.5),
        ("3.5/h", 3.5),
        ("$3.50 / H", 3.5),
        ("€.5/h", 0.5),
        ("0.06/min", 3.6),
    ],
)
def test_a_price_is_what_an_hour_costs(given, hour):
    assert float(CliRunner().invoke(show, ["--price", given]).output) == pytest.approx(hour)


def test_without_a_price_nothing_costs_anything():
    assert float(CliRunner().invoke(show, []).output) == 0


@pytest.mark.parametrize("given", ["", "dear", "3.5/fortnight", "-3", "84/d", "1e3/h", "3.5h", "3,5"])
def test_what_is_no_price_is_refused_with_examples(given):
    ended = CliRunner().invoke(show, ["--price", given])
    assert ended.exit_code == 2
    assert "Write what an hour costs: 3.5, 3.5/h, 0.06/min." in " ".join(ended.output.split())
