"""The updates of several models of one kind as one compiled function: ``torch.func.vmap`` over their stacked tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import torch as th
from torch.utils import _pytree as pytree

from sb3_camp.camp_dqn.compiled_function import CompiledFunction, FirstCall
from sb3_camp.camp_dqn.compiled_update import UpdateCompiler
from sb3_camp.camp_dqn.update import Update
from sb3_camp.camp_dqn.update_function import Batches, CannotCompileError, Logs, UpdateFunction, batch_tensors

#: From the batches of each model to what the update of each returns
Step = Callable[[Sequence[Batches]], list[Logs]]


class JointUpdate:
    """
    The updates of several models, within which their learning rates and lambdas are constant.

    The policies hold the results after :meth:`write_back` only.

    :param updates: One of each model, updated before: Adam makes its state in the first update
    :param one_by_one: Does the update of each model as ever
    :param compiler: Keeps what is compiled from one round of updates to the next; where it gives up, this is done one by one
    :raises CannotCompileError: for networks and optimizers that are not plain functions of their tensors, and for models that
        differ in more than the numbers that a compiled function is given
    """

    def __init__(self, updates: Sequence[Update], one_by_one: Step, compiler: UpdateCompiler) -> None:
        self.device = updates[0].policy.device
        self.one_by_one = one_by_one
        self.compiler = compiler
        self.of_each = [UpdateFunction(update) for update in updates]
        if any(one.constants != self.of_each[0].constants for one in self.of_each):
            raise CannotCompileError("the models have other settings of Adam or of the losses")
        self.state = self._stacked_state()
        self.is_ahead = False
        self.function: CompiledFunction | None = None
        self.shapes: list[th.Size] = []
        self.own_inputs: list[th.Tensor] = []

    def __call__(self, batches: Sequence[Batches]) -> list[Logs]:
        """
        :param batches: Those of each model
        :return: what each update returns
        """
        if self.compiler.gave_up:
            return self._one_by_one(batches)
        leaves = [th.stack(entries) for entries in zip(*map(batch_tensors, batches), strict=True)]
        shapes = [leaf.shape for leaf in leaves]
        if shapes != self.shapes:
            self.function = self.compiler.functions.get(self._key(batches))
            if self.function is None:
                return self._compile(batches)
            self.own_inputs, self.shapes = self.function.own_inputs(pytree.tree_leaves(self.state)), shapes
        assert self.function is not None
        try:
            td_losses, logs = self.function(self.own_inputs, leaves)
        except Exception as error:  # such as memory that is short
            self.compiler.give_up(error)
            return self._one_by_one(batches)
        for _, _, step in self.state[1]:
            step.add_(1.0)
        self.is_ahead = True
        return list(zip(len(logs) * [None] if td_losses is None else td_losses, logs, strict=True))

    def write_back(self) -> None:
        """Let the policies and their optimizers have what has become of their tensors."""
        if not self.is_ahead:
            return
        stacked = pytree.tree_leaves(self.state)
        with th.no_grad():
            for number, one in enumerate(self.of_each):
                th._foreach_copy_(pytree.tree_leaves(one.state), [leaf[number] for leaf in stacked])
                for trained in one.trained:
                    th._foreach_copy_(trained.steps[1:], [trained.steps[0]] * len(trained.steps[1:]))
        self.is_ahead = False

    def _stacked_state(self) -> list[Any]:
        with th.no_grad():
            return _stacked([one.state for one in self.of_each])

    def _one_by_one(self, batches: Sequence[Batches]) -> list[Logs]:
        self.write_back()
        return self.one_by_one(batches)

    def _key(self, batches: Sequence[Batches]) -> Any:
        """What a compiled function is made for."""
        shapes = tuple((leaf.shape, leaf.dtype, leaf.stride()) for leaf in batch_tensors(batches[0]))
        return len(batches), pytree.tree_structure(batches[0]), shapes, self.of_each[0].constants

    def _compile(self, batches: Sequence[Batches]) -> list[Logs]:
        """Compile, and do these updates one by one, to see whether the compiled function gives the same."""
        first = None
        try:
            self.compiler.check(self.device)
            first = FirstCall(_for_each(self.of_each[0]), self.state, _stacked(batches), self.device)
        except Exception as error:  # whatever it is, it must not end a training
            self.compiler.give_up(error)
        all_logs = self._one_by_one(batches)
        if first is not None:
            self.state = self._stacked_state()
            self.compiler.keep(self._key(batches), first.function, first.gives(_stacked(all_logs), self.state))
        return all_logs


def _stacked(trees: Sequence[Any]) -> Any:
    """One tree of tensors that have a first dimension more, None where they are None."""
    return pytree.tree_map(lambda *leaves: None if leaves[0] is None else th.stack(leaves), *trees)


def _for_each(function: Callable[[Any, Any], Logs]) -> Callable[[Any, Any], Logs]:
    """
    :param function: of a state and batches of one model
    :return: the same of stacked ones
    """

    def of_stacked(*trees: Any) -> Logs:
        leaves, structure = pytree.tree_flatten(trees)
        is_tensor = [leaf is not None for leaf in leaves]

        def of_tensors(*tensors: th.Tensor) -> tuple[th.Tensor, ...]:
            rest = iter(tensors)
            logs = function(*pytree.tree_unflatten([next(rest) if is_ else None for is_ in is_tensor], structure))
            return tuple(log for log in logs if log is not None)

        logs = th.vmap(of_tensors)(*(leaf for leaf in leaves if leaf is not None))
        return (logs[0], logs[1]) if len(logs) == 2 else (None, logs[0])

    return of_stacked
