"""A study of experiments: its cells, their commands, and what is refused."""

import shlex
import sys
from itertools import pairwise

import pandas as pd
import pytest
import yaml
from support.experiments import CELL, ROOT, STUDIES, TASK, TINY, WORKFLOW, changed, grid, script, write_study

from sb3_camp.errors import InputError
from sb3_camp.evaluation.episode_plan import n_seeds, plan_chunks

pytest.importorskip("snakemake")
Cell = script("results").Cell
study_module = script("study")
Study = study_module.Study


def study(*grids, **sections):
    return Study({"grids": list(grids), **sections}, ROOT)


def names(*grids, **sections):
    return list(study(*grids, **sections).cells)


def command(name="training", *arguments, of=None, **sections):
    found = study(grid(**(of or {})), **sections)
    (cell,) = found.cells.values()
    return shlex.split(getattr(found, name)(cell, *arguments))


def option(words, name, n=1):
    at = words.index(name) + 1
    return words[at] if n == 1 else words[at : at + n]


# The grid


def test_lambdas_multiply_the_cells_of_camp_only_and_no_cell_is_there_twice():
    algorithms = {"algorithms": ["camp_dqn", "ppo"]}
    found = names(grid(lambdas=[0, 1, 1.0], sigmas=[0.2, 0.4], seeds=[0, 1, 0], **algorithms), grid(lambdas=[1], **algorithms))
    assert len(found) == len(set(found)) == 2 * 2 * (2 + 1)
    assert found[:3] == [
        "camp-CartPole1-v0_camp_dqn_lambda0_sigma0.2_seed0",
        "camp-CartPole1-v0_camp_dqn_lambda1_sigma0.2_seed0",
        "camp-CartPole1-v0_ppo_sigma0.2_seed0",
    ]
    assert all(name.endswith("seed0") for name in found[:6]), "all of the first seed come first"


@pytest.mark.parametrize(
    ("chosen", "cells"),
    [
        (["slow", "hard"], [("camp_dqn", "slow"), ("camp_dqn", "hard"), ("dqn", "slow")]),
        (["default", "hard"], [("camp_dqn", "default"), ("camp_dqn", "hard"), ("dqn", "default")]),
        (["hard"], [("camp_dqn", "hard"), ("dqn", "default")]),
    ],
)
def test_variants_are_for_all_algorithms_or_one_and_an_algorithm_without_keeps_its_default(chosen, cells):
    variants = {
        "slow": {"params": {"learning_rate": 1e-4}},
        "hard": {"algorithm": "camp_dqn", "params": {"imitation": "hard"}},
    }
    found = study(grid(algorithms=["camp_dqn", "dqn"], variants=chosen), variants=variants)
    assert [(cell.algo, cell.variant) for cell in found.cells.values()] == cells


