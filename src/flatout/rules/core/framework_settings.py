"""What a finding's advice is called where a framework's loop trains: the framework's own setting.

Settings of Lightning 2, transformers 4 and 5 (the fields of TrainingArguments were looked up in 5.23) and accelerate 1.
"""

from flatout.schema.finding import Finding
from flatout.schema.run import Run

__all__ = ["in_its_own_words"]

_LOADER = "`num_workers` of the DataLoader that your module or DataModule returns"
_SETTINGS = {
    "lightning": {
        "CO003": "`Trainer(detect_anomaly=False)`",
        "EP001": "`Trainer(check_val_every_n_epoch=..., limit_val_batches=...)`",
        "EP003": "`ModelCheckpoint(every_n_epochs=...)`, or `AsyncCheckpointIO()` as a plugin, from Lightning 2.6 on",
        "HO002": "`Trainer(log_every_n_steps=50)`, and `self.log(..., on_step=False)`",
        "IN002": _LOADER,
        "IN009": "`persistent_workers=True` of the same DataLoader",
        "SY001": "`self.log` of tensors instead of `.item()`",
    },
    "fabric": {
        "EP003": "fewer calls of `fabric.save`",
        "IN002": "`num_workers` of the DataLoader handed to `fabric.setup_dataloaders`",
    },
    "transformers": {
        "CO001": '`TrainingArguments(optim="adamw_torch_fused")`',
        "EP001": '`TrainingArguments(eval_strategy="steps", eval_steps=..., per_device_eval_batch_size=...)`',
        "EP003": '`TrainingArguments(save_strategy="steps", save_steps=...)`',
        "HO002": "`TrainingArguments(logging_steps=50)`",
        "IN002": "`TrainingArguments(dataloader_num_workers=2)`",
        "IN004": "the `data_collator` that is handed to the Trainer",
        "IN009": "`TrainingArguments(dataloader_persistent_workers=True)`",
        "TR001": "`TrainingArguments(dataloader_pin_memory=True)`",
    },
    "accelerate": {
        "EP003": "fewer calls of `accelerator.save_state`",
        "TR002": "`Accelerator(dataloader_config=DataLoaderConfiguration(non_blocking=True))`",
        "SY001": "`accelerator.gather_for_metrics` every N steps, not in each",
    },
}
_NAMES = {"lightning": "Lightning", "fabric": "Fabric", "transformers": "the Trainer", "accelerate": "Accelerate"}


def in_its_own_words(finding: Finding, run: Run) -> str:
    """Return a sentence that names the framework's setting for what `finding` asks, "" where there is none."""
    framework = run.causes.framework if run.causes else ""
    setting = _SETTINGS.get(framework, {}).get(finding.code, "")
    if finding.code == "CO001" and all(facts.name != "AdamW" for facts in run.optimizers):
        return ""  # the Trainer's setting names AdamW: another optimizer would train otherwise
    return f" In {_NAMES[framework]}: {setting}." if setting else ""
