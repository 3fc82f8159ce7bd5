"""Whether samples are random: then another process would draw other numbers. In doubt they are."""

import ast
import re
from collections.abc import Iterator

from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["is_of_workers", "made_randomly"]

_RANDOM = re.compile(
    r"random|rand(n|int|perm)?(_like)?|normal_?|uniform_?|choices?|shuffle|sample|bernoulli_?|multinomial|exponential_?"
    r"|default_rng|rng|RandomState|getrandbits|randrange|gauss|permutation|standard_normal|Generator|manual_seed"
)
# Transforms that draw, of torchvision, albumentations and their kin.
_TRANSFORM = re.compile(
    r"Random(?!Sampler)\w+|ColorJitter|(Auto|Rand|Aug)(Augment|Mix)\w*|TrivialAugment\w*|GaussianBlur|GaussNoise"
    r"|Elastic\w*|Mix[Uu]p|Cut[Mm]ix|\w*Flip|CoarseDropout"
)
_PER_SAMPLE = ("__getitem__", "__getitems__")
_HANDED = ("collate_fn", "transform", "transforms", "target_transform")


def made_randomly(project: Project) -> str:
    """Return what draws random numbers where samples are made, "" where nothing does; as far as can be read."""
    for source, node in project.nodes(ast.ClassDef):
        if any("IterableDataset" in ast.unparse(base) for base in node.bases):
            return source.at(node, f"{node.name} is an iterable data set, which each worker would read completely")
    for source, node in project.nodes(ast.Name, ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if _TRANSFORM.fullmatch(name) and isinstance(source.parents.get(node), ast.Call):
            return source.at(node, f"{name} draws random numbers")
    for source, node, name in _reached(project):
        if _RANDOM.fullmatch(name):
            return source.at(node, f"{name} is called where samples are made")
    return ""


def is_of_workers(project: Project, source: SourceFile, node: ast.AST) -> bool:
    """Return whether code runs where samples are made: in a data set, or as a `worker_init_fn`."""
    inits = {ast.unparse(each.value) for _, call in project.nodes(ast.Call) for each in call.keywords if _is_init(each)}
    for above in source.above(node):
        if isinstance(above, Function) and above.name in inits:
            return True
        if isinstance(above, ast.ClassDef) and any(getattr(each, "name", "") in _PER_SAMPLE for each in above.body):
            return True
    return False


def _is_init(keyword: ast.keyword) -> bool:
    return keyword.arg == "worker_init_fn"


def _reached(project: Project) -> Iterator[tuple[SourceFile, ast.expr, str]]:
    """Yield the names that the data sets' own code and the collate functions mention, and what they call of ours."""
    queue: list[tuple[SourceFile, ast.AST]] = [
        (source, function)
        for source, node in project.nodes(ast.ClassDef)
        if any(getattr(each, "name", "") in _PER_SAMPLE for each in node.body)
        for function in node.body
        if getattr(function, "name", "") not in ("__init__", "__len__")
    ]
    for _, call in project.nodes(ast.Call):
        handed = {last_name(each.value) for each in call.keywords if each.arg in _HANDED}
        queue += [each for name in handed for each in project.functions.get(name, ())]
    seen = {node for _, node in queue}
    for source, node in queue:  # grows while it is read
        for inner in ast.walk(node):
            name = inner.id if isinstance(inner, ast.Name) else getattr(inner, "attr", "")
            if not name or not isinstance(inner, ast.Name | ast.Attribute):
                continue
            yield source, inner, name
            for place, function in project.functions.get(name, ()):
                if function not in seen:
                    seen.add(function)
                    queue.append((place, function))
