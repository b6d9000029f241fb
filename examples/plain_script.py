"""A training loop of your own: torchrun --nproc-per-node 2 examples/plain_script.py"""

import torch
import torch.distributed as dist
from torch import nn

from dreamddp import DreamDDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # every rank draws data of its own; the parameters become those of rank 0
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
sync = DreamDDP(model, optimizer, period=5)

for _ in range(100):
    inputs = torch.randn(32, 16)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
sync.finish()

if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}", sync.stats())
dist.destroy_process_group()