def test_the_attacks_of_several_grids_on_a_cell_are_joined_and_cells_without_noise_have_no_certificate():
    found = study(
        grid(attacks=["pgd"], attack_noise=["own", "none"], attack_checkpoints=["best"]),
        grid(attacks=["pgd", "random"], sigmas=[0, 0.2]),
    )
    clean, noisy = (found.attacks[f"camp-CartPole1-v0_camp_dqn_sigma{sigma}_seed0"] for sigma in ("0", "0.2"))
    assert noisy[:2] == [("best", "pgd"), ("best", "pgd-sigma0")] and set(noisy[2:]) == {
        *(("best", "random"), ("last", "pgd"), ("last", "random"))
    }
    assert len(clean) == 4
    assert [found.checkpoints(cell) for cell in found.cells.values()] == [["best", "last"], []]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("cartpole", "cartpole_50k"),
        ("paper", "paper_50k"),
        ("highway", "highway_4k"),
        ("wang", "wang"),
        ("imitation", "imitation"),
        ("teachers", "teachers"),
        ("memory", "memory"),
        ("distribution", "distribution"),
        ("highway_fast", "highway_fast"),
        ("highway_speed", "highway_speed"),
        ("atari", "atari"),
        ("atari_noise_free", "atari_noise_free"),
        ("bank_heist_pgd", "bank_heist_pgd"),
    ],
)
def test_the_studies_of_docs_results_are_those_of_its_tables(name, table):
    found = study_module.read_study(STUDIES / f"{name}.yml")
    rows = pd.read_csv(ROOT / f"docs/results/{table}.csv", dtype=str, keep_default_na=False)
    columns = ["task", "sigma", "algo", "camp_lambda", "variant", "seed"]
    assert {tuple(cell.texts) for cell in found.cells.values()} == set(map(tuple, rows[columns].to_numpy()))
    attacked = rows[rows.quantity == "attacked_return"][[*columns, "checkpoint", "method"]]
    planned = {(*found.cells[cell].texts, *attack) for cell, attacks in found.attacks.items() for attack in attacks}
    assert planned == set(map(tuple, attacked.to_numpy()))
    certified = rows[rows.quantity == "certified_return"]
    if {cell.sigma for cell in found.cells.values()} == {0}:  # there is nothing to certify
        assert certified.empty
        return
    assert sorted(set(certified.x.astype(float))) == found.certify["radii"]
    assert set(certified.checkpoint) == set(found.evaluate["checkpoints"])
    assert set(rows[rows.quantity == "n_episodes"].value.astype(float)) == {found.evaluate["n_episodes"]}


def test_every_study_of_the_repository_can_be_read_and_the_documented_one_too():
    for file in STUDIES.glob("*.yml"):
        assert study_module.read_study(file).cells, file
    text = (WORKFLOW / "README.md").read_text()
    documented = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert Study(documented, ROOT).cells
    assert set(documented) == set(study_module.SCHEMA["properties"]), "all that a study may say is shown"


# The commands


def test_a_training_has_the_noise_in_training_and_validation():
    words = command(of={"sigmas": [0.3], "seeds": [7]})
    assert (
        option(words, "--env-kwargs") == option(words, "--eval-env-kwargs") == "sigma:0.3" and option(words, "--seed") == "7"
    )
    assert "-params" not in words and "-n" not in words
    words = command(of={"tasks": ["CartPole-v0"], "algorithms": ["gaussian_dqn"], "sigmas": [0.3]})
    assert words[-2:] == ["-params", "env_wrapper:[{'sb3_camp.wrappers.NoisyObservationWrapper': {'sigma': 0.3}}]"]
    assert "--env-kwargs" not in words
    words = command(of={"tasks": ["CartPole-v0"], "sigmas": [0]})
    assert words[-1] == "env_wrapper:[{'sb3_camp.wrappers.NoisyObservationWrapper': {'sigma': 0.0}}]", "not that of the yml"


def test_lambda_variant_and_steps_reach_the_training():
    variants = {"wide": {"params": {"imitation": "hard", "policy_kwargs": "dict(net_arch=[64, 64])"}}}
    words = command(of={"lambdas": [4], "variants": ["wide"]}, variants=variants, train={"n_timesteps": 9000})
    assert words[-4:] == ["-params", "imitation:'hard'", "policy_kwargs:'dict(net_arch=[64, 64])'", "camp_lambda:4.0"]
    assert option(words, "-n") == "9000"


def test_env_kwargs_of_a_variant_reach_training_and_validation_beside_the_noise():
    variants = {"frames": {"env_kwargs": {"n_stack": 15, "render_mode": "rgb_array"}}, "both": {"params": {"gamma": 0.9}}}
    words = command(of={"tasks": ["camp/CartPole5-v0"], "sigmas": [0.3], "variants": ["frames"]}, variants=variants)
    for name in ("--env-kwargs", "--eval-env-kwargs"):
        assert option(words, name, 3) == ["sigma:0.3", "n_stack:15", "render_mode:'rgb_array'"]
    assert "-params" not in words
    variants["both"]["env_kwargs"] = {"sutton_barto_reward": True}
    words = command(of={"tasks": ["CartPole-v0"], "sigmas": [0.3], "variants": ["both"]}, variants=variants)
    assert option(words, "--env-kwargs") == "sutton_barto_reward:True" and "gamma:0.9" in words


