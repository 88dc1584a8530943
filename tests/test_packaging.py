"""The built distributions, and what the stock zoo can do in an environment where one of them is installed. No network."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import optuna
import pytest
import rl_zoo3
from stable_baselines3.common.monitor import load_results
from support.fresh_environment import ROOT, Environment, copied_checkout

CALLBACK = "callback:[{'sb3_camp.tuning.CertifiedReturnCallback':{'n_eval_episodes':5,'radii':[0.1]}}]"
START_UP = {"sb3_camp.pth", "sb3_camp.start", "sb3_camp_startup.py"}


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return copied_checkout(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def distributions(source, tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from the sdist; those of a release, where ``SB3_CAMP_DIST`` names their folder."""
    if "SB3_CAMP_DIST" in os.environ:
        built = Path(os.environ["SB3_CAMP_DIST"])
        (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
        return sdist, wheel
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("installed"))
    environment.install(str(distributions[1]), cwd=environment.site_packages)
    return environment


# The distributions


def test_the_wheel_holds_every_module_and_yml_and_the_start_up_files(distributions):
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = set(wheel.namelist())
        (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        recorded = {line.split(",")[0] for line in wheel.read(record).decode().splitlines()}
        assert wheel.read("sb3_camp.start").decode() == "sb3_camp_startup:install\n"
        assert wheel.read("sb3_camp.pth").decode().count("\n") == 1, "site executes line by line"
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "sb3_camp").rglob("*.py")}
    ymls = {f"sb3_camp/{path.relative_to(ROOT)}" for path in (ROOT / "hyperparams").rglob("*.yml")}
    assert len(ymls) >= 4
    templates = {str(path.relative_to(ROOT)) for path in (ROOT / "sb3_camp").rglob("*.j2")}
    assert len(templates) >= 1
    expected = modules | ymls | templates | START_UP | {"sb3_camp/py.typed"}
    assert expected <= names
    assert expected <= recorded, "what is not in RECORD survives an uninstall"
    own = {name for name in names if ".dist-info/" not in name}
    assert own == expected, "the wheel holds something that the checkout does not explain"


