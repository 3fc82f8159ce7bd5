import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, planes=5, size=9, actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(planes, 24, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(24 * size * size, 128), nn.ReLU())
        self.pi, self.v = nn.Linear(128, actions), nn.Linear(128, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def ppo_loss(net, obs, act, old_logp, adv, ret, clip=0.2, c_v=0.5, c_ent=0.01):
    dist, value = net(obs)
    ratio = (dist.log_prob(act) - old_logp).exp()
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
    return -surrogate + c_v * (value - ret).pow(2).mean() - c_ent * dist.entropy().mean()
