"""Robust Sarsa: down a critic that was learned for the policy, whatever its algorithm."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th

from sb3_camp.attacks.batch import Assemble, Perturbation
from sb3_camp.attacks.maximize import StepSettings, maximize
from sb3_camp.attacks.norm import L2, Norm
from sb3_camp.errors import InputError
from sb3_camp.policy_view import PolicyView, Remembering

_WIDTH = 64


class LearnedCritic(th.nn.Module):
    """
    Action values of a fixed policy, of standardised observations.

    :param n_inputs: Number of entries of an observation
    :param n_actions: Number of dimensions of an action, or of discrete actions
    :param discrete: Whether actions are probabilities of discrete ones, in which the values are linear
    """

    def __init__(self, n_inputs: int, n_actions: int, discrete: bool) -> None:
        super().__init__()
        self.discrete = discrete
        self.register_buffer("mean", th.zeros(n_inputs))
        self.register_buffer("deviation", th.ones(n_inputs))
        self.network = th.nn.Sequential(
            th.nn.Linear(n_inputs + (0 if discrete else n_actions), _WIDTH),
            th.nn.Tanh(),
            th.nn.Linear(_WIDTH, _WIDTH),
            th.nn.Tanh(),
            th.nn.Linear(_WIDTH, n_actions if discrete else 1),
        )

    def forward(self, inputs: th.Tensor, actions: th.Tensor) -> th.Tensor:
        """
        :param inputs: What :func:`flat` makes of observations, (N, n_inputs)
        :param actions: Scaled to -1 .. 1, (N, n_dims), or probabilities (N, n_actions)
        :return: their values, (N,)
        """
        standard = ((inputs - self.get_buffer("mean")) / self.get_buffer("deviation")).clamp(-10, 10)
        if self.discrete:
            return (self.network(standard) * actions).sum(dim=1)
        return self.network(th.cat([standard, actions], dim=1)).squeeze(1)

    def check(self, inputs: th.Tensor, actions: th.Tensor, discrete: bool) -> None:
        """
        :param inputs: Of a policy, (N, n_inputs)
        :param actions: Its actions, (N, n_actions)
        :param discrete: Whether these are probabilities
        :raises InputError: if it was learned for others
        """
        n_inputs = self.get_buffer("mean").numel()
        weights = dict(self.network.named_parameters())
        n_actions = len(weights["4.weight"]) if self.discrete else weights["0.weight"].shape[1] - n_inputs
        mine, others = (n_inputs, n_actions, self.discrete), (inputs.shape[1], actions.shape[1], discrete)
        if mine != others:
            words = [
                f"{n} inputs and {m} {'discrete actions' if d else 'dimensions of actions'}" for n, m, d in (mine, others)
            ]
            raise InputError(f"the critic was learned for a policy with {words[0]}, this one has {words[1]}: learn its own")

    def arrays(self) -> dict[str, np.ndarray]:
        """
        :return: what :meth:`from_arrays` needs
        """
        return {"discrete": np.array(self.discrete), **{name: value.numpy() for name, value in self.state_dict().items()}}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "LearnedCritic":
        """
        :param arrays: Of a saved critic
        :return: the critic, whose parameters are not trained any more
        :raises InputError: if these are not the arrays of one
        """
        try:
            discrete, n_inputs = bool(arrays["discrete"]), arrays["mean"].size
            n_outputs, n_columns = arrays["network.4.weight"].shape[0], arrays["network.0.weight"].shape[1]
            critic = cls(n_inputs, n_outputs if discrete else n_columns - n_inputs, discrete)
            critic.load_state_dict({name: th.as_tensor(value) for name, value in arrays.items() if name != "discrete"})
        except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"not a learned critic: {' '.join(str(error).split())}") from error
        return critic.requires_grad_(False)


def flat(observed: Any) -> th.Tensor:
    """
    :param observed: What a policy observes, N observations
    :return: all their entries, float32 (N, n_inputs); of a Dict by the order of its keys, of a recurrent policy without its
        states
    """
    if isinstance(observed, Remembering):
        observed = observed.observation
    if isinstance(observed, dict):
        return th.cat([observed[name].flatten(1).float() for name in sorted(observed)], dim=1)
    return observed.flatten(1).float()


def robust_sarsa(
    view: PolicyView,
    observations: th.Tensor,
    budget: th.Tensor,
    *,
    critic: LearnedCritic | None = None,
    step_size: float | None = None,
    multiplier: float = 2.0,
    q_threshold: float = 0.0,
    assemble: Assemble | None = None,
    norm: Norm = L2,
) -> Perturbation:
    """
    To the action whose value is lowest in the eyes of a critic that was learned for this policy, min Q(s, pi(s + delta)): the
    robust Sarsa attack (Zhang et al., "Robust Deep Reinforcement Learning against Adversarial Perturbations on State
    Observations", NeurIPS 2020, section 3.5). Of discrete actions, the probabilities move.

    :param view: What is known of the policy; see :func:`sb3_camp.attacks.mad` for what is not said here
    :param critic: The critic, see :mod:`sb3_camp.attack_runs.critic_training`
    :return: what is received and what is spent; ``gain`` is what the critic says is lost
    :raises InputError: as :func:`sb3_camp.attacks.mad`, or if there is no critic
    """
    if critic is None:
        raise InputError("the attack robust-sarsa needs a critic: the command attack trains one")
    values = critic

    def objective(clean: Any) -> Any:
        inputs, actions = flat(clean), view.soft_actions(clean)
        with th.no_grad():
            values.check(inputs, actions(clean), view.means is None)
        return lambda other: -values(inputs, actions(other))

    return maximize(objective, view, observations, budget, StepSettings(step_size, multiplier, q_threshold), assemble, norm)
