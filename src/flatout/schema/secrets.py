"""Secrets in command lines, settings and messages, replaced by `***` before anything is stored or shown.

Three kinds are known: values behind a name that says so (`--api-key X`, `WANDB_API_KEY=X`, `"password": "X"`,
`?token=X`), words that have the form of a token (`hf_...`, `ghp_...`, `sk-...`, `AKIA...`, JWTs, private keys) and what
stands between `://` and `@`. A value that was hidden in this process's command line is hidden in every text from then
on. What the script is started with is never changed.
"""

import hashlib
import hmac
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

__all__ = ["HIDDEN", "digest", "masked", "masked_plain", "masked_words", "remember"]

HIDDEN = "***"

_FORMS = re.compile(
    r"""
    \bhf_[A-Za-z0-9]{8,}
    | \bgh[opusr]_[A-Za-z0-9]{8,} | \bgithub_pat_\w{8,} | \bglpat-[\w-]{8,}
    | \bsk-(?=[\w-]*\d)[\w-]{12,} | \b[rsp]k_(?:live|test)_[A-Za-z0-9]{8,}
    | \b(?:AKIA|ASIA|AROA|AIDA|AGPA)[0-9A-Z]{12,} | \bAIza[\w-]{20,} | \bya29\.[\w-]{10,}
    | \bxox[abeprs]-[\w-]{8,} | \bnpm_[A-Za-z0-9]{16,} | \bpypi-[\w-]{16,} | \bdckr_pat_[\w-]{8,}
    | \bdapi[0-9a-f]{24,} | \bSG\.[\w-]{8,}\.[\w-]{8,} | \br8_[A-Za-z0-9]{16,} | \bnvapi-[\w-]{8,}
    | \beyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----(?:.*?-----END\ [A-Z ]*PRIVATE\ KEY-----|.*)
    | (?<=hooks\.slack\.com/services/)\S+
    """,
    re.VERBOSE | re.DOTALL,
)
_SIGNED_IN = re.compile(r"(?<=://)[^\s/?#\"'<>]*(?=@)")
_PLAIN_USER = re.compile(r"(?:git|hg|svn|root|ubuntu|ec2-user)?")
_BEARER = re.compile(r"(?i)\b((?:bearer|basic|token)\s+)(?=[\w.~+/=-]*[\d=])[\w.~+/=-]{8,}")
_NAMED = re.compile(
    r"""
    (?P<name>[A-Za-z][\w.\-\[\]]*)
    (?P<between>\\?["']?\]?\s*(?:=>|:=|=|:)\s*)
    (?P<quote>\\?["']?)
    (?P<value>(?<=["'])[^"'\\]+|[^"'\s&;,)}\]\\]+)
    """,
    re.VERBOSE,
)
_QUERY = re.compile(r"(?i)(?P<before>[?&;](?:amp;)?(?P<name>[\w.\-]+)=)(?P<value>[^&\s\"'<>#]+)")
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.\-]*)(?:=(?P<value>.*))?", re.DOTALL)

_ONE_WORD = frozenset(
    (
        *("password", "passwd", "passphrase", "pwd", "pass", "secret", "secrets", "token", "apikey", "credential"),
        *("credentials", "authorization", "bearer", "apitoken", "authtoken", "accesstoken", "secretkey", "accesskey"),
        *("privatekey", "signature", "sig", "webhook", "cookie", "dsn"),
    )
)
_KEYS = frozenset(
    (
        *("api", "access", "secret", "private", "auth", "account", "encryption", "signing", "service", "license"),
        *("wandb", "comet", "neptune", "openai", "hf", "aws", "azure", "storage", "ssh", "master", "shared", "client"),
    )
)
"""What stands before `key` where it is a secret; a `key` alone may be of anything."""
_VOCABULARY = frozenset(
    (
        *("pad", "eos", "bos", "unk", "sep", "cls", "mask", "special", "image", "start", "end", "begin", "stop"),
        *("prefix", "suffix", "decoder", "blank", "sot", "eot", "instance", "placeholder", "initializer", "trigger"),
        *("class", "max", "min", "num", "per", "patch", "text", "audio", "video", "vision", "new", "next", "line"),
    )
)
"""What stands before `token` where it is a word of a language."""
_NO_SECRETS = frozenset(("true", "false", "none", "null", "yes", "no", "on", "off", HIDDEN, ""))
_HASHES = frozenset(("commit", "revision", "rev", "sha", "sha256", "sha1", "md5", "hash", "digest", "checksum", "id"))
_RANDOM_LENGTH, _RANDOM_BITS = 20, 3.4  # characters, and bits of a character: English has 2.5 to 3.3 in such words
_SHORTEST_KNOWN = 6  # a shorter value would take too much out of other texts

_known: set[str] = set()
"""What was hidden in the command line of this process."""


