"""Several models trained together learn what each learns by itself."""

import warnings

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.dqn import DQN
from support.small_camp import needs_compiler, noisy_cartpole, same, small_model, trained_states, weights

from sb3_camp import CAMPDQN, NoisyObservationWrapper, train_seeds
from sb3_camp.errors import InputError

SEEDS = (0, 1, 2)


def noisy(sigma: float, seed: int):
    return make_vec_env("CartPole-v1", seed=seed, wrapper_class=NoisyObservationWrapper, wrapper_kwargs=dict(sigma=sigma))


def members(**kwargs) -> list[CAMPDQN]:
    """Other seeds, sigmas and lambdas."""
    return [small_model(noisy(0.1 * seed, seed), seed=seed, camp_lambda=1.0 + seed, **kwargs) for seed in SEEDS]


def alone(n_steps: int, **kwargs) -> list[CAMPDQN]:
    """Each is made and trained before the next one is made, as in processes of their own."""
    return [small_model(noisy(0.1 * seed, seed), seed=seed, camp_lambda=1.0 + seed, **kwargs).learn(n_steps) for seed in SEEDS]


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(reference="alternating", gradient_steps=40, train_freq=16),
        dict(reference="clean", gradient_steps=-1),
    ],
    ids=["more updates than are sampled at once", "as many updates as steps"],
)
def test_without_compilation_each_learns_exactly_what_it_learns_by_itself(kwargs):
    models = train_seeds(members(compile=False, **kwargs), 200)
    for one, other in zip(models, alone(200, compile=False, **kwargs), strict=True):
        assert one.num_timesteps == other.num_timesteps and one._n_updates == other._n_updates > 0
        assert same(trained_states(one), trained_states(other))
        assert one.logger.name_to_value["train/camp_lambda"] == other.logger.name_to_value["train/camp_lambda"]
        assert one.logger.name_to_value["train/imitation_loss"] == other.logger.name_to_value["train/imitation_loss"]
        assert one.exploration_rate == other.exploration_rate


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    "kwargs",
    [
        dict(reference="alternating", camp_lambda="ramp_2"),
        dict(reference="shared", imitation="hard", camp_eta=3.0),
        dict(reference="clean", max_grad_norm=0.1),
        dict(reference="agent"),
    ],
    ids=lambda kwargs: kwargs["reference"],
)
def test_compiled_together_each_learns_what_it_learns_by_itself(kwargs):
    kwargs = dict(learning_rate=1e-4, train_freq=8, gradient_steps=8) | kwargs
    if kwargs["reference"] == "agent":
        kwargs["reference"] = DQN("MlpPolicy", noisy_cartpole(), seed=3, device="cpu")
    settings = [dict(seed=seed, env=noisy(0.1 * seed, seed)) for seed in SEEDS]
    if "camp_lambda" not in kwargs:
        settings = [dict(own, camp_lambda=float(own["seed"])) for own in settings]
    models = [small_model(compile=True, **own, **kwargs) for own in settings]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        train_seeds(models, 400)
    assert not any(model._compiler.functions for model in models), "no update was compiled for one model"
    for model, own in zip(models, settings, strict=True):
        own["env"] = noisy(0.1 * own["seed"], own["seed"])
        other = small_model(compile=False, **own, **kwargs).learn(400)
        assert model._n_updates == other._n_updates == 352
        for one, value in zip(trained_states(model), trained_states(other), strict=True):
            assert (one - value).norm() <= 0.02 * value.norm() + 1e-6
        # The actions were the same, so were the episodes
        episodes = [[(info["r"], info["l"]) for info in one.ep_info_buffer] for one in (model, other)]
        assert episodes[0] == episodes[1] and len(episodes[0]) > 1


