"""With Accelerate: torchrun --nproc-per-node 2 examples/accelerate_script.py"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dreamddp import DreamDDP

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)  # the same data on every rank: Accelerate gives each rank its share
inputs = torch.randn(6400, 16)
loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=32)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

# With evaluation_mode, Accelerate does not wrap the model in DDP, which would average gradients as well.
model = accelerator.prepare_model(model, evaluation_mode=True)
optimizer, loader = accelerator.prepare(optimizer, loader)
sync = DreamDDP(model, optimizer.optimizer, period=5)  # the optimizer that Accelerate has wrapped

for batch, targets in loader:
    loss = nn.functional.mse_loss(model(batch), targets)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
sync.finish()

accelerator.print(f"loss {loss.item():.3f}", sync.stats())
accelerator.end_training()