def masked_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with its secrets hidden."""
    found, behind = [], False
    for word in words:
        option = _OPTION.fullmatch(word)
        if behind and option is None and word.lower() not in _NO_SECRETS:
            found.append(HIDDEN)
            behind = False
            continue
        name = option["name"] if option else ""
        behind = option is not None and option["value"] is None and _is_secret(name)
        if option and option["value"] is not None:
            found.append(word[: option.start("value")] + _masked_value(name, option["value"]))
        else:
            found.append(_masked_value("" if option else _before(words, len(found)), word))
    return tuple(found)


def _before(words: Sequence[str], position: int) -> str:
    option = _OPTION.fullmatch(words[position - 1]) if position else None
    return option["name"] if option and option["value"] is None else ""


def _masked_value(name: str, value: str) -> str:
    """Return the value of an option, or a word of its own, with what is secret in it hidden."""
    if _is_secret(name) and value.lower() not in _NO_SECRETS:
        return HIDDEN
    variable, _, assigned = value.partition("=")
    if assigned and re.fullmatch(r"[+~]*[A-Za-z][\w.\-\[\]]*", variable) and _is_secret(variable):
        return value if assigned.lower() in _NO_SECRETS else f"{variable}={HIDDEN}"
    is_hash = bool(_parts(name) and _parts(name)[-1] in _HASHES)
    return HIDDEN if not is_hash and _looks_random(value) else masked(value)


def remember(words: Sequence[str]) -> None:
    """Hide, from now on, in every text what is secret in this command line."""
    for word, shown in zip(words, masked_words(words), strict=True):
        if word == shown:
            continue
        start = next((at for at, (one, other) in enumerate(zip(word, shown, strict=False)) if one != other), 0)
        value = word[start:] if shown.endswith(HIDDEN) else ""
        if len(value) >= _SHORTEST_KNOWN:
            _known.add(value)


def masked(text: str) -> str:
    """Return `text` with the secrets in it hidden."""
    for value in _known:
        text = text.replace(value, HIDDEN)
    if len(text) < _SHORTEST_KNOWN:
        return text
    text = _FORMS.sub(HIDDEN, text)
    if "://" in text:
        text = _SIGNED_IN.sub(lambda found: found[0] if _PLAIN_USER.fullmatch(found[0]) else HIDDEN, text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    if "=" in text:
        text = _QUERY.sub(lambda found: found["before"] + _hidden_if(_is_secret_query(found["name"]), found), text)
    return _NAMED.sub(_named, text) if "=" in text or ":" in text else text


def _named(found: re.Match[str]) -> str:
    head = found["name"] + found["between"] + found["quote"]
    value = found["value"]
    quoted = bool(found["quote"])
    secret = _is_secret(found["name"]) or (quoted and _parts(found["name"])[-1:] == ["key"] and _looks_random(value))
    if not secret or not _is_value(value, quoted, found["between"]):
        return head + (_NAMED.sub(_named, value) if "=" in value or ":" in value else value)
    return head + HIDDEN


def _is_value(value: str, quoted: bool, between: str) -> bool:
    """Return whether that is a value and no code: `token = next(tokens)`, `token: str`, `password=args.password`."""
    if value.lower() in _NO_SECRETS or value.startswith(HIDDEN):
        return False
    if quoted:
        return True
    code = re.match(r"[A-Za-z_][\w.]*[(\[]|(?:args|self|os|cfg|config|opts?|options)\.|\$\{?\w+\}?$", value)
    code = code or re.fullmatch(r"(?:str|int|float|bytes|bool|Any|Tensor|list|dict|Optional|Union)\b.*", value)
    if code:
        return False
    spaced = between != between.strip()
    return not spaced or any(letter.isdigit() for letter in value) or between.strip() == ":"


def _hidden_if(secret: bool, found: re.Match[str]) -> str:
    return HIDDEN if secret else found["value"]


def masked_plain(value: object) -> object:
    """Return plain values (what JSON holds) with the secrets in their texts hidden."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if isinstance(item, str) and item and _is_secret(str(name)) else masked_plain(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [each if isinstance(each, int | float) else masked_plain(each) for each in value]
    return value


def digest(words: Sequence[str], key: bytes) -> str:
    """Return what tells a command line with secrets from others, and is worth nothing to who does not know `key`."""
    return hmac.new(key, "\0".join(words).encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _parts(name: str) -> list[str]:
    """Return the words that a name is made of: `hfToken`, `HF_TOKEN`, `hub.hf-token`."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+", name)]


def _is_secret(name: str) -> bool:
    """Return whether what has this name is a secret."""
    parts = _parts(name)
    if not parts:
        return False
    before, last = parts[-2] if len(parts) > 1 else "", parts[-1]
    if last in ("file", "path", "env", "var", "name") or (before in ("no", "has", "with", "use") and last != "token"):
        return False
    if last == "token":
        return before not in _VOCABULARY
    return last in _ONE_WORD or (last in ("key", "keys") and before in _KEYS)


def _is_secret_query(name: str) -> bool:
    parts = _parts(name)
    return _is_secret(name) or name.lower().startswith(("x-amz-", "x-goog-")) or parts[-1:] in (["key"], ["auth"])


def _looks_random(value: str) -> bool:
    """Return whether a word is of letters and digits in no order, as keys are."""
    if len(value) < _RANDOM_LENGTH or not re.fullmatch(r"[A-Za-z0-9+/=_\-]+", value) or "/" in value[:2]:
        return False
    longest = max(re.split(r"[-_/]", value), key=len)
    mixed = any(each.isdigit() for each in longest) and any(each.isalpha() for each in longest)
    return len(longest) >= _RANDOM_LENGTH and mixed and _bits(longest) > _RANDOM_BITS and _turns(longest) > 0.25


def _bits(word: str) -> float:
    """Return the entropy of a character of `word`."""
    return -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())


def _turns(word: str) -> float:
    """Return how often, of its length, letters and digits change places."""
    return sum(one.isdigit() != other.isdigit() for one, other in itertools.pairwise(word)) / len(word)
