"""What a run folder of the zoo tells about its environment and its noise, and what it must not be able to do."""

import json
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import gymnasium as gym
import pytest
import yaml
from support.run_folders import NOISE, NORMALISER, STACK, make_run, noise, sigma

import sb3_camp
from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError
from sb3_camp.runs.run_folder import RunFolder

TASK = "camp/CartPole1-v0"  # whose sigma is 0.2 unless told otherwise


def test_reads_what_the_stock_zoo_writes(tmp_path):
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "dqn", "--env", "CartPole-v1", "-n", "120", "-f", "logs"]
    command += ["--eval-freq", "60", "--eval-episodes", "2", "--env-kwargs", "render_mode:'rgb_array'", "-params"]
    command += [f"env_wrapper:[{noise(0.4)}]", "train_freq:(4,'step')", "learning_starts:50", "gradient_steps:1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(sb3_camp.__file__).parents[1])}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    run = RunFolder.read(tmp_path / "logs/dqn/CartPole-v1_1")
    assert (run.env_id, run.algo) == ("CartPole-v1", "dqn")
    assert run.config["train_freq"] == (4, "step")
    assert run.config["env_wrapper"] == [noise(0.4)]
    assert run.args["env_kwargs"] == {"render_mode": "rgb_array"}
    assert sigma(run) == sigma(run, evaluation=True) == 0.4
    assert not RunFolder.is_run_folder(run.path / "CartPole-v1")
    assert not RunFolder.is_run_folder(run.path.parent)


def test_finds_the_run_that_a_file_lies_in(tmp_path):
    run = make_run(tmp_path, "camp/CartPole1-v0", "camp_dqn", 2)
    for inside in ("0.monitor.csv", "certification/evaluations.npz", "a/b/c/x.csv"):
        found = RunFolder.containing(run / inside)
        assert found is not None and found.path == run and found.env_id == "camp/CartPole1-v0"
    assert RunFolder.containing(run) == RunFolder.read(run)
    assert RunFolder.containing(run / "a/b/c/d/x.csv") is None
    assert RunFolder.containing(run.parent / "x.csv") is None


def test_names_the_command_that_evaluates_the_run(tmp_path):
    run = make_run(tmp_path, "camp/CartPole1-v0", "camp_dqn", 12)
    wanted = f"{spelled('evaluate')} --algo camp_dqn --env camp/CartPole1-v0 -f {tmp_path} --exp-id 12"
    assert RunFolder.read(run).evaluate_command() == wanted
    moved = run.rename(tmp_path / "kept")
    assert RunFolder.read(moved).evaluate_command().endswith(f"--model {moved / 'camp-CartPole1-v0.zip'}")
    without_noise = make_run(tmp_path, "CartPole-v1", "dqn", 2)
    assert RunFolder.read(without_noise).evaluate_command().endswith("--exp-id 2 --sigma S")


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("!!python/object/apply:os.system", "['touch {marker}']"),
        ("!!python/object/apply:subprocess.check_call", "[['touch', '{marker}']]"),
        ("!!python/object/new:os.system", "['touch {marker}']"),
        ("!!python/module:this", "''"),
        ("!!python/object/apply:builtins.eval", '[\'open("{marker}", "w")\']'),
        ("!unknown", "1"),
    ],
)
@pytest.mark.parametrize("file", ["args.yml", "config.yml"])
def test_refuses_other_tags_and_executes_nothing(tmp_path, tag, body, file):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    marker = tmp_path / "marker"
    path = run / "CartPole-v1" / file
    pairs = "- - - algo\n    - dqn\n  - - env\n    - CartPole-v1\n  - - extra\n"
    path.write_text(f"!!python/object/apply:collections.OrderedDict\n{pairs}    - {tag} {body.format(marker=marker)}\n")
    with pytest.raises(InputError) as error:
        RunFolder.read(run)
    assert str(path) in str(error.value) and tag in str(error.value) and "line 7" in str(error.value)
    assert "\n" not in str(error.value)
    assert not marker.exists()
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "a: [1",
        "\x00",
        "? [1, 2]\n: 3",
        "day: 2020-99-99",
        "!!python/object/apply:collections.OrderedDict {a: 1}",
        "!!python/object/apply:collections.OrderedDict [1, 2]",
        "!!python/object/apply:collections.OrderedDict [[[a]]]",
        "!!python/object/apply:collections.OrderedDict [[[[], 1]]]",
        "[" * 5000,
        'a: !!int ""',
        'a: !!float ""',
        "a: !!bool xx",
        "a: !!timestamp zz",
        "? !!python/tuple [[1]]\n: x",
        '? !!python/tuple [!!python/name:os.system "", []]\n: x',
        "a: !!omap [1]",
    ],
)
def test_refuses_settings_that_are_no_mapping(tmp_path, text):
    run = make_run(tmp_path)
    path = run / "CartPole-v1/config.yml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        RunFolder.read(run)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("file", ["args.yml", "config.yml"])
