"""
The update of CAMP as a function of tensors: both losses, their gradients, clipping and Adam.

It is the very update that :class:`Update` does, on any tensors in the place of those of the policies and of their optimizers.
So it can be recorded and compiled, for one model or for several at once.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_camp.camp_dqn.references import LearningReference
from sb3_camp.camp_dqn.update import Update

Batches = tuple[ReplayBufferSamples | None, ReplayBufferSamples]
Logs = tuple[th.Tensor | None, th.Tensor]


class CannotCompileError(Exception):
    """Why updates are done as ever, in words for the user."""


class UpdateFunction:
    """
    Changes the tensors of a state in place: those of both networks, means and squares of Adam.

    :param update: The update, whose policies have been updated before: Adam makes its state in the first update
    :raises CannotCompileError: for networks and optimizers that are not plain functions of their tensors
    """

    def __init__(self, update: Update) -> None:
        self.update = update
        self.networks = _Networks(update)
        tensors = {**dict(self.networks.named_parameters()), **dict(self.networks.named_buffers())}
        self.trained = [_Trained(policy, tensors) for policy in learning_policies(update)]
        eta = 0.0 if isinstance(update.camp_eta, str) else update.camp_eta
        values = [update.camp_lambda, eta, update.max_grad_norm, *(trained.group["lr"] for trained in self.trained)]
        numbers = th.tensor(values, dtype=th.float64, device=update.policy.device)
        #: What it is called with to update the policies themselves: their tensors, those of Adam, and the numbers of the time
        self.state: list[Any] = [tensors, [trained.state for trained in self.trained], numbers]
        #: What does not change within a compiled function
        self.constants = (
            update.imitation,
            isinstance(update.camp_eta, str),
            update.gamma,
            th.get_num_threads(),
            tuple(trained.constants for trained in self.trained),
        )

    def count(self) -> None:
        """Count an update in Adam's steps, which a call leaves as they are."""
        for trained in self.trained:
            th._foreach_add_(trained.steps, 1.0)

    def __call__(self, state: list[Any], batches: Batches) -> Logs:
        """
        :param state: Such as :attr:`state`, changed in place
        :param batches: Of the reference, None if it does not learn, and of the primary
        :return: what the update returns
        """
        tensors, trained_state, numbers = state
        camp_lambda, camp_eta, max_norm, *learning_rates = numbers.unbind()
        update = dataclasses.replace(self.update, camp_lambda=camp_lambda)
        if not isinstance(update.camp_eta, str):
            update = dataclasses.replace(update, camp_eta=camp_eta)
        reference_batch, primary_batch = batches
        rest = list(zip(self.trained, trained_state, learning_rates, strict=True))
        current, td_loss = dict(tensors), None
        changes: list[tuple[th.Tensor, th.Tensor]] = []

        def learn(losses: Callable[[], tuple[th.Tensor, th.Tensor]]) -> th.Tensor:
            trained, own_state, learning_rate = rest.pop(0)

            def of(parameters: dict[str, th.Tensor]) -> Any:
                return th.func.functional_call(self.networks, {**current, **parameters}, (losses,))

            parameters = {name: current[name] for name in trained.names}
            gradients, (_, logs) = th.func.grad_and_value(of, has_aux=True)(parameters)
            for name, (new, pairs) in zip(
                trained.names, trained.adam(parameters, gradients, own_state, learning_rate, max_norm), strict=True
            ):
                changes.append((current[name], new))
                changes.extend(pairs)
                current[name] = new
            return logs

        if reference_batch is not None:
            reference = cast(LearningReference, update.reference)
            reference.policy.set_training_mode(True)

            def td_losses() -> tuple[th.Tensor, th.Tensor]:
                loss = reference.td_loss(reference_batch, update.policy, update.gamma)
                return loss, loss.detach()

            td_loss = learn(td_losses)
            reference.policy.set_training_mode(False)
        logs = learn(lambda: update.primary_losses(primary_batch))
        for tensor, new in changes:
            tensor.copy_(new)
        return td_loss, logs