def test_the_hyper_parameters_are_copied_by_content_so_that_only_an_edit_of_a_task_is_another_command(tmp_path):
    conf = tmp_path / "ars.yml"

    def copied(text, task=TASK):
        conf.write_text(text)
        found = Study({"grids": [grid(algorithms=["ars"], tasks=[task])], "train": {"conf": {"ars": "ars.yml"}}}, tmp_path)
        found.write_hyperparameters(tmp_path)
        (cell,) = found.cells.values()
        name = option(shlex.split(found.training(cell)), "-conf")
        return name, yaml.safe_load((tmp_path / name).read_text())

    text = "atari: {n_delta: 3}\ndefault: {n_delta: 4}\ncamp/CartPole1-v0: &one {policy: LinearPolicy, n_delta: 8}\n"
    name, content = copied(text)
    assert content == {TASK: {"policy": "LinearPolicy", "n_delta": 8}}
    assert copied("# a comment\nPendulum-v1: {}\n" + text)[0] == name
    assert copied(text.replace("8", "16"))[0] != name
    assert copied(text, "CartPole-v1")[1] == {"CartPole-v1": {"n_delta": 4}}
    with pytest.raises(InputError, match=r"ars\.yml has nothing for CartPole-v1"):
        copied(text.replace("default", "other"), "CartPole-v1")


@pytest.mark.parametrize("algo", ["ppo", "qrdqn", "ars", "camp_dqn"])
def test_hyper_parameters_of_the_package_are_taken_where_the_task_stands_in_them(algo):
    def found(task):
        (cell,) = (plan := study(grid(algorithms=[algo], tasks=[task]))).cells.values()
        return plan.hyperparameters(cell)

    folder = ROOT / "hyperparams" if algo == "camp_dqn" else ROOT / "hyperparams/baselines"
    assert yaml.safe_load(found(TASK)[1])[TASK] == yaml.safe_load((folder / f"{algo}.yml").read_text())[TASK]
    assert (found("MountainCarContinuous-v0") is None) == (algo != "camp_dqn"), "a default is for all tasks"


def test_shards_have_seeds_of_their_own_and_all_episodes_together():
    shards = [command("evaluation", "last", shard, evaluate={"n_episodes": 10, "shards": 3}) for shard in range(3)]
    assert sum(int(option(words, "-n")) for words in shards) == 10
    assert [option(words, "--seed") for words in shards] == ["0", "1000000", "2000000"]
    assert len({option(words, "-o") for words in shards}) == 3
    words = command("certification", "last", evaluate={"shards": 3})
    first = words[: words.index("--then")]
    assert [word for word in first if word.endswith("evaluations.npz")] == [
        f"{option(w, '-o')}/evaluations.npz" for w in shards
    ]
    assert words.count("sb3_camp.certify") == 3


@pytest.mark.parametrize("n_envs", [64, 1024])
def test_no_two_of_many_large_shards_have_episodes_with_the_same_seed(n_envs):
    def overlaps(seeds):
        chunks = [plan_chunks(10_000, n_envs, seed) for seed in seeds]
        ranges = sorted((plan[0].seed, plan[-1].seed + n_seeds(plan[-1].n_episodes, n_envs)) for plan in chunks)
        return any(end > start for (_, end), (start, _) in pairwise(ranges))

    found = study_module.shard_seeds(0, 3_000_000, 300)
    assert len(set(found)) == 300 and found[0] == 0 and all(seed % 1_000_000 == 0 for seed in found)
    assert not overlaps(found)
    assert overlaps(range(0, 300_000_000, 1_000_000)), "which is rare, so this test is not empty"


