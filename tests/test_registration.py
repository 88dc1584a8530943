"""What the zoo knows after registration, the finder that brings it there, and the yml files that it then reads."""

import argparse
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import rl_zoo3.exp_manager
import rl_zoo3.hyperparams_opt
import rl_zoo3.utils
import yaml
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import EvalCallback

import sb3_camp
import sb3_camp_startup
from sb3_camp.errors import InputError
from sb3_camp.noisy_net import NoisyNetDQN
from sb3_camp.tasks import TASKS
from sb3_camp.zoo import register, registration
from sb3_camp.zoo.gaussian_dqn import GaussianDQN

ROOT = Path(__file__).resolve().parents[1]
NOISE = "sb3_camp.wrappers.NoisyObservationWrapper"
CAMP_KEYS = {"camp_lambda", "camp_eta", "imitation", "reference"}
MODELS = {"camp_dqn": sb3_camp.CAMPDQN, "gaussian_dqn": GaussianDQN, "noisynet_dqn": NoisyNetDQN}
YML_FILES = [f"{folder}{algo}.yml" for folder in ("", "paper/") for algo in ("camp_dqn", "gaussian_dqn", "noisynet_dqn")]


def load(yml: str) -> dict:
    return yaml.safe_load((ROOT / "hyperparams" / yml).read_text(encoding="utf-8"))


def experiment(tmp_path: Path, algo: str, env_id: str = "CartPole-v0", **kwargs) -> rl_zoo3.exp_manager.ExperimentManager:
    return rl_zoo3.exp_manager.ExperimentManager(argparse.Namespace(), algo, env_id, str(tmp_path), **kwargs)


# What register() does


def test_register_adds_the_algorithms_and_is_idempotent():
    register()
    algos, init = dict(rl_zoo3.utils.ALGOS), rl_zoo3.exp_manager.ExperimentManager.__init__
    register()
    assert algos == rl_zoo3.utils.ALGOS
    assert rl_zoo3.exp_manager.ExperimentManager.__init__ is init, "wrapped twice"
    assert {name: algos[name] for name in MODELS} == MODELS
    assert algos["dqn"] is DQN


def test_register_keeps_what_is_there_under_the_same_name(monkeypatch):
    register()
    monkeypatch.setitem(rl_zoo3.utils.ALGOS, "camp_dqn", DQN)
    monkeypatch.setitem(rl_zoo3.hyperparams_opt.HYPERPARAMS_SAMPLER, "gaussian_dqn", print)
    register()
    assert rl_zoo3.utils.ALGOS["camp_dqn"] is DQN
    assert rl_zoo3.hyperparams_opt.HYPERPARAMS_SAMPLER["gaussian_dqn"] is print


def test_own_yml_is_used_only_without_a_config_and_without_a_file_of_the_zoo(tmp_path, monkeypatch):
    register()
    own = ROOT / "hyperparams" / "camp_dqn.yml"
    for algo in MODELS:
        assert Path(experiment(tmp_path, algo).config) == own.with_name(f"{algo}.yml")
    assert experiment(tmp_path, "camp_dqn", config="missing.yml").config == "missing.yml"
    assert Path(experiment(tmp_path, "dqn").config) == Path(rl_zoo3.__file__).parent / "hyperparams" / "dqn.yml"

    zoo_file = tmp_path / "hyperparams" / "camp_dqn.yml"
    zoo_file.parent.mkdir()
    zoo_file.touch()
    monkeypatch.setattr(rl_zoo3.exp_manager, "__file__", str(tmp_path / "exp_manager.py"))
    assert Path(experiment(tmp_path, "camp_dqn").config) == zoo_file


def test_a_subclass_of_the_experiment_manager_finds_the_yml_too(tmp_path):
    register()

    class Custom(rl_zoo3.exp_manager.ExperimentManager):
        def __init__(self, algo):
            super().__init__(argparse.Namespace(), algo, "CartPole-v0", str(tmp_path))

    assert Path(Custom("camp_dqn").config) == ROOT / "hyperparams" / "camp_dqn.yml"


def test_training_and_evaluation_get_the_same_noise(tmp_path):
    register()
    exp = experiment(tmp_path, "camp_dqn", eval_freq=100, n_eval_envs=2, verbose=0)
    model, _ = exp.setup_experiment()
    (evaluation,) = [callback for callback in exp.callbacks if isinstance(callback, EvalCallback)]
    assert model.get_env().get_attr("sigma") == [0.4]
    assert evaluation.eval_env.get_attr("sigma") == [0.4, 0.4]


