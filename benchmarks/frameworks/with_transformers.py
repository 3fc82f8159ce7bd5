"""The same training under the Trainer of transformers."""

import tempfile

import common
import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    """The network, with the loss that the Trainer asks for."""

    def __init__(self):
        super().__init__()
        self.net = common.Net()

    def forward(self, x, labels):
        predicted = self.net(x)
        return {"loss": torch.nn.functional.mse_loss(predicted, labels), "predicted": predicted}


def collate(samples):
    """Return a batch as the model takes it."""
    return {"x": torch.stack([x for x, _ in samples]), "labels": torch.stack([y for _, y in samples])}


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=common.BATCH,
        max_steps=common.STEPS,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
        optim="adamw_torch",
        max_grad_norm=0.0,
        remove_unused_columns=False,
        seed=0,
    )
    Trainer(Model(), arguments, train_dataset=common.Rows(), data_collator=collate).train()
