"""With Lightning: torchrun --nproc-per-node 2 examples/lightning_callback.py"""

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dreamddp import DreamDDP


class Sync(lightning.Callback):
    def on_train_start(self, trainer, module):
        self.sync = DreamDDP(module.net, trainer.optimizers, period=5)
        trainer.strategy.block_backward_sync = self.sync.no_sync  # entered for all batches but a step's last

    def on_train_end(self, trainer, module):
        self.sync.finish()


class Ranks(DDPStrategy):
    def configure_ddp(self):
        """Does not wrap the model in DDP, which would average gradients as well."""


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch):
        loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02)


torch.manual_seed(0)  # the same data on every rank: Lightning gives each rank its share
inputs = torch.randn(6400, 16)
loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=32)
model, callback = Model(), Sync()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=Ranks(),
    max_epochs=1,
    accumulate_grad_batches=2,
    callbacks=[callback],
    enable_checkpointing=False,
    logger=False,
)
trainer.fit(model, loader)

if trainer.is_global_zero:
    print(f"loss {trainer.callback_metrics['loss']:.3f}", callback.sync.stats())
