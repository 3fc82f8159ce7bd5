"""Names of options and variables that say whether their value is a secret.

A name is read word by word: `--hf_token`, `--hfToken`, `+hub.hf-token`. Some names are sure (password, secret), others
mean a secret or something else, as `key`, `auth`, `pass`, `pat` and `pw` do: there the value decides.
"""

import re

__all__ = ["Naming", "is_account", "is_plain_word", "naming", "words_of"]

_SURE = frozenset(
    (
        *("password", "passwd", "passphrase", "passcode", "secret", "secrets", "apikey", "credential", "credentials"),
        *("creds", "authorization", "bearer", "apitoken", "authtoken", "accesstoken", "secretkey", "accesskey"),
        *(
            "privatekey",
            "webhook",
            "cookie",
            "dsn",
            "jwt",
            "psk",
            "otp",
            "totp",
            "passkey",
            "passkeys",
            "passw",
            "passwo",
            "passwor",
            "passphr",
            "pwd",
        ),
    )
)
"""Words that say so wherever they stand in a name; the last ones before `pwd` are what argparse takes for them."""
_SURE_AT_THE_END = frozenset(("signature", "sig", "token", "sas"))
_PERHAPS = frozenset(("pass", "pw", "auth", "cred", "pat", "key"))
_OWNERS = frozenset(
    (
        *("api", "access", "secret", "private", "auth", "account", "encryption", "signing", "service", "license"),
        *("wandb", "comet", "neptune", "openai", "anthropic", "hf", "aws", "azure", "gcp", "storage", "ssh", "master"),
        *("shared", "client", "hub", "huggingface", "gh", "github", "gitlab", "git", "slack", "kaggle", "clearml"),
        *("mlflow", "db", "database", "mysql", "sql", "postgres", "pg", "mongo", "redis", "user", "root", "admin"),
        *("for", "of", "to", "sudo", "vnc"),
        *("login", "smtp", "mail", "ftp", "http", "https", "proxy", "ldap", "s3", "minio", "bot", "session", "refresh"),
        *(
            "id",
            "my",
            "the",
            "for",
            "of",
            "to",
            "registry",
            "docker",
            "npm",
            "pypi",
            "sudo",
            "vault",
            "server",
            "web",
            "jupyter",
            "vnc",
        ),
    )
)
"""What owns a secret: beside `key`, `pass`, `pw`, `auth`, `pat`, `cred` or `token` it makes a name sure."""
_VOCABULARY = frozenset(
    (
        *("pad", "eos", "bos", "unk", "sep", "cls", "mask", "special", "image", "start", "end", "begin", "stop"),
        *("prefix", "suffix", "decoder", "blank", "sot", "eot", "instance", "placeholder", "initializer", "trigger"),
        *("class", "max", "min", "num", "per", "patch", "text", "audio", "video", "vision", "new", "next", "line"),
        *("sos", "first", "last", "by", "target", "source", "language", "lang", "forced", "object", "noun", "unique"),
        *("rare", "concept", "think", "tool", "query", "register", "summary", "style", "speaker", "action", "state"),
        *("dist", "global", "pool", "prompt", "word", "char", "byte", "drop", "keep", "single", "multi", "n"),
    )
)
"""What stands before `token` where it is a word of a language."""
_NO_OWNERS = {
    "pass": frozenset(
        (
            *("low", "high", "band", "all", "multi", "single", "one", "two", "first", "second", "last", "forward"),
            *("backward", "by", "n", "num", "per", "full", "dry", "train", "eval", "max", "min", "warmup", "single"),
        )
    ),
    "key": frozenset(
        (
            *("sort", "image", "label", "labels", "data", "target", "input", "output", "text", "optimizer", "group"),
            *("primary", "foreign", "partition", "cache", "state", "feature", "embed", "query", "monitor", "metric"),
            *("loss", "dict", "batch", "sample", "json", "column", "loader", "dataset", "x", "y", "img", "mask"),
            *("prompt", "response", "model", "num", "max", "n", "d", "h5", "weight", "weights", "ema", "ckpt"),
        )
    ),
    "pw": frozenset(("pos", "neg", "bce")),
    "pat": frozenset(("file", "name", "path", "glob")),
    "auth": frozenset(),
    "cred": frozenset(),
}
"""What stands before such a word where it means something else: a filter's pass, a dictionary's key."""
_HARMLESS_ENDS = frozenset(
    (
        *("file", "path", "env", "var", "name", "files", "dir", "folder", "length", "len", "size", "dim", "type"),
        *("field", "column", "stdin", "prompt", "policy", "count", "backend", "manager", "expiry", "ttl", "sharing"),
    )
)
_FLAGS = ("no", "has", "with", "use", "num", "n", "max", "min")  # before what is asked for or counted, not given
_ENDS_THAT_SAY_NOTHING = frozenset(
    ("value", "val", "str", "string", "text", "plain", "b64", "base64", "hex", "raw", "arg", "header", "json")
)
_TOGETHER = re.compile(
    r"\w*(?:password|passwd|passphrase|secret|apikey|secretkey|accesskey|credentials?|creds)s?"
    r"|(?:\w*(?:db|sql|user|usr|root|admin|smtp|mail|redis|mongo|pg|ftp|ssh|proxy|ldap|http|my|api|access|auth|hub"
    r"|git|gh|gitlab|github|hf|wandb|bot|web|aws|azure))(?:pass|pwd?|token|key|auth|pat|cred)"
)
"""Names written as one word: `dbpass`, `hftoken`, `mysqlpw`."""
_ACCOUNTS = frozenset(("u", "user", "username", "login", "account", "userpwd", "userpass", "basic", "logon"))
_SCHEMES = frozenset(
    (
        *("basic", "digest", "oauth", "oauth2", "jwt", "token", "kerberos", "ldap", "saml", "ssl", "tls", "bearer"),
        *("anonymous", "default", "auto", "iam", "gssapi", "ntlm", "password", "required", "optional", "env"),
    )
)
_SMALL = re.compile(r"[-+]?(?:\d{1,2}|\d*\.\d+(?:e[-+]?\d+)?|\d+e-?\d+)", re.IGNORECASE)
_WORD = r"[A-Za-z]+\d?(?:[_.,:/-][A-Za-z]+\d?)*"
_QUOTED = rf"""["']?{_WORD}["']?"""
_PLAIN = re.compile(
    rf"{_WORD}|[-+]?\d*\.?\d+(?:e[-+]?\d+)?|<{_WORD}>|\[\s*{_QUOTED}(?:\s*,\s*{_QUOTED})*\s*\]|", re.DOTALL
)


