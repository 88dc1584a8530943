"""Vector environments of Gymnasium in SB3's interface tell the same, step by step, as SB3's own of single environments."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import SyncVectorEnv
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from sb3_camp.errors import InputError
from sb3_camp.vec_env import NativeVecEnv, native_vec_env

NOISE = "sb3_camp.wrappers.NoisyObservationWrapper"
CARTPOLE1, CARTPOLE5 = "camp/CartPole1-v0", "camp/CartPole5-v0"


class FromStates(gym.Wrapper):
    """Single environments that start where the native ones did, so that both can be compared step by step."""

    def __init__(self, states: list[np.ndarray]) -> None:
        super().__init__(gym.wrappers.TimeLimit(CartPoleEnv(), 15))
        self.states = states

    def reset(self, **kwargs):
        super().reset(**kwargs)
        self.unwrapped.state = np.array(self.states.pop(0))
        return np.array(self.unwrapped.state, dtype=np.float32), {}


def cartpole_state(env: NativeVecEnv) -> np.ndarray:
    return env.envs.unwrapped.state.T.copy()


def test_every_step_is_that_of_single_environments():
    n_envs, n_steps = 6, 300
    native = native_vec_env("CartPole-v1", n_envs, seed=1, env_kwargs={"max_episode_steps": 15})
    rng = np.random.default_rng(0)
    # The pole falls within 10 steps if it is always pushed to one side, and mostly stands for 15 if pushed to and fro
    actions = np.where(rng.random((n_steps, n_envs)) < 0.8, np.arange(n_steps)[:, np.newaxis] % 2, np.arange(n_envs) % 2)
    seen = [(native.reset(), None, None, None)]
    states: list[list[np.ndarray]] = [[state] for state in cartpole_state(native)]
    for step in actions:
        seen.append(native.step(step))
        for i in np.flatnonzero(seen[-1][2]):
            states[i].append(cartpole_state(native)[i])

    single = DummyVecEnv([lambda own=own: Monitor(FromStates(own)) for own in states])
    n_ends = {"terminated": 0, "truncated": 0}
    assert np.array_equal(single.reset(), seen[0][0])
    for step, (observations, rewards, dones, infos) in zip(actions, seen[1:], strict=True):
        expected_observations, expected_rewards, expected_dones, expected_infos = single.step(step)
        assert np.allclose(observations, expected_observations, rtol=0, atol=1e-6)
        assert np.array_equal(rewards, expected_rewards) and rewards.dtype == expected_rewards.dtype
        assert np.array_equal(dones, expected_dones)
        for info, expected in zip(infos, expected_infos, strict=True):
            assert info.keys() == expected.keys()
            assert info["TimeLimit.truncated"] is expected["TimeLimit.truncated"]
            if "episode" in info:
                n_ends["truncated" if info["TimeLimit.truncated"] else "terminated"] += 1
                assert np.allclose(info["terminal_observation"], expected["terminal_observation"], rtol=0, atol=1e-6)
                assert {key: info["episode"][key] for key in "rl"} == {key: expected["episode"][key] for key in "rl"}
    assert min(n_ends.values()) > 5, n_ends


def test_noise_and_frames_of_an_episode_stay_its_own():
    env = native_vec_env(CARTPOLE5, 8, seed=0, env_kwargs={"sigma": 0.1})
    before = env.reset().reshape(8, 5, 4)
    assert np.ptp(before, axis=1).max() == 0, "one noisy frame, five times"
    n_ends = 0
    for _ in range(100):
        observations, _, dones, infos = env.step(np.ones(8, dtype=int))
        frames = observations.reshape(8, 5, 4)
        assert np.array_equal(frames[~dones, :4], before[~dones, 1:]), "a frame is noised once"
        for i in np.flatnonzero(dones):
            assert np.ptp(frames[i], axis=0).max() == 0, "the stack of a new episode is one frame"
            final = infos[i]["terminal_observation"].reshape(5, 4)
            assert np.array_equal(final[:4], before[i, 1:]) and not np.array_equal(final[-1], frames[i, -1])
            n_ends += 1
        before = frames
    assert n_ends > 20


def test_the_seed_decides_all():
    def play(seed):
        env = native_vec_env(CARTPOLE1, 5, seed=seed, env_kwargs={"sigma": 0.3})
        observations = [env.reset()]
        observations += [env.step(np.full(5, step % 2))[0] for step in range(60)]
        return np.stack(observations)

    one, again, other = play(3), play(3), play(4)
    assert np.array_equal(one, again)
    assert not np.isclose(one, other).any()
    assert not np.isclose(one[:, 0], one[:, 1]).any(), "two envs with the same episodes"


def test_noise_of_env_wrapper_has_the_right_size():
    env = native_vec_env("CartPole-v1", 512, seed=0, env_wrapper=[{NOISE: {"sigma": 5.0}}])
    observations = env.reset()
    assert abs(observations.std() - 5) < 0.3
    assert env.get_attr("sigma", [0, 3]) == [5.0, 5.0]


@pytest.mark.parametrize("wrap", [lambda env: env, VecNormalize, lambda env: VecFrameStack(env, 2)])
def test_sb3_trains_and_evaluates_in_it(wrap):
    env = wrap(native_vec_env(CARTPOLE1, 16, seed=0))
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=64, n_epochs=1, seed=0, device="cpu").learn(600)
    assert len(model.ep_info_buffer) > 10
    returns, lengths = evaluate_policy(model, env, n_eval_episodes=20, return_episode_rewards=True)
    assert returns == lengths and len(returns) == 20
    DQN("MlpPolicy", env, buffer_size=500, learning_starts=50, device="cpu").learn(200)


def test_ppo_with_many_envs_learns_in_seconds():
    env = native_vec_env("CartPole-v1", 64, seed=0)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=256, n_epochs=4, learning_rate=1e-3, gamma=0.98, seed=0, device="cpu")
    mean = evaluate_policy(model.learn(60_000), env, n_eval_episodes=64)[0]
    assert mean > 150, "random actions get 22"


def test_an_environment_that_cannot_reset_some_of_its_envs_is_refused():
    class Forgetful(gym.vector.VectorWrapper):
        def reset(self, *, seed=None, options=None):
            return self.env.reset(seed=seed)

    with pytest.raises(InputError, match="reset_mask"):
        NativeVecEnv(Forgetful(native_vec_env("CartPole-v1", 3).envs))
    same_step = SyncVectorEnv([CartPoleEnv] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    with pytest.raises(InputError, match="NEXT_STEP"):
        NativeVecEnv(same_step)
    with pytest.raises(InputError, match="no native vector environment"):
        native_vec_env("Acrobot-v1", 2)


def test_infos_of_single_envs_in_gymnasiums_vector_env_reach_their_envs():
    class Tells(gym.Wrapper):
        def step(self, action):
            *rest, info = self.env.step(action)
            return (*rest, {**info, "angle": float(rest[0][2]), "nested": {"pushed": int(action)}} if action else info)

    envs = NativeVecEnv(SyncVectorEnv([lambda: Tells(CartPoleEnv())] * 3))
    envs.reset()
    observations, _, _, infos = envs.step(np.array([0, 1, 1]))
    assert "angle" not in infos[0] and "nested" not in infos[0]
    assert np.allclose([info["angle"] for info in infos[1:]], observations[1:, 2])
    assert [info["nested"]["pushed"] for info in infos[1:]] == [1, 1]


def test_single_envs_cannot_be_reached():
    env = native_vec_env("CartPole-v1", 2)
    for call in (lambda: env.set_attr("gravity", 1.0), lambda: env.env_method("reset")):
        with pytest.raises(InputError, match="no objects of their own"):
            call()
