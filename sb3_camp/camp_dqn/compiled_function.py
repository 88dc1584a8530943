"""A function of tensors, compiled by TorchInductor: for small networks it is the calls of PyTorch that cost."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any, cast

import torch as th
from torch.utils import _pytree as pytree

from sb3_camp.camp_dqn.update_function import Batches, CannotCompileError, Logs, batch_tensors

# How far the results of the compiled function may be from those of the update done as ever, relative to their norm
_TOLERANCE = 1e-3


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Without the checks of the values of their parameters, which the policies of PPO, A2C and TRPO make."""
    checked = th.distributions.Distribution._validate_args
    th.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        th.distributions.Distribution.set_default_validate_args(checked)


class CompiledFunction:
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


class FirstCall:
    """
    A compiled function and what its first call gives, on a copy of the state.

    :param function: An :class:`~sb3_camp.camp_dqn.update_function.UpdateFunction`, or one of several models
    :param state: As :class:`CompiledFunction`
    :param batches: As :class:`CompiledFunction`
    :param device: As :class:`CompiledFunction`
    :raises Exception: whatever compilers raise
    """

    def __init__(self, function: Callable[..., Logs], state: list[Any], batches: Any, device: th.device) -> None:
        copied = pytree.tree_map(lambda tensor: tensor.detach().clone(), state)
        self.function = CompiledFunction(function, state, batches, device)
        self.logs = self.function(self.function.own_inputs(pytree.tree_leaves(copied)), batch_tensors(batches))
        for _, _, step in copied[1]:
            step.add_(1.0)
        self.state = copied

    def gives(self, logs: Logs, state: list[Any]) -> bool:
        """
        :param logs: What the update as ever has returned
        :param state: What it has made of the state
        :return: whether the compiled function gives the same within float error
        """
        pairs = zip(pytree.tree_leaves([self.logs, self.state]), pytree.tree_leaves([logs, state]), strict=True)
        return all(one is None or (one - other).norm() <= _TOLERANCE * other.norm() + 1e-6 for one, other in pairs)
