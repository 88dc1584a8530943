"""What is known of the zoo's environments stays beside them: their files and pickles are those of the zoo."""

import gc
import pickle
import weakref

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from sb3_camp.tuning.zoo_run import ZooRun, tell_zoo_run, zoo_run_of


def _normalised() -> VecNormalize:
    return VecNormalize(make_vec_env("CartPole-v1"))


def test_an_environment_that_was_told_of_is_pickled_as_ever():
    plain, told = _normalised(), _normalised()
    with open(__file__) as handle:  # something that no pickle can hold, as the standard output in a manager's namespace
        tell_zoo_run(told, ZooRun(lambda: handle, None))  # type: ignore[arg-type, return-value]
        assert vars(plain).keys() == vars(told).keys()
        assert pickle.dumps(told) == pickle.dumps(plain)


def test_it_is_found_through_wrappers_from_outside_only():
    env, other = _normalised(), _normalised()
    run = ZooRun(lambda: None, None)  # type: ignore[arg-type, return-value]
    tell_zoo_run(env, run)
    assert zoo_run_of(VecFrameStack(env, 2)) is run
    assert zoo_run_of(env.venv) is None and zoo_run_of(other) is None


class ComparedByValue(VecFrameStack):
    """A wrapper of a user that compares itself, and so has no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComparedByValue)


def test_an_environment_without_a_hash_is_told_of_by_itself_and_forgotten_with_its_end():
    env, other = (ComparedByValue(make_vec_env("CartPole-v1"), 2) for _ in range(2))
    run, later = (ZooRun(lambda: None, None) for _ in range(2))  # type: ignore[arg-type, return-value]
    tell_zoo_run(env, run)
    assert zoo_run_of(env) is run and zoo_run_of(other) is None
    tell_zoo_run(env, later)
    assert zoo_run_of(env) is later
    kept = weakref.ref(later)
    del env, run, later
    gc.collect()
    assert kept() is None
