"""
The update of CAMP as one compiled function: both losses, their gradients, clipping and Adam.

For small networks it is the calls of PyTorch that cost. The operations of the very update that :class:`Update` does are
recorded once (``make_fx``) and compiled by TorchInductor. The function works in place on the parameters of the policies and
on the state of their optimizers, which stay what SB3 knows, saves and loads. What changes during a training (learning
rates, lambda, eta) are numbers that it is given.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any, cast

import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.dqn.policies import DQNPolicy
from torch.utils import _pytree as pytree

from sb3_camp.camp_dqn.compile_choice import what_is_missing
from sb3_camp.camp_dqn.references import LearningReference
from sb3_camp.camp_dqn.update import Update

# Batches of other shapes are compiled anew; whoever changes them all the time is better off without
_MOST_COMPILED = 4
# How far the gradients of the compiled function may be from those of the update done as ever, relative to their norm
_TOLERANCE = 1e-3

Batches = tuple[ReplayBufferSamples | None, ReplayBufferSamples]
Logs = tuple[th.Tensor | None, th.Tensor]


class CannotCompileError(Exception):
    """Why updates are done as ever, in words for the user."""


class UpdateCompiler:
    """
    Compiles the updates of one model, and goes on without where that fails. A copy or a pickle of it begins anew.
    """

    def __init__(self) -> None:
        self.functions: dict[Any, _CompiledFunction] = {}
        self.gave_up = False

    def __reduce__(self) -> tuple[type["UpdateCompiler"], tuple[()]]:
        return type(self), ()

    def __call__(self, update: Update) -> Callable[..., Logs]:
        """
        :param update: The update, with the lambda and the learning rates of the time
        :return: the same, faster if that is possible
        """
        # Adam makes its state in the first update
        if self.gave_up or not all(policy.optimizer.state for policy in _learning_policies(update)):
            return update
        try:
            return _CompiledUpdate(update, self)
        except CannotCompileError as error:
            self.give_up(error)
            return update

    def give_up(self, error: Exception) -> None:
        self.gave_up = True
        self.functions.clear()
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        warnings.warn(f"CAMPDQN: updates are not compiled, the training goes on without: {reason}", stacklevel=4)


class _CompiledUpdate:
    """The update during one call of ``train()``, within which learning rates and lambda are constant."""

    def __init__(self, update: Update, compiler: UpdateCompiler) -> None:
        self.update = update
        self.compiler = compiler
        self.networks = _Networks(update)
        tensors = {**dict(self.networks.named_parameters()), **dict(self.networks.named_buffers())}
        self.trained = [_Trained(policy, tensors) for policy in _learning_policies(update)]
        eta = 0.0 if isinstance(update.camp_eta, str) else update.camp_eta
        values = [update.camp_lambda, eta, update.max_grad_norm, *(trained.group["lr"] for trained in self.trained)]
        numbers = th.tensor(values, dtype=th.float64, device=update.policy.device)
        self.state = [tensors, [trained.state for trained in self.trained], numbers]
        self.state_leaves = pytree.tree_leaves(self.state)
        self.constants = (
            update.imitation,
            isinstance(update.camp_eta, str),
            update.gamma,
            th.get_num_threads(),
            tuple(trained.constants for trained in self.trained),
        )
        self.function: _CompiledFunction | None = None
        self.shapes: list[th.Size] = []
        self.own_inputs: list[th.Tensor] = []

    def __call__(self, reference_batch: ReplayBufferSamples | None, primary_batch: ReplayBufferSamples) -> Logs:
        batches = (reference_batch, primary_batch)
        if self.compiler.gave_up:
            return self.update(*batches)
        leaves = _batch_tensors(batches)
        shapes = [leaf.shape for leaf in leaves]
        if shapes != self.shapes:
            self.function = self.compiler.functions.get(self._key(batches))
            if self.function is None:
                return self._compile(batches)
            self.own_inputs, self.shapes = self.function.own_inputs(self.state_leaves), shapes
        assert self.function is not None
        try:
            logs = self.function(self.own_inputs, leaves)
        except Exception as error:  # such as memory that is short
            self.compiler.give_up(error)
            return self.update(*batches)
        for trained in self.trained:
            th._foreach_add_(trained.steps, 1.0)
        return logs

    def _key(self, batches: Batches) -> Any:
        """What a compiled function is made for."""
        shapes = tuple((leaf.shape, leaf.dtype, leaf.stride()) for leaf in _batch_tensors(batches))
        return pytree.tree_structure(batches), shapes, self.constants

    def _compile(self, batches: Batches) -> Logs:
        """Compile, and do this update as ever, to see whether the compiled function gives the same."""
        state = pytree.tree_map(lambda tensor: tensor.detach().clone(), self.state)
        function, logs = None, None
        try:
            missing = what_is_missing(self.update.policy.device)
            if missing is not None:
                raise CannotCompileError(missing)
            if len(self.compiler.functions) >= _MOST_COMPILED:
                raise CannotCompileError("the shapes of the batches change all the time")
            function = _CompiledFunction(self._step, self.state, batches, self.update.policy.device)
            logs = function(function.own_inputs(pytree.tree_leaves(state)), _batch_tensors(batches))
        except Exception as error:  # whatever it is, it must not end a training
            self.compiler.give_up(error)
        logs_as_ever = self.update(*batches)
        if function is not None and logs is not None:
            for _, _, step in state[1]:
                step.add_(1.0)
            pairs = zip(pytree.tree_leaves([logs, state]), pytree.tree_leaves([logs_as_ever, self.state]), strict=True)
            if all(one is None or (one - other).norm() <= _TOLERANCE * other.norm() + 1e-6 for one, other in pairs):
                self.compiler.functions[self._key(batches)] = function
            else:
                self.compiler.give_up(CannotCompileError("the compiled function gives other numbers"))
        return logs_as_ever

    def _step(self, state: list[Any], batches: Batches) -> Logs:
        """The update on any tensors in the place of those of the policies: what is recorded."""
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


def _learning_policies(update: Update) -> list[DQNPolicy]:
    """In the order in which they learn."""
    return [cast(DQNPolicy, update.reference.policy), update.policy] if update.reference.learns else [update.policy]


def _batch_tensors(batches: Batches) -> list[th.Tensor]:
    """In the order of ``pytree.tree_leaves``, which takes ten times as long."""
    leaves: list[th.Tensor] = []
    for batch in batches:
        for entry in batch or ():
            if isinstance(entry, dict):
                leaves.extend(entry.values())
            elif entry is not None:
                leaves.append(entry)
    return leaves


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Without the checks of the values of their parameters, which the policies of PPO, A2C and TRPO make."""
    checked = th.distributions.Distribution._validate_args
    th.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        th.distributions.Distribution.set_default_validate_args(checked)


