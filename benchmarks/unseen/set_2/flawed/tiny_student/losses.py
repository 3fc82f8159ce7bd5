import torch.nn.functional as F


def supervised(logits, target):
    return F.cross_entropy(logits, target)


def distillation(student_logits, teacher_logits, target, temperature, alpha):
    """Hinton et al.: soft targets at a temperature, hard targets as usual."""
    soft = F.kl_div(F.log_softmax(student_logits / temperature, 1),
                    F.softmax(teacher_logits / temperature, 1), reduction="batchmean") * temperature ** 2  # <<
    return alpha * soft + (1 - alpha) * F.cross_entropy(student_logits, target)