@pytest.mark.parametrize("value", ["{name}", "[1, {{a: {name}}}]", "!!python/tuple [{name}]", "&x [*x, {name}]"])
def test_a_python_object_may_be_named_where_it_does_not_matter_and_is_never_looked_up(tmp_path, file, value):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    path = run / "CartPole-v1" / file
    name = "!!python/name:this.that ''"
    settings = {"args.yml": {"algo": "dqn", "env": "CartPole-v1"}, "config.yml": {"env_wrapper": json.dumps([noise(0.4)])}}
    content = {**settings[file], "policy_kwargs": value.format(name=name)}
    path.write_text("".join(f"{key}: {entry}\n" for key, entry in content.items()))
    assert sigma(RunFolder.read(run)) == 0.4
    for key in ("env_wrapper", "vec_env_wrapper", "frame_stack", "normalize", "env_kwargs", "eval_env_kwargs"):
        path.write_text(
            "".join(f"{key}: {entry}\n" for key, entry in {**settings[file], key: value.format(name=name)}.items())
        )
        with pytest.raises(InputError) as error:
            RunFolder.read(run)
        assert str(error.value).startswith(f"{path}: {key} refers to the Python object this.that")
    assert "this" not in sys.modules


def test_settings_that_contain_themselves_are_read(tmp_path):
    run = make_run(tmp_path)
    (run / "CartPole-v1/config.yml").write_text("env_kwargs: &x {a: *x}\nenv_wrapper: &y [*y]\n")
    with pytest.raises(InputError, match="neither a wrapper's name"):
        sigma(RunFolder.read(run))


@pytest.mark.parametrize("args", [{"env": None}, {"algo": 3}, {"env": "Acrobot-v1"}])
def test_refuses_args_that_do_not_fit_the_folder(tmp_path, args):
    run = make_run(tmp_path)
    other = {"algo": "dqn", "env": "CartPole-v1", **args}
    (run / "CartPole-v1/args.yml").write_text(yaml.dump(OrderedDict(other)))
    with pytest.raises(InputError, match=r"args\.yml"):
        RunFolder.read(run)


def test_refuses_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(InputError, match="no sub-folder"):
        RunFolder.read(tmp_path)
    run = make_run(tmp_path)
    (run / "CartPole-v1").rename(run / "a")
    (run / "b").mkdir()
    for file in ("args.yml", "config.yml"):
        (run / "b" / file).write_bytes((run / "a" / file).read_bytes())
    with pytest.raises(InputError, match="several"):
        RunFolder.read(run)


