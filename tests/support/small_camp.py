"""A small CAMPDQN on noisy CartPole, and what the tests look at in it."""

import pytest
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from sb3_camp import CAMPDQN, NoisyObservationWrapper
from sb3_camp.camp_dqn.compile_choice import what_is_missing
from sb3_camp.camp_dqn.replay_buffers import Actor

needs_compiler = pytest.mark.skipif(what_is_missing(th.device("cpu")) is not None, reason="needs a C++ compiler")


def noisy_cartpole(n_envs: int = 1, seed: int = 0):
    return make_vec_env(
        "CartPole-v1", n_envs=n_envs, seed=seed, wrapper_class=NoisyObservationWrapper, wrapper_kwargs=dict(sigma=0.1)
    )


def small_model(env=None, **kwargs) -> CAMPDQN:
    settings = dict(
        policy="MlpPolicy",
        env=env or noisy_cartpole(),
        learning_rate=1e-3,
        buffer_size=2000,
        learning_starts=50,
        train_freq=8,
        gradient_steps=2,
        target_update_interval=100,
        n_steps=3,
        policy_kwargs=dict(net_arch=[16]),
        seed=0,
        device="cpu",
    )
    settings.update(kwargs)
    return CAMPDQN(**settings)


def weights(module: th.nn.Module) -> list[th.Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def same(one: list[th.Tensor], other: list[th.Tensor]) -> bool:
    return all(th.equal(a, b) for a, b in zip(one, other, strict=True))


def sampled_actors(model: CAMPDQN) -> list[Actor | None]:
    """Whose transitions one update of the model asks for."""
    asked: list[Actor | None] = []
    sample_batches = model.replay_buffer.sample_batches
    model.replay_buffer.sample_batches = lambda batch_size, actors, env=None: (
        asked.extend(actors) or sample_batches(batch_size, actors, env)
    )
    model.train(gradient_steps=1, batch_size=8)
    return asked


class Trace(BaseCallback):
    """Records what an observer outside of the algorithm can see at every step."""

    def __init__(self):
        super().__init__()
        self.epsilons, self.actions, self.rows, self.observations = [], [], [], []

    def _on_step(self) -> bool:
        self.epsilons.append(self.model.exploration_rate)
        self.actions.append(self.locals["actions"].copy())
        self.rows.append(self.model.replay_buffer.pos)
        self.observations.append(self.model._last_obs.copy())
        return True


def trained_states(model):
    """All that training changes: weights, moments and steps of Adam."""
    states = []
    for policy in (model.policy, model.reference_policy):
        states += weights(policy)
        if getattr(policy, "optimizer", None) is not None:
            states += [value[name].clone() for value in policy.optimizer.state.values() for name in sorted(value)]
    return states
