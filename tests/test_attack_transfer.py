"""The transfer attack: an agent whose own gradients lead nowhere is hurt along those of another agent."""

import json
import shutil

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from support.attack_agents import attack, result
from support.attacked_envs import balancing_dqn, linear_policy, two_action_policy, vector_space
from support.command_errors import error_line
from support.constant_env import ConstantEnv
from support.linear_agents import WEIGHTS, generators, linear_view

from sb3_camp.attack_runs import attack_suite
from sb3_camp.attack_runs.surrogate import load_surrogate
from sb3_camp.attacks import ATTACKS, mad, pgd, transfer
from sb3_camp.attacks.transfer import transfer_actions
from sb3_camp.errors import InputError
from sb3_camp.policy_view import policy_view

pytest_plugins = ["support.attack_fixtures"]

STEP = 0.05


def rounded(values, unit=STEP):
    """In steps: flat almost everywhere, so the gradient is zero."""
    return (values / unit).round() * unit


class Rounded(BaseFeaturesExtractor):
    """Shows a network its observation in steps of 0.02, as sensors with few digits do."""

    def __init__(self, observation_space: spaces.Space) -> None:
        super().__init__(observation_space, observation_space.shape[0])

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return rounded(observations, 0.02)


@pytest.fixture(scope="module")
def masked_agent(tmp_path_factory):
    """The DQN that keeps the pole up, on rounded observations."""
    return save_balancing_behind(Rounded, tmp_path_factory.mktemp("masked") / "masked.zip")


def save_balancing_behind(extractor, path):
    """The DQN that keeps the pole up, on features of another kind."""
    kwargs = {"net_arch": [], "features_extractor_class": extractor}
    env = constant(balancing_dqn().observation_space)
    model = DQN("MlpPolicy", env, buffer_size=1, policy_kwargs=kwargs, seed=0, device="cpu")
    model.policy.load_state_dict(balancing_dqn().policy.state_dict())
    model.save(path)
    return path


def constant(space):
    env = ConstantEnv(space, np.zeros(space.shape, np.float32))
    env.action_space = spaces.Discrete(2)
    return env


def test_masked_scores_are_flipped_along_the_gradients_of_another_agent():
    surrogate = policy_view(two_action_policy())
    scores = surrogate.scores
    frames, budget = th.zeros(3, 2), th.tensor([1.0, 0.205, 0.0])
    settings = {"step_size": 0.01}

    def masked(observed):
        return rounded(scores(observed))

    assert not pgd(masked, frames, budget, **settings).flipped.any(), "it has no gradient to follow"
    found = transfer(masked, frames, budget, surrogate=surrogate, **settings)
    # The line 3 x + 4 y = 1 is 0.2 away, that where the rounded score is above 0 is 0.205 away
    assert found.flipped.tolist() == [True, False, False] and found.target.tolist() == [1, -1, -1]
    assert 0.205 <= found.spent[0] <= 0.22 and not found.spent[1:].any()
    honest = transfer(scores, frames, budget, surrogate=surrogate, **settings)
    expected = pgd(scores, frames, budget, **settings)
    for one, other in zip(honest, expected, strict=True):
        assert th.equal(one, other), "along its own gradients it is PGD"


def test_what_only_the_other_agent_would_fall_for_costs_nothing():
    firm = linear_policy(np.zeros((2, 2)), np.array([1.0, 0.0]))
    found = transfer(policy_view(firm).scores, th.zeros(1, 2), th.ones(1), surrogate=policy_view(two_action_policy()))
    assert not found.flipped.any() and not found.spent.any()


def test_draws_of_noise_are_averaged_of_both_agents():
    surrogate = policy_view(two_action_policy())

    def masked(observed):
        return rounded(surrogate.scores(observed)).unflatten(0, (-1, 4)).mean(dim=1)

    def assemble(frames, rows):
        return (frames[:, None] + th.tensor([[0.02, 0.0], [-0.02, 0.0], [0.0, 0.0], [0.0, 0.0]])).flatten(0, 1)

    found = transfer(masked, th.zeros(2, 2), th.ones(2), surrogate=surrogate, assemble=assemble)
    assert found.flipped.all() and th.all(found.spent < 0.25)


