"""The grid of a sweep: its cells, their commands, and what cannot be used."""

import json
import shlex

import pytest
from sweep_runs import ROOT, SMALL, TASK, sweep, sweep_cells, sweep_grid, sweep_steps

from sb3_camp.errors import InputError
from sb3_camp.zoo import register

register()
Cell, build_grid, parse_variants = sweep_cells.Cell, sweep_grid.build_grid, sweep_grid.parse_variants
SETTINGS = {
    "n_timesteps": None,
    "eval_freq": 5000,
    "eval_episodes": 100,
    "n_eval_envs": 20,
    "device": "auto",
    "gym_packages": [],
    "n_episodes": 10000,
    "radii": None,
    "conf": {},
    "package_hyperparameters": {},
    "variants": {},
    "attack_budgets": None,
    "attack_episodes": None,
    "attack_envs": None,
}


def names(*args, **kwargs):
    return [cell.name for cell in build_grid(*args, **kwargs)]


def test_lambdas_multiply_the_cells_of_camp_only_and_no_cell_is_there_twice():
    found = names([TASK], ["camp_dqn", "ppo"], [0, 1, 1.0], {}, [0.2, 0.4], [0, 1, 0])
    assert len(found) == len(set(found)) == 2 * 2 * (2 + 1)
    assert found[:3] == [
        "camp-CartPole1-v0_camp_dqn_lambda0_sigma0.2_seed0",
        "camp-CartPole1-v0_camp_dqn_lambda1_sigma0.2_seed0",
        "camp-CartPole1-v0_ppo_sigma0.2_seed0",
    ]
    assert all(name.endswith("seed0") for name in found[:6]), "all of the first seed come first"


def test_variants_are_for_all_algorithms_or_one_and_an_algorithm_without_keeps_its_default():
    variants = parse_variants([["slow", "learning_rate:1e-4"], ["hard:camp_dqn", "imitation:'hard'"]])
    found = [(cell.algo, cell.variant) for cell in build_grid([TASK], ["camp_dqn", "dqn"], None, variants, [0.2], [0])]
    assert found == [("camp_dqn", "slow"), ("camp_dqn", "hard"), ("dqn", "slow")]
    variants = parse_variants([["default", ""], ["hard:camp_dqn", "imitation:'hard'"]])
    found = [(cell.algo, cell.variant) for cell in build_grid([TASK], ["camp_dqn", "dqn"], None, variants, [0.2], [0])]
    assert found == [("camp_dqn", "default"), ("camp_dqn", "hard"), ("dqn", "default")]
    only = parse_variants([["hard:camp_dqn", "imitation:'hard'"]])
    found = [(cell.algo, cell.variant) for cell in build_grid([TASK], ["camp_dqn", "dqn"], None, only, [0.2], [0])]
    assert found == [("camp_dqn", "hard"), ("dqn", "default")]


def test_parameters_of_a_variant_are_those_of_the_zoo_with_blanks_in_their_values():
    (variant,) = parse_variants(
        [["a", "policy_kwargs:\"dict(net_arch=[64, 64], x={'y': 1})\" gamma:0.9  imitation:'hard'"]]
    ).values()
    assert variant.params == ["policy_kwargs:\"dict(net_arch=[64, 64], x={'y': 1})\"", "gamma:0.9", "imitation:'hard'"]


def command(cell, step="train", **changes):
    steps = sweep_steps.cell_steps(cell, {**SETTINGS, **changes}, ROOT / "sweep", ["best", "last"], ["pgd"], ["own", "0"])
    (found,) = (found for found in steps if found.name == step)
    return found.command


def test_a_training_has_the_noise_in_training_and_validation():
    line = command(Cell(TASK, "camp_dqn", None, "default", 0.3, 7))
    assert "--env-kwargs sigma:0.3 --eval-env-kwargs sigma:0.3" in line and "--seed 7" in line and "--num-threads 1" in line
    assert "-params" not in line and " -n " not in line
    line = command(Cell("CartPole-v0", "gaussian_dqn", None, "default", 0.3, 7))
    assert shlex.split(line)[-2:] == ["-params", "env_wrapper:[{'sb3_camp.wrappers.NoisyObservationWrapper': {'sigma': 0.3}}]"]
    assert "env-kwargs" not in line


def test_lambda_variant_steps_and_yml_reach_the_training():
    variants = {"hard": {"algo": None, "params": ["imitation:'hard'"]}}
    conf = {"camp_dqn": {"path": "my.yml", "sha256": "0"}}
    line = command(Cell(TASK, "camp_dqn", 4.0, "hard", 0.2, 0), variants=variants, conf=conf, n_timesteps=900)
    words = shlex.split(line)
    assert words[-3:] == ["-params", "imitation:'hard'", "camp_lambda:4.0"]
    assert words[words.index("-conf") + 1] == "my.yml" and words[words.index("-n") + 1] == "900"


