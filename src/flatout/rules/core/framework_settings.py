"""The training framework's own setting that cures a finding.

Settings of Lightning 2, transformers 4 and 5 (fields of TrainingArguments as of 5.23) and accelerate 1.
"""

from flatout.rules.core.rule import Rule
from flatout.schema.run import Run

__all__ = ["setting_sentence"]

_NAMES = {"lightning": "Lightning", "fabric": "Fabric", "transformers": "the Trainer", "accelerate": "Accelerate"}


def setting_sentence(rule: Rule, run: Run) -> str:
    """Return a sentence that names the framework's setting for the advice of `rule`, "" where there is none."""
    framework = run.causes.framework if run.causes else ""
    setting = rule.settings.get(framework, "")
    if not setting or (rule.setting_applies is not None and not rule.setting_applies(run)):
        return ""
    return f" In {_NAMES[framework]}: {setting}."
