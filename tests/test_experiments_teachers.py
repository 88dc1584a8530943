"""CAMP that imitates another cell of its study: which one it is, and what is refused."""

import shlex

import pytest
from support.experiments import ROOT, grid, script

from sb3_camp.errors import InputError

pytest.importorskip("snakemake")
Study = script("study").Study

OF_PPO = {"algorithm": "camp_dqn", "teacher": {"algorithm": "ppo"}}
LAST_ONLY = {"evaluate": {"checkpoints": ["last"]}, "train": {"eval_freq": -1}}


@pytest.mark.parametrize(("checkpoint", "file"), [({}, "camp-CartPole1-v0.zip"), ({"checkpoint": "best"}, "best_model.zip")])
def test_the_teacher_is_the_agent_of_the_same_task_sigma_and_seed(checkpoint, file):
    teacher = {"algorithm": "ppo", "variant": "wide", **checkpoint}
    variants = {
        "wide": {"params": {"policy_kwargs": "dict(net_arch=[8])"}},
        "of_wide": {"algorithm": "camp_dqn", "teacher": teacher, "params": {"gamma": 0.9}},
    }
    grids = [
        grid(algorithms=["ppo"], sigmas=[0.2, 0.4], seeds=[0, 7], variants=["wide"]),
        grid(sigmas=[0.4], seeds=[7], lambdas=[0, 1], variants=["of_wide"]),
    ]
    found = Study({"grids": grids, "variants": variants}, ROOT)
    students = [cell for cell in found.cells.values() if cell.algo == "camp_dqn"]
    assert [cell.camp_lambda for cell in students] == [0, 1]
    for cell in students:
        of, checkpoint_name = found.teacher(cell)
        assert of == found.cells["camp-CartPole1-v0_ppo_wide_sigma0.4_seed7"] and of.model(checkpoint_name).endswith(
            f"/{file}"
        )
        words = shlex.split(found.training(cell))
        assert f"reference:{of.model(checkpoint_name)!r}" in words and "gamma:0.9" in words
    assert {found.teacher(cell) for cell in found.cells.values() if cell.algo == "ppo"} == {None}


@pytest.mark.parametrize(
    ("grids", "variants", "message"),
    [
        (
            [grid(variants=["a"])],
            {"a": OF_PPO},
            "teacher camp-CartPole1-v0_ppo_sigma0.2_seed0 is in no grid: add it to one",
        ),
        (
            [grid(variants=["a"], seeds=[0, 1]), grid(algorithms=["ppo"], seeds=[0])],
            {"a": OF_PPO},
            "camp-CartPole1-v0_ppo_sigma0.2_seed1 is in no grid",
        ),
        (
            [grid(algorithms=["camp_dqn", "ppo"], variants=["a", "default"])],
            {"a": {"teacher": {"algorithm": "ppo"}}},
            "only camp_dqn imitates a teacher: give it algorithm: camp_dqn",
        ),
        (
            [grid(algorithms=["camp_dqn", "ppo"], variants=["a"])],
            {"a": {**OF_PPO, "params": {"reference": "clean"}}},
            "its teacher is the reference",
        ),
        (
            [grid(variants=["a"], tasks=["camp/CartPole5-v0"]), grid(algorithms=["ppo"], tasks=["camp/CartPole5-v0"])],
            {"a": {**OF_PPO, "env_kwargs": {"n_stack": 15}}},
            "has the env_kwargs {}, and it has {'n_stack': 15}",
        ),
        (
            [grid(variants=["a"])],
            {"a": {"algorithm": "camp_dqn", "teacher": {"algorithm": "camp_dqn", "variant": "a"}}},
            "has a teacher itself",
        ),
        ([grid(variants=["a"])], {"a": {"algorithm": "camp_dqn", "teacher": {"algo": "ppo"}}}, "'algo' was unexpected"),
        (
            [grid(variants=["a"])],
            {"a": {**OF_PPO, "teacher": {"algorithm": "ppo", "checkpoint": "best"}}},
            "no best checkpoint",
        ),
    ],
)
def test_a_wrong_teacher_is_refused_in_one_line(grids, variants, message):
    with pytest.raises(InputError) as refusal:
        Study({"grids": grids, "variants": variants, **LAST_ONLY}, ROOT)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)


# A program that trains in place of the zoo


TAUGHT = {"algorithm": "dqn", "program": "atari_teacher", "params": {"n_timesteps": 40, "expert_folder": "experts"}}


def test_a_program_is_given_what_the_zoo_would_be_and_its_agent_can_be_a_teacher():
    variants = {
        "taught": {**TAUGHT, "env_kwargs": {"difficulty": 0}},
        "student": {
            "algorithm": "camp_dqn",
            "teacher": {"algorithm": "dqn", "variant": "taught"},
            "env_kwargs": {"difficulty": 0},
        },
    }
    task = {"tasks": ["camp/Freeway-v0"], "sigmas": [12.75], "seeds": [3]}
    grids = [
        grid(**task, algorithms=["dqn"], variants=["taught"]),
        grid(**task, algorithms=["camp_dqn"], variants=["student"]),
    ]
    found = Study({"grids": grids, "variants": variants, "device": "cpu", **LAST_ONLY}, ROOT)
    taught, student = found.cells.values()
    assert shlex.split(found.training(taught)) == [
        *("-m", "atari_teacher", "--env", "camp/Freeway-v0", "-f", f"cells/{taught.name}/train", "--seed", "3"),
        *(
            "--device",
            "cpu",
            "--n-timesteps",
            "40",
            "--expert-folder",
            "experts",
            "--env-kwargs",
            "sigma:12.75",
            "difficulty:0",
        ),
    ]
    assert f"reference:{taught.model('last')!r}" in shlex.split(found.training(student))


@pytest.mark.parametrize(
    ("variant", "task", "message"),
    [
        ({**TAUGHT, "program": "no_such_module"}, "camp/Freeway-v0", "no module no_such_module"),
        ({**TAUGHT, "program": "no_such_package.train"}, "camp/Freeway-v0", "no module no_such_package.train"),
        ({**TAUGHT, "program": "../train.py"}, "camp/Freeway-v0", "does not match"),
        ({"program": "atari_teacher"}, "camp/Freeway-v0", "name the algorithm"),
        (TAUGHT, "CartPole-v0", "takes no sigma"),
    ],
)
def test_a_wrong_program_is_refused_in_one_line(variant, task, message):
    grids = [grid(tasks=[task], algorithms=["dqn"], variants=["a"])]
    with pytest.raises(InputError) as refusal:
        Study({"grids": grids, "variants": {"a": variant}, **LAST_ONLY}, ROOT)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