@pytest.mark.parametrize("algo", ["ppo", "qrdqn", "ars"])
def test_the_baselines_take_the_yml_of_the_package_where_their_task_stands_in_it(algo):
    words = shlex.split(command(Cell(TASK, algo, None, "default", 0.2, 0)))
    assert words[words.index("-conf") + 1].endswith(f"hyperparams/baselines/{algo}.yml")
    assert "-conf" not in command(Cell("CartPole-v1", algo, None, "default", 0.2, 0))
    assert "-conf" not in command(Cell(TASK, "gaussian_dqn", None, "default", 0.2, 0))


def test_evaluations_measure_gaps_of_q_values_and_possible_returns_are_used_where_known():
    q_values = {
        algo
        for algo in ("camp_dqn", "gaussian_dqn", "noisynet_dqn", "qrdqn", "dqn", "ppo", "ars")
        if "--q-gap" in command(Cell(TASK, algo, None, "default", 0.2, 0), "evaluate-best")
    }
    assert q_values == {"camp_dqn", "gaussian_dqn", "noisynet_dqn", "qrdqn", "dqn"}
    assert sweep_steps.methods(TASK) == ["berk-jones", "dkw", "clopper-pearson"]
    assert sweep_steps.methods("camp/Highway-v0") == ["berk-jones", "dkw"]


def test_best_and_last_checkpoint_are_attacked_with_and_without_noise():
    cell = Cell(TASK, "camp_dqn", None, "default", 0.2, 0)
    changes = {"attack_episodes": 50, "attack_budgets": [0.0, 0.5], "attack_envs": 20}
    own, clean = (command(cell, f"attack-last-pgd{suffix}", **changes) for suffix in ("", "-sigma0"))
    assert "--load-best" not in own and "--load-best" in command(cell, "attack-best-pgd", **changes)
    assert "--budget 0 0.5 -n 50 --n-envs 20" in own and "--sigma" not in own and "--sigma 0 " in clean


