"""The stock zoo does the same with this package installed as without: exit status, files, numbers, what it prints."""

from pathlib import Path
from typing import NamedTuple

import pytest
from support.fresh_environment import Environment, copied_checkout
from support.zoo_outcomes import Outcome, assert_equal, loads_the_package, outcomes, train

ON_POLICY = ["n_envs:2", "n_steps:32", "batch_size:32", "n_epochs:2"]
OFF_POLICY = [
    "learning_starts:60",
    "train_freq:20",
    "gradient_steps:2",
    "buffer_size:500",
    "policy_kwargs:dict(net_arch=[16])",
]

ALGORITHMS: dict[str, tuple[str, list[str]]] = {
    "ppo": ("CartPole-v1", ON_POLICY),
    "a2c": ("CartPole-v1", ["n_envs:2"]),
    "trpo": ("CartPole-v1", ["n_envs:2", "n_steps:64", "batch_size:64"]),
    "ppo_lstm": ("CartPole-v1", ["policy:'MlpLstmPolicy'", *ON_POLICY]),
    "ars": ("CartPole-v1", ["n_envs:2"]),
    "dqn": ("CartPole-v1", OFF_POLICY),
    "qrdqn": ("CartPole-v1", OFF_POLICY),
    "sac": ("Pendulum-v1", OFF_POLICY),
    "td3": ("Pendulum-v1", OFF_POLICY),
    "ddpg": ("Pendulum-v1", OFF_POLICY),
    "tqc": ("Pendulum-v1", OFF_POLICY),
    "crossq": ("Pendulum-v1", OFF_POLICY),
}
VARIANTS = {
    "plain": [],
    "normalised": ["normalize:True"],
    "stacked": ["frame_stack:2"],
    "wrapped": ["env_wrapper:[{'rl_zoo3.wrappers.FrameSkip':{'skip':2}}]", "normalize:True"],
}
REWARD_ONLY = "normalize:dict(norm_obs=False,norm_reward=True)"


class Zoos(NamedTuple):
    """Two environments that differ in this package only."""

    without: Environment
    with_package: Environment

    def compare(self, folder: Path, *commands: list[str]) -> Outcome:
        one, other = outcomes(list(self), folder, list(commands))
        assert_equal(one, other)
        return one


@pytest.fixture(scope="module")
def zoos(tmp_path_factory) -> Zoos:
    folder = tmp_path_factory.mktemp("zoos")
    both = Zoos(Environment(folder / "without"), Environment(folder / "with"))
    both.with_package.install(str(copied_checkout(folder)), cwd=folder)
    assert not loads_the_package(both.without, folder), "nothing would be compared"
    assert loads_the_package(both.with_package, folder)
    return both


def with_params(algo: str, variant: str) -> tuple[str, list[str]]:
    env, params = ALGORITHMS[algo]
    # The zoo itself cannot send a frame stack to the processes of ARS
    one_process = ["n_envs:1"] if (algo, variant) == ("ars", "stacked") else []
    return env, params + VARIANTS[variant] + one_process


def names(outcome: Outcome) -> set[str]:
    return {Path(name).name for name in outcome.files}


def test_short_trainings(zoos, tmp_path):
    variants = {"ppo": "normalised", "dqn": "plain", "sac": "plain"}
    outcome = zoos.compare(tmp_path, *(train(algo, *with_params(algo, variant)) for algo, variant in variants.items()))
    expected = {"CartPole-v1.zip", "Pendulum-v1.zip", "best_model.zip", "evaluations.npz", "config.yml", "0.monitor.csv"}
    assert expected | {"vecnormalize.pkl", "replay_buffer.pkl"} <= names(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_in_every_variant(zoos, tmp_path, algo):
    env, _ = ALGORITHMS[algo]
    outcome = zoos.compare(tmp_path, *(train(algo, *with_params(algo, variant)) for variant in VARIANTS))
    runs = {Path(name).parts[2] for name in outcome.files}
    assert runs == {f"{env}_{number}" for number in range(1, 1 + len(VARIANTS))}
    assert "vecnormalize.pkl" in names(outcome)


@pytest.mark.slow
def test_normalised_rewards_only(zoos, tmp_path):
    cases = [(algo, *ALGORITHMS[algo]) for algo in ("ppo", "a2c", "sac")]
    outcome = zoos.compare(tmp_path, *(train(algo, env, [*params, REWARD_ONLY]) for algo, env, params in cases))
    assert "vecnormalize.pkl" in names(outcome)


@pytest.mark.slow
def test_envs_in_processes_of_their_own(zoos, tmp_path):
    algorithms = ("ppo", "dqn", "sac")
    zoos.compare(tmp_path, *(train(algo, *with_params(algo, "wrapped"), "--vec-env", "subproc") for algo in algorithms))


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "dqn", "sac", "ars"])
def test_a_training_that_is_continued_and_played(zoos, tmp_path, algo):
    env, params = with_params(algo, "normalised")
    continued = train(algo, env, params, "-i", f"logs/{algo}/{env}_1/{env}.zip")
    play = ["rl_zoo3.enjoy", "--algo", algo, "--env", env, "-f", "logs", "-n", "100", "--no-render", "--reward-log", "played"]
    outcome = zoos.compare(tmp_path, train(algo, env, params), continued, play)
    assert "Loading pretrained agent" in outcome.printed[0]
    assert "played/0.monitor.csv" in outcome.files


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "dqn", "sac"])
def test_a_search(zoos, tmp_path, algo):
    env, _ = ALGORITHMS[algo]
    search = ["rl_zoo3.train", "--algo", algo, "--env", env, "-n", "100", "-f", "logs", "--seed", "1", "--device", "cpu"]
    search += ["-optimize", "--n-trials", "1", "--n-evaluations", "2", "--eval-episodes", "1", "--no-optim-plots"]
    search += ["--optimization-log-path", "trials", "-params", "normalize:True"]
    in_database = [*search, "--storage", "sqlite:///study.db", "--study-name", "study"]
    outcome = zoos.compare(tmp_path, search, in_database)
    _, _, trials = outcome.files["study.db"]
    assert len(trials) == 1


@pytest.mark.slow
def test_what_was_trained_with_the_package_is_played_without_it(zoos, tmp_path):
    env, params = with_params("ppo", "normalised")
    zoos.with_package.run("-m", *train("ppo", env, params), cwd=tmp_path)
    load = (
        "import pickle, sys\n"
        f"with open('logs/ppo/{env}_1/{env}/vecnormalize.pkl', 'rb') as file: print(type(pickle.load(file)).__name__)\n"
        "print(any(name.partition('.')[0] == 'sb3_camp' for name in sys.modules))\n"
    )
    assert zoos.without.run("-c", load, cwd=tmp_path).stdout.split() == ["VecNormalize", "False"]
    play = ["rl_zoo3.enjoy", "--algo", "ppo", "--env", env, "-f", "logs", "-n", "100", "--no-render"]
    assert "Loading" in zoos.without.run("-m", *play, cwd=tmp_path).stdout
