"""Name -> constructor, so that configs can be plain dictionaries."""

_TABLE = {}


def register(kind, name):
    def wrap(obj):
        _TABLE[kind, name] = obj
        return obj
    return wrap


def build(kind, spec):
    spec = dict(spec)
    return _TABLE[kind, spec.pop("name")](**spec)