GOOD = ["--algos", "camp_dqn", "ppo", "--seeds", "0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "camp/CartPole9-v0"], "--tasks camp/CartPole9-v0: "),
        (["--tasks", "ALE/Pong-v5"], "--tasks ALE/Pong-v5: "),
        (["--algos", "camp_dpn"], "knows no camp_dpn"),
        (["--sigmas", "0.2", "0"], "--sigmas must be positive"),
        (["--sigmas", "nan"], "--sigmas must be positive"),
        (["--seeds", "-1"], "--seeds must be from 0"),
        (["--lambdas", "-1"], "--lambdas must be numbers that are at least 0"),
        (["--algos", "ppo", "--lambdas", "1"], "--lambdas is for camp_dqn"),
        (["--variant", "a", "camp_eta:1.0"], "ppo has no camp_eta: write a:camp_dqn"),
        (["--variant", "a", "gamma"], "not of the form KEY:VALUE"),
        (["--variant", "a", "learnig_rate:1.0"], "has no learnig_rate: check its spelling"),
        (["--variant", "a", "gamma:0,9:"], "not of the form KEY:VALUE"),
        (["--variant", "a_b", "gamma:0.9"], "a name has letters"),
        (["--variant", "seed1", "gamma:0.9"], "a name has letters"),
        (["--variant", "a", "gamma:0.9", "--variant", "a", "gamma:0.8"], "given twice"),
        (["--variant", "default", "gamma:0.9"], "changes nothing"),
        (["--variant", "a", ""], "changes nothing"),
        (["--variant", "a:dqn", "gamma:0.9"], "dqn is not among --algos"),
        (["--variant", "a:dnq", "gamma:0.9"], "knows no dnq"),
        (["--variant", "a:camp_dqn", "camp_lambda:2", "--lambdas", "1"], "take one of them"),
        (["--variant", "a", "env_wrapper:None"], "holds the noise"),
        (["--conf", "camp_dqn"], "ALGO=FILE.yml"),
        (["--conf", "camp_dqn=nowhere.yml"], "no such file"),
        (["-n", "0"], "--n-timesteps must be at least 1"),
        (["-n", "200"], "no best checkpoint"),
        (["--eval-freq", "-1"], "no best checkpoint"),
        (["--n-episodes", "0"], "--n-episodes must be at least 1"),
        (["--radii", "-0.1"], "--radii must be numbers"),
        (["--attack-budgets", "1"], "are for --attacks"),
        (["--attack-envs", "8"], "are for --attacks"),
        (["--attacks", "pgd", "--attack-envs", "-1"], "--attack-envs must be at least 1"),
        (["--attacks", "pgd", "--attack-budgets", "inf"], "--attack-budgets must be numbers"),
        (["--storage", "study.db"], "neither a journal file"),
        (["--storage", "sqlite:///study.db"], "needs --study-name"),
        (["--gym-packages", "no_such_package"], "cannot import no_such_package"),
    ],
)
def test_what_cannot_be_used_ends_with_one_line_and_leaves_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sweep.main(["-o", "sweep", *SMALL, *GOOD, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sweep: error: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


def begun(folder, **changes):
    return sweep_grid.keep_settings(folder, {"format": sweep_grid.SWEEP_FORMAT, **SETTINGS, **changes})


def test_a_sweep_cannot_go_on_with_other_common_settings(tmp_path):
    variant = {"a": {"algo": None, "params": ["gamma:0.9"]}}
    first = {
        "conf": {"ppo": None},
        "package_hyperparameters": {"ppo T": "1"},
        "variants": variant,
        "attack_episodes": 100,
        "attack_envs": 64,
    }
    begun(tmp_path, **first)
    kept = (tmp_path / "sweep.json").read_bytes()
    begun(tmp_path, **first)
    for changes in (
        {"n_timesteps": 5},
        {"n_episodes": 9999},
        {"radii": [0.5]},
        {"eval_freq": 1},
        {"eval_episodes": 1},
        {"n_eval_envs": 1},
        {"device": "cuda"},
        {"attack_episodes": 101},
        {"attack_envs": 65},
        {"attack_budgets": [0.5]},
        {"conf": {"ppo": {"path": "a.yml", "sha256": "0"}}},
        {"package_hyperparameters": {"ppo T": "2"}},
        {"variants": {"a": {"algo": None, "params": ["gamma:0.8"]}}},
    ):
        with pytest.raises(InputError, match="the sweep was begun with"):
            begun(tmp_path, **{**first, **changes})
    assert (tmp_path / "sweep.json").read_bytes() == kept


def test_an_edit_of_the_packages_yml_is_noticed_where_it_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_grid, "hyperparams_folder", lambda: tmp_path)
    file, baseline = tmp_path / "camp_dqn.yml", tmp_path / "baselines" / "ppo.yml"
    baseline.parent.mkdir()
    baseline.write_text("Acrobot-v1: {n_steps: 32}")

    def digests(text, conf=None):
        file.write_text(text)
        algos = ["camp_dqn", "ppo", "dqn"]
        return sweep_grid.package_hyperparameters(tasks, algos, {"camp_dqn": conf, "ppo": None, "dqn": None})

    tasks = ["CartPole-v1", "Acrobot-v1", "PongNoFrameskip-v4"]
    cart, acro, pong = (f"camp_dqn {task}" for task in tasks)
    text = "atari: {gamma: 0.6}\ndefault: {gamma: 0.9}\nCartPole-v1: {gamma: 0.8}\n"
    before = digests(text)
    assert set(before) == {cart, acro, pong, "ppo Acrobot-v1"}, "the zoo's own dqn.yml is not of the package"
    assert digests("# a comment\nPendulum-v1: {}\n" + text) == before
    for edit, changed in (("0.8", cart), ("0.9", acro), ("0.6", pong)):
        after = digests(text.replace(edit, "0.1"))
        assert {name for name in before if after[name] != before[name]} == {changed}
    assert set(digests(text, conf={"path": "mine.yml"})) == {"ppo Acrobot-v1"}
    baseline.write_text("Acrobot-v1: {n_steps: 64}")
    assert digests(text)["ppo Acrobot-v1"] != before["ppo Acrobot-v1"]


def test_algorithms_variants_and_an_attack_may_be_added_to_a_sweep(tmp_path):
    begun(tmp_path, conf={"ppo": None})
    more = {"variants": {"a": {"algo": None, "params": ["gamma:0.9"]}}, "attack_episodes": 100}
    begun(tmp_path, conf={"ars": None}, **more)
    merged = begun(tmp_path, conf={"ppo": None})
    assert set(merged["conf"]) == {"ppo", "ars"} and set(merged["variants"]) == {"a"} and merged["attack_episodes"] == 100
    assert json.loads((tmp_path / "sweep.json").read_text()) == merged


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "other"}'])
def test_a_folder_that_holds_something_else_is_left_alone(content, tmp_path):
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(InputError, match=r"sweep\.json"):
        begun(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(InputError, match="not empty, and not a sweep"):
        begun(tmp_path / "other")
