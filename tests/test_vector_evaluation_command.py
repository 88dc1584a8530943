"""Which evaluations play in the native vector environment of Gymnasium, and what the command makes of it."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import DQN, PPO
from support.evaluate_runs import error_line, evaluate, read
from support.vector_envs import NOISE, noisy

import sb3_camp.evaluation.run_evaluation
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.episode_plan import plan_chunks
from sb3_camp.evaluation.evaluation_file import write_partial
from sb3_camp.evaluation.native import NotNative, has_known_native, opened_native
from sb3_camp.evaluation.q_gaps import LEVELS
from sb3_camp.wrappers import NoisyObservationWrapper, vector

FIXED = "support.evaluation_envs.FixedLevel"
NOISY = f"env_wrapper:{{'{NOISE}': {{'sigma': 0.2}}}}"


def noisy_cartpole(sigma):
    return NoisyObservationWrapper(CartPoleEnv(), sigma)


def same_step_cartpoles(num_envs, max_episode_steps):
    return SyncVectorEnv([CartPoleEnv] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def clean_cartpoles(num_envs, max_episode_steps, sigma):
    return vector.NoisyObservationWrapper(CartPoleVectorEnv(num_envs, max_episode_steps), 0.0)


def noisy_cartpoles(num_envs, max_episode_steps, sigma):
    return vector.NoisyObservationWrapper(CartPoleVectorEnv(num_envs, max_episode_steps), sigma)


def twice_noisy_cartpoles(num_envs, max_episode_steps, sigma):
    return vector.NoisyObservationWrapper(noisy_cartpoles(num_envs, max_episode_steps, sigma), sigma)


def smaller_cartpoles(num_envs, max_episode_steps):
    return vector.FrameStackObservation(CartPoleVectorEnv(num_envs, max_episode_steps), 2)


gym.register("tests/Own-v0", CartPoleEnv, max_episode_steps=50, vector_entry_point=CartPoleVectorEnv)
gym.register("tests/SameStep-v0", CartPoleEnv, max_episode_steps=50, vector_entry_point=same_step_cartpoles)
gym.register("tests/Stacked-v0", CartPoleEnv, max_episode_steps=50, vector_entry_point=smaller_cartpoles)
gym.register("tests/NoLimit-v0", CartPoleEnv, vector_entry_point=CartPoleVectorEnv)
for _name, _vectors in (("Clean", clean_cartpoles), ("Noisy", noisy_cartpoles), ("Twice", twice_noisy_cartpoles)):
    gym.register(f"tests/{_name}-v0", noisy_cartpole, max_episode_steps=50, vector_entry_point=_vectors, kwargs={"sigma": 0.2})

FIXED_LEVEL = {"env_wrapper": ["support.evaluation_envs.FixedLevel", {NOISE: {"sigma": 0.2}}]}
STACKED = {"env_wrapper": [{NOISE: {"sigma": 0.2}}], "frame_stack": 3}
MONITORED = {
    "env_wrapper": [{NOISE: {"sigma": 0.2}}],
    "vec_env_wrapper": {"stable_baselines3.common.vec_env.VecFrameStack": {"n_stack": 2}},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.zip"
    DQN("MlpPolicy", "CartPole-v1", buffer_size=8, device="cpu", seed=0).save(path)
    return path


# Which do


@pytest.mark.parametrize("env_id", ["CartPole-v0", "CartPole-v1", "camp/CartPole1-v0", "camp/CartPole5-v0"])
def test_every_cartpole_does_by_default(env_id):
    environment = noisy(env_id, 0.2)
    assert has_known_native(environment)
    with opened_native(environment, 3) as envs, environment.single() as env:
        assert isinstance(envs.unwrapped, CartPoleVectorEnv) and envs.num_envs == 3
        assert envs.single_observation_space == env.observation_space
        assert envs.unwrapped.max_episode_steps == env.get_wrapper_attr("_max_episode_steps")


def test_settings_of_the_noise_reach_its_twin():
    wrappers = {"env_wrapper": [{NOISE: {"sigma": 0.7, "quantize": False}}]}
    with opened_native(EvaluationEnv("CartPole-v1", {"max_episode_steps": 9}, wrappers), 2) as envs:
        assert isinstance(envs, vector.NoisyObservationWrapper)
        assert (envs.sigma, envs.noise.quantize, envs.unwrapped.max_episode_steps) == (0.7, False, 9)


REFUSED = [
    (noisy("Acrobot-v1", 0.2), "Acrobot-v1 has no native vector environment"),
    (EvaluationEnv("CartPole-v1", wrappers=FIXED_LEVEL), "FixedLevel has no twin"),
    (EvaluationEnv("CartPole-v1", wrappers=STACKED), "frame_stack is for"),
    (EvaluationEnv("CartPole-v1", wrappers=MONITORED), "vec_env_wrapper is for"),
    (noisy("CartPole-v1", 0.2, max_episode_steps=-1), "no step limit"),
    (noisy("CartPole-v1", 0.2, disable_env_checker=True), "cannot build the vector environment of CartPole-v1: TypeError"),
    (noisy("tests/NoLimit-v0", 0.2), "no step limit"),
    (noisy("tests/SameStep-v0", 0.2), "NEXT_STEP"),
    (noisy("tests/Stacked-v0", 0.2), "has the space Box"),
    (EvaluationEnv("tests/Clean-v0"), "not the smoothing noise"),
    (EvaluationEnv("tests/Twice-v0"), "not the smoothing noise"),
]


@pytest.mark.parametrize(("environment", "reason"), REFUSED, ids=lambda value: getattr(value, "env_id", None))
def test_what_has_none_or_one_that_does_not_fit_is_refused(environment, reason):
    assert not has_known_native(environment)
    with pytest.raises(NotNative, match=reason), opened_native(environment, 2):
        pass


def test_atari_does_not_as_its_vector_env_is_another_one():
    import ale_py

    gym.register_envs(ale_py)
    assert not has_known_native(noisy("ALE/Pong-v5", 12.75))
    assert not has_known_native(EvaluationEnv("camp/Freeway-v0"))
    with (
        pytest.raises(NotNative, match="cannot build the vector"),
        opened_native(noisy("ALE/Pong-v5", 12.75, max_episode_steps=99), 2),
    ):
        pass


@pytest.mark.parametrize("environment", [noisy("tests/Own-v0", 0.2), EvaluationEnv("tests/Noisy-v0")])
def test_what_is_not_known_to_have_the_same_law_has_to_be_asked_for(environment):
    assert not has_known_native(environment)
    with opened_native(environment, 2) as envs:
        assert envs.num_envs == 2


# What the command makes of it


def test_default_is_native_for_cartpole_with_many_envs(model, tmp_path, capsys):
    assert evaluate("--model", model, "--sigma", 0.2, "-n", 1500, "-o", tmp_path) == 0
    content = read(tmp_path / "evaluations.npz")
    assert content["native_vec_env"] and content["n_envs"] == 1024 and content["results"].shape == (1, 1500)
    assert "1024 native envs" in capsys.readouterr().out
    assert evaluate("--model", model, "--sigma", 0.2, "-n", 70, "-o", tmp_path, "--vec-env", "dummy") == 0
    content = read(tmp_path / "evaluations.npz")
    assert not content["native_vec_env"] and content["n_envs"] == 64
    assert evaluate("--model", model, "-n", 70, "-params", NOISY, "-o", tmp_path, "--n-envs", 9) == 0
    content = read(tmp_path / "evaluations.npz")
    assert content["native_vec_env"] and content["n_envs"] == 9


def test_native_of_an_env_of_ones_own_has_to_be_asked_for(model, tmp_path):
    for flags, native in (([], False), (["--vec-env", "native"], True)):
        assert evaluate("--model", model, "--sigma", 0.2, "-n", 9, "-o", tmp_path, *flags, env="tests/Own-v0") == 0
        content = read(tmp_path / "evaluations.npz")
        assert content["native_vec_env"] == native and content["ep_lengths"].max() <= 50


@pytest.mark.parametrize(
    ("env", "arguments", "reason"),
    [
        ("Acrobot-v1", ["--sigma", 0.2], "Acrobot-v1 has no native vector environment"),
        (
            "CartPole-v1",
            ["-params", f"env_wrapper:['{FIXED}']", "--sigma", 0.2],
            "FixedLevel has no twin",
        ),
        ("CartPole-v1", ["-params", "frame_stack:2", "--sigma", 0.2], "frame_stack"),
    ],
)
def test_native_that_is_impossible_is_one_line_that_says_why(env, arguments, reason, model, tmp_path, capsys):
    common = ("--model", model, "-n", 3, "-o", tmp_path / "out", *arguments)
    assert evaluate(*common, "--vec-env", "native", env=env) == 2
    line = error_line(capsys)
    assert line.startswith("evaluate: error: --vec-env native: ") and reason in line
    assert not (tmp_path / "out").exists()


def test_model_that_does_not_fit_is_one_line(model, tmp_path, capsys):
    assert evaluate("--model", model, "-n", 3, "-o", tmp_path / "out", env="camp/CartPole5-v0") == 2
    assert "the policy observes" in error_line(capsys)


def test_same_seed_same_numbers_and_sampled_actions_too(tmp_path):
    PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu", seed=0).save(tmp_path / "ppo.zip")
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        common = ("--model", tmp_path / "ppo.zip", "--sigma", 0.2, "-n", 60, "--n-envs", 8, "--stochastic")
        assert evaluate(*common, "--seed", seed, "-o", tmp_path / folder, algo="ppo") == 0
    a, b, c = (read(tmp_path / folder / "evaluations.npz") for folder in "abc")
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    assert a["native_vec_env"] and not np.array_equal(a["results"], c["results"])


def test_interrupted_and_resumed_equals_uninterrupted_and_the_kinds_are_not_mixed(model, tmp_path, monkeypatch, capsys):
    def write_and_interrupt(*args, **more):
        write_partial(*args, **more)
        raise KeyboardInterrupt

    arguments = ("--model", model, "--sigma", 0.2, "-n", 300, "--n-envs", 5, "-o")
    with monkeypatch.context() as patch:
        patch.setattr(sb3_camp.evaluation.run_evaluation, "write_partial", write_and_interrupt)
        assert evaluate(*arguments, tmp_path / "a") == 130
    capsys.readouterr()
    assert evaluate(*arguments, tmp_path / "a", "--resume", "--vec-env", "dummy") == 2
    assert "made with native_vec_env True, not False" in error_line(capsys)
    assert evaluate(*arguments, tmp_path / "a", "--resume", "--vec-env", "native") == 0
    assert "Resuming after 100 of 300" in capsys.readouterr().out
    assert evaluate(*arguments, tmp_path / "b") == 0
    resumed, whole = (read(tmp_path / folder / "evaluations.npz") for folder in "ab")
    assert resumed.keys() == whole.keys()
    for name in whole:
        np.testing.assert_array_equal(resumed[name], whole[name])


def test_gaps_are_those_of_every_counted_step(model, tmp_path):
    assert evaluate("--model", model, "--sigma", 0.2, "-n", 7, "--n-envs", 3, "--seed", 5, "-o", tmp_path, "--q-gap") == 0
    content = read(tmp_path / "evaluations.npz")
    network = DQN.load(model, device="cpu").policy.q_net
    (chunk,) = plan_chunks(7, 3, 5)
    envs = vector.NoisyObservationWrapper(gym.make_vec("CartPole-v1", 3), 0.2)
    observations, _ = envs.reset(seed=chunk.seed)
    gaps, missing, over = [], [2, 2, 3], np.zeros(3, dtype=bool)
    while any(missing):
        scores = network(th.as_tensor(observations)).detach().numpy()
        low, high = np.sort(scores, axis=1).T
        gaps += [high[i] - low[i] for i in range(3) if missing[i] and not over[i]]
        observations, _, terminations, truncations, _ = envs.step(scores.argmax(axis=1))
        over = terminations | truncations
        missing = [left - (left > 0 and over[i]) for i, left in enumerate(missing)]
    assert content["q_gap_steps"] == len(gaps) == content["ep_lengths"].sum()
    np.testing.assert_allclose(content["q_gap_mean"], np.mean(gaps), rtol=1e-5)
    np.testing.assert_allclose(content["q_gap_quantiles"], np.quantile(gaps, LEVELS), rtol=1e-4)


@pytest.mark.slow
def test_threads_of_pytorch_are_one_for_small_observations_unless_asked_for(model, tmp_path):
    before = th.get_num_threads()
    PPO("CnnPolicy", "camp/Freeway-v0", n_steps=4, batch_size=4, device="cpu").save(tmp_path / "images.zip")
    try:
        for flags, n_threads in (([], 1), (["--num-threads", 2], 2), (["--num-threads", -1], 3)):
            th.set_num_threads(3)
            assert evaluate("--model", model, "--sigma", 0.2, "-n", 2, "-o", tmp_path, *flags) == 0
            assert th.get_num_threads() == n_threads
        images = ("--model", tmp_path / "images.zip", "-n", 1, "-o", tmp_path, "--env-kwargs", "max_episode_steps:2")
        assert evaluate(*images, algo="ppo", env="camp/Freeway-v0") == 0
        assert th.get_num_threads() == 3
    finally:
        th.set_num_threads(before)
