"""Secrets are hidden in command lines, settings and messages; what only looks like a word stays."""

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
]

CODE = [
    "token = next(tokens)",
    "def f(token: str, password: str) -> None:",
    "login(password=args.password)",
    "for token in tokens:",
    "loss.item()  # tokens: 12",
    "key: value",
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


def test_plain_values_keep_their_form():
    told = {"notes": ["hf_ABCDEFGHIJKLMNOP failed", 3], "settings": {"api_key": "x", "lr": 0.1, "on": None}}
    assert masked_plain(told) == {"notes": ["*** failed", 3], "settings": {"api_key": "***", "lr": 0.1, "on": None}}


def test_command_lines_that_differ_in_a_secret_differ_by_their_digest_under_one_key_only():
    one, other = (["train.py", "--token", value] for value in ("a", "b"))
    assert digest(one, b"k") == digest(one, b"k") != digest(other, b"k")
    assert digest(one, b"k") != digest(one, b"l")
