"""Every command and program of the documentation is run, every link is followed, and what is not run is counted."""

import importlib.util
import json
import re
import tomllib

import pytest
import yaml

from tests.docs.pages import DOCS, REPO, RUN, SHOWN, Block, Session, blocks, measures, pages

NOT_RUN = {
    "compare.md": ["needs two checkouts of a repository", "needs GitHub"],
    "howto/ci.md": ["needs GitHub"],
    "howto/several-machines.md": ["needs two machines", "needs SLURM", "needs SLURM", "needs Kubernetes"],
    "howto/slurm.md": ["needs SLURM", "needs SLURM", "needs SLURM"],
    "howto/torchrun.md": ["needs two machines"],
    "howto/trackers.md": ["installs packages", "needs a server"],
    "index.md": ["installs packages"],
    "tune.md": ["needs diffs of the reader's own"],
}
"""Blocks that no test runs, with the reason that stands in the page: a new one has to be added here."""

EVERY = [block for page in pages() for block in blocks(page)]
TRIED = [page for page in pages() if any(block.runs for block in blocks(page))]


def cases(wanted):
    marks = [pytest.mark.slow, pytest.mark.pages, pytest.mark.timeout(900)] if wanted else []
    return [pytest.param(page, marks=marks) for page in TRIED if measures(page) is wanted]


@pytest.mark.parametrize("page", [*cases(False), *cases(True)])
def test_every_command_of_a_page_does_what_it_should(page, tmp_path):
    for package in (value for block in blocks(page) for key, value in block.notes if key == "needs"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    session = Session(tmp_path / "session")
    for block in blocks(page):
        session.take(block)


def test_what_is_not_run_is_known_with_its_reason():
    found = {}
    for block in EVERY:
        if block.note("skip") is not None:
            found.setdefault(block.page, []).append(block.note("skip"))
    assert found == NOT_RUN


def test_no_comment_is_misspelt_or_stands_behind_the_last_block():
    for page in pages():
        written = (DOCS / page).read_text(encoding="utf-8").count("<!-- test:")
        assert sum(len(block.notes) for block in blocks(page)) == written, f"docs/{page}"


def test_every_block_says_its_language_and_no_command_hides_in_one_that_is_only_shown():
    for block in EVERY:
        where = f"docs/{block.page}:{block.line}"
        assert block.language in (*RUN, *SHOWN), f"{where}: {block.language or 'no language'}"
        if block.language in SHOWN and block.note("skip") is None:
            assert not re.search(r"^(\$ |(flatout|python|pip) [\w./-])", block.text, re.MULTILINE), (
                f"{where} holds a command"
            )


def test_a_console_block_begins_with_a_command():
    for block in EVERY:
        if block.language == "console":
            assert block.commands, f"docs/{block.page}:{block.line}"
            assert block.text.startswith("$ ")


READERS = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}
READ = [pytest.param(each, id=f"{each.page}:{each.line}") for each in EVERY if each.language in READERS]


@pytest.mark.parametrize("block", READ)
def test_what_is_shown_of_a_file_can_be_read(block):
    assert READERS[block.language](block.text)


WRITTEN = [REPO / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")]


def test_the_rows_of_a_table_stand_on_lines_of_their_own():
    for path in (*WRITTEN, *DOCS.rglob("*.md")):
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        wrapped = re.findall(r"^.*\|[ \t]+\|[ \t]*:?---.*$", text, re.MULTILINE)
        assert not wrapped, f"{path.relative_to(REPO)}: {wrapped[0][:80]}"


# ---------------------------------------------------------------------------------------------------------------- links
LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")


def text_of(page):
    """Return a page without its blocks and its code."""
    text = re.sub(r"^```.*?^```$", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page):
    """Return the anchors of a page's headings, as Markdown's table of contents makes them."""
    text = re.sub(r"^```.*?^```$", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", pages())
@pytest.mark.slow
def test_every_link_of_a_page_leads_somewhere(page):
    for target in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (DOCS / page).parent / file if file else DOCS / page
        assert place.is_file(), f"docs/{page}: {target}"
        assert place.resolve().is_relative_to(DOCS), f"docs/{page}: {target} is not part of the site"
        if anchor:
            assert anchor in anchors(place.resolve().relative_to(DOCS).as_posix()), f"docs/{page}: {target}"


def test_every_page_is_in_the_navigation_or_in_a_list():
    site = yaml.safe_load((REPO / "mkdocs.yml").read_text(encoding="utf-8"))

    def named(entries):
        for entry in entries:
            for value in entry.values():
                yield from [value] if isinstance(value, str) else named(value)

    listed = list(named(site["nav"]))
    assert len(listed) == len(set(listed))
    in_lists = {page for page in pages() if re.fullmatch(r"(rules|fixes|decisions)/[^/]*\.md", page)} - {*listed}
    assert {*listed} | in_lists == {*pages()}
    for page in in_lists:
        folder, name = page.split("/")
        assert f"]({name})" in (DOCS / folder / "README.md").read_text(encoding="utf-8")


# --------------------------------------------------------------------------------------------- the reader of the blocks
def page_of(monkeypatch, tmp_path, text):
    monkeypatch.setattr("tests.docs.pages.DOCS", tmp_path)
    (tmp_path / "page.md").write_text(text)
    return blocks("page.md")


def test_a_failing_command_fails(tmp_path):
    with pytest.raises(AssertionError, match="exit code 1, not 0"):
        Session(tmp_path / "session").take(Block("page.md", 1, "sh", "echo told\nfalse\necho never\n"))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        Session(tmp_path / "other").take(Block("page.md", 1, "python", "1 / 0\n"))


def test_commands_of_one_page_share_a_folder(tmp_path):
    session = Session(tmp_path / "session")
    session.take(Block("page.md", 1, "sh", "mkdir below && cd below\n"))
    assert session.take(Block("page.md", 2, "console", '$ basename "$PWD"\nbelow\n')) == "below\n"
    assert session.take(Block("page.md", 3, "console", "$ echo a \\\n    b\na b\n")) == "a b\n"


def test_comments_say_how_a_block_is_tried(monkeypatch, tmp_path):
    text = "<!-- test: file a.py -->\n```python\nx = 2\n```\n\n<!-- test: cell -->\n```python\nfrom a import x\n```\n"
    text += "<!-- test: cell -->\n```python\nprint(x)\n```\n<!-- test: exit 3 -->\n```sh\nexit 3\n```\n"
    text += "<!-- test: skip needs a moon -->\n```sh\nfly\n```\n"
    session = Session(tmp_path / "session")
    found = page_of(monkeypatch, tmp_path, text)
    assert [session.take(block) for block in found] == ["", "", "2\n", "", ""]
    assert [block.runs for block in found] == [False, True, True, True, False]