def test_evaluations_measure_gaps_of_q_values_and_possible_returns_are_used_where_known():
    algorithms = ["camp_dqn", "gaussian_dqn", "noisynet_dqn", "qrdqn", "dqn", "ppo", "ars"]
    found = study(grid(algorithms=algorithms, tasks=[TASK, "camp/Highway-v0"]))
    with_gaps = {cell.algo for cell in found.cells.values() if "--q-gap" in found.evaluation(cell, "best", 0)}
    assert with_gaps == {"camp_dqn", "gaussian_dqn", "noisynet_dqn", "qrdqn", "dqn"}
    methods = {cell.task: found.methods(cell) for cell in found.cells.values()}
    assert methods == {TASK: ["berk-jones", "dkw", "clopper-pearson"], "camp/Highway-v0": ["berk-jones", "dkw"]}


def test_best_and_last_checkpoint_are_attacked_with_and_without_noise():
    attack = {"n_episodes": 50, "budgets": [0.5, 0], "n_envs": 20}
    own, clean, best = (
        command("attacking", *which, attack=attack) for which in (("last", "pgd"), ("last", "pgd-sigma0"), ("best", "pgd"))
    )
    assert "--load-best" not in own and "--load-best" in best
    assert option(own, "--budget", 2) == ["0", "0.5"] and option(own, "-n") == "50" and option(own, "--n-envs") == "20"
    assert "--sigma" not in own and option(clean, "--sigma") == "0"
    learned = command("attacking", "best", "learned", attack={**attack, "adversary_timesteps": 5000})
    assert option(learned, "--attack") == "learned" and option(learned, "--adversary-timesteps") == "5000"
    assert "--adversary-timesteps" not in own
    every = command("attacking", "best", "all-sigma0", attack={**attack, "adversary_timesteps": 5000})
    assert option(every, "--attack") == "all" and option(every, "--sigma") == "0" and "--adversary-timesteps" in every


