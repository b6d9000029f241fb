"""Training of one of the named models in this process, for its sensitivity."""

from __future__ import annotations

from collections.abc import Callable

from dreamddp.sensitivity import DEFAULT_SKETCH_SIZE, SensitivityWatch
from dreamddp.training.config import ProfileConfig, TrainConfig
from dreamddp.training.data import make_batches
from dreamddp.training.models import MODELS, build_model
from dreamddp.training.planner_run import make_optimizer


def train(
    config: ProfileConfig,
    text: bytes,
    iterations: int,
    sketch_size: int | None,
    advance: Callable[[float], None],
) -> SensitivityWatch:
    """Trains with the settings of `dreamddp train`. `advance` is given the loss of every iteration."""
    spec = MODELS[config.model]
    model = build_model(config.model, config.seed)
    optimizer = make_optimizer(model, learning_rate=TrainConfig.learning_rate)
    batches = make_batches(
        text, window_bytes=spec.window_bytes, batch_size=config.batch_size, seed=config.seed
    )
    watch = SensitivityWatch(model, sketch_size=DEFAULT_SKETCH_SIZE if sketch_size is None else sketch_size)
    for iteration in range(iterations):
        optimizer.zero_grad()
        loss = spec.loss(model, batches.draw(0, iteration))
        loss.backward()
        watch.backward_ended()
        optimizer.step()
        advance(loss.item())
    return watch
