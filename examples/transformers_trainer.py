"""With the Trainer of transformers: torchrun --nproc-per-node 2 examples/transformers_trainer.py"""

from functools import partial

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from dreamddp import DreamDDP


class Sync(TrainerCallback):
    def on_train_begin(self, args, state, control, *, model, optimizer, **_):
        self.sync = DreamDDP(model, optimizer.optimizer, period=5)  # that the Trainer wraps
        model.no_sync = self.sync.no_sync  # the Trainer enters it for all micro-batches but the last

    def on_train_end(self, args, state, control, **_):
        self.sync.finish()


torch.manual_seed(0)  # the same data on every rank: the Trainer gives each rank its share
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
)
model = LlamaForCausalLM(config)
data = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(64, (640, 1)).repeat(1, 32)]
# Averaging tokens across devices would be a collective in every step.
arguments = TrainingArguments(
    average_tokens_across_devices=False,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=4,
    learning_rate=1e-2,
    num_train_epochs=1,
    save_strategy="no",
    use_cpu=True,
)
callback = Sync()
trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback])
# Each rank trains on its share of the data; DDP around the model would average gradients as well.
trainer.accelerator.prepare_model = partial(trainer.accelerator.prepare_model, evaluation_mode=True)
result = trainer.train()

trainer.accelerator.print(f"loss {result.training_loss:.3f}", callback.sync.stats())
trainer.accelerator.end_training()
