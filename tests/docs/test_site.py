"""The site is built without a warning, and its pages load nothing from elsewhere."""

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.docs.pages import REPO, pages


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed: extra docs")
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in pages():
        name = page.replace("README.md", "index.md").removesuffix(".md") + ".html"
        text = (tmp_path / "site" / name).read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*?(?:src|href)="([^"]+)"', text)
        assert not [each for each in loaded if re.match(r"(https?:)?//", each)]