@pytest.mark.parametrize(
    "config",
    [
        {"env_wrapper": noise(0.4)},
        {"env_wrapper": [noise(0.4)]},
        {"env_wrapper": ["gymnasium.wrappers.FlattenObservation", noise(0.4), {STACK: {"stack_size": 4}}]},
        {"env_wrapper": [noise(0.4)], "frame_stack": 4},
        {"env_wrapper": [noise(0.4)], "vec_env_wrapper": {"stable_baselines3.common.vec_env.VecFrameStack": {"n_stack": 4}}},
        {"env_wrapper": [noise(0.4), "gymnasium.wrappers.NormalizeReward"]},
        {"env_wrapper": [noise(0.4)], "normalize": False},
        {"env_wrapper": [noise(0.4)], "normalize": None},
        {"env_wrapper": [noise(0.4)], "normalize": {"norm_obs": False, "norm_reward": True}},
        {"env_wrapper": [noise(0.4)], "normalize": "dict(norm_obs=False, norm_reward=True)"},
        {"env_wrapper": [noise(0.4)], "normalize": "{'norm_obs': False}"},
        # The zoo's VecNormalize is outside of env_wrapper, and frozen wherever the zoo evaluates or plays
        {"env_wrapper": [noise(0.4)], "normalize": True},
        {"env_wrapper": [noise(0.4)], "normalize": "dict(norm_reward=False)"},
        {"env_wrapper": [noise(0.4)], "normalize": "open('marker', 'w') and dict(norm_obs=False)"},
        # CartPole has no argument sigma: were it passed, the zoo's training would have failed
        {"env_wrapper": [noise(0.4)], "env_kwargs": {"sigma": 0.1}},
    ],
)
def test_finds_the_noise_wrapper(tmp_path, monkeypatch, config):
    monkeypatch.chdir(tmp_path)
    run = RunFolder.read(make_run(tmp_path, **config))
    assert sigma(run) == sigma(run, evaluation=True) == 0.4
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("config", [{}, {"env_wrapper": None}, {"env_wrapper": NORMALISER}, {"normalize": True}])
def test_a_run_without_noise_has_sigma_zero(tmp_path, config):
    assert sigma(RunFolder.read(make_run(tmp_path, **config))) == 0.0


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"env_wrapper": [noise(0.4), noise(0.4)]}, "2 smoothing noises"),
        ({"env_wrapper": [{STACK: {"stack_size": 4}}, noise(0.4)]}, "after FrameStackObservation"),
        ({"env_wrapper": ["rl_zoo3.wrappers.HistoryWrapper", noise(0.4)]}, "after HistoryWrapper"),
        ({"env_wrapper": [noise(0.4), "gymnasium.wrappers.AddRenderObservation"]}, "shows the clean state"),
        ({"env_wrapper": [noise(0.4), NORMALISER]}, "NormalizeObservation normalises"),
        ({"env_wrapper": [NORMALISER, noise(0.4)]}, "NormalizeObservation normalises"),
        ({"env_wrapper": [noise(0.4)], "vec_env_wrapper": "stable_baselines3.common.vec_env.VecNormalize"}, "VecNormalize"),
        ({"env_wrapper": [NOISE]}, "sigma of NoisyObservationWrapper"),
        ({"env_wrapper": [noise("0.4")]}, "sigma of NoisyObservationWrapper"),
        ({"env_wrapper": [noise(True)]}, "sigma of NoisyObservationWrapper"),
        ({"env_wrapper": [noise(float("nan"))]}, "sigma of NoisyObservationWrapper"),
        ({"env_wrapper": [noise(-0.4)]}, "sigma of NoisyObservationWrapper"),
        ({"env_wrapper": [noise(10**400)]}, "sigma of NoisyObservationWrapper"),
        ({"env_wrapper": [{**noise(0.4), NORMALISER: {}}]}, "neither a wrapper's name"),
        ({"env_wrapper": 3}, "neither a wrapper's name"),
    ],
)
def test_refuses_noise_that_voids_or_blurs_the_certificate(tmp_path, config, reason):
    run = RunFolder.read(make_run(tmp_path, **config))
    with pytest.raises(InputError) as error:
        sigma(run)
    assert reason in str(error.value) and str(run.config_file) in str(error.value)


@pytest.mark.parametrize(
    ("args", "config", "played", "evaluated"),
    [
        ({}, {}, 0.2, 0.2),
        ({"env_kwargs": {"sigma": 0.6}}, {}, 0.6, 0.6),
        ({"env_kwargs": {"render_mode": "rgb_array"}}, {}, 0.2, 0.2),
        ({"env_kwargs": {"sigma": 0.6}}, {"env_kwargs": {"sigma": 0.6}}, 0.6, 0.6),
        ({"env_kwargs": {"sigma": 0.6}, "eval_env_kwargs": {"sigma": 0.1}}, {}, 0.6, 0.1),
        ({}, {"env_kwargs": {"sigma": 0.4}}, 0.4, None),
        ({"env_kwargs": {"sigma": 0.6}, "eval_env_kwargs": {"render_mode": "rgb_array"}}, {}, 0.6, None),
        ({}, {"env_kwargs": {"sigma": 0}, "env_wrapper": [noise(0.3)]}, 0.3, None),
    ],
)
def test_noise_of_the_task_in_each_of_the_zoos_environments(tmp_path, args, config, played, evaluated):
    run = RunFolder.read(make_run(tmp_path, TASK, args=args, **config))
    assert sigma(run) == played
    if evaluated is not None:
        assert sigma(run, evaluation=True) == evaluated
    else:
        with pytest.raises(InputError, match="does not pass the sigma"):
            sigma(run, evaluation=True)


