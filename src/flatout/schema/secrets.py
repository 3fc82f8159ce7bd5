"""Secrets in command lines, settings and messages, replaced by `***` before anything is stored or shown.

Four kinds are known: values behind a name that says so (`--api-key X`, `--mysql-pw X`, `WANDB_API_KEY=X`,
`"password": "X"`, `?token=X`, `Authorization: X`), words that have the form of a token (`hf_...`, `ghp_...`, `sk-...`,
`AKIA...`, JWTs, private keys), what stands between `://` and `@`, and the password of `user:password` behind `-u` or
before `@host`. A value that was hidden in this process's command line, or that its environment holds behind a name that
is sure, is hidden in every text from then on. What the script is started with is never changed.
"""

import hashlib
import hmac
import itertools
import json
import math
import re
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from flatout.schema.secret_names import is_account, is_plain_word, naming, words_of

__all__ = ["HIDDEN", "digest", "masked", "masked_plain", "masked_words", "remember", "remember_environment"]

HIDDEN = "***"

_FORMS = re.compile(
    r"""
    (?<!--)\bhf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}
    | \bgh[opusr]_[A-Za-z0-9]{8,} | \bgithub_pat_\w{8,} | \bglpat-[\w-]{8,}
    | \bsk-(?=[\w-]*\d)[\w-]{12,} | \b[rsp]k_(?:live|test)_[A-Za-z0-9]{8,}
    | \b(?:AKIA|ASIA|AROA|AIDA|AGPA)[0-9A-Z]{12,} | \bAIza[\w-]{20,} | \bya29\.[\w-]{10,}
    | \bxox[abeprs]-[\w-]{8,} | \bnpm_[A-Za-z0-9]{16,} | \bpypi-[\w-]{16,} | \bdckr_pat_[\w-]{8,}
    | \bdapi[0-9a-f]{24,} | \bSG\.[\w-]{8,}\.[\w-]{8,} | \br8_[A-Za-z0-9]{16,} | \bnvapi-[\w-]{8,}
    | \bxapp-[\w-]{8,} | \bGOCSPX-[\w-]{8,} | \bATATT[\w-]{16,} | \b\d{8,10}:AA[\w-]{30,}
    | \beyJ[\w-]{6,}\.[\w-]{4,}(?:\.[\w-]*)?
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----(?:.*?-----END\ [A-Z ]*PRIVATE\ KEY-----|.*)
    | (?<=hooks\.slack\.com/services/)\S+ | (?<=discord\.com/api/webhooks/)\S+
    """,
    re.VERBOSE | re.DOTALL,
)
_SIGNED_IN = re.compile(r"(?<=://)[^\s/?#\"'<>]*(?=@)")
_PLAIN_USER = re.compile(r"(?:git|hg|svn|root|ubuntu|ec2-user)?")
_SIGNED_IN_BARE = re.compile(
    r"(?i)(?<![\w/:.@-])(?P<user>(?!(?:mailto|sip|xmpp|ssh|git|acct|file)\b)[a-z_][\w.+-]*):(?P<word>[^\s/:'\"]+)"
    r"@(?!sha\d)(?=(?:localhost|[a-z][\w-]*(?:\.[\w-]+)+|\d+(?:\.\d+){3}|[a-z][\w-]*(?=:\d|/))\b)"
)
_AUTHORIZATION = re.compile(
    r"""(?ix)(?P<head>\b(?:proxy-)?authorization \\?["']?\s*(?:=>|[:=])\s*\\?["']?(?:(?:bearer|basic|token|digest
    |apikey|negotiate|aws4-hmac-sha256)\s+)?)(?P<value>[^"'\\\r\n]+)"""
)
_COOKIE = re.compile(r"""(?i)(?P<head>\b(?:set-)?cookie\\?["']?\s*:\s*\\?["']?)(?=[^"'\\\r\n]*=)[^"'\\\r\n]+""")
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
_QUERY = re.compile(r"(?i)(?P<before>[?&;#](?:amp;)?(?P<name>[\w.\-]+)=)(?P<value>[^&\s\"'<>#]+)")
_ACCOUNT = re.compile(r"(?P<head>-u[A-Za-z_][\w.@+-]*:)(?!//).+", re.DOTALL)
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.\-]*)(?:=(?P<value>.*))?", re.DOTALL)