class _CompiledFunction:
    """
    A function of tensors, some of which it changes in place, compiled for their shapes.

    :param function: of a state, nested lists and dictionaries of tensors, and of batches
    :param state: such as it will be called with
    :param batches: such as it will be called with
    :param device: Where the tensors are
    :raises CannotCompileError: if it draws random numbers
    """

    def __init__(self, function: Callable[..., Logs], state: list[Any], batches: Batches, device: th.device) -> None:
        from torch._inductor import compile as compile_graph
        from torch.fx.experimental.proxy_tensor import make_fx

        leaves, structure = pytree.tree_flatten([state, batches])
        is_tensor = [isinstance(leaf, th.Tensor) for leaf in leaves]
        tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, th.Tensor)]

        def of_tensors(*given: th.Tensor) -> list[th.Tensor]:
            rest = iter(given)
            logs = function(*pytree.tree_unflatten([next(rest) if is_ else None for is_ in is_tensor], structure))
            return [log for log in logs if log is not None]

        with th.no_grad(), _unchecked_distributions():
            # Fake tensors: a network that decides by their values raises an error
            graph = make_fx(of_tensors, tracing_mode="fake")(*tensors)
        for node in graph.graph.nodes:
            if th.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise CannotCompileError("the networks draw random numbers while they learn (such as dropout)")
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        is_used = [bool(node.users) for node in placeholders]
        for node in placeholders:
            if not node.users:
                graph.graph.erase_node(node)
        graph.recompile()
        n_state = len(pytree.tree_leaves(state))
        self._used_state, self._used_batches = is_used[:n_state], is_used[n_state:]
        self._all_batches_used = all(self._used_batches)
        self._learns = batches[0] is not None
        inputs = list(compress(tensors, is_used))
        with th.no_grad():
            if device.type == "cuda":
                for tensor in inputs[: sum(self._used_state)]:
                    th._dynamo.mark_static_address(tensor)
                self._run = th.compile(graph, fullgraph=True, dynamic=False, mode="reduce-overhead")
            else:
                # In this process: workers that compile would be left behind, and cost more than there is to share. Shapes are
                # compared by the caller.
                self._run = compile_graph(graph, cast(Any, inputs), options={"compile_threads": 1, "size_asserts": False})

    def own_inputs(self, state_leaves: list[th.Tensor]) -> list[th.Tensor]:
        """What the function needs of the state."""
        return [leaf.detach() for leaf in compress(state_leaves, self._used_state)]

    def __call__(self, own_inputs: list[th.Tensor], batch_tensors: list[th.Tensor]) -> Logs:
        if not self._all_batches_used:
            batch_tensors = list(compress(batch_tensors, self._used_batches))
        with th.no_grad():
            logs = self._run(*own_inputs, *batch_tensors)
        return (logs[0], logs[1]) if self._learns else (None, logs[0])
