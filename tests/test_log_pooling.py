"""Only independent episodes of one fixed policy in one environment are pooled, and none that a training played."""

import json

import numpy as np
import pytest
from stable_baselines3 import PPO
from support.info_envs import InfoEnv
from support.logs import play_monitored, refused, write_evaluation, write_monitor
from support.run_folders import NOISE, make_run, noise

from sb3_camp.certification import pooling
from sb3_camp.certification.episode_logs import read_log
from sb3_camp.certification.pooling import read_logs
from sb3_camp.command_line import spelled
from sb3_camp.evaluate import main as evaluate


def test_pools_the_monitor_logs_of_one_call(tmp_path):
    played = [play_monitored(tmp_path / str(rank), 3 + rank, seed=rank)[0] for rank in range(3)]
    logs = read_logs([tmp_path])
    assert [log.path.name for log in logs] == ["0.monitor.csv", "1.monitor.csv", "2.monitor.csv"]
    assert [log.returns.tolist() for log in logs] == played
    assert len(read_logs(sorted(tmp_path.iterdir()))) == 3


ROWS = [(9.0, 9, 0.25), (12.0, 12, 0.5), (10.0, 10, 0.75), (11.0, 11, 1.0)]


@pytest.mark.parametrize(
    ("rows", "header", "reason"),
    [
        (ROWS, {}, "the same episodes as in"),
        (ROWS, {"t_start": 1.7e9 + 1}, "holds episodes that"),
        (ROWS[:1], {"t_start": 1.7e9 + 1}, "holds episodes that"),
        (ROWS[:3], {}, "holds episodes that"),
        ([*ROWS, (7.0, 7, 1.5)], {"t_start": 1.7e9 + 1}, "holds episodes that"),
        ([*ROWS[2:], (7.0, 7, 1.5), (7.0, 7, 1.75)], {"t_start": 1.7e9 + 1}, "holds episodes that"),
        ([(7.0, 7, 1.5)], {}, "holds episodes that"),
        ([(7.0, 7, 1.5)], {"env_id": "CartPole-v0", "t_start": 1.7e9 + 1}, "its env_id is CartPole-v0"),
        ([(7.0, 7, 1.5)], {"t_start": 1.7e9 + 61}, "started 61 seconds apart"),
        ([(7.0, 7, 1.5)], {"t_start": 1.7e9 - 3600}, "started 3600 seconds apart"),
    ],
)
def test_refuses_to_pool_monitor_logs_that_share_episodes_or_are_of_different_runs(tmp_path, rows, header, reason):
    first = write_monitor(tmp_path / "0.monitor.csv", ROWS)
    second = write_monitor(tmp_path / "1.monitor.csv", rows, **header)
    message = refused(tmp_path)
    assert str(first) in message and str(second) in message and reason in message
    assert refused(second, first).startswith(f"{first}: ")


def test_one_row_alike_by_chance_is_no_copy(tmp_path):
    write_monitor(tmp_path / "0.monitor.csv", ROWS)
    write_monitor(tmp_path / "1.monitor.csv", [ROWS[0], *((r, n, t + 0.001) for r, n, t in ROWS[1:])], t_start=1.7e9 + 1)
    assert len(read_logs([tmp_path])) == 2


def test_refuses_one_file_under_two_names(tmp_path):
    path = write_evaluation(tmp_path / "evaluations.npz", [1.0, 2.0])
    assert "the same file twice" in refused(path, path)
    assert "the same file twice" in refused(path, tmp_path)
    (tmp_path / "link.npz").symlink_to(path)
    assert "the same file twice" in refused(path, tmp_path / "link.npz")
    (tmp_path / "copy.npz").write_bytes(path.read_bytes())
    assert "the same episodes" in refused(path, tmp_path / "copy.npz")


