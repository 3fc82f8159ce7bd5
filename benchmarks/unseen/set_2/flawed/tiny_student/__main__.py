import torch

from . import data, nets  # noqa: F401  (fills the registry)
from .engine import Distill, Phase
from .registry import build

CONFIG = {
    "seed": 13,
    "batch": 32,
    "train": {"name": "blood_cells", "n": 2000, "seed": 1},
    "test": {"name": "blood_cells", "n": 400, "seed": 2, "flip": False},
    "teacher": {"name": "resnet", "width": 16, "blocks": 2, "classes": 8},
    "student": {"name": "resnet", "width": 8, "blocks": 1, "classes": 8},
    "teacher_epochs": 1,
    "student_epochs": 5,
}


def main(cfg=CONFIG):
    torch.manual_seed(cfg["seed"])
    train = data.loader(build("data", cfg["train"]), cfg["batch"], True)
    test = data.loader(build("data", cfg["test"]), 100, False)
    teacher = build("net", cfg["teacher"]).to(memory_format=torch.channels_last)
    Phase(teacher, train, test, cfg["teacher_epochs"], lr=0.05).run("teacher")
    student = build("net", cfg["student"]).to(memory_format=torch.channels_last)
    Distill(teacher, student, train, test, cfg["student_epochs"], lr=0.05).run("student")


if __name__ == "__main__":
    main()