# What is refused


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "the study: [] is not of type 'object'"),
        ({}, "'grids' is a required property"),
        (changed(grids=[]), "grids: [] "),
        (changed(grids=[grid(sedes=[1])]), "'sedes' was unexpected"),
        (changed(grids=[grid(attacks=["all", "pgd"])]), "all makes the others too"),
        (changed(grids=[grid(attacks=["gdp"])]), "'gdp' is not one of"),
        (changed(grids=[grid(seeds=[-1])]), "grids[0].seeds[0]: -1 is less than the minimum"),
        (changed(grids=[grid(seeds=[1000000])]), "grids[0].seeds[0]: 1000000"),
        (changed(grids=[grid(sigmas=[-0.1])]), "grids[0].sigmas[0]: -0.1 is less"),
        (changed(grids=[grid(sigmas=[float("nan")], seeds=[])]), "grids[0]"),
        (changed(grids=[grid(tasks=["camp/CartPole9-v0"])]), "task camp/CartPole9-v0: "),
        (changed(grids=[grid(tasks=["ALE/Pong-v5"])]), "task ALE/Pong-v5: "),
        (changed(grids=[grid(algorithms=["camp_dpn"])]), "the zoo knows no algorithm camp_dpn"),
        (changed(grids=[grid(algorithms=["ppo"], lambdas=[1])]), "lambdas are for camp_dqn"),
        (changed(grids=[grid(variants=["a"])]), "the variant a of a grid is not among"),
        (changed(grids=[grid(attacks=["pdg"])]), "'pdg' is not one of"),
        (changed(train={"n_timesteps": 200}), "no best checkpoint"),
        (changed(train={"eval_freq": -1}), "no best checkpoint"),
        (changed(train={"conf": {"ars": "nowhere.yml"}}), "train.conf: no file nowhere.yml"),
        (changed(train={"conf": {"asr": "ars.yml"}}), "the zoo knows no algorithm asr"),
        (changed(evaluate={"n_episodes": 0}), "evaluate.n_episodes: 0 is less than the minimum"),
        (changed(evaluate={"n_episodes": "5e4"}), "evaluate.n_episodes: '5e4' is not of type 'integer'"),
        (changed(evaluate={"shards": 62}), "evaluate.shards: more than there are episodes"),
        (changed(certify={"radii": [-0.1]}), "certify.radii[0]: -0.1"),
        (changed(attack={"budgets": [float("inf")]}), "attack.budgets[0]: inf is greater"),
        (changed(gym_packages=["no_such_package"]), "cannot import no_such_package"),
    ],
)
def test_a_wrong_study_ends_with_one_line_and_leaves_nothing(config, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if isinstance(config, dict) and "grids" in config:  # the tiny study has only the last checkpoint
        config = {**config, "evaluate": {**config["evaluate"], "checkpoints": ["best"]}}
    refused(tmp_path, config, message, capsys)


def refused(folder, config, message, capsys):
    file = write_study(folder / "study.yml", config)
    assert script("sweep").main([str(file), "-o", "sweep"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sweep: error: {file}: ")
    assert message in line
    assert list(folder.iterdir()) == [file]


@pytest.mark.parametrize(
    ("variants", "entries", "message"),
    [
        (
            {"a": {"params": {"camp_eta": 1.0}}},
            {"algorithms": ["camp_dqn", "ppo"]},
            "ppo has no camp_eta: give it algorithm: camp_dqn",
        ),
        ({"a": {"params": {"learnig_rate": 1.0}}}, {}, "has no learnig_rate: check its spelling"),
        ({"a": {"params": {}}}, {}, "variants.a.params: {}"),
        ({"a": {"params": {"env_wrapper": None}}}, {}, "holds the noise"),
        ({"a": {"algorithm": "ppo"}}, {}, "changes nothing"),
        ({"a": {"env_kwargs": {"sigma": 0.3}}}, {}, "sigma is set by the sigmas of a grid"),
        ({"a": {"params": {"env_kwargs": {"n_stack": 3}}}}, {}, "env_kwargs stand beside params"),
        ({"a": {"algorithm": "dqn", "params": {"gamma": 0.9}}}, {}, "no grid with it has the algorithm dqn"),
        ({"a": {"params": {"camp_lambda": 2}}}, {"lambdas": [1]}, "take one of them"),
        ({"a": {"params": {"gamma": 0.9}}, "seed1": {"params": {"gamma": 0.9}}}, {}, "not like lambda1 or seed1"),
        ({"a": {"params": {"gamma": 0.9}}, "a b": {"params": {"gamma": 0.9}}}, {}, "names have letters"),
        ({"a": {"params": {"gamma": 0.9}}, "default": {"params": {"gamma": 0.9}}}, {}, "default is that of no change"),
    ],
)
def test_a_wrong_variant_ends_with_one_line(variants, entries, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused(tmp_path, {"grids": [grid(variants=["a"], **entries)], "variants": variants}, message, capsys)


def test_what_is_no_yml_and_a_folder_of_something_else_are_refused(tmp_path, capsys):
    sweep, file = script("sweep"), tmp_path / "study.yml"
    file.write_text("grids: [")
    assert sweep.main([str(file), "-o", str(tmp_path / "sweep")]) == 2
    assert "not yml" in capsys.readouterr().err
    write_study(file, TINY)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    assert sweep.main([str(file), "-o", str(tmp_path / "other")]) == 2
    assert "not empty, and not the folder of a study" in capsys.readouterr().err
    assert sweep.main([str(tmp_path / "none.yml"), "-o", str(tmp_path / "sweep")]) == 2


# What would be done


@pytest.mark.slow
def test_a_dry_run_shows_each_step_once_and_why(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = write_study(tmp_path / "study.yml", changed(grids=[{**TINY["grids"][0], "attacks": ["apgd"]}]))
    assert script("sweep").main([str(file), "-o", str(tmp_path / "sweep"), "-n"]) == 0
    lines = capfd.readouterr().err.splitlines()
    shown = [
        line.split(":")[0].split()[0] for line in lines if CELL in line or line.startswith(("tables:", "figures:", "all:"))
    ]
    assert sorted(shown) == sorted(["train", "evaluate", "evaluate", "attack", "certify", "tables", "figures", "all"])
    assert f"train {CELL}: Missing output files: cells/{CELL}/train" in lines
    assert not (tmp_path / "sweep/cells").exists()
