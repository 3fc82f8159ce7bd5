import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


def collate(examples):
    examples.sort(key=lambda e: -len(e["input_ids"]))
    ids = pad_sequence([e["input_ids"] for e in examples], batch_first=True)
    return {"input_ids": ids, "attention_mask": ids > 0, "labels": torch.tensor([e["label"] for e in examples])}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 128, padding_idx=0)
        layer = nn.TransformerEncoderLayer(128, 4, 384, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 2)

    def forward(self, input_ids, attention_mask, labels):
        hidden = self.encoder(self.embed(input_ids), src_key_padding_mask=~attention_mask)
        logits = self.head(hidden[:, 0])
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    lengths = torch.randint(20, 48, (320,)).tolist()
    examples = [{"input_ids": torch.randint(1, 1000, (n,)), "label": n % 2} for n in lengths]
    loader = DataLoader(examples, batch_size=16, shuffle=True, collate_fn=collate)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for epoch in range(args.epochs):
        for batch in loader:
            output = model(**batch)
            optimizer.zero_grad()
            output["loss"].backward()
            optimizer.step()
        print(f"epoch {epoch} loss {output['loss'].item():.4f}")


main()
