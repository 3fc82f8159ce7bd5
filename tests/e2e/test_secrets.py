"""Secrets of a command line: the script has them, nothing that flatout keeps or says does."""

import json

import pytest

from tests.e2e.support import training

pytestmark = pytest.mark.slow

SECRETS = ("open-sesame-1", "hf_ABCDEFGHIJKLMNOP", "pa55word", "s1gned", "barely-hidden")
WORDS = (
    *("--api-key", SECRETS[0], "--hub", SECRETS[1], f"https://me:{SECRETS[2]}@host/x?sig={SECRETS[3]}"),
    f"--password={SECRETS[4]}",
)
SEEN = f"assert sys.argv[1:] == {list(WORDS)!r}, sys.argv"


MORE = ("quiet-2-river", "t1nk3r.sea", "wharf7mole", "k3ttle-drum", "v4ult-door")
MORE_WORDS = ("--mysql-pw", MORE[0], "--creds", MORE[1], f"--key={MORE[2]}", "-u", f"bob:{MORE[3]}")


def stored(folder, secrets=SECRETS):
    """Everything below `folder` that holds one of the secrets, the script's own output left out."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("output-"):
            content = path.read_bytes().decode("utf-8", "replace")
            found += [(path.name, secret) for secret in secrets if secret in content or secret in json.dumps(content)]
    return found


def test_a_diagnosis_keeps_and_shows_no_secret_and_nobody_else_may_read_it(flatout):
    flatout.write(training(steps=30, before=SEEN))
    ended = flatout("diagnose", "--steps", "20", "--json", "out.json", "train.py", *WORDS)
    assert ended.code == 0, ended.err
    assert stored(flatout.folder / ".flatout") == []
    assert ended.run.header.argv[1:3] == ("--api-key", "***")
    told = ended.out + ended.err + (flatout.folder / "out.json").read_text()
    assert not [secret for secret in SECRETS if secret in told]
    assert (flatout.folder / "out.json").stat().st_mode & 0o777 == 0o600
    assert ended.recording.stat().st_mode & 0o777 == 0o700
    kept = [path for path in ended.recording.iterdir() if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    again = flatout("report", ".flatout", "--export", "page.html")
    assert again.code == 0
    page = (flatout.folder / "page.html").read_text()
    assert "--api-key ***" in page and not [secret for secret in SECRETS if secret in page]


@pytest.mark.full
def test_a_script_that_fails_with_its_secret_in_the_message_is_quoted_without(flatout):
    flatout.write(training(steps=30, before="raise ValueError('refused: ' + sys.argv[2])"))
    ended = flatout("diagnose", "train.py", *WORDS)
    assert ended.code == 1
    assert "ValueError: refused: ***" in " ".join(ended.err.split())
    assert SECRETS[0] not in ended.out + ended.err
    assert stored(flatout.folder / ".flatout") == []


def test_a_script_that_quotes_its_secrets_and_its_environment_is_stored_without_them(flatout, monkeypatch):
    monkeypatch.setenv("VAULT_TOKEN", MORE[4])
    quote = "raise ValueError(f'refused {sys.argv[2]!r} {sys.argv[4]} {sys.argv[5:]} {os.environ[\"VAULT_TOKEN\"]}')"
    flatout.write(training(steps=30, before="import os; " + quote))
    ended = flatout("diagnose", "train.py", *MORE_WORDS)
    assert ended.code == 1
    assert "ValueError: refused '***' *** ['--key=***', '-u', 'bob:***'] ***" in " ".join(ended.err.split())
    assert not [secret for secret in MORE if secret in ended.out + ended.err]
    assert stored(flatout.folder / ".flatout", MORE) == []


def test_a_tune_is_found_again_by_its_secrets_without_keeping_them(tmp_path, monkeypatch):
    from flatout.engine.process.target import Target
    from flatout.engine.trial.journal import TuneState, find_unfinished, write_state
    from flatout.engine.tune import TuneLimits, _told

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    targets = [Target("train.py", ("python", "train.py", "--token", secret)) for secret in ("one-secret", "another")]
    shown, asked = _told(targets[0], TuneLimits())
    folder = tmp_path / "train.py" / "1"
    folder.mkdir(parents=True)
    state = TuneState(command=shown.command, script="train.py", digest="d", started="", budget_s=1.0, asked=asked)
    write_state(folder, state)
    assert "one-secret" not in (folder / "tune.json").read_text()
    assert find_unfinished(tmp_path, *_asked(_told(targets[0], TuneLimits()))) == folder
    assert find_unfinished(tmp_path, *_asked(_told(targets[1], TuneLimits()))) is None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # another user's key
    assert find_unfinished(tmp_path, *_asked(_told(targets[0], TuneLimits()))) is None


def _asked(told):
    shown, asked = told
    return shown, "d", asked