def test_continuous_actions_are_moved_along_the_gradients_of_another_agent():
    view = linear_view()
    masked = linear_view()
    object.__setattr__(masked, "means", lambda observed: rounded(view.means(observed)))
    frames, budget = th.zeros(2, 3), th.ones(2)
    for one in (mad, transfer_actions):
        more = {"surrogate": view} if one is transfer_actions else {}
        found = one(masked, frames, budget, generators=generators(2), **more)
        largest = np.linalg.norm(WEIGHTS.numpy(), 2) ** 2
        if one is mad:
            assert th.all(found.gain < 0.5 * largest), "it stays where its random start is"
        else:
            np.testing.assert_allclose(found.gain, largest, rtol=0.05)
            assert th.all(found.spent <= 1)


def test_an_attack_without_the_other_agent_says_so():
    with pytest.raises(InputError, match="--transfer-from"):
        transfer(policy_view(two_action_policy()).scores, th.zeros(1, 2), th.ones(1))
    with pytest.raises(InputError, match="action scores"):
        transfer(policy_view(two_action_policy()).scores, th.zeros(1, 2), th.ones(1), surrogate=linear_view())


def test_the_verdict_tells_masked_gradients_from_robustness(masked_agent, agent, tmp_path, monkeypatch, capsys):
    names = ("random", "pgd", "transfer")
    monkeypatch.setattr(attack_suite, "ATTACKS", {name: ATTACKS[name] for name in names})
    monkeypatch.setattr("sb3_camp.learned_adversary.training._STEPS_PER_UPDATE", 64)
    common = ("--model", masked_agent, "--attack", "all", "-n", 40, "--budget", 0, 0.6, "--step-size", 0.05)
    common += ("--adversary-timesteps", 100, "-o", tmp_path / "all")
    assert attack(*common, "--transfer-from", agent) == 0
    content = json.loads((tmp_path / "all" / "verdict_sigma0.json").read_text())
    assert content["attacks"] == [*names, "learned"]
    why = content["did_not_hurt"]["pgd"]
    assert "changed no action" in why and "at 100% of the observations the gradient is zero" in why
    assert "masked: the gradients of another agent hurt more than its own" in why
    assert content["budgets"][-1]["attack"] == "transfer" and content["budgets"][-1]["mean_return"] < 55
    assert "zero" not in content["did_not_hurt"].get("learned", ""), "it uses no gradients"
    one = result(tmp_path / "all" / "transfer_sigma0")
    assert len(one["transfer_sha256"]) == 64 and result(tmp_path / "all" / "pgd_sigma0")["transfer_sha256"] is None
    capsys.readouterr()
    # Without another agent the rest is made, and the verdict says what is missing
    assert attack(*common, "--resume") == 0
    content = json.loads((tmp_path / "all" / "verdict_sigma0.json").read_text())
    assert content["attacks"] == ["random", "pgd", "learned"] and "--transfer-from" in content["left_out"]["transfer"]


class Detached(BaseFeaturesExtractor):
    """Through which nothing can be differentiated."""

    def __init__(self, observation_space: spaces.Space) -> None:
        super().__init__(observation_space, observation_space.shape[0])

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return observations.detach()