@pytest.mark.parametrize("script", ["train", "enjoy"])
def test_the_scripts_register_where_no_start_up_file_is_read(script, tmp_path):
    """With ``-S``, and the packages on ``PYTHONPATH``."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, sys.path)]), OMP_NUM_THREADS="1")
    command = [sys.executable, "-S", str(ROOT / "zoo_scripts" / f"{script}.py"), "--help"]
    result = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert all(algo in result.stdout for algo in MODELS)


# The finder


@pytest.fixture
def fake_zoo(tmp_path, monkeypatch):
    """Two modules that stand for the zoo's, a finder that waits for them, and the list of those that were extended."""
    extended: list[str] = []
    names = ("sb3_camp_fake_zoo_a", "sb3_camp_fake_zoo_b")
    for name in names:
        (tmp_path / f"{name}.py").write_text("ALGOS = {}\n")
        monkeypatch.setitem(registration.EXTENSIONS, name, lambda module: extended.append(module.__name__))
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sb3_camp_startup, "ZOO_MODULES", names)
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if not isinstance(f, sb3_camp_startup.ZooFinder)])
    monkeypatch.syspath_prepend(tmp_path)
    sb3_camp_startup.install()
    return names, extended


def test_the_finder_waits_for_exactly_the_modules_that_are_extended():
    assert tuple(registration.EXTENSIONS) == sb3_camp_startup.ZOO_MODULES


def test_install_twice_leaves_one_finder(fake_zoo):
    sb3_camp_startup.install()
    assert sum(isinstance(finder, sb3_camp_startup.ZooFinder) for finder in sys.meta_path) == 1


def test_a_module_is_extended_on_import_and_on_reload_and_keeps_its_own_loader(fake_zoo):
    (name, _), extended = fake_zoo
    module = importlib.import_module(name)
    assert extended == [name]
    assert type(module.__loader__) is importlib.machinery.SourceFileLoader
    assert module.__spec__.loader is module.__loader__
    assert inspect.getsource(module) == "ALGOS = {}\n"
    importlib.reload(module)
    assert extended == [name, name]


def test_a_search_without_an_import_extends_nothing(fake_zoo):
    (name, _), extended = fake_zoo
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader.get_source(name) == "ALGOS = {}\n"
    assert not extended and name not in sys.modules


@pytest.mark.parametrize("position", [0, 1])
def test_it_gets_along_with_another_finder_that_delegates(fake_zoo, position):
    (name, _), extended = fake_zoo

    class Delegating:
        busy = False

        def find_spec(self, fullname, path=None, target=None):
            if self.busy:
                return None
            self.busy = True
            try:
                return importlib.util.find_spec(fullname)
            finally:
                self.busy = False

    sys.meta_path.insert(position, Delegating())
    importlib.import_module(name)
    assert name in extended


def test_a_failure_is_one_warning_with_the_reason_and_the_modules_load(fake_zoo, monkeypatch):
    names, _ = fake_zoo

    def fail(module):
        raise OSError("libtorch is broken")

    for name in names:
        monkeypatch.setitem(registration.EXTENSIONS, name, fail)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        modules = [importlib.import_module(name) for name in names]
    assert [module.ALGOS for module in modules] == [{}, {}]
    (warning,) = caught
    assert "sb3_camp" in str(warning.message) and "OSError: libtorch is broken" in str(warning.message)
    assert not any(isinstance(finder, sb3_camp_startup.ZooFinder) for finder in sys.meta_path)


def test_an_error_inside_the_zoo_itself_stays_the_zoos_own(fake_zoo, tmp_path):
    (name, _), extended = fake_zoo
    (tmp_path / f"{name}.py").write_text("raise KeyError('not ours')\n")
    importlib.invalidate_caches()
    with pytest.raises(KeyError, match="not ours"):
        importlib.import_module(name)
    assert not extended


# The yml files


@pytest.mark.parametrize("yml", YML_FILES)
def test_every_entry_has_noise_in_front_and_arguments_that_the_model_knows(yml):
    known = set(inspect.signature(MODELS[Path(yml).stem]).parameters) | {"env_wrapper", "frame_stack", "n_timesteps"}
    for name, entry in load(yml).items():
        assert entry.keys() <= known, name
        numbers = [entry[key] for key in ("n_timesteps", "learning_rate") if key in entry]
        assert all(isinstance(number, float) for number in numbers), f"{name}: YAML reads 1e-3 as a string"
        if name.startswith("camp/"):  # noise and frame stack are part of the task
            assert "frame_stack" not in entry and NOISE not in str(entry.get("env_wrapper")), name
            continue
        *before, noise = entry["env_wrapper"]
        assert list(noise) == [NOISE] and noise[NOISE]["sigma"] > 0, name
        assert all(isinstance(wrapper, str) for wrapper in before), name


@pytest.mark.parametrize("yml", [f"{algo}.yml" for algo in MODELS])
def test_the_usual_names_are_there(yml):
    names = {"default", "atari", "CartPole-v0", "CartPole-v1", "MountainCar-v0", "Acrobot-v1", "LunarLander-v3"}
    assert names <= load(yml).keys()


