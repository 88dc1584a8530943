"""What evaluate records of info, episode by episode, wherever the env runs."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN
from support.evaluate_runs import error_line, evaluate, read
from support.evaluation_envs import AlwaysZero
from support.info_envs import InfoEnv, reduced

import sb3_camp.evaluation.run_evaluation
from sb3_camp.errors import InputError
from sb3_camp.evaluation import Episodes, EvaluationEnv, play_episodes, play_vector_episodes
from sb3_camp.evaluation.evaluation_file import write_partial
from sb3_camp.evaluation.native import opened_native
from sb3_camp.evaluation.recorded_keys import check_recorded
from sb3_camp.evaluation.records import Kept, Unrecordable, kept_of_both
from sb3_camp.runs.recorded_key import RecordedKey

KEYS = [
    RecordedKey(name, reduction)
    for name, reduction in [
        ("crashed", "last"),
        ("is_success", "last"),
        ("cost", "sum"),
        ("speed", "max"),
        ("hits", "any"),
        ("rare", "last"),
    ]
]
WORDS = list(map(str, KEYS))
BOOLEAN = [True, True, False, False, False, False]


def environment(vec_env="dummy", wrappers=()):
    return EvaluationEnv("tests/Info-v0", wrappers={"env_wrapper": [*wrappers]}, vec_env=vec_env, recorded=KEYS)


def told(env, n_envs, n_episodes):
    """What the ledgers of the envs say of the episodes that count, by turns."""
    ledgers = [[infos for infos in ledger if infos] for ledger in env]
    quotas = [(n_episodes + i) // n_envs for i in range(n_envs)]
    turns = [(k, i) for k in range(max(quotas)) for i in range(n_envs) if k < quotas[i]]
    return np.array([[reduced(ledgers[i][k], *key) for key in KEYS] for k, i in turns])


@pytest.mark.parametrize("wrappers", [[], [{"rl_zoo3.wrappers.FrameSkip": {"skip": 3}}]])
def test_each_is_what_the_infos_of_its_episode_make(wrappers):
    with environment(wrappers=wrappers).opened(4) as env:
        episodes = play_episodes(AlwaysZero(), env, 90, seed=5)
        expected = told(env.get_attr("ledger"), 4, 90)
    np.testing.assert_allclose(episodes.recorded, expected, rtol=0, atol=1e-13)
    assert np.isnan(expected).any(axis=0).tolist() == [False, True, False, False, False, True]
    assert all(0 < np.nanmean(values) < 1 for values in expected[:, [0, 1, 4]].T)
    assert episodes.are_boolean.all(axis=0).tolist() == BOOLEAN


def test_processes_record_the_same_and_pass_on_what_is_wrong():
    played = {}
    for vec_env in ("dummy", "subproc"):
        with environment(vec_env).opened(2) as env:
            played[vec_env] = play_episodes(AlwaysZero(), env, 40, seed=5)
            env.env_method("set_wrapper_attr", "_keys", [RecordedKey("broken")], indices=1)
            with pytest.raises(Unrecordable, match="--record broken: info has nan there"):
                play_episodes(AlwaysZero(), env, 40, seed=5)
    np.testing.assert_array_equal(played["dummy"], played["subproc"])
    np.testing.assert_array_equal(played["dummy"].recorded, played["subproc"].recorded)
    assert played["dummy"].recorded.shape == (40, len(KEYS)) and len(played["dummy"]) == 3


def test_native_envs_record_the_same_and_lose_no_last_info():
    with opened_native(environment(), 4) as envs:
        episodes = play_vector_episodes(AlwaysZero(), envs, 90, seed=5, keys=KEYS)
        expected = told([env.unwrapped.ledger for env in envs.unwrapped.envs], 4, 90)
    np.testing.assert_allclose(episodes.recorded, expected, rtol=0, atol=1e-13)
    assert episodes.are_boolean.all(axis=0).tolist() == BOOLEAN
    assert 0 < np.nanmean(expected[:, 1]) < 1


@pytest.mark.parametrize("reduction", ["last", "sum", "max", "any"])
def test_parts_of_an_episode_can_be_put_together_in_any_way(reduction):
    rng = np.random.default_rng(0)
    values = [None if rng.random() < 0.3 else 0.1 * float(rng.integers(-5, 2)) for _ in range(12)]
    steps = [(None if value is None else Kept.of_step(reduction, value),) for value in values]
    whole = ()
    for step in steps:
        whole = kept_of_both(whole, step)
    first, second, third = (), (), ()
    for part, step in zip([0] * 3 + [1] * 5 + [2] * 4, steps, strict=True):
        first, second, third = (
            kept_of_both(kept, step) if part == index else kept for index, kept in enumerate((first, second, third))
        )
    assert kept_of_both(kept_of_both(first, second), third)[0].result() == whole[0].result()
    assert whole[0].result() == pytest.approx(reduced([{"a": v} for v in values if v is not None], "a", reduction), abs=1e-15)


def test_sums_have_no_rounding_errors_of_their_own():
    total = ()
    for _ in range(10):
        total = kept_of_both(total, (Kept.of_step("sum", 0.1),))
    assert total[0].result() == 1.0


# The command


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.zip"
    DQN("MlpPolicy", InfoEnv(), buffer_size=8, device="cpu", seed=0).save(path)
    return path


def run(model, tmp_path, *options, n=60):
    arguments = ["--model", model, "--sigma", 0.2, "-o", tmp_path, "-n", n, "--n-envs", 3]
    return evaluate(*arguments, *options, env="tests/Info-v0")


@pytest.mark.parametrize("vec_env", ["dummy", "native"])
def test_the_file_holds_them_and_the_output_says_what_is_missing(model, tmp_path, capsys, vec_env):
    assert run(model, tmp_path, "--record", *WORDS, "--vec-env", vec_env) == 0
    content, out = read(tmp_path / "evaluations.npz"), capsys.readouterr().out
    assert content["recorded"].shape == (6, 60) and content["recorded_boolean"].tolist() == BOOLEAN
    assert content["record"] == '["crashed:last", "is_success:last", "cost:sum", "speed:max", "hits:any", "rare:last"]'
    n_missing = np.isnan(content["recorded"]).sum(axis=1)
    assert "Recording of each episode: crashed (last value), is_success (last value), cost (sum), speed (largest" in out
    assert f"Recorded cost (sum): mean {content['recorded'][2].mean():.6g}\n" in out
    assert f"missing in {n_missing[5]} episodes, which a certificate will count as the worst\n" in out
    # An episode that did not crash and was not cut off has arrived
    crashed, success = content["recorded"][:2]
    cut_off = np.isnan(success)
    np.testing.assert_array_equal(success[~cut_off], 1 - crashed[~cut_off])
    assert np.all(content["ep_lengths"][0][cut_off] == 12) and np.any(cut_off)


def test_recording_changes_no_episode(model, tmp_path):
    assert run(model, tmp_path / "a") == run(model, tmp_path / "b", "--record", "cost:sum") == 0
    plain, recorded = (read(tmp_path / name / "evaluations.npz") for name in "ab")
    np.testing.assert_array_equal(plain["results"], recorded["results"])
    assert set(recorded) - set(plain) == {"record", "recorded", "recorded_boolean"}


def test_resumed_is_as_if_never_interrupted(model, tmp_path, monkeypatch, capsys):
    options = ["--record", "crashed", "cost:sum", "rare"]
    assert run(model, tmp_path / "whole", *options, n=200) == 0

    def write_then_stop(*args, **kwargs):
        write_partial(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(sb3_camp.evaluation.run_evaluation, "write_partial", write_then_stop)
    assert run(model, tmp_path / "parts", *options, n=200) == 130
    monkeypatch.undo()
    capsys.readouterr()
    assert run(model, tmp_path / "parts", "--record", "crashed", "--resume", n=200) == 2
    assert "it was made with record" in error_line(capsys)
    assert run(model, tmp_path / "parts", "--resume", n=200) == 2
    assert "not None: give the same arguments" in error_line(capsys)
    assert run(model, tmp_path / "parts", *options, "--resume", n=200) == 0
    whole, parts = (read(tmp_path / name / "evaluations.npz") for name in ("whole", "parts"))
    np.testing.assert_array_equal(whole["recorded"], parts["recorded"])
    np.testing.assert_array_equal(whole["recorded_boolean"], parts["recorded_boolean"])


@pytest.mark.parametrize("vec_env", ["dummy", "native"])
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("crash", "did you mean crashed? the info of tests/Info-v0 had no crash in 60 episodes: it has TimeLimit"),
        ("label", "--record label: info has 'text' there, which is neither a number nor a boolean"),
        ("nothing", "--record nothing: info has None there"),
        ("broken", "--record broken: info has nan there: only finite numbers"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(model, tmp_path, capsys, vec_env, word, message):
    assert run(model, tmp_path, "--record", word, "--vec-env", vec_env) == 2
    assert message in error_line(capsys)
    assert not (tmp_path / "evaluations.npz").exists()


def test_a_key_that_only_the_single_env_shows_is_asked_for_there():
    recorded = np.column_stack([np.ones((4, 5)), np.full(4, np.nan)])
    episodes = Episodes(np.ones(4), np.ones(4, dtype=int), np.ones(4), recorded, np.ones((4, 6), dtype=bool))
    with pytest.raises(InputError, match=r"rare was in the info of none of 4 episodes, though .* --vec-env dummy does"):
        check_recorded(environment(), episodes)


def test_a_sum_that_no_log_may_hold_is_not_recorded():
    recorded = np.full((4, 6), 1.0)
    recorded[2, 1] = -2e100
    episodes = Episodes(np.ones(4), np.ones(4, dtype=int), np.ones(4), recorded, np.zeros((4, 6), dtype=bool))
    with pytest.raises(InputError, match=r"^--record .*: the .* of an episode is beyond 1e\+100, the most of a log$"):
        check_recorded(environment(), episodes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cost:mean"], "--record takes KEY or KEY:REDUCTION with last, sum, max, any, not 'cost:mean'"),
        (["cost:sum", "cost"], "--record: cost is named twice"),
        ([":sum"], "not ':sum'"),
        (["cost:mean", "--record", "cost"], "not 'cost:mean'"),
    ],
)
def test_a_wrong_word_is_one_line(model, tmp_path, capsys, words, message):
    assert run(model, tmp_path, "--record", *words) == 2
    assert message in error_line(capsys)


def test_crashes_of_highway_are_its_early_ends(tmp_path):
    import highway_env

    gym.register_envs(highway_env)
    env = gym.make("camp/Highway-v0")
    limit = env.unwrapped.config["duration"]
    DQN("MlpPolicy", env, buffer_size=8, device="cpu", seed=0).save(tmp_path / "model.zip")
    options = ["--model", tmp_path / "model.zip", "-o", tmp_path, "-n", 4, "--n-envs", 2, "--record", "crashed", "speed:max"]
    assert evaluate(*options, env="camp/Highway-v0") == 0
    content = read(tmp_path / "evaluations.npz")
    crashed, speed = content["recorded"]
    np.testing.assert_array_equal(crashed == 1, content["ep_lengths"][0] < limit)
    assert content["recorded_boolean"].tolist() == [True, False] and np.all((speed > 10) & (speed < 50))