def test_pools_our_evaluations_of_one_model_with_different_seeds(tmp_path):
    first = write_evaluation(tmp_path / "a.npz", [1.0, 2.0])
    second = write_evaluation(tmp_path / "b.npz", [2.0, 2.0], seed=1)
    assert [log.seed for log in read_logs([first, second])] == [0, 1]
    write_evaluation(second, [2.0, 2.0], seed=1, env_versions=None)  # of an older version
    assert len(read_logs([first, second])) == len(read_logs([second, first])) == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "the same seed 0"),
        ({"seed": 1, "sigma": 0.2}, "its sigma is 0.2"),
        ({"seed": 1, "env_id": "CartPole-v0"}, "its env_id is CartPole-v0"),
        ({"seed": 1, "model_sha256": "b" * 64}, "its model_sha256 is bbb"),
        ({"seed": 1, "deterministic": False}, "its deterministic is False"),
        ({"seed": 1, "algo": "ppo"}, "its algo is ppo"),
        ({"seed": 1, "env_kwargs": '{"length": 2}'}, "its env_kwargs is {'length': 2}"),
        ({"seed": 1, "env_wrappers": '{"frame_stack": 4}'}, "its env_wrappers is {'frame_stack': 4}"),
        ({"seed": 1, "env_wrappers": None, "clean_keys": "[]"}, "its env_wrappers is None"),
        ({"seed": 1, "clean_keys": '["a"]'}, "its clean_keys is ['a']"),
        ({"seed": 1, "timesteps": np.array([2000])}, "its timesteps is 2000"),
        ({"seed": 1, "env_versions": '{"gymnasium": "1.0.1"}'}, "its env_versions is {'gymnasium': '1.0.1'}"),
        ({"seed": 1, "env_versions": "{}"}, "its env_versions is {}"),
        ({"seed": 1, "first_env_seed": 2**30 + 3}, "envs with the same seeds as in"),
        ({"seed": 1, "first_env_seed": 1, "last_env_seed": 2**31}, "envs with the same seeds as in"),
        ({"seed": 1, "first_env_seed": 1, "last_env_seed": 2**30}, "envs with the same seeds as in"),
    ],
)
def test_refuses_to_pool_evaluations_that_differ(tmp_path, changes, reason):
    first = write_evaluation(tmp_path / "a.npz", [1.0, 2.0])
    second = write_evaluation(tmp_path / "b.npz", [2.0, 2.0, 3.0], **changes)
    message = refused(first, second)
    assert message.startswith(f"{second}: {reason}")


def test_evaluations_that_name_the_noise_by_another_module_are_pooled(tmp_path):
    for name, entry in (("a", NOISE), ("b", "sb3_camp.wrappers.noisy_observation.NoisyObservationWrapper")):
        wrappers = json.dumps({"env_wrapper": [{entry: {"sigma": 0.4}}, "any.Other"]})
        write_evaluation(tmp_path / f"{name}.npz", [1.0, 2.0], seed=ord(name), env_wrappers=wrappers)
    logs = read_logs([tmp_path / "a.npz", tmp_path / "b.npz"])
    assert logs[0].env_wrappers == logs[1].env_wrappers == {"env_wrapper": [noise(0.4), "any.Other"]}


EPISODES = np.random.default_rng(0).integers(10, 30, 40).astype(float)