class _Networks(th.nn.Module):
    """Both policies, so that others can be put in the place of their parameters while a function runs."""

    def __init__(self, update: Update) -> None:
        super().__init__()
        self.policy = update.policy
        self.reference = update.reference.policy

    def forward(self, function: Callable[[], Any]) -> Any:
        return function()


class _Trained:
    """
    What an update changes of one policy: parameters of its network, and the state of its Adam.

    :param policy: The policy, which has been updated before
    :param tensors: All tensors of the networks by name
    :raises CannotCompileError: for networks and optimizers that are not plain functions of these
    """

    def __init__(self, policy: DQNPolicy, tensors: dict[str, th.Tensor]) -> None:
        optimizer = policy.optimizer
        if type(optimizer) not in (th.optim.Adam, th.optim.AdamW) or len(optimizer.param_groups) != 1:
            raise CannotCompileError(f"the optimizer is {type(optimizer).__name__}, not Adam")
        if any(True for _ in policy.buffers()):
            raise CannotCompileError("the networks keep more than weights (such as the statistics of batch normalisation)")
        self.group = optimizer.param_groups[0]
        if any(self.group.get(name) for name in ("amsgrad", "maximize", "differentiable")):
            raise CannotCompileError("the optimizer has an option of Adam that is not compiled")
        self.constants = tuple(self.group[name] for name in ("betas", "eps", "weight_decay"))
        self.constants += (self.group.get("decoupled_weight_decay", type(optimizer) is th.optim.AdamW),)
        names = {id(tensor): name for name, tensor in tensors.items()}
        # Parameters without state have no gradient: no output depends on them
        parameters = [parameter for parameter in self.group["params"] if parameter in optimizer.state]
        states = [optimizer.state[parameter] for parameter in parameters]
        self.names = [names[id(parameter)] for parameter in parameters]
        self.steps = [state["step"] for state in states]
        self.state = [[state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states], self.steps[0]]

    def adam(
        self,
        parameters: dict[str, th.Tensor],
        gradients: dict[str, th.Tensor],
        state: list[Any],
        learning_rate: th.Tensor,
        max_norm: th.Tensor,
    ) -> Iterator[tuple[th.Tensor, list[tuple[th.Tensor, th.Tensor]]]]:
        """
        Clipping and Adam as PyTorch has them (:class:`torch.optim.Adam`, :func:`torch.nn.utils.clip_grad_norm_`).

        :return: for each parameter its new value, and each tensor of its state with its new value
        """
        (beta1, beta2), eps, weight_decay, decoupled = self.constants
        norm = th.stack([th.linalg.vector_norm(gradient) for gradient in gradients.values()]).norm()
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        step = state[2].double() + 1
        step_size = learning_rate / (1 - beta1**step)
        correction = (1 - beta2**step).sqrt()
        for parameter, gradient, mean, square in zip(parameters.values(), gradients.values(), state[0], state[1], strict=True):
            clipped = gradient * scale
            decayed = parameter
            if weight_decay and decoupled:
                decayed = parameter * (1 - learning_rate * weight_decay)
            elif weight_decay:
                clipped = clipped + weight_decay * parameter
            new_mean = mean + (clipped - mean) * (1 - beta1)
            new_square = square * beta2 + clipped * clipped * (1 - beta2)
            new = decayed - step_size * new_mean / (new_square.sqrt() / correction + eps)
            yield new, [(mean, new_mean), (square, new_square)]


def learning_policies(update: Update) -> list[DQNPolicy]:
    """In the order in which they learn."""
    return [cast(DQNPolicy, update.reference.policy), update.policy] if update.reference.learns else [update.policy]


def is_begun(update: Update) -> bool:
    """Whether the policies have been updated: Adam makes its state in the first update."""
    return all(policy.optimizer.state for policy in learning_policies(update))


def batch_tensors(batches: Batches) -> list[th.Tensor]:
    """In the order of ``pytree.tree_leaves``, which takes ten times as long."""
    leaves: list[th.Tensor] = []
    for batch in batches:
        for entry in batch or ():
            if isinstance(entry, dict):
                leaves.extend(entry.values())
            elif entry is not None:
                leaves.append(entry)
    return leaves