@pytest.mark.slow
@needs_compiler
def test_what_was_trained_together_is_saved_loaded_and_goes_on_as_any_other(tmp_path):
    models = train_seeds(members(compile=True, policy_kwargs=dict(net_arch=[])), 200)
    for seed, model in enumerate(models):
        model.save(tmp_path / str(seed))
        alone = small_model(seed=seed, policy_kwargs=dict(net_arch=[])).learn(200)
        alone.save(tmp_path / f"alone_{seed}")
        sizes = [(tmp_path / f"{name}{seed}.zip").stat().st_size for name in ("", "alone_")]
        assert sizes[0] == pytest.approx(sizes[1], rel=0.05), "a saved model holds its own weights only"
        loaded = CAMPDQN.load(tmp_path / str(seed), env=noisy_cartpole(), device="cpu")
        assert same(trained_states(loaded), trained_states(model))
    steps = [state["step"] for state in models[1].policy.optimizer.state.values()]
    assert {float(step) for step in steps} == {float(models[1]._n_updates)}
    before = [weights(model.policy) for model in models]
    train_seeds(models, 100, reset_num_timesteps=False)
    assert [model.num_timesteps for model in models] == [304, 304, 304]
    assert not any(same(one, weights(model.policy)) for one, model in zip(before, models, strict=True))


class Stop(BaseCallback):
    """Ends a training after some steps, and notes what is called."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.calls = after, []

    def _on_training_start(self) -> None:
        self.calls.append("start")

    def _on_step(self) -> bool:
        return self.num_timesteps < self.after

    def _on_training_end(self) -> None:
        self.calls.append("end")


def test_a_model_whose_callback_stops_it_leaves_the_others(tmp_path):
    models = members(compile=False)
    for number, model in enumerate(models):
        model.set_logger(configure(str(tmp_path / str(number)), ["csv"]))
    callbacks = [Stop(1000), Stop(100), Stop(1000)]
    train_seeds(models, 200, callbacks)
    assert [model.num_timesteps for model in models] == [200, 100, 200]
    assert [callback.calls for callback in callbacks] == [["start", "end"]] * 3
    for one, other in zip(models[::2], alone(200, compile=False)[::2], strict=True):
        assert same(weights(one.policy), weights(other.policy))


class Draw(BaseCallback):
    """Draws from the global generators, as SB3 does."""

    def _on_training_start(self) -> None:
        self.drawn = [np.random.rand(), float(th.rand(1))]

    def _on_step(self) -> bool:
        return True


def test_unseeded_models_draw_numbers_of_their_own_and_leave_the_global_generators_alone():
    models = [small_model(noisy_cartpole(), seed=None, compile=False) for _ in range(2)]
    callbacks = [Draw(), Draw()]
    np.random.seed(5)
    th.manual_seed(5)
    expected = [np.random.rand(), float(th.rand(1))]
    np.random.seed(5)
    th.manual_seed(5)
    train_seeds(models, 60, callbacks)
    drawn = [callback.drawn for callback in callbacks] + [expected]
    assert len({number for pair in drawn for number in pair}) == 6
    assert [np.random.rand(), float(th.rand(1))] == expected


def test_a_second_training_does_not_draw_the_numbers_of_the_first_again():
    models = [small_model(noisy_cartpole(), seed=0, compile=False, exploration_final_eps=1.0)]
    train_seeds(models, 48)
    train_seeds(models, 48, reset_num_timesteps=False)
    actions = models[0].replay_buffer.actions.ravel()
    assert (actions[:48] != actions[48:96]).any()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (dict(train_freq=16), "they differ in train_freq"),
        (dict(batch_size=8), r"they differ in batch_size \(32, 8\)"),
        (dict(policy_kwargs=dict(net_arch=[8])), "other shapes"),
        (dict(reference="shared"), r"they differ in reference_kind \(alternating, shared\)"),
    ],
)
def test_models_that_cannot_be_updated_together_are_refused(other, message):
    with pytest.raises(InputError, match=message):
        train_seeds([small_model(noisy_cartpole()), small_model(noisy_cartpole(), **other)], 100)


def test_other_inputs_that_cannot_be_right_are_refused():
    env = noisy_cartpole()
    with pytest.raises(InputError, match="an environment of its own"):
        train_seeds([small_model(env), small_model(env)], 100)
    with pytest.raises(InputError, match="train_freq must be a number of steps"):
        train_seeds([small_model(noisy_cartpole(), train_freq=(1, "episode"))], 100)
    with pytest.raises(InputError, match="there are none"):
        train_seeds([], 100)
    with pytest.raises(InputError, match="one for each of the 1 models, not 2"):
        train_seeds([small_model()], 100, callbacks=[None, None])
    with pytest.raises(InputError, match="callbacks: each model needs one of its own"):
        train_seeds([small_model(noisy_cartpole()) for _ in range(3)], 100, callbacks=[(stop := Stop(9)), None, stop])
