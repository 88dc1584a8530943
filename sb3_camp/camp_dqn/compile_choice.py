"""Whether the updates of a training are worth compiling, and whether that works here."""

from typing import Any

import torch as th
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit

# To compile takes as long as some 10,000 updates of a small network
LONG_ENOUGH = 20_000


def what_is_missing(device: th.device) -> str | None:
    """
    :param device: Where the networks are
    :return: what is missing here to compile for it, None if nothing is
    """
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return None if has_triton() else "Triton does not work here"
    if device.type != "cpu":
        return f"the networks are on a device of type {device.type}"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "there is no C++ compiler"
    return None


def expected_updates(model: OffPolicyAlgorithm) -> int:
    """
    :param model: A model that begins a training
    :return: about how many updates it will do, 0 if that depends on the lengths of episodes
    """
    train_freq: Any = model.train_freq
    assert isinstance(train_freq, TrainFreq)
    steps = max(model._total_timesteps - max(model.num_timesteps, model.learning_starts), 0)
    if model.gradient_steps < 0:
        return steps
    if train_freq.unit is not TrainFrequencyUnit.STEP:
        return 0
    return steps // (train_freq.frequency * model.n_envs) * model.gradient_steps


def is_worth_compiling(choice: Any, model: OffPolicyAlgorithm) -> bool:
    """
    :param choice: The argument ``compile`` of CAMPDQN: True, False or "auto"
    :param model: A model that begins a training; if it is verbose, the reason is printed
    """
    n_updates = expected_updates(model)
    if isinstance(choice, bool):
        worth, why = choice, f"compile={choice}"
    elif n_updates < LONG_ENOUGH:
        worth, why = False, f"{n_updates:,} in this training, from {LONG_ENOUGH:,} on it pays"
    elif model.device.type == "cpu" and any(isinstance(module, th.nn.Conv2d) for module in model.policy.modules()):
        worth, why = False, "convolutions on a CPU take longer so"
    else:
        missing = what_is_missing(model.device)
        worth, why = missing is None, missing or f"{n_updates:,} in this training; the first ones take up to a minute"
    if model.verbose >= 1:
        print(f"Updates are {'' if worth else 'not '}compiled ({why})")
    return worth