class Naming:
    """What a name says of the value behind it."""

    def __init__(self, kind: str = "") -> None:
        """Keep which word it was that may mean a secret; `sure`: none else is meant; empty: no secret."""
        self.kind = kind

    @property
    def sure(self) -> bool:
        """Return whether every value behind the name is a secret."""
        return self.kind == "sure"

    def hides(self, value: str) -> bool:
        """Return whether this value, given on a command line, is taken for a secret."""
        if self.kind in ("", "sure"):
            return bool(self.kind)
        if _SMALL.fullmatch(value):
            return False
        if self.kind == "key":
            return not is_plain_word(value)
        if self.kind == "pat":
            return not re.search(r"[*?\[\]/\\]", value)
        return not (self.kind == "auth" and value.lower() in _SCHEMES)


def naming(name: str) -> Naming:
    """Return what the name of an option or a variable says of its value."""
    words = words_of(name)
    while len(words) > 1 and words[-1] in _ENDS_THAT_SAY_NOTHING:
        words.pop()
    if not words or words[-1] in _HARMLESS_ENDS:
        return Naming()
    last, others = words[-1], words[:-1]
    if others and (others[0] in _FLAGS or others[-1] in _FLAGS) and last != "token":
        return Naming()
    if any(word in _SURE for word in words) or _TOGETHER.fullmatch(last):
        return Naming("sure")
    if last in _SURE_AT_THE_END:
        return Naming("" if last == "token" and others and others[-1] in _VOCABULARY else "sure")
    return _owned(words)


def _owned(words: list[str]) -> Naming:
    """Return what a name says in which `key`, `auth` and the like may stand: at its end, or with their owner behind."""
    last, before = words[-1].removesuffix("s") if words[-1] in ("keys", "tokens") else words[-1], words[-2:-1]
    if last in _PERHAPS:
        if before and before[0] in _OWNERS:
            return Naming("sure")
        return Naming("" if before and before[0] in _NO_OWNERS[last] else last)
    if last == "token" and before and before[0] in _OWNERS:
        return Naming("sure")
    inner = [word for word in words if word in _PERHAPS or word == "token"]
    others = [word for word in words if word not in inner]
    return Naming("sure" if inner and others and all(word in _OWNERS for word in others) else "")


def is_account(name: str) -> bool:
    """Return whether `user:password` may stand behind an option of this name."""
    words = words_of(name)
    return bool(words) and (words[-1] in _ACCOUNTS or words[-1] in ("auth", "creds", "cred"))


def is_plain_word(value: str) -> bool:
    """Return whether a value is a word, a few joined ones, or a number, as names of columns and layers are."""
    return len(value) < 48 and _PLAIN.fullmatch(value) is not None


def words_of(name: str) -> list[str]:
    """Return the words that a name is made of, in lower case; a number behind a word or at the end is left out."""
    words = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+", name)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    bare = words[-1].rstrip("0123456789") if words else ""
    if bare in _SURE or bare in _SURE_AT_THE_END or bare in _PERHAPS:
        words[-1] = bare
    return words