_NO_SECRETS = frozenset(("true", "false", "none", "null", "yes", "no", "on", "off", HIDDEN, ""))
_HASHES = frozenset(("commit", "revision", "rev", "sha", "sha256", "sha1", "md5", "hash", "digest", "checksum", "id"))
_RANDOM_LENGTH, _RANDOM_BITS = 20, 3.4  # characters, and bits of a character: English has 2.5 to 3.3 in such words
_SHORTEST_KNOWN = 6  # a shorter value would take too much out of other texts
_SHORTEST_PERHAPS = 8  # where the name is not sure
_SHORTEST_MIXED = 4  # of letters and digits: it is hidden where it stands as a word of its own
_SIGNED_QUERIES = ("x-amz-", "x-goog-")
_SCHEME_ENDS = ("bearer", "basic", "token", "digest", "apikey", "negotiate", "hmac-sha256")

_known: set[str] = set()
"""What was hidden in the command line and the environment of this process."""


def masked_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with its secrets hidden."""
    return tuple(_masked_word(words, position)[0] for position in range(len(words)))


def _masked_word(words: Sequence[str], position: int) -> tuple[str, str]:
    """Return a word of a command line with its secret hidden, and the name that its value stands behind."""
    word = words[position]
    option = _OPTION.fullmatch(word)
    if option and option["value"] is not None:
        return word[: option.start("value")] + _masked_value(option["name"], option["value"]), option["name"]
    glued = _ACCOUNT.fullmatch(word)
    if glued:
        return f"{glued['head']}{HIDDEN}", "u"
    name = "" if option else _before(words, position)
    return _masked_value(name, word), name


def _before(words: Sequence[str], position: int) -> str:
    """Return the option that the word stands behind, or among the several values of which it is."""
    for distance in range(1, position + 1):
        option = _OPTION.fullmatch(words[position - distance])
        if option:
            name = option["name"] if option["value"] is None else ""
            return name if distance == 1 or (name.endswith("s") and naming(name).sure) else ""
    return ""


def _masked_value(name: str, value: str) -> str:
    """Return the value of an option, or a word of its own, with what is secret in it hidden."""
    if value.lower() in _NO_SECRETS:
        return value
    if naming(name).hides(value):
        return HIDDEN
    account = re.fullmatch(r"(?P<user>[^\s:/=]*[^\s:/=\d][^\s:/=]*):(?!//).+", value, re.DOTALL)
    if account and is_account(name):
        return f"{account['user']}:{HIDDEN}"
    variable, _, assigned = value.partition("=")
    if assigned and re.fullmatch(r"[+~]*[A-Za-z][\w.\-\[\]]*", variable) and naming(variable).hides(assigned):
        return value if assigned.lower() in _NO_SECRETS else f"{variable}={HIDDEN}"
    is_hash = words_of(name)[-1:] != [] and words_of(name)[-1] in _HASHES
    return HIDDEN if not is_hash and _looks_random(value) else masked(value)


def remember(words: Sequence[str]) -> None:
    """Hide, from now on, in every text what is secret in this command line."""
    for position, word in enumerate(words):
        shown, name = _masked_word(words, position)
        shortest = _SHORTEST_PERHAPS if naming(name).kind == "key" else _SHORTEST_MIXED
        for value in _hidden_parts(word, shown):
            _remember(value, shortest)


def remember_environment(variables: Mapping[str, str]) -> None:
    """Hide, from now on, in every text the values of variables whose names say that they are secrets."""
    for name, value in variables.items():
        folder = value.startswith(("/", "~", ".")) or name in ("PWD", "OLDPWD")
        if not folder and naming(name).sure and not is_plain_word(value):
            _remember(value, _SHORTEST_PERHAPS)


def _hidden_parts(word: str, shown: str) -> Iterable[str]:
    """Return what stands in a word where it shows `***`; of `user:password` the password by itself, too."""
    if word == shown:
        return
    found = re.fullmatch("(.+?)".join(map(re.escape, shown.split(HIDDEN))), word, re.DOTALL)
    for part in found.groups() if found else ():
        yield part
        _, colon, password = part.partition(":")
        if colon and password and not re.search(r"[\s\"'/]", part):
            yield password


def _remember(value: str, shortest: int) -> None:
    """Note a value, and how it looks where it is quoted; a short one only where it looks like no word."""
    mixed = any(each.isdigit() for each in value) and any(each.isalpha() for each in value)
    if len(value) < shortest or (len(value) < _SHORTEST_KNOWN and not mixed):
        return
    _known.update((value, urllib.parse.unquote(value), repr(value)[1:-1], json.dumps(value)[1:-1]))


def masked(text: str) -> str:
    """Return `text` with the secrets in it hidden."""
    for value in sorted(_known, key=len, reverse=True):
        if len(value) >= _SHORTEST_KNOWN:
            text = text.replace(value, HIDDEN)
        elif value in text:
            text = re.sub(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", HIDDEN, text)
    if len(text) < _SHORTEST_KNOWN:
        return text
    text = _FORMS.sub(HIDDEN, text)
    if "://" in text:
        text = _SIGNED_IN.sub(lambda found: found[0] if _PLAIN_USER.fullmatch(found[0]) else HIDDEN, text)
    if "@" in text:
        text = _SIGNED_IN_BARE.sub(rf"\g<user>:{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    if "=" in text:
        text = _QUERY.sub(lambda found: found["before"] + _hidden_if(_is_secret_query(found["name"]), found), text)
    if "=" not in text and ":" not in text:
        return text
    text = _AUTHORIZATION.sub(_authorized, text)
    return _NAMED.sub(_named, _COOKIE.sub(rf"\g<head>{HIDDEN}", text))


def _authorized(found: re.Match[str]) -> str:
    """Hide what an `Authorization` is, unless it is code that names a type or a variable."""
    head = found["head"].rstrip().lower()
    said = head.endswith(("'", '"', *_SCHEME_ENDS)) or _is_value(found["value"].strip(), quoted=False, between=":")
    return found["head"] + HIDDEN if said else found[0]


def _named(found: re.Match[str]) -> str:
    head = found["name"] + found["between"] + found["quote"]
    value = found["value"]
    quoted = bool(found["quote"])
    if not _is_hidden_in_text(found["name"], value, quoted) or not _is_value(value, quoted, found["between"]):
        return head + (_NAMED.sub(_named, value) if "=" in value or ":" in value else value)
    return head + HIDDEN


def _is_hidden_in_text(name: str, value: str, quoted: bool) -> bool:
    """Return whether a value in a text, a message or a setting is a secret: `key` and `pass` are often something else.

    Then the value must look like one.
    """
    told = naming(name)
    if words_of(name)[-1:] == ["authorization"]:
        return False  # `_AUTHORIZATION` has seen it
    if told.sure or not told.kind:
        return told.sure
    if quoted and told.kind == "key" and _looks_random(value):
        return True
    mixed = any(each.isdigit() for each in value) and any(each.isalpha() for each in value)
    measured = re.fullmatch(r"[-+]?[\d.,]+\s?[A-Za-z%/]*", value)
    return mixed and not measured and len(value) >= _SHORTEST_PERHAPS and told.hides(value) and not is_plain_word(value)


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
        return {name: _masked_item(str(name), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [each if isinstance(each, int | float) else masked_plain(each) for each in value]
    return value


def _masked_item(name: str, item: object) -> object:
    if not isinstance(item, str) or not item:
        return masked_plain(item)
    authorizes = words_of(name)[-1:] == ["authorization"]
    return HIDDEN if authorizes or _is_hidden_in_text(name, item, quoted=True) else masked(item)


def digest(words: Sequence[str], key: bytes) -> str:
    """Return what tells a command line with secrets from others, and is worth nothing to who does not know `key`."""
    return hmac.new(key, "\0".join(words).encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _is_secret_query(name: str) -> bool:
    told = naming(name)
    return told.sure or bool(told.kind) or words_of(name)[-1:] == ["sid"] or name.lower().startswith(_SIGNED_QUERIES)


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
