"""Files saved one behind the other: under other umasks, in other folders, over others, and changed in place after."""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
torch.set_num_threads(2)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
data = DataLoader(TensorDataset(torch.randn(24, 3, 8, 8), torch.randn(24, 2)), 3, True)
os.mkdir("shared")
os.chmod("shared", 0o2775)
open("over.pt", "wb").close()
os.chmod("over.pt", 0o640)

UMASKS = [0o022, 0o077, 0o027, 0o002, 0o177, 0o000]
for epoch, mask in enumerate(UMASKS):
    for x, y in data:
        loss = torch.nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("epoch", epoch, "loss", repr(loss.item()))
    before = os.umask(mask)
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, f"{epoch}.pt")
    torch.save(net.state_dict(), "over.pt")
    torch.save(net[0].weight.detach(), "shared/first.pt" if epoch % 2 else "first.pt")
    os.umask(before)
    if epoch == 3:
        torch.save(net, "whole.pt")
        with torch.no_grad():
            net[3].bias.zero_()
        os.chdir("shared")
        torch.save(net, "whole.pt")
        os.chdir("..")
for name in ("1.pt", "4.pt", "over.pt"):
    print(name, oct(os.stat(name).st_mode)[-3:])
