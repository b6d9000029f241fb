"""Which plan a training carries out, and when it is made. Design sections 5 and 8."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch.distributed as dist

from dreamddp import _core, agreement, policy_training, profiling
from dreamddp._core import Link, Plan, Profile, Quantity, reject
from dreamddp._runtime import Engine, IterationTimes
from dreamddp.due_layers import PLANNER, DueLayerTimes, plan_of_policies
from dreamddp.layers import ModelLayer
from dreamddp.measured_iterations import COLD_ITERATIONS
from dreamddp.policy_training import PolicyOptions
from dreamddp.reads import ReadOrder


@dataclass(frozen=True)
class PlanningOptions:
    """What the user asked for; the fields are arguments of `DreamDDP`."""

    period: int | Literal["auto"]
    planner: str
    max_period: int
    profile_iterations: int
    staging_bytes: int
    fused_update: bool = False
    policies: PolicyOptions | None = None
    staleness_decay: float | None = None
    """What the learning rate of a layer is multiplied with for each local step since its last average."""

    def description(self) -> dict[str, Any]:
        """What must be equal on all ranks."""
        return {
            "period": self.period,
            "planner": self.planner,
            "max_period": self.max_period,
            "profile_iterations": self.profile_iterations,
            "staging_bytes": self.staging_bytes,
            "fused_update": self.fused_update,
            "staleness_decay": self.staleness_decay,
        } | policy_training.description(self.policies)


class Planning:
    """The plan of one training: the given one, or Local SGD while the engine measures and then the planner's.

    The methods are collective where they say so.
    """

    def __init__(
        self,
        options: PlanningOptions,
        layers: Sequence[ModelLayer],
        engine: Engine,
        group: dist.ProcessGroup,
        *,
        given_plan: Plan | None,
        profile: Profile | None,
        link: Link | None,
        first_iteration: int,
    ) -> None:
        self._options = options
        self._layers = layers
        self._engine = engine
        self._group = group
        self._given_plan = given_plan
        self._profile_end: int | None = None
        self._samples: list[IterationTimes] = []
        self.first_iteration = first_iteration
        self.profile = profile
        self.link = link
        self.plan: Plan | None = None
        self._due_layer_times: DueLayerTimes | None = None
        self._next_decision = 0
        self._predicted: tuple[Plan, float] | None = None
        self._policy_state: str | None = None

    def first_plan(self, order: ReadOrder) -> Plan:
        """The plan once the reads are known. Collective."""
        if self._given_plan is not None:
            self.plan = self._given_plan
        elif self.profile is not None:
            self.plan = self._agreed_plan(self.profile)
        else:
            self.plan = self._plan_while_measuring(order)
        return self.plan

    @property
    def averages_gradients(self) -> bool:
        """Whether gradients are averaged now, or will be by the planner's plan."""
        plan = self.plan or self._given_plan
        if plan is not None and any(op.quantity is Quantity.gradients for op in plan.ops):
            return True
        return self._given_plan is None and (
            _core.planner_quantity(self._options.planner) is Quantity.gradients
        )

    @property
    def is_fused(self) -> bool:
        """Whether the optimizers step each layer inside the backward."""
        return self._options.fused_update

    @property
    def has_policies(self) -> bool:
        """Whether policies decide, or will."""
        return self._options.policies is not None

    @property
    def staleness_decay(self) -> float | None:
        """What scales the steps of layers that policies leave out."""
        return self._options.staleness_decay

    @property
    def policies_decide(self) -> bool:
        """Whether the plan that is carried out is one of policies."""
        return self.plan is not None and self.plan.planner == PLANNER and not self.plan.ops

    def check_policies_of(self, plan: Plan) -> None:
        """Raises ValueError for the plan of a state with policies where there are none, and the reverse."""
        is_theirs = plan.planner == PLANNER and not plan.ops
        if is_theirs and self._options.policies is None:
            reject(
                "policies", "none", "those that the state was saved with", "Attach with the same policies=."
            )
        if not is_theirs and self._options.policies is not None:
            reject(
                "policies",
                "some",
                "none, as the state was saved without",
                "Attach without policies=, or begin a training with them.",
            )

    def let_policies_decide(self) -> None:
        """Hands policies, profile and link to the engine, which carries out their plan."""
        assert self._options.policies is not None
        assert self.profile is not None
        assert self.link is not None
        policy_training.carry_out(
            self._engine, self._options.policies, self.profile, self.link, self._policy_state
        )
        self._policy_state = None

    @property
    def policy_state(self) -> str:
        """For checkpoints; empty while no policies decide. Waits for what ranks are agreeing on."""
        return policy_training.save(self._engine) if self.policies_decide else ""

    @property
    def is_measuring(self) -> bool:
        """Whether the planner's plan is still to come."""
        return self._profile_end is not None

    def resume(
        self,
        plan: Plan,
        iteration: int,
        profile: Profile | None,
        link: Link | None,
        *,
        is_measuring: bool,
        policy_state: str,
    ) -> None:
        """Goes on in a plan that was carried out before. What had been measured is measured anew."""
        self.plan, self.first_iteration, self.profile, self.link = plan, iteration, profile, link
        self._policy_state = policy_state
        if is_measuring:
            end = iteration + self._options.profile_iterations
            self._profile_end = -(-end // plan.period) * plan.period
            self._engine.set_sampling(True)

    @property
    def is_due(self) -> bool:
        """Whether enough has been measured for the planner's plan."""
        return self._profile_end is not None and self._engine.iteration >= self._profile_end

    def next_plan(self, order: ReadOrder) -> Plan | None:
        """Measuring is over, and an iteration is about to begin: the planner's plan. Collective.

        None where a rank has no complete iteration, as a loss scaler has skipped its steps: then as many more
        are measured.
        """
        assert self._profile_end is not None
        self._engine.finish()
        self._samples += self._engine.take_samples()
        if min(agreement.gather(len(self._samples), self._group, "profiling")) < COLD_ITERATIONS:
            self._profile_end += self._profile_end - self.first_iteration
            return None
        self._engine.set_sampling(False)
        self.profile = self.measured_profile(order)
        self._profile_end = None
        self.plan = self._agreed_plan(self.profile)
        return self.plan

    def measured_profile(self, order: ReadOrder) -> Profile:
        """Of the iterations measured so far; the slowest rank in each layer. Collective.

        Raises:
            ValueError: where none was, on all ranks.
        """
        if self._profile_end is None:
            if self._given_plan is None and self.profile is not None:
                return self.profile
            reject(
                "measured iterations",
                "none, as a plan was given",
                "those before the planner's plan is made",
                "Attach without a plan to have iterations measured.",
            )
        self._samples += self._engine.take_samples()
        samples = self._samples[COLD_ITERATIONS - 1 :]
        times = agreement.on_all_ranks(lambda: profiling.median_times(samples), self._group, "profiling")
        profile = profiling.untimed_profile(order, self._layers)
        if dist.get_rank(self._group) == 0:
            for line in profiling.slow_ranks([layer.name for layer in profile.layers], times):
                warnings.warn(f"DreamDDP: {line}", stacklevel=2)
        return profiling.slowest(profile, times)

    def predicted_seconds(self) -> float | None:
        """Iteration time of the plan in the simulator; None while there is no measured profile."""
        if self.profile is None or self.link is None or self.plan is None or self._profile_end is not None:
            return None
        if self.policies_decide:
            return self._predicted_with_policies(self.profile, self.link)
        if self._predicted is None or self._predicted[0] is not self.plan:
            self._predicted = (
                self.plan,
                _core.simulate(self.plan, self.profile, self.link).iteration_seconds,
            )
        return self._predicted[1]

    def _predicted_with_policies(self, profile: Profile, link: Link) -> float | None:
        """For the decisions so far; only those since the last call are looked at."""
        if self._due_layer_times is None:
            self._due_layer_times = DueLayerTimes(profile, link)
        names = [layer.name for layer in self._layers]
        decided = policy_training.decisions(self._engine, names, self._next_decision)
        if decided:
            self._next_decision = decided[-1].iteration + 1
            self._due_layer_times.add(policy_training.due_layers(decided))
        mean = self._due_layer_times.mean()
        return None if mean is None else float(mean["iteration_seconds"])

    def _plan_while_measuring(self, order: ReadOrder) -> Plan:
        """Local SGD; where gradients are to be averaged, ranks must stay equal: then all of them, behind the
        backward."""
        averages_gradients = _core.planner_quantity(self._options.planner) is Quantity.gradients
        count = self._options.profile_iterations
        period = count
        if averages_gradients:
            period = 1
        elif self._options.period != "auto":
            period = self._options.period
            count = -(-count // period) * period
        self._profile_end = self.first_iteration + count
        self._engine.set_sampling(True)
        profile = profiling.untimed_profile(order, self._layers)
        link = Link(bandwidth_bytes_per_second=1e9)  # these planners do not look at it
        return _core.make_plan(
            "ssgd" if averages_gradients else "local-sgd",
            profile,
            link,
            period=period,
            fused_update=self.is_fused,
        )

    def _agreed_plan(self, profile: Profile) -> Plan:
        if self.link is None:
            self.link = profiling.measure_link(self._group, self._layers[0].parameters[0].device)
        plan = (
            self._plan_for(profile, self.link)
            if self._options.policies is None
            else plan_of_policies(profile)
        )
        plans = agreement.gather(plan.to_json(), self._group, "comparing plans")
        agreement.require_equal(
            [{"the plan": text} for text in plans],
            "the plan",
            "Run the same release of dreamddp on every rank.",
        )
        return plan

    def _plan_for(self, profile: Profile, link: Link) -> Plan:
        slack = _core.training_slack
        period = self._options.period
        if period == "auto":
            period = _core.choose_period(
                profile,
                link,
                max_period=self._options.max_period,
                slack=slack,
                fused_update=self.is_fused,
            )
        # No memory beyond the ring: held and carried averages come only with a plan that is given.
        return _core.make_plan(
            self._options.planner,
            profile,
            link,
            period=period,
            slack=slack,
            fused_update=self.is_fused,
        )
