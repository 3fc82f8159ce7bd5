"""Tell from the user's source whether a line prints, logs, draws or writes a file."""

import ast
import re

from flatout.rules.source.source_code import expressions, statement_node
from flatout.schema.run import Frame, LineCost

__all__ = ["is_logging_call", "writes_output"]

FUNCTIONS = frozenset({"pprint", "print"})
METHODS = frozenset(
    {
        *("write", "writelines", "write_text", "write_bytes", "writerow", "writerows", "flush", "fsync"),
        *("add_scalar", "add_scalars", "add_image", "add_images", "add_histogram", "add_figure", "add_text"),
        *("log_metric", "log_metrics", "log_dict", "log_hyperparams", "savefig", "imsave", "imwrite", "savetxt"),
        *("to_csv", "to_json", "to_parquet", "to_pickle", "set_postfix", "set_postfix_str", "set_description"),
        *("dump", "dumps", "pprint", "secho"),
    }
)
SOMETIMES = frozenset({"critical", "debug", "error", "info", "log", "print", "warn", "warning"})  # on LOGGERS only
LOGGERS = re.compile(
    r"^(aim|accelerator|comet|console|experiment|fabric|history|logging|mlflow|neptune|run|self|tracker|tqdm|wandb"
    r"|\w*log(s|ger)?|\w*writer)$"
)
MODULES = frozenset({"csv", "json", "logging", "loguru", "matplotlib", "rich", "tensorboard", "tensorboardX", "tqdm"})
MODULES_TOO = frozenset({"aim", "comet_ml", "mlflow", "neptune", "pprint", "wandb"})
NAMES = re.compile(r"(^|_)(dump|log|logging|print|plot|report|savefig|tensorboard|wandb|write)(_|$)")


def writes_output(cost: LineCost) -> bool:
    """Return whether the time went into printing, logging, drawing or writing: by line, by module, or by name."""
    if cost.leaf in MODULES | MODULES_TOO:
        return True
    if not cost.stack:
        return False
    function = cost.stack[0].function.rpartition(".")[2].lower()
    return bool(NAMES.search(function)) or bool(is_logging_call(cost.stack[0]))


def is_logging_call(frame: Frame) -> bool | None:
    """Return whether the statement at `frame` calls something that prints, logs or writes; None when unreadable."""
    node = statement_node(frame)
    if node is None:
        return None
    calls = (part for head in expressions(node) for part in ast.walk(head) if isinstance(part, ast.Call))
    return any(_is_output(call.func) for call in calls)


def _is_output(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in FUNCTIONS or bool(NAMES.search(function.id.lower()))
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr in METHODS:
        return True
    return function.attr in SOMETIMES and bool(LOGGERS.match(_last_name(function.value).lower()))


def _last_name(receiver: ast.expr) -> str:
    """Return `logger` for `self.logger` and for `logging.getLogger("x").logger`."""
    if isinstance(receiver, ast.Call):
        receiver = receiver.func
    if isinstance(receiver, ast.Attribute):
        return "logger" if receiver.attr == "getLogger" else receiver.attr
    return receiver.id if isinstance(receiver, ast.Name) else ""
