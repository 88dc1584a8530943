"""
The update of CAMP as one compiled function.

The operations of the very update that :class:`Update` does are recorded once (``make_fx``) and compiled by TorchInductor. The
function works in place on the parameters of the policies and on the state of their optimizers, which stay what SB3 knows,
saves and loads. What changes during a training (learning rates, lambda, eta) are numbers that it is given.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch.utils import _pytree as pytree

from sb3_camp.camp_dqn.compile_choice import what_is_missing
from sb3_camp.camp_dqn.compiled_function import CompiledFunction, FirstCall
from sb3_camp.camp_dqn.update import Update
from sb3_camp.camp_dqn.update_function import (
    Batches,
    CannotCompileError,
    Logs,
    UpdateFunction,
    batch_tensors,
    is_begun,
)

# Batches of other shapes are compiled anew; whoever changes them all the time is better off without
_MOST_COMPILED = 4


class UpdateCompiler:
    """Compiles updates, and goes on without where that fails. A copy or a pickle of it begins anew."""

    def __init__(self) -> None:
        self.functions: dict[Any, CompiledFunction] = {}
        self.gave_up = False

    def __reduce__(self) -> tuple[type["UpdateCompiler"], tuple[()]]:
        return type(self), ()

    def __call__(self, update: Update) -> Callable[..., Logs]:
        """
        :param update: The update, with the lambda and the learning rates of the time
        :return: the same, faster if that is possible
        """
        if self.gave_up or not is_begun(update):
            return update
        try:
            return _CompiledUpdate(update, self)
        except CannotCompileError as error:
            self.give_up(error)
            return update

    def check(self, device: th.device) -> None:
        """
        :param device: Where the networks are
        :raises CannotCompileError: if there is no point in compiling (anew)
        """
        missing = what_is_missing(device)
        if missing is not None:
            raise CannotCompileError(missing)
        if len(self.functions) >= _MOST_COMPILED:
            raise CannotCompileError("the shapes of the batches change all the time")

    def keep(self, key: Any, function: CompiledFunction, is_right: bool) -> None:
        """
        :param key: What the function is made for
        :param function: Compiled
        :param is_right: Whether it gives what the update as ever does; if not, give up
        """
        if is_right:
            self.functions[key] = function
        else:
            self.give_up(CannotCompileError("the compiled function gives other numbers"))

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
        self.as_function = UpdateFunction(update)
        self.state_leaves = pytree.tree_leaves(self.as_function.state)
        self.function: CompiledFunction | None = None
        self.shapes: list[th.Size] = []
        self.own_inputs: list[th.Tensor] = []

    def __call__(self, reference_batch: ReplayBufferSamples | None, primary_batch: ReplayBufferSamples) -> Logs:
        batches = (reference_batch, primary_batch)
        if self.compiler.gave_up:
            return self.update(*batches)
        leaves = batch_tensors(batches)
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
        self.as_function.count()
        return logs

    def _key(self, batches: Batches) -> Any:
        """What a compiled function is made for."""
        shapes = tuple((leaf.shape, leaf.dtype, leaf.stride()) for leaf in batch_tensors(batches))
        return pytree.tree_structure(batches), shapes, self.as_function.constants

    def _compile(self, batches: Batches) -> Logs:
        """Compile, and do this update as ever, to see whether the compiled function gives the same."""
        state, first = self.as_function.state, None
        try:
            self.compiler.check(self.update.policy.device)
            first = FirstCall(self.as_function, state, batches, self.update.policy.device)
        except Exception as error:  # whatever it is, it must not end a training
            self.compiler.give_up(error)
        logs = self.update(*batches)
        if first is not None:
            self.compiler.keep(self._key(batches), first.function, first.gives(logs, state))
        return logs
