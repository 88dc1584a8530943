import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, FrameStackObservation, TimeLimit
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack
from support.attacked_envs import RandomFrames, attacked, image_space, random_policy, vector_space

from sb3_camp import NoisyObservationWrapper
from sb3_camp.errors import InputError
from sb3_camp.wrappers import AdversarialObservationWrapper, BatchedAttackVecEnv

VECTOR = vector_space(4)


def staggered(space, i):
    """Episodes of different lengths, so that some environments are reset while others step."""
    return RandomFrames(space, length=3 + i)


def play(vec_env, policy, n_steps, wrap=lambda env: env):
    env = wrap(vec_env)
    env.seed(7)
    observations = env.reset()
    played = []
    for _ in range(n_steps):
        actions, _ = policy.predict(observations, deterministic=True)
        played.append((observations, actions, [dict(info) for info in env.reset_infos]))
        observations, rewards, dones, infos = env.step(actions)
        played.append((rewards, dones, infos))
    return played


def assert_alike(one, other, rtol=1e-4, atol=1e-4):
    """Equal, arrays of floats and floats but for rounding."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one.keys() - {"episode"}:  # which holds the time
            # of what is left when nearly all is spent, only the square is exact
            square = (lambda left: left**2) if key == "budget_left" else (lambda value: value)
            assert_alike(square(one[key]), square(other[key]))
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_alike(first, second)
    elif isinstance(one, float) or (isinstance(one, np.ndarray) and one.dtype.kind == "f"):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(one, other)


def flips(played):
    return sum(info["action_flipped"] for _, _, infos in played[1::2] for info in infos)


@pytest.mark.parametrize("attack", ["pgd", "apgd", "fgsm", "random"])
def test_the_episodes_and_attacks_are_those_of_a_dummy_vec_env(attack):
    policy = random_policy(VECTOR)
    fns = [lambda i=i: attacked(Monitor(staggered(VECTOR, i)), policy, attack) for i in range(4)]
    batched = play(BatchedAttackVecEnv(fns), policy, 15)
    assert_alike(batched, play(DummyVecEnv(fns), policy, 15))
    assert flips(batched) > 3


def test_images_in_stacks_under_noise_are_attacked_as_in_a_dummy_vec_env():
    space = image_space(36, 36, 1)
    policy = random_policy(image_space(36, 36, 2))
    fns = [
        lambda i=i: NoisyObservationWrapper(attacked(staggered(space, i), policy, n_stack=2, stack_padding="zero"), 12.75)
        for i in range(3)
    ]
    batched = play(BatchedAttackVecEnv(fns), policy, 10, wrap=lambda env: VecFrameStack(env, 2))
    assert_alike(batched, play(DummyVecEnv(fns), policy, 10, wrap=lambda env: VecFrameStack(env, 2)))
    assert flips(batched) > 3


def test_stacks_of_noisy_frames_are_attacked_as_in_a_dummy_vec_env():
    policy = random_policy(vector_space(12))

    def make(i):
        env = FlattenObservation(FrameStackObservation(NoisyObservationWrapper(staggered(VECTOR, i), 0.2), 3))
        return attacked(env, policy, n_stack=3)

    fns = [lambda i=i: make(i) for i in range(3)]
    batched = play(BatchedAttackVecEnv(fns), policy, 15)
    assert_alike(batched, play(DummyVecEnv(fns), policy, 15))
    assert flips(batched) > 3


def test_dict_observations_are_attacked_as_in_a_dummy_vec_env():
    class Entries(RandomFrames):
        def _observation(self):
            frame = self.np_random.standard_normal(4).astype(np.float32)
            return {"mode": self.np_random.integers(3), "position": frame}

    space = spaces.Dict(mode=spaces.Discrete(3), position=VECTOR)
    policy = random_policy(space)

    def make(i):
        return AdversarialObservationWrapper(Entries(space, 3 + i), policy, 3.0, attack_kwargs={"step_size": 0.1})

    fns = [lambda i=i: make(i) for i in range(3)]
    batched = play(BatchedAttackVecEnv(fns), policy, 12)
    assert_alike(batched, play(DummyVecEnv(fns), policy, 12))
    assert flips(batched) > 3


class Restless(gym.Wrapper):
    """Makes several steps in one, and several in a reset."""

    def reset(self, **kwargs):
        self.env.reset(**kwargs)
        return self.env.step(1)[0], {}

    def step(self, action):
        for _ in range(1 + action):
            result = self.env.step(action)
            if result[2] or result[3]:
                break
        return result


def test_wrappers_that_step_and_reset_several_times_at_once_work():
    policy = random_policy(VECTOR)
    fns = [lambda i=i: TimeLimit(Restless(attacked(staggered(VECTOR, i), policy)), 4) for i in range(4)]
    batched = play(BatchedAttackVecEnv(fns), policy, 15)
    assert_alike(batched, play(DummyVecEnv(fns), policy, 15))
    assert flips(batched) > 3


def test_it_is_a_class_for_make_vec_env_and_a_model_object():
    policy = random_policy(VECTOR)
    env = make_vec_env(
        lambda: RandomFrames(VECTOR),
        3,
        seed=1,
        wrapper_class=attacked,
        wrapper_kwargs=dict(policy=policy),
        vec_env_cls=BatchedAttackVecEnv,
    )
    twin = make_vec_env(lambda: RandomFrames(VECTOR), 3, seed=1, wrapper_class=attacked, wrapper_kwargs=dict(policy=policy))
    np.testing.assert_allclose(env.reset(), twin.reset(), rtol=1e-5)
    assert env.num_envs == 3 and all(env.env_is_wrapped(AdversarialObservationWrapper))


def test_all_environments_are_attacked_in_one_batch():
    policy = random_policy(VECTOR)
    env = BatchedAttackVecEnv([lambda: attacked(RandomFrames(VECTOR), policy) for _ in range(8)])
    sizes = []
    attacked_policy = env.envs[0].adversary.policy
    assert all(one.adversary.policy is attacked_policy for one in env.envs)
    attacked_policy.q_net.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    env.seed(0)
    env.reset()
    assert 8 <= max(sizes) <= 16  # two targets for each
    n_batched = len(sizes)
    for single in env.envs:
        single.reset()
    assert len(sizes) - n_batched > 2 * n_batched


def test_seeds_and_options_reach_each_environment_once():
    env = BatchedAttackVecEnv([lambda: attacked(RandomFrames(VECTOR), random_policy(VECTOR)) for _ in range(2)])
    env.set_options([{"level": 1}, {"level": 2}])
    env.seed(3)
    first = env.reset()
    assert [info["options"] for info in env.reset_infos] == [{"level": 1}, {"level": 2}]
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(env.reset(), first)
    assert [info["options"] for info in env.reset_infos] == [None, None]
    env.seed(3)
    np.testing.assert_array_equal(env.reset(), first)


def test_an_environment_may_be_called_by_itself():
    policy = random_policy(VECTOR)
    env = BatchedAttackVecEnv([lambda: attacked(RandomFrames(VECTOR), policy) for _ in range(3)])
    alone = attacked(RandomFrames(VECTOR), policy)
    observation, info = env.env_method("reset", seed=5, indices=1)[0]
    expected, expected_info = alone.reset(seed=5)
    np.testing.assert_array_equal(observation, expected)
    assert info == expected_info


class Failing(gym.Wrapper):
    """Its reset or step fails if told so; notes when a step was left without an end."""

    def __init__(self, env):
        super().__init__(env)
        self.fails = False
        self.was_interrupted = False

    def step(self, action):
        if self.fails:
            raise OSError("the simulator has gone")
        self.was_interrupted = True
        result = self.env.step(action)
        self.was_interrupted = False
        return result


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_an_exception_in_an_environment_reaches_the_caller_and_the_others_are_not_left_hanging(order):
    policy = random_policy(VECTOR)

    def make():
        env = RandomFrames(VECTOR, length=100)
        return Failing(attacked(env, policy)) if order == "outside" else attacked(Failing(env), policy)

    env = BatchedAttackVecEnv([make for _ in range(3)])
    env.seed(0)
    env.reset()
    env.env_method("set_wrapper_attr", "fails", True, indices=1)
    with pytest.raises(OSError, match="the simulator has gone"):
        env.step(np.zeros(3, int))
    env.env_method("set_wrapper_attr", "fails", False, indices=1)
    env.reset()
    assert env.step(np.zeros(3, int))[0].shape == (3, 4)
    assert env.get_attr("was_interrupted") == [False] * 3


def test_the_error_of_an_attack_reaches_the_caller():
    class Nan(RandomFrames):
        def _observation(self):
            return np.full(4, np.nan, np.float32)

    policy = random_policy(VECTOR)
    env = BatchedAttackVecEnv([lambda: attacked(RandomFrames(VECTOR), policy), lambda: attacked(Nan(VECTOR), policy)])
    with pytest.raises(InputError, match="not finite"):
        env.reset()


def test_context_variables_of_the_caller_hold_in_the_environments():
    class Dividing(RandomFrames):
        def step(self, action):
            np.float64(1.0) / np.float64(0.0)
            return super().step(action)

    policy = random_policy(VECTOR)
    env = BatchedAttackVecEnv([lambda: attacked(Dividing(VECTOR), policy)])
    env.reset()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        env.step(np.zeros(1, int))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(attack="apgd"), "differ in attack"),
        (dict(budget=1.0), "differ in settings"),
        (dict(policy=random_policy(VECTOR, seed=1)), "differ in model"),
        (dict(policy=random_policy(vector_space(8)), n_stack=2), "differ in model, layout"),
    ],
)
def test_adversaries_that_cannot_attack_in_one_batch_are_refused(changes, message):
    arguments = {"policy": random_policy(VECTOR), **changes}
    fns = [lambda: attacked(RandomFrames(VECTOR), random_policy(VECTOR)), lambda: attacked(RandomFrames(VECTOR), **arguments)]
    with pytest.raises(InputError, match=message) as error:
        BatchedAttackVecEnv(fns)
    assert "\n" not in str(error.value)


def test_different_budgets_may_share_a_batch():
    policy = random_policy(VECTOR)

    def make(budget):
        env = RandomFrames(VECTOR)
        return AdversarialObservationWrapper(env, policy, budget, attack_kwargs={"step_size": 0.1})

    fns = [lambda budget=budget: make(budget) for budget in (0.0, 0.5, 3.0)]
    assert_alike(play(BatchedAttackVecEnv(fns), policy, 8), play(DummyVecEnv(fns), policy, 8))


def test_an_environment_without_an_adversary_is_refused():
    with pytest.raises(InputError, match="environment 1 has no AdversarialObservationWrapper: use DummyVecEnv"):
        BatchedAttackVecEnv([lambda: attacked(RandomFrames(VECTOR), random_policy(VECTOR)), lambda: RandomFrames(VECTOR)])


def test_the_episodes_it_closes_are_those_that_ended():
    policy = random_policy(VECTOR)
    env = BatchedAttackVecEnv([lambda i=i: attacked(staggered(VECTOR, i), policy) for i in range(2)])
    env.seed(0)
    env.reset()
    norms = [[], []]
    for i, info in enumerate(env.reset_infos):
        norms[i].append(info["perturbation_norm"])
    totals = [[], []]
    for _ in range(12):
        _, _, dones, infos = env.step(np.zeros(2, int))
        for i in range(2):
            norms[i].append(infos[i]["perturbation_norm"])
            if dones[i]:
                totals[i].append(np.linalg.norm(norms[i]))
                norms[i] = [env.reset_infos[i]["perturbation_norm"]]
    for i, closed in enumerate(env.env_method("take_closed_attacks")):
        assert [episode.steps for episode in closed] == [3 + i] * (12 // (3 + i))
        np.testing.assert_allclose([episode.budget_spent for episode in closed], totals[i], rtol=1e-12)
