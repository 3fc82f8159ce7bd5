"""Point clouds of tori, spheres and helices of random proportions."""
import torch


def sample_clouds(n, points, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(3, (n, 1), generator=g)
    a, b = (2 * torch.pi * torch.rand(2, n, points, generator=g))
    r = 0.2 + 0.3 * torch.rand(n, 1, generator=g)
    torus = torch.stack([(1 + r * b.cos()) * a.cos(), (1 + r * b.cos()) * a.sin(), r * b.sin()], -1)
    sphere = torch.stack([(b / 2).sin() * a.cos(), (b / 2).sin() * a.sin(), (b / 2).cos()], -1) * (0.7 + r)[..., None]
    helix = torch.stack([(2 * a).cos(), (2 * a).sin(), (a - torch.pi) / 3 * (1 + r)], -1)
    return torch.where(kind[..., None] == 0, torus, torch.where(kind[..., None] == 1, sphere, helix))
