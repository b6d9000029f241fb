"""With PEFT, only the adapters travel: torchrun --nproc-per-node 2 examples/peft_lora.py"""

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from dreamddp import DreamDDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # every rank draws data of its own; the parameters become those of rank 0
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
)
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(target_modules="all-linear"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
sync = DreamDDP(model, optimizer, period=5)

for _ in range(60):
    tokens = torch.randint(64, (8, 1)).repeat(1, 32)
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
sync.finish()

if dist.get_rank() == 0:
    print(f"loss {loss.item():.3f}", sync.stats())
dist.destroy_process_group()
