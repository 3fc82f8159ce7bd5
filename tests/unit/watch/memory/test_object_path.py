"""The way to an object, in the words of the script."""

import functools

import pytest

from flatout.watch.memory.object_path import path_to


class Rows:
    def __init__(self):
        self.wanted = [["target"]]
        self.by_key = {"a": {"b": ["in a dictionary"]}, 3: ["by number"], (1, 2): ["by a tuple"]}


def closure(value):
    def read():
        return value

    return read


ROWS = Rows()


@pytest.mark.parametrize(
    ("thing", "path"),
    [
        (ROWS, "Rows"),
        (ROWS.wanted, "Rows.wanted"),
        (ROWS.wanted[0], "Rows.wanted[0]"),
        (ROWS.by_key["a"]["b"], "Rows.by_key['a']['b']"),
        (ROWS.by_key[3], "Rows.by_key[3]"),
        (ROWS.by_key[1, 2], "Rows.by_key[...]"),
    ],
)
def test_attributes_keys_and_places_are_named(thing, path):
    assert path_to(id(thing), [("Rows", ROWS)]) == path


def test_functions_lead_on_by_their_closure_and_their_defaults():
    held, given = ["held"], ["given"]

    def with_default(value=given):
        return value

    assert path_to(id(held), [("collate_fn", closure(held))]) == "collate_fn.closure"
    assert path_to(id(given), [("collate_fn", with_default)]) == "collate_fn.defaults[0]"
    assert path_to(id(given), [("collate_fn", functools.partial(sorted, given))]) == "collate_fn[0]"


def test_of_several_roots_the_nearest_names_it():
    other = [ROWS.wanted]
    assert path_to(id(ROWS.wanted[0]), [("Rows", ROWS), ("collate_fn", other)]) == "Rows.wanted[0]"
    assert path_to(id(other), [("Rows", ROWS), ("collate_fn", other)]) == "collate_fn"


def test_what_is_not_found_has_the_first_roots_name():
    assert path_to(id(object()), [("Rows", ROWS)]) == "Rows"
    assert path_to(0, []) == "a data set"


def test_a_circle_ends():
    circle = []
    circle.append(circle)
    assert path_to(1, [("circle", circle)]) == "circle"