@pytest.mark.parametrize("n", [40, 39, 10])
def test_refuses_episodes_that_another_log_starts_with_whatever_the_seeds_say(tmp_path, n):
    first = write_evaluation(tmp_path / "a.npz", EPISODES)
    second = write_evaluation(tmp_path / "b.npz", EPISODES[:n], seed=1, n_envs=8)
    for paths in ((first, second), (second, first)):
        assert f"{paths[1]}: the same episodes in the same order as in {paths[0]}" in refused(*paths)
    other = EPISODES[:n].copy()
    other[n // 2] += 1
    assert len(read_logs([first, write_evaluation(second, other, seed=1)])) == 2


def test_refuses_a_call_of_enjoy_that_was_repeated_with_its_seed(tmp_path):
    for name, late in (("0", 0.0), ("1", 1e-4)):
        rows = [(r, int(r), round(i + late * r, 6)) for i, r in enumerate(EPISODES)]
        write_monitor(tmp_path / f"{name}.monitor.csv", rows, t_start=1.7e9 + late)
    assert "the same episodes in the same order" in refused(tmp_path)


def test_episodes_that_are_alike_by_their_nature_are_no_copies(tmp_path):
    nearly_perfect = [*[200.0] * 999, 180.0]
    for returns in ([200.0] * 1000, nearly_perfect, [1.0, 2.0]):
        first = write_evaluation(tmp_path / "a.npz", returns)
        assert len(read_logs([first, write_evaluation(tmp_path / "b.npz", returns, seed=1)])) == 2


def test_every_entry_that_evaluate_writes_is_known_to_decide_on_pooling_or_not_to(tmp_path):
    PPO("MlpPolicy", InfoEnv(), n_steps=8, batch_size=8, device="cpu").save(tmp_path / "model.zip")
    options = ["--algo", "ppo", "--env", "tests/Info-v0", "--model", str(tmp_path / "model.zip"), "--sigma", "0.2"]
    options += ["--until", "99@1", "--max-episodes", "4", "--looks", "1", "--min-return", "0", "--record", "cost"]
    assert evaluate([*options, "-o", str(tmp_path), "--q-gap", "--device", "cpu"]) == 0
    with np.load(tmp_path / "evaluations.npz") as content:
        written = set(content.files)
    decide = {*pooling.ALIKE, *pooling.ALIKE_IF_KNOWN}
    assert written - decide == set(pooling.MAY_DIFFER)
    assert not decide & set(pooling.MAY_DIFFER)
    log = read_log(tmp_path / "evaluations.npz")
    # None of these is so here: the agent plays where it was trained, and all sensors have one sigma
    unsaid = {"trained_env_id", "sensor_sigma"}
    assert all((getattr(log, name) is None) == (name in unsaid) for name in pooling.ALIKE)


def test_refuses_to_pool_the_zoos_evaluations_and_different_kinds(tmp_path):
    for name, value in (("a", 9.0), ("b", 8.0)):
        np.savez(tmp_path / f"{name}.npz", timesteps=[1], results=[[value]], ep_lengths=[[9]])
    assert "nothing shows that they are of one policy" in refused(tmp_path / "a.npz", tmp_path / "b.npz")
    monitor = write_monitor(tmp_path / "0.monitor.csv", ROWS)
    assert "one is a monitor log" in refused(tmp_path / "a.npz", monitor)
    write_evaluation(tmp_path / "evaluations.npz", [1.0])
    assert "holds both" in refused(tmp_path)


def test_a_run_folder_stands_for_its_evaluation(tmp_path):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    play_monitored(run / "0", 2)
    message = refused(run)
    assert f"run {spelled('evaluate')} --algo dqn --env CartPole-v1 -f {tmp_path} --exp-id 1" in message
    (run / "certification").mkdir()
    (run / "certification" / "evaluations.partial.npz").write_bytes(b"")
    assert f"-f {tmp_path} --exp-id 1 --resume" in refused(run)
    path = write_evaluation(run / "certification" / "evaluations.npz", [1.0, 2.0])
    assert read_logs([run])[0].path == read_logs([path.parent])[0].path == path


def test_refuses_training_episodes_of_a_run(tmp_path):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    training = run / "0.monitor.csv"
    play_monitored(run / "0", 2)
    assert "training episodes" in refused(training)
    (tmp_path / "link.monitor.csv").symlink_to(training)
    assert "training episodes" in refused(tmp_path / "link.monitor.csv")
    copy = run / "certification" / "5.monitor.csv"
    copy.parent.mkdir()
    copy.write_text("\n".join(training.read_text().split("\n")[:3]) + "\n")
    assert f"{copy}: training episodes" in refused(copy)
    assert "sb3_camp.evaluate --algo dqn" in refused(copy)


def test_refuses_training_logs_that_were_moved_down_in_their_run(tmp_path):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    for rank in range(2):
        write_monitor(run / f"{rank}.monitor.csv", ROWS, t_start=1.7e9 + rank)
    old = run / "old"
    old.mkdir()
    (run / "0.monitor.csv").rename(old / "0.monitor.csv")
    assert f"{old / '0.monitor.csv'}: training episodes" in refused(old)
    (tmp_path / "link.monitor.csv").symlink_to(old / "0.monitor.csv")
    assert "training episodes" in refused(tmp_path / "link.monitor.csv")
    (run / "1.monitor.csv").rename(old / "1.monitor.csv")
    for path in (old, old / "1.monitor.csv"):
        assert f"no *.monitor.csv of the training is left in {run}" in refused(path)


@pytest.mark.parametrize("end", ["", "9,9,77.5", "9,9,7\n", "\n"])
def test_a_log_in_a_run_must_have_started_after_the_last_episode_of_the_training(tmp_path, end):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    training = run / "0.monitor.csv"
    training.write_text('#{"t_start": 1700000000.0, "env_id": "CartPole-v1"}\nr,l,t,note\n9,9,5.5,"a,b"\r\n' + end)
    last = 7.0 if end.endswith("7\n") else 5.5
    played = run / "enjoy" / "0.monitor.csv"
    played.parent.mkdir()
    write_monitor(played, ROWS, t_start=1.7e9 + last)
    assert "training episodes, or played before the training had ended" in refused(played)
    write_monitor(played, ROWS, t_start=1.7e9 + last + 0.5)
    assert len(read_logs([played])) == 1
    training.write_text('#{"t_start": 1700000000.0, "env_id": "CartPole-v1"}\nr,l,t\n')  # stopped in its first episode
    assert len(read_logs([played])) == 1


def test_accepts_episodes_that_were_played_into_the_run_folder(tmp_path):
    run = make_run(tmp_path, env_wrapper=[noise(0.4)])
    play_monitored(run / "0", 2)
    returns, _ = play_monitored(run / "certification" / "0", 3, seed=1)
    assert read_logs([run / "certification"])[0].returns.tolist() == returns


def test_an_episode_beyond_the_step_limit_is_of_another_environment(tmp_path):
    """An offset of a sensor, and a bound on each step, are converted by the limit."""
    limited = write_evaluation(tmp_path / "a.npz", [9.0, 10.0], step_limit=10)
    assert read_logs([limited])[0].step_limit == 10
    longer = write_evaluation(tmp_path / "b.npz", [9.0, 11.0], step_limit=None, seed=1)
    for paths in ([limited, longer], [longer, limited]):
        assert refused(*paths) == f"{longer}: holds an episode of 11 steps, but by {limited} none has more than 10"
    alone = write_evaluation(tmp_path / "c.npz", [9.0, 12.0], step_limit=11)
    assert "holds an episode of 12 steps" in refused(alone)


def test_an_interrupted_evaluation_is_told_how_to_go_on(tmp_path):
    write_evaluation(tmp_path / "evaluations.partial.npz", [1.0, 2.0])
    assert refused(tmp_path).endswith("--resume")