def test_a_policy_without_gradients_is_attacked_by_what_needs_none(agent, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(attack_suite, "ATTACKS", {name: ATTACKS[name] for name in ("random", "pgd", "transfer")})
    monkeypatch.setattr("sb3_camp.learned_adversary.training._STEPS_PER_UPDATE", 64)
    path = save_balancing_behind(Detached, tmp_path / "detached.zip")
    common = ("--model", path, "-n", 20, "--budget", 0, 0.6, "--step-size", 0.05)
    assert attack(*common, "-o", tmp_path / "pgd") == 2
    assert "cannot be differentiated" in error_line(capsys)
    more = ("--attack", "all", "--transfer-from", agent, "--adversary-timesteps", 64, "-o", tmp_path / "all")
    assert attack(*common, *more) == 0
    content = json.loads((tmp_path / "all" / "verdict_sigma0.json").read_text())
    assert content["attacks"] == ["transfer", "learned"] and content["budgets"][-1]["attack"] == "transfer"
    assert "cannot be differentiated" in content["left_out"]["pgd"] and "pgd" not in content["did_not_hurt"]


def test_another_agent_that_does_not_fit_is_refused(agent, masked_agent, tmp_path, capsys):
    other = tmp_path / "other.zip"
    PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu", seed=0).save(other)
    recurrent = tmp_path / "recurrent.zip"
    RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu", seed=0).save(recurrent)
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no zip")
    common = ("--model", masked_agent, "-n", 2, "--budget", 0.5, "-o", tmp_path / "out")
    for arguments, message in (
        (("--attack", "transfer"), "--transfer-from"),
        (("--attack", "transfer", "--transfer-from", other), "observes"),
        (("--attack", "all", "--transfer-from", other), "observes"),
        (("--attack", "transfer", "--transfer-from", recurrent), "memory"),
        (("--attack", "transfer", "--transfer-from", broken), "broken.zip"),
        (("--attack", "transfer", "--transfer-from", tmp_path / "none.zip"), "no checkpoint at"),
        (("--attack", "pgd", "--transfer-from", agent), "for --attack transfer and all"),
    ):
        assert attack(*common, *arguments) == 2
        assert message in error_line(capsys)
    assert not (tmp_path / "out").exists()


def test_another_agent_takes_no_place_unasked(agent, masked_agent, smoothed_run, capsys):
    common = ("--attack", "transfer", "-n", 4, "--budget", 0.5, "--step-size", 0.05)
    assert attack(*common, "--transfer-from", agent) == 0
    shutil.copy(masked_agent, smoothed_run / "second.zip")
    capsys.readouterr()
    assert attack(*common, "--transfer-from", smoothed_run / "second.zip") == 2
    assert "transfer_sha256" in error_line(capsys)
    assert attack(*common, "--transfer-from", agent) == 0


def test_other_statistics_of_a_normaliser_are_converted(tmp_path):
    """A PPO on normalised observations, asked in those of another: the same observation, in other units."""
    env = VecNormalize(DummyVecEnv([lambda: constant(vector_space(3))]))
    env.obs_rms.mean, env.obs_rms.var = np.array([1.0, 2.0, 3.0]), np.array([4.0, 9.0, 0.25])
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu", seed=0)
    model.save(tmp_path / "one.zip")
    env.save(str(tmp_path / "vecnormalize.pkl"))
    mine = {"mean": [0.5, 0.0, -1.0], "var": [1.0, 16.0, 4.0], "epsilon": 1e-8, "clip_obs": 10.0}
    raw = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    seen = (raw - np.array(mine["mean"])) / np.sqrt(mine["var"])
    view = load_surrogate(tmp_path / "one.zip", model, mine)
    own = policy_view(model.policy).scores(th.as_tensor(env.normalize_obs(raw)))
    np.testing.assert_allclose(view.scores(th.as_tensor(seen).float()).detach(), own.detach(), atol=1e-5)
    plain = load_surrogate(tmp_path / "one.zip", model, None)
    np.testing.assert_allclose(plain.scores(th.as_tensor(raw)).detach(), own.detach(), atol=1e-5)


def test_a_recurrent_victim_is_attacked_along_another_agent(tmp_path):
    victim = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu", seed=0)
    victim.save(tmp_path / "victim.zip")
    DQN("MlpPolicy", "CartPole-v1", buffer_size=1, device="cpu", seed=1).save(tmp_path / "other.zip")
    common = ("--model", tmp_path / "victim.zip", "--attack", "transfer", "--transfer-from", tmp_path / "other.zip")
    sizes = ("-n", 4, "--budget", 3, "--step-size", 0.2, "-o", tmp_path / "out")
    assert attack(*common, *sizes, env="CartPole-v1", algo="ppo_lstm") == 0
    (one,) = result(tmp_path / "out")["budgets"]
    assert 0 <= one["max_spent"] <= 3