@pytest.mark.parametrize("yml", YML_FILES)
def test_every_task_has_an_entry(yml):
    assert TASKS.keys() <= load(yml).keys()


def test_gaussian_dqn_differs_from_camp_dqn_by_the_keys_of_camp_only():
    camp, gaussian = load("camp_dqn.yml"), load("gaussian_dqn.yml")
    assert {name: {k: v for k, v in entry.items() if k not in CAMP_KEYS} for name, entry in camp.items()} == gaussian


@pytest.mark.parametrize("folder", ["", "paper/"])
def test_noisynet_dqn_differs_from_gaussian_dqn_by_its_policy_and_its_exploration_only(folder):
    expected = {
        name: {key: value for key, value in entry.items() if not key.startswith("exploration_")}
        | {"policy": f"Noisy{entry['policy']}"}
        for name, entry in load(f"{folder}gaussian_dqn.yml").items()
    }
    assert load(f"{folder}noisynet_dqn.yml") == expected


def test_the_papers_settings():
    camp, gaussian = load("paper/camp_dqn.yml"), load("paper/gaussian_dqn.yml")
    cartpole = dict(
        n_timesteps=500_000, buffer_size=100_000, batch_size=1024, learning_rate=5e-5, learning_starts=1000, train_freq=256,
        gradient_steps=128, target_update_interval=10, tau=1, gamma=0.99, exploration_initial_eps=1, exploration_final_eps=0,
        exploration_fraction=0.16, n_steps=1, policy_kwargs="dict(net_arch=[256, 256])",
    )  # fmt: skip
    highway = cartpole | dict(
        n_timesteps=1_000_000, buffer_size=15_000, gamma=0.8, exploration_final_eps=0.05, exploration_fraction=0.1
    )
    atari = dict(
        n_timesteps=10_000_000, buffer_size=10_000, batch_size=32, learning_rate=1e-4, learning_starts=100_000, train_freq=4,
        gradient_steps=1, target_update_interval=1000, tau=1, gamma=0.99, exploration_initial_eps=1,
        exploration_final_eps=0.01, exploration_fraction=0.1, n_steps=1,
    )  # fmt: skip
    # CAMP on Atari: the primary learns from a frozen reference, in a tenth of the steps, 0.01-greedy throughout
    primary = atari | dict(n_timesteps=1_000_000, exploration_initial_eps=0.01)
    algorithm = dict(camp_lambda=1, camp_eta="adaptive", imitation="soft")
    for name in ("CartPole-v0", "camp/CartPole1-v0", "camp/CartPole5-v0"):
        assert gaussian[name].items() >= cartpole.items()
        assert camp[name].items() >= (cartpole | algorithm | dict(reference="alternating")).items()
    for name in ("highway-fast-v0", "camp/Highway-v0"):
        assert gaussian[name].items() >= highway.items()
        assert camp[name].items() >= (highway | algorithm | dict(reference="alternating")).items()
    for name in ("atari", "camp/Pong1r-v0", "camp/Freeway-v0", "camp/BankHeist-v0"):
        assert gaussian[name].items() >= atari.items()
        assert camp[name].items() >= (primary | algorithm).items()
        assert "reference" in camp[name], "without a trained reference these settings make no sense"
    sigmas = {name: entry["env_wrapper"][-1][NOISE]["sigma"] for name, entry in camp.items() if "env_wrapper" in entry}
    assert sigmas == {"CartPole-v0": 0.2, "highway-fast-v0": 0.4, "atari": 12.75}


@pytest.mark.parametrize("yml", YML_FILES)
def test_the_zoo_builds_a_model_from_every_entry(yml, tmp_path):
    """All but those that need Box2D or a trained reference."""
    register()
    entries = load(yml)
    for name in sorted(
        name for name in entries if name not in ("LunarLander-v3", "atari") and "reference" not in entries[name]
    ):
        config, env_id = ROOT / "hyperparams" / yml, name
        if name == "default":
            config, env_id = tmp_path / "default.yml", "CartPole-v1"
            config.write_text(yaml.safe_dump({"default": entries["default"]}))
        exp = experiment(tmp_path, Path(yml).stem, env_id, config=str(config), verbose=0)
        model, _ = exp.setup_experiment()
        sigma = TASKS[name].registration["kwargs"] if name in TASKS else entries[name]["env_wrapper"][-1][NOISE]
        assert model.get_env().get_attr("sigma") == [sigma["sigma"]]
        model.get_env().close()


def test_a_folder_that_hides_the_package_is_named(monkeypatch):
    monkeypatch.setattr(sb3_camp, "__file__", None)  # a namespace package, as Python makes of any folder of this name
    with pytest.raises(InputError, match=r"the folder .*sb3_camp hides the installed package"):
        registration.extend(rl_zoo3.utils)