def test_noise_of_the_task_counts_with_the_wrappers(tmp_path):
    for number, wrappers in enumerate(([noise(0.4)], [NORMALISER]), start=1):
        run = RunFolder.read(make_run(tmp_path, TASK, number=number, env_wrapper=wrappers))
        with pytest.raises(InputError, match=r"2 smoothing noises|NormalizeObservation"):
            sigma(run)
    run = RunFolder.read(make_run(tmp_path, TASK, number=3, env_wrapper=[{STACK: {"stack_size": 2}}], frame_stack=4))
    assert sigma(run) == 0.2


@pytest.mark.parametrize("env_kwargs", [3, "sigma", ["sigma"]])
def test_refuses_env_kwargs_that_are_no_mapping(tmp_path, env_kwargs):
    run = RunFolder.read(make_run(tmp_path, "camp/Made-v0", env_kwargs=env_kwargs))
    with pytest.raises(InputError, match="env_kwargs is not a mapping"):
        sigma(run)


@pytest.mark.parametrize("env_id", ["camp/Mine-v0", "camp/CartPole9-v0", "Sigma-v0"])
def test_a_keyword_sigma_of_another_environment_is_no_noise(tmp_path, env_id):
    gym.register("Sigma-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv", kwargs={"sigma": 10.0})
    try:
        run = RunFolder.read(make_run(tmp_path, env_id, args={"env_kwargs": {"sigma": 10.0}}))
        assert run.smoothing_noise() is None and run.smoothing_noise(evaluation=True) is None
    finally:
        del gym.registry["Sigma-v0"]


def test_package_prefix_of_an_environment_is_not_imported(tmp_path):
    run = RunFolder.read(make_run(tmp_path, "this:CartPole-v1"))
    assert run.env_id == "CartPole-v1" and sigma(run) == 0.0
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    "name", ["their.pkg.NoisyObservationWrapper", "sb3_campus.NoisyObservationWrapper", "NoisyObservationWrapper"]
)
def test_a_wrapper_of_the_same_name_from_elsewhere_is_no_smoothing_noise(tmp_path, name):
    run = RunFolder.read(make_run(tmp_path, env_wrapper=[{name: {"sigma": 0.2}}]))
    assert sigma(run) == 0.0 and run.foreign_noise() == name and run.smoothing_noise() is None
    run = RunFolder.read(make_run(tmp_path, number=2, env_wrapper=[{name: {"sigma": 0.2}}, noise(0.4)]))
    assert sigma(run) == 0.4


@pytest.mark.parametrize(
    "name",
    ["sb3_camp.NoisyObservationWrapper", "sb3_camp.wrappers.noisy_observation.NoisyObservationWrapper", NOISE],
)
def test_finds_the_noise_under_each_of_its_names(tmp_path, name):
    run = RunFolder.read(make_run(tmp_path, env_wrapper=[{name: {"sigma": 0.2}}]))
    assert sigma(run) == 0.2 and run.foreign_noise() is None


@pytest.mark.parametrize("keys", [["b", "a"], ("a", "b", "a")])
def test_tells_the_entries_without_noise(tmp_path, keys):
    run = RunFolder.read(make_run(tmp_path, env_wrapper=[{NOISE: {"sigma": 0.2, "clean_keys": keys}}]))
    assert run.smoothing_noise() == (0.2, ("a", "b"), None)


@pytest.mark.parametrize("keys", ["a", [1], {"a": 1}, None])
def test_refuses_entries_without_noise_that_are_no_list_of_names(tmp_path, keys):
    run = RunFolder.read(make_run(tmp_path, env_wrapper=[{NOISE: {"sigma": 0.2, "clean_keys": keys}}]))
    with pytest.raises(InputError, match="clean_keys of NoisyObservationWrapper in env_wrapper must be a list of texts"):
        run.smoothing_noise()
