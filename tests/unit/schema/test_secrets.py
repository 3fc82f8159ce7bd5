"""Secrets are hidden in command lines, settings and messages; what only looks like a word stays."""

import json

import pytest

from flatout.schema import secrets
from flatout.schema.secrets import digest, masked, masked_plain, masked_words, remember

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcDEF123"
KEY = "3f2a9c8b7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a"

HIDDEN = [
    (["--api-key", "x1"], ["--api-key", "***"]),
    (["--api-key=x1"], ["--api-key=***"]),
    (["--token", "hunter2", "--lr", "1"], ["--token", "***", "--lr", "1"]),
    (["--password", "a b"], ["--password", "***"]),
    (["-password", "pw"], ["-password", "***"]),
    (["--hf_token", "x"], ["--hf_token", "***"]),
    (["--hfToken", "x"], ["--hfToken", "***"]),
    (["--client-secret", "x"], ["--client-secret", "***"]),
    (["--key", KEY], ["--key", "***"]),
    (["WANDB_API_KEY=a,b c"], ["WANDB_API_KEY=***"]),
    (["env", "HF_TOKEN=x", "python"], ["env", "HF_TOKEN=***", "python"]),
    (["+wandb.api_key=abc"], ["+wandb.api_key=***"]),
    (["hf_ABCDEFGHIJKLMNOP"], ["***"]),
    (["--a", "ghp_abcdefghijklmnop1234"], ["--a", "***"]),
    (["sk-proj-abc123def456ghi"], ["***"]),
    (["AKIAIOSFODNN7EXAMPLE"], ["***"]),
    ([JWT], ["***"]),
    (["https://user:pa@ss@host/x"], ["https://***@host/x"]),
    (["https://ghp_abcdefgh12345678@github.com/x"], ["https://***@github.com/x"]),
    (["postgresql://u:p%40s@db:5432/x"], ["postgresql://***@db:5432/x"]),
    (["https://h/x?token=abc&y=1"], ["https://h/x?token=***&y=1"]),
    (["https://h/x?X-Amz-Signature=abc&X-Amz-Date=1"], ["https://h/x?X-Amz-Signature=***&X-Amz-Date=***"]),
    (['{"api_key": "a b", "lr": 1}'], ['{"api_key": "***", "lr": 1}']),
    (["{password: abc}"], ["{password: ***}"]),
    (["--pat", "x"], ["--pat", "***"]),
    (["--creds", "x"], ["--creds", "***"]),
    (["--hf-auth", "x"], ["--hf-auth", "***"]),
    (["--mysql-pw", "x"], ["--mysql-pw", "***"]),
    (["--key=peach17x"], ["--key=***"]),
    (["--dbpass", "x", "--hftoken=x"], ["--dbpass", "***", "--hftoken=***"]),
    (["--secrets", "a", "b", "--lr", "1"], ["--secrets", "***", "***", "--lr", "1"]),
    (["-u", "bob:pa55"], ["-u", "bob:***"]),
    (["-ubob:pa55"], ["-ubob:***"]),
    (["--user=bob:pa55:x"], ["--user=bob:***"]),
    (["bob:pa55@db.example.org:5432/x"], ["bob:***@db.example.org:5432/x"]),
    (["bob:pa55@localhost"], ["bob:***@localhost"]),
    (["-H", "Authorization: Bearer abcdefgh"], ["-H", "Authorization: Bearer ***"]),
    (["-H", "authorization: Basic Ym9iOnBh"], ["-H", "authorization: Basic ***"]),
    (["-H", "Proxy-Authorization: x y"], ["-H", "Proxy-Authorization: ***"]),
    (["-H", "Cookie: a=b; c=d"], ["-H", "Cookie: ***"]),
    (["{'Authorization': 'Bearer abcdefgh'}"], ["{'Authorization': 'Bearer ***'}"]),
    (["https://h/x#access_token=abc"], ["https://h/x#access_token=***"]),
    (["https://h/x?sv=1&sig=a%2Fb"], ["https://h/x?sv=1&sig=***"]),
    (["https://discord.com/api/webhooks/12/ab"], ["https://discord.com/api/webhooks/***"]),
    (["xapp-1-A0123-456"], ["***"]),
]