def test_the_sdist_holds_what_make_needs(distributions):
    with tarfile.open(distributions[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    needed = {"Makefile", "constraints.txt", "setup.cfg", "pyproject.toml", "build_hook.py", "LICENSE", ".ci/run"}
    needed |= {".ci/zoo-oldest.txt", ".github/workflows/tests.yml", "CITATION.cff", "SECURITY.md", "Dockerfile"}
    assert needed | {"tests/test_packaging.py", "zoo_scripts/train.py", "benchmarks/startup_cost.py"} <= names


def test_the_console_script_runs(installed, tmp_path):
    script = Path(installed.python).with_name("sb3-camp")
    assert installed.run(str(script), "--version", cwd=tmp_path).stdout.startswith("sb3_camp ")


# The stock zoo


@pytest.mark.slow
def test_the_stock_zoo_trains_and_plays(installed, tmp_path):
    task = ["--algo", "camp_dqn", "--env", "CartPole-v1", "-f", "logs"]
    trained = installed.run("-m", "rl_zoo3.train", *task, "-n", "400", "--eval-freq", "200", "--seed", "1", cwd=tmp_path)
    own_yml = installed.site_packages / "sb3_camp" / "hyperparams" / "camp_dqn.yml"
    assert f"Loading hyperparameters from: {own_yml}" in trained.stdout
    assert "sb3_camp" not in trained.stderr, trained.stderr
    run = tmp_path / "logs" / "camp_dqn" / "CartPole-v1_1"
    assert (run / "CartPole-v1.zip").is_file() and (run / "best_model.zip").is_file()
    assert np.load(run / "evaluations.npz")["timesteps"].tolist() == [200, 400]

    played = ["-n", "100", "--no-render", "--reward-log", "rewards"]
    installed.run("-m", "rl_zoo3.enjoy", *task, *played, cwd=tmp_path)
    episodes = load_results(str(tmp_path / "rewards"))
    assert len(episodes) > 0 and episodes["l"].sum() <= 100


@pytest.mark.slow
def test_optimize_leaves_camp_lambda_and_a_trial_can_be_trained(installed, tmp_path):
    task = ["--algo", "camp_dqn", "--env", "CartPole-v1", "-f", "logs", "--storage", "sqlite:///s.db", "--study-name", "t"]
    installed.run("-m", "rl_zoo3.train", *task, "-n", "300", "-optimize", "--n-trials", "2", cwd=tmp_path)
    trials = optuna.load_study(study_name="t", storage=f"sqlite:///{tmp_path / 's.db'}").trials
    assert len(trials) == 2 and all("camp_lambda" in trial.params for trial in trials)

    # The zoo takes --trial-id 0 for none
    reused = installed.run("-m", "rl_zoo3.train", *task, "-n", "200", "--trial-id", "1", cwd=tmp_path)
    params = dict(trials[1].params)
    if params["lambda_schedule"] == "ramp":
        params["camp_lambda"] = f"ramp_{params['camp_lambda']}"
    for name in ("camp_lambda", "imitation", "n_steps"):
        assert f"('{name}', {params[name]!r})" in reused.stdout


@pytest.mark.parametrize(
    "wrong, message",
    [
        (["-params", "env_wrapper:[{'sb3_camp.wrappers.NoisyObservationWrapper':{'sigma':0.1}}]"], "2 smoothing noises"),
        # Found in a trial, where the zoo would go on with the next one
        (["-optimize", "--n-trials", "2", "--env-kwargs", "sigma:0.0", "-params", CALLBACK], "no smoothing noise"),
    ],
    ids=["training", "search"],
)
def test_wrong_input_ends_the_stock_command_with_one_line(installed, tmp_path, wrong, message):
    train = ["-m", "rl_zoo3.train", "--algo", "gaussian_dqn", "--env", "camp/CartPole1-v0", "-n", "100", "--eval-freq", "-1"]
    result = installed.run(*train, "--verbose", "0", *wrong, cwd=tmp_path, check=False)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("rl_zoo3.train: error: ") and message in last


def test_children_know_the_algorithms(installed, tmp_path):
    (tmp_path / "children.py").write_text(
        "import multiprocessing\n"
        "def ask(queue):\n"
        "    from rl_zoo3.utils import ALGOS\n"
        "    queue.put(ALGOS['camp_dqn'].__module__)\n"
        "if __name__ == '__main__':\n"
        "    jobs = []\n"
        "    for method in {'spawn', 'forkserver'} & set(multiprocessing.get_all_start_methods()):\n"
        "        context = multiprocessing.get_context(method)\n"
        "        queue = context.Queue()\n"
        "        child = context.Process(target=ask, args=(queue,))\n"
        "        child.start()\n"
        "        jobs.append((child, queue))\n"
        "    for child, queue in jobs:\n"
        "        assert queue.get(timeout=120) == 'sb3_camp.camp_dqn.camp_dqn'\n"
        "        child.join()\n"
    )
    installed.run("children.py", cwd=tmp_path)


# Interpreters that have nothing to do with the zoo


def loaded_modules(environment: Environment, code: str, cwd: Path) -> set[str]:
    return set(environment.run("-c", f"{code}\nimport sys; print(*sys.modules)", cwd=cwd).stdout.split())


def test_an_interpreter_start_loads_one_small_module_and_nothing_else(installed, tmp_path):
    bare = loaded_modules(Environment(tmp_path / "bare"), "pass", tmp_path)
    assert loaded_modules(installed, "pass", tmp_path) - bare == {"sb3_camp_startup"}


def test_import_sb3_camp_loads_neither_torch_nor_sb3_until_a_name_is_used(installed, tmp_path):
    heavy = {"torch", "stable_baselines3", "rl_zoo3"}
    assert not heavy & loaded_modules(installed, "import sb3_camp; sb3_camp.__version__; dir(sb3_camp)", tmp_path)
    assert "torch" in loaded_modules(installed, "import sb3_camp; sb3_camp.CAMPDQN", tmp_path)


def test_the_start_file_names_a_callable_that_installs_the_finder(installed, tmp_path):
    """Python 3.15 resolves the line like this; ``-S`` keeps older ones from reading the pth file first."""
    code = (
        "import pkgutil, sys\n"
        f"sys.path.insert(0, {str(installed.site_packages)!r})\n"
        f"for line in open({str(installed.site_packages / 'sb3_camp.start')!r}): pkgutil.resolve_name(line.strip())()\n"
        "print(type(sys.meta_path[0]).__name__)\n"
    )
    assert installed.run("-S", "-c", code, cwd=tmp_path).stdout == "ZooFinder\n"


# Things that are broken


@pytest.mark.parametrize("code", ["pass", "import json", "import sb3_camp"])
def test_a_broken_torch_does_not_touch_other_programs(installed, tmp_path, code):
    (tmp_path / "torch.py").write_text("raise OSError('libtorch_cpu.so: cannot open shared object file')\n")
    result = installed.run("-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert result.stdout == result.stderr == ""


@pytest.mark.slow
def test_a_broken_package_is_one_warning_and_the_zoo_goes_on(installed, tmp_path):
    (tmp_path / "sb3_camp").mkdir()
    (tmp_path / "sb3_camp" / "__init__.py").write_text("raise OSError('broken on purpose')\n")
    train = ["-m", "rl_zoo3.train", "--algo", "dqn", "--env", "CartPole-v1", "-n", "200"]
    result = installed.run(*train, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert result.stderr.count("sb3_camp could not add its algorithms") == 1
    assert result.stderr.count("OSError: broken on purpose") == 1
    assert (tmp_path / "logs" / "dqn" / "CartPole-v1_1" / "CartPole-v1.zip").is_file()


def test_a_half_removed_package_leaves_the_interpreter_silent(distributions, tmp_path):
    environment = Environment(tmp_path / "half")
    environment.install(str(distributions[1]), cwd=tmp_path)
    (environment.site_packages / "sb3_camp_startup.py").unlink()
    shutil.rmtree(environment.site_packages / "__pycache__", ignore_errors=True)
    result = environment.run("-c", "pass", cwd=tmp_path)
    assert result.stdout == result.stderr == ""


# The zoo with the change that is proposed to it


@pytest.mark.slow
def test_with_entry_points_in_the_zoo_no_start_up_file_is_needed(distributions, tmp_path):
    environment = Environment(tmp_path / "patched")
    environment.install(str(distributions[1]), cwd=tmp_path)
    for name in START_UP:
        (environment.site_packages / name).unlink()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(rl_zoo3.__file__).parent, environment.site_packages / "rl_zoo3", ignore=ignored)
    patch = ROOT / "docs" / "upstream" / "rl_zoo3_plugins.patch"
    subprocess.run(["git", "apply", "-v", str(patch)], cwd=environment.site_packages, check=True)

    task = ["--algo", "camp_dqn", "--env", "CartPole-v1", "-f", "logs"]
    environment.run("-m", "rl_zoo3.train", *task, "-n", "200", "--eval-freq", "-1", cwd=tmp_path)
    played = environment.run("-m", "rl_zoo3.enjoy", *task, "-n", "100", "--no-render", cwd=tmp_path)
    assert "Episode Reward" in played.stdout
    code = "import sys, sb3_camp.zoo; print('sb3_camp_startup' in sys.modules, hasattr(sys.modules.get('rl_zoo3'), 'plugins'))"
    assert environment.run("-c", f"import rl_zoo3.train; {code}", cwd=tmp_path).stdout.split()[-2:] == ["False", "True"]


# Installing and removing


def test_uninstall_leaves_nothing(distributions, tmp_path):
    environment = Environment(tmp_path / "clean")
    before = environment.files()
    environment.install(str(distributions[1]), cwd=tmp_path)
    assert environment.files() - before > START_UP
    environment.pip("uninstall", "-y", "sb3_camp", cwd=tmp_path)
    assert environment.files() == before


@pytest.mark.parametrize("mode", ["lenient", "strict"])
def test_an_editable_install_reads_its_start_up_file_finds_its_yml_and_is_removed(source, tmp_path, mode):
    environment = Environment(tmp_path / "editable")
    before = environment.files()
    checkout = shutil.copytree(source, tmp_path / "checkout")
    environment.install("--config-settings", f"editable_mode={mode}", "--editable", str(checkout), cwd=tmp_path)
    code = (
        "import sys; print(type(sys.meta_path[0]).__name__)\n"
        "from sb3_camp.zoo.registration import hyperparams_folder\n"
        "print(*(path.name for path in sorted(hyperparams_folder().iterdir())))\n"
    )
    finder, ymls = environment.run("-c", code, cwd=tmp_path).stdout.splitlines()
    assert finder == "ZooFinder"
    assert {"camp_dqn.yml", "gaussian_dqn.yml", "noisynet_dqn.yml", "paper"} <= set(ymls.split())
    environment.pip("uninstall", "-y", "sb3_camp", cwd=tmp_path)
    assert environment.files() == before


@pytest.mark.slow
def test_the_stock_zoo_trains_with_an_editable_install(source, tmp_path):
    environment = Environment(tmp_path / "editable")
    checkout = shutil.copytree(source, tmp_path / "checkout")
    environment.install("--editable", str(checkout), cwd=tmp_path)
    train = ["-m", "rl_zoo3.train", "--algo", "gaussian_dqn", "--env", "CartPole-v0", "-n", "200"]
    result = environment.run(*train, cwd=tmp_path)
    assert f"Loading hyperparameters from: {checkout / 'hyperparams' / 'gaussian_dqn.yml'}" in result.stdout
