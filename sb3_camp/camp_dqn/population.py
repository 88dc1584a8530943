"""Train several models in one process, the updates of all of them as one compiled function."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import MaybeCallback, TrainFreq, TrainFrequencyUnit
from tqdm import tqdm

from sb3_camp.camp_dqn.camp_dqn import CAMPDQN
from sb3_camp.camp_dqn.compiled_update import UpdateCompiler
from sb3_camp.camp_dqn.joint_update import JointUpdate, Step
from sb3_camp.camp_dqn.references import STEPS_SAMPLED_AT_ONCE
from sb3_camp.camp_dqn.update import Update
from sb3_camp.camp_dqn.update_function import Batches, CannotCompileError, Logs, is_begun
from sb3_camp.errors import InputError

Models = TypeVar("Models", bound=Sequence[CAMPDQN])

# What must be the same, as all models are updated after the same steps, by functions of the same shapes
_SAME = (
    *("n_envs", "train_freq", "gradient_steps", "learning_starts", "batch_size"),
    *("reference_kind", "reference_kwargs", "device"),
)


def train_seeds(
    models: Models,
    total_timesteps: int,
    callbacks: Sequence[MaybeCallback] | None = None,
    log_interval: int = 4,
    tb_log_name: str = "CAMPDQN",
    reset_num_timesteps: bool = True,
    progress_bar: bool = False,
) -> Models:
    """
    Train several CAMPDQN together: the seeds of one configuration, or models that differ in lambda, learning rate, or sigma of
    their environments.

    Each has an environment, a replay buffer and random numbers of its own, and learns what it would learn by ``learn()`` right
    after construction, within float error (but networks that draw random numbers, such as dropout, draw others). Only the
    updates are done together, compiled (``torch.func.vmap`` over the stacked networks), which takes about half the time of as
    many compiled updates of small networks. Where updates are not compiled, each model does its own.

    The speed that a model logs (``time/fps``) is that of its own steps while all others train too.

    Example::

        models = [CAMPDQN("MlpPolicy", gym.make("camp/CartPole1-v0"), seed=seed) for seed in range(5)]
        train_seeds(models, 50_000)
        for seed, model in enumerate(models):
            model.save(f"camp_{seed}")

    :param models: The models: ordinary ones, before and after
    :param total_timesteps: The total number of samples (env steps) to train on, of each model
    :param callbacks: callback(s) of each model, as for ``learn()``; a model whose callback ends its training leaves the others
    :param log_interval: The number of episodes before logging, for each model
    :param tb_log_name: the name of the run for TensorBoard logging, each model has a number of its own
    :param reset_num_timesteps: whether or not to reset the current timestep number (used in logging)
    :param progress_bar: Display a progress bar of the steps of all models
    :return: the models
    :raises InputError: (a ValueError) if models share an environment, or if they cannot be updated in step with each other
    """
    _check(models, reset_num_timesteps)
    if callbacks is None:
        callbacks = [None] * len(models)
    if len(callbacks) != len(models):
        raise InputError(f"callbacks: one for each of the {len(models)} models, not {len(callbacks)}")
    given = [id(callback) for callback in callbacks if callback is not None]
    if len(set(given)) < len(given):
        raise InputError("callbacks: each model needs one of its own")
    members = [_Member(model) for model in models]
    for member, callback in zip(members, callbacks, strict=True):
        member.begin(total_timesteps, callback, reset_num_timesteps, tb_log_name)
    compiler = UpdateCompiler()
    running = [member for member in members if not member.is_done]
    with tqdm(total=sum(member.steps_left for member in members), unit="step", disable=not progress_bar) as bar:
        while running:
            before = sum(member.steps_left for member in members)
            for member in running:
                member.collect(log_interval)
            running = [member for member in running if not member.is_stopped]
            if running and running[0].is_learning:
                _update(running, compiler)
            for member in [member for member in running if member.is_done]:
                member.end()
            running = [member for member in running if not member.is_done]
            bar.update(before - sum(member.steps_left for member in members))
    return models


class _Member:
    """A model in training, with random numbers of its own: SB3 draws from the global generators of NumPy and PyTorch."""

    def __init__(self, model: CAMPDQN) -> None:
        self.model = model
        self.callback: BaseCallback
        self.until = 0
        self.n_updates = 0
        self.is_stopped = False
        with self._global_generators_kept():
            model_seed = model.seed
            if model_seed is not None and model.num_timesteps > 0:  # not those of its first training again
                model_seed = int(np.random.SeedSequence((model_seed, model.num_timesteps)).generate_state(1)[0])
            np.random.seed(model_seed)
            th.manual_seed(np.random.randint(2**31) if model_seed is None else model_seed)
            self.generators = _global_generators()

    @property
    def is_done(self) -> bool:
        return self.is_stopped or self.steps_left == 0

    @property
    def is_learning(self) -> bool:
        return self.model.num_timesteps > self.model.learning_starts and self.n_updates > 0

    @property
    def steps_left(self) -> int:
        return 0 if self.is_stopped else max(self.until - self.model.num_timesteps, 0)

    def begin(self, total_timesteps: int, callback: MaybeCallback, reset_num_timesteps: bool, tb_log_name: str) -> None:
        with self.own_random_numbers():
            self.until, self.callback = self.model._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name)
            self.callback.on_training_start(locals(), globals())

    def collect(self, log_interval: int) -> None:
        """The steps before the next updates."""
        model = self.model
        assert model.env is not None and isinstance(model.train_freq, TrainFreq) and model.replay_buffer is not None
        with self.own_random_numbers():
            rollout = model.collect_rollouts(
                model.env,
                train_freq=model.train_freq,
                action_noise=model.action_noise,
                callback=self.callback,
                learning_starts=model.learning_starts,
                replay_buffer=model.replay_buffer,
                log_interval=log_interval,
            )
        #: As ``learn()`` counts them
        self.n_updates = model.gradient_steps if model.gradient_steps >= 0 else rollout.episode_timesteps
        if not rollout.continue_training:
            self.is_stopped = True
            self.end()

    def end(self) -> None:
        with self.own_random_numbers():
            self.callback.on_training_end()

    @contextmanager
    def own_random_numbers(self) -> Iterator[None]:
        with self._global_generators_kept():
            _set_global_generators(self.generators)
            try:
                yield
            finally:
                self.generators = _global_generators()

    @staticmethod
    @contextmanager
    def _global_generators_kept() -> Iterator[None]:
        before = _global_generators()
        try:
            yield
        finally:
            _set_global_generators(before)


def _global_generators() -> tuple[Any, th.Tensor]:
    return np.random.get_state(), th.get_rng_state()


def _set_global_generators(states: tuple[Any, th.Tensor]) -> None:
    np.random.set_state(states[0])
    th.set_rng_state(states[1])


def _check(models: Sequence[CAMPDQN], reset_num_timesteps: bool) -> None:
    if len(models) == 0:
        raise InputError("models: there are none")
    for name in _SAME if reset_num_timesteps else (*_SAME, "num_timesteps"):
        values = sorted({str(getattr(model, name)) for model in models})
        if len(values) > 1:
            raise InputError(f"models: they differ in {name} ({', '.join(values)}), so they cannot be updated together")
    shapes = [
        [
            {name: tensor.shape for name, tensor in policy.state_dict().items()}
            for policy in (model.policy, model.reference_policy)
        ]
        for model in models
    ]
    if any(own != shapes[0] for own in shapes):
        raise InputError("models: their networks have other shapes, so they cannot be updated together")
    if cast(TrainFreq, models[0].train_freq).unit is not TrainFrequencyUnit.STEP:
        raise InputError("models: train_freq must be a number of steps, as episodes of several models differ in length")
    for name in ("env", "replay_buffer"):
        if len({id(getattr(model, name)) for model in models}) < len(models):
            raise InputError(f"models: each needs {'an environment' if name == 'env' else 'a replay buffer'} of its own")


def _update(members: Sequence[_Member], compiler: UpdateCompiler) -> None:
    """What ``train()`` does, of all at once."""
    updates = [update for member in members if (update := member.model._begin_updates()) is not None]
    if not updates:  # the networks act in turn, and the second one has not acted yet
        return
    n_updates = members[0].n_updates
    sources = [member.model._batches(n_updates, member.model.batch_size) for member in members]
    step, write_back = _step(members, updates, compiler)
    all_logs = []
    for _ in range(0, n_updates, STEPS_SAMPLED_AT_ONCE):
        drawn = []
        for member, source in zip(members, sources, strict=True):
            with member.own_random_numbers():
                drawn.append(list(islice(source, STEPS_SAMPLED_AT_ONCE)))
        all_logs += [step(batches) for batches in zip(*drawn, strict=True)]
    write_back()
    for member, update, logs in zip(members, updates, zip(*all_logs, strict=True), strict=True):
        member.model._end_updates(update, list(logs))


def _step(members: Sequence[_Member], updates: Sequence[Update], compiler: UpdateCompiler) -> tuple[Step, Callable[[], None]]:
    """
    :return: does an update of each model; to be called after the last one
    """

    def one_by_one(of_each: Sequence[Callable[..., Logs]], batches: Sequence[Batches]) -> list[Logs]:
        logs = []
        for member, update, own in zip(members, of_each, batches, strict=True):
            with member.own_random_numbers():
                logs.append(update(*own))
        return logs

    compilers = [member.model._compiler for member in members]
    if None not in compilers and not compiler.gave_up and all(is_begun(update) for update in updates):
        try:
            together = JointUpdate(updates, partial(one_by_one, updates), compiler)
            return together, together.write_back
        except CannotCompileError as error:
            compiler.give_up(error)
    own = [update if one is None else one(update) for one, update in zip(compilers, updates, strict=True)]
    return partial(one_by_one, own), lambda: None