PLAIN = [
    ["--use-auth-token", "--lr", "0.1"],
    ["--token", "true"],
    ["--pad-token", "<pad>"],
    ["--tokenizer", "bert-base", "--max_tokens", "128", "--num-tokens=5"],
    ["--key", "image", "--sort-key=len"],
    ["--commit", KEY],
    ["--name", "resnet50-imagenet-20261128-bs256"],
    ["--password-file", "/run/secrets/x"],
    ["git+ssh://git@github.com/x/y", "s3://bucket/key/of/data", "http://localhost:5000/a@b"],
    ["lightning_logs/version_0/checkpoints/epoch=3-step=400.ckpt"],
    ["data.key=value", "a:b", "--monkey", "x", "--optimizer-key", "adam"],
    ["registry.org/image:tag@sha256:abc", "mailto:bob@example.org", "git@github.com:x/y", "pkg.module:Class"],
    ["--user", "bob", "-u", "train.py", "--image", "repo:latest", "--range", "0:10"],
]

CODE = [
    "token = next(tokens)",
    "def f(token: str, password: str) -> None:",
    "login(password=args.password)",
    "for token in tokens:",
    "loss.item()  # tokens: 12",
    "key: value",
    "forward pass: 12.345ms, pass=2.31ms, pass 3: 4 s",
    "auth: failed, key=lambda row: row[1]",
    "def request(authorization: str) -> None:",
]


@pytest.mark.parametrize(("words", "shown"), HIDDEN, ids=lambda words: words[-1][:30])
def test_a_secret_in_a_command_line_is_hidden(words, shown):
    assert list(masked_words(words)) == shown


@pytest.mark.parametrize("words", PLAIN, ids=lambda words: words[0])
def test_what_is_no_secret_is_shown(words):
    assert list(masked_words(words)) == words


@pytest.mark.parametrize("line", CODE)
def test_lines_of_code_that_name_no_value_stay(line):
    assert masked(line) == line


def test_hiding_twice_is_hiding_once():
    for words, _ in HIDDEN:
        assert masked_words(masked_words(words)) == masked_words(words)
        assert masked(masked(" ".join(words))) == masked(" ".join(words))


def test_a_value_of_the_command_line_is_hidden_wherever_it_is_quoted(monkeypatch):
    monkeypatch.setattr(secrets, "_known", set())
    remember(["train.py", "--api-key", "open-sesame", "--token=17"])
    assert masked("ValueError: 'open-sesame' is refused") == "ValueError: '***' is refused"
    assert masked("17 steps") == "17 steps"


def test_what_is_remembered_is_hidden_in_every_form_of_quoting(monkeypatch):
    monkeypatch.setattr(secrets, "_known", set())
    odd = "a'b\\c\"1"
    words = ["--db-pass", odd, "--pw=x7y2", "--db", "postgresql://me:p%40ss12@host/x", "--key", "l1.x2"]
    remember(["train.py", *words])
    assert masked(f"refused {odd!r}, {odd}, {json.dumps(odd)}") == "refused '***', ***, \"***\""
    assert masked("login with x7y2 failed, max7y2x") == "login with *** failed, max7y2x"
    assert masked("for user me: p@ss12 or p%40ss12") == "for user me: *** or ***"
    assert masked("layer l1.x2") == "layer l1.x2"


def test_secrets_of_the_environment_are_hidden_and_its_other_values_stay(monkeypatch):
    monkeypatch.setattr(secrets, "_known", set())
    secrets.remember_environment(
        {
            **{"WANDB_API_KEY": "abc-123-xyz", "DB_PASSWORD": "postgres", "PWD": "work-1-2-3", "GPG_KEY": "0xABCDEF01"},
            **{"SSH_AUTH_SOCK": "agent-1-2-3", "HF_TOKEN_PATH": "token-1-2-3", "SECRET_KEY": "/etc/keys/key1x2"},
        }
    )
    assert masked("abc-123-xyz") == "***"
    for value in ("postgres is down", "work-1-2-3", "agent-1-2-3", "token-1-2-3", "/etc/keys/key1x2"):
        assert masked(value) == value


def test_settings_that_may_be_secrets_are_hidden_where_they_look_so():
    told = {"key": "layer4", "auth": "ab12cd34ef", "pass": "12.345ms", "pat": 5, "creds": "x"}
    assert masked_plain(told) == {"key": "layer4", "auth": "***", "pass": "12.345ms", "pat": 5, "creds": "***"}


def test_plain_values_keep_their_form():
    told = {"notes": ["hf_ABCDEFGHIJKLMNOP failed", 3], "settings": {"api_key": "x", "lr": 0.1, "on": None}}
    assert masked_plain(told) == {"notes": ["*** failed", 3], "settings": {"api_key": "***", "lr": 0.1, "on": None}}


def test_command_lines_that_differ_in_a_secret_differ_by_their_digest_under_one_key_only():
    one, other = (["train.py", "--token", value] for value in ("a", "b"))
    assert digest(one, b"k") == digest(one, b"k") != digest(other, b"k")
    assert digest(one, b"k") != digest(one, b"l")
