"""Names that mean a secret hide what stands behind them; names of hyper-parameters hide nothing."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.schema.secret_names import naming
from flatout.schema.secrets import masked_words

STYLES = {
    "kebab": "-".join,
    "snake": "_".join,
    "dotted": ".".join,
    "camel": lambda words: words[0] + "".join(word.capitalize() for word in words[1:]),
    "upper": lambda words: "_".join(words).upper(),
}
OWNERS = ("hf", "github", "wandb", "mysql", "aws", "db", "user", "api", "hub", "smtp", "docker", "login", "client")
NOUNS = ("pat", "cred", "creds", "auth", "pw", "pwd", "pass", "key", "token", "secret", "password", "credentials")
SECRET = st.text(string.ascii_letters + string.digits + "!$%^+~", min_size=4, max_size=40).filter(
    lambda value: any(each.isdigit() for each in value) and value[0].isalpha()
)
PLAIN = [
    *("--key-dim 64", "--max-tokens 512", "--tokenizer gpt2", "--author me2x", "--pass-through x1y2", "--num-keys 8"),
    *(
        "--passes 3",
        "--pad-token <pad>",
        "--mask-token [MASK]",
        "--key image",
        "--sort-key len",
        "--tokens-per-batch 9",
    ),
    *("--low-pass 3000hz", "--high-pass 80hz", "--forward-pass x1", "--pw 0.5", "--pos-pw 2.5", "--patience 5a"),
    *(
        "--pat 5",
        "--pat *.jpg",
        "--file-pat img1*",
        "--pass 2",
        "--key 3",
        "--auth none",
        "--auth basic",
        "--auth oauth2",
    ),
    *(
        "--keypoints 17x",
        "--n-keypoints 17",
        "--num-passes 2x",
        "--token-dropout 0.1",
        "--token-dim 64d",
        "--patch 16x16",
    ),
    *("--pattern a1b2c3", "--path ck1pt2", "--authors a1b2", "--compass n2e3", "--monkey m1n2", "--keyboard k1l2"),
    *("--secret-file s1t2", "--token-path t1u2", "--password-env p1q2", "--max-secrets 8x", "--use-auth yes9a"),
    *("--image-key img1", "--label-key y0z1", "--optimizer-key adam2w", "--credit c1d2", "--passage p1q2x"),
    *("--num-tokens 12b", "--bos-token b1o2", "--spatial s2d3", "--password-length 12a", "--token-type t5x"),
    *(
        "--lr 3e-4",
        "--name resnet50",
        "--ckpt epoch=3-step=400.ckpt",
        "--user bob",
        "--range 0:10x",
        "--model m:latest2",
    ),
    *("--tokens-per-batch 9", "--auth oauth2", "--patch 16x16", "--model m:latest2"),
    *("--betas 0.9,0.999", "--dtype bfloat16", "--user 1000:1000", "--host db1:5432", "--d-key 64x", "-u train.py"),
    *("--hf_transfer true", "--hf_checkpoint gpt2", "--backend hf_accelerate"),
]


@pytest.mark.parametrize("style", STYLES)
@given(owner=st.sampled_from(OWNERS), noun=st.sampled_from(NOUNS), value=SECRET, digits=st.sampled_from(["", "2"]))
def test_what_belongs_to_somebody_and_is_named_as_a_secret_is_hidden(style, owner, noun, value, digits):
    name = STYLES[style]([owner, noun]) + digits
    assert masked_words([f"--{name}", value, "--lr", "0.1"]) == (f"--{name}", "***", "--lr", "0.1")
    assert masked_words([f"--{name}={value}"]) == (f"--{name}=***",)
    assert masked_words([f"+{name}={value}"]) == (f"+{name}=***",)


def test_a_list_of_keys_hides_what_no_list_of_words_is():
    assert masked_words(["--keys", '["A13bcd9","A14xxz9"]']) == ("--keys", "***")
    for words in ('["rgb", "depth"]', "[rgb,depth]", "<pad>", "[MASK]"):
        assert masked_words(["--keys", words]) == ("--keys", words)


@pytest.mark.parametrize("name", ["wifi_psk", "otp", "totp", "passkey", "wifi-psk"])
def test_names_of_what_one_signs_in_with_once(name):
    assert masked_words([f"--{name}", "483920"]) == (f"--{name}", "***")


def test_the_name_of_an_option_is_no_token():
    assert masked_words(["--hf_password2", "A000"]) == ("--hf_password2", "***")
    assert masked_words(["hf_abcdefg12345"]) == ("***",)


@given(noun=st.sampled_from(NOUNS), value=SECRET.filter(lambda value: not value[:-1].isalpha()))
def test_a_bare_noun_hides_what_is_no_word(noun, value):
    assert masked_words([f"--{noun}", value]) == (f"--{noun}", "***")


@pytest.mark.parametrize("line", PLAIN)
@pytest.mark.slow
def test_what_only_looks_like_such_a_name_hides_nothing(line):
    words = line.split(" ")
    assert list(masked_words(words)) == words
    assert masked_words(["=".join(words)]) == ("=".join(words),)


@given(
    words=st.lists(
        st.text(string.ascii_lowercase, min_size=2, max_size=9).filter(lambda word: not naming(word).kind),
        min_size=1,
        max_size=4,
    ),
    value=st.one_of(st.integers().map(str), st.floats(allow_nan=False).map(str), st.sampled_from(["adam", "gpt2"])),
)
def test_other_names_hide_no_number_and_no_word(words, value):
    name = "-".join(words)
    if not naming(name).kind:
        assert masked_words([f"--{name}", value]) == (f"--{name}", value)


@pytest.mark.parametrize("name", ["token_for_hf", "key-wandb", "pw_mysql", "secret-id", "password_db", "api-key-value"])
def test_a_name_may_say_it_anywhere(name):
    assert naming(name).sure
