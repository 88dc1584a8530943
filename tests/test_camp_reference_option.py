"""One argument says what is imitated. How earlier versions said it is still read, and means the same."""

import json
import warnings
import zipfile

import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from support.small_camp import noisy_cartpole, same, small_model, weights

from sb3_camp import CAMPDQN
from sb3_camp.camp_dqn.references import AlternatingReference, CleanReference, FrozenReference, SharedReference
from sb3_camp.errors import InputError


@pytest.fixture(scope="module")
def agent():
    return DQN("MlpPolicy", make_vec_env("CartPole-v1", seed=0), policy_kwargs=dict(net_arch=[16]), seed=5, device="cpu")


# today's word, what it stands for, and how earlier versions said it; None is the trained agent
OLD_SPELLINGS = [
    ("alternating", AlternatingReference, dict(replay="split")),
    ("alternating", AlternatingReference, dict(reference=None)),
    ("alternating", AlternatingReference, dict(clean_reference=False)),
    ("shared", SharedReference, dict(replay="shared")),
    ("shared", SharedReference, dict(replay="shared", reference=None, clean_reference=False)),
    ("clean", CleanReference, dict(clean_reference=True)),
    ("clean", CleanReference, dict(clean_reference=True, replay="shared", reference=None)),
    ("clean", CleanReference, dict(clean_reference=True, replay="split")),  # which steps to learn from was not asked then
    (None, FrozenReference, dict(replay="split")),
    (None, FrozenReference, dict(replay="shared", clean_reference=False)),
]


@pytest.mark.parametrize(("word", "kind", "old"), OLD_SPELLINGS)
def test_old_spellings_train_exactly_as_the_new_one_and_say_it(word, kind, old, agent):
    new = small_model(reference=word or agent).learn(200)
    with pytest.warns(DeprecationWarning, match=f"is now written reference={word!r}" if word else "is now written") as caught:
        model = small_model(**({"reference": agent} | old if word is None else old))
    assert caught[0].filename.endswith("small_camp.py"), "the warning must point to who called the constructor"
    model.learn(200)
    assert type(model._reference) is kind and model.reference == model.reference_kind == (word or "frozen")
    assert same(weights(model.policy), weights(new.policy))
    assert same(weights(model.reference_policy), weights(new.reference_policy))
    logged = [
        {name: value for name, value in m.logger.name_to_value.items() if name.startswith("train/")} for m in (model, new)
    ]
    assert logged[0] == logged[1] and len(logged[0]) >= 7


def test_the_default_is_the_papers_algorithm():
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        default, chosen = small_model().learn(200), small_model(reference="alternating").learn(200)
    assert same(weights(default.policy), weights(chosen.policy)) and default.reference == "alternating"


def test_the_four_references_train_four_policies(agent):
    trained = [weights(small_model(reference=word).learn(300).policy) for word in ("alternating", "shared", "clean", agent)]
    for number, one in enumerate(trained):
        assert not any(same(one, other) for other in trained[:number])


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(reference="alternating", replay="shared"),
        dict(reference="shared", replay="split"),
        dict(reference="shared", clean_reference=True),
        dict(reference="alternating", clean_reference=True, replay="split"),
        dict(reference="clean", clean_reference=False),
        dict(reference="agent", clean_reference=True),
    ],
)
def test_contradictions_are_refused_in_one_line(kwargs, agent):
    if kwargs["reference"] == "agent":
        kwargs = {**kwargs, "reference": agent}
    with pytest.raises(InputError, match="contradicts") as error:
        small_model(**kwargs)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(replay="both"), "replay must be one of split, shared, not 'both'"),
        (dict(clean_reference="False"), "clean_reference must be True or False, not 'False'"),
        (dict(reference="alternate"), "no checkpoint at alternate, and none of alternating, shared, clean, clean_quantiles"),
        (dict(reference="frozen"), "no checkpoint at frozen"),
        (dict(reference=True), "not True"),
    ],
)
def test_unknown_words_are_refused_in_one_line(kwargs, message):
    with pytest.raises(InputError, match=message) as error:
        small_model(**kwargs)
    assert "\n" not in str(error.value)


# Saved models


def in_the_words_of(version: str, path, **members):
    """Turn a saved model into one of an earlier version: 0.1.0 had ``replay``, the next one ``clean_reference`` besides."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(files["data"])
    del data["reference_kind"]
    if version == "0.1.0":
        del data["clean_observation_space"]
    files["data"] = json.dumps({**data, **members}).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


OLD_FILES = [
    ("0.1.0", "alternating", dict(replay="split")),
    ("0.1.0", "shared", dict(replay="shared")),
    ("0.1.0", "agent", dict(replay="split")),
    ("0.2", "shared", dict(replay="shared", clean_reference=False)),
    ("0.2", "clean", dict(replay="split", clean_reference=True)),
    ("0.2", "agent", dict(replay="shared", clean_reference=False)),
]


@pytest.mark.parametrize(("version", "reference", "members"), OLD_FILES)
def test_models_of_earlier_versions_go_on_as_what_they_were(version, reference, members, agent, tmp_path):
    model = small_model(reference=agent if reference == "agent" else reference).learn(200)
    model.save(tmp_path / "model.zip")
    model.save_replay_buffer(tmp_path / "buffer")
    kind = "frozen" if reference == "agent" else reference
    in_the_words_of(version, tmp_path / "model.zip", **members)
    trained = []
    for name in ("model.zip", "again.zip"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DeprecationWarning)
            loaded = CAMPDQN.load(tmp_path / name, env=noisy_cartpole(), device="cpu")
        said = [str(warning.message) for warning in caught if warning.category is DeprecationWarning]
        if name == "model.zip":
            assert len(said) == 1 and f"is now written reference='{kind}'" in said[0]
            assert caught[0].filename == __file__
            loaded.save(tmp_path / "again")
        else:
            assert not said, "saving a model again brings it up to date"
        assert loaded.reference_kind == kind and type(loaded._reference) is type(model._reference)
        assert same(weights(loaded.reference_policy), weights(model.reference_policy))
        loaded.load_replay_buffer(tmp_path / "buffer")
        loaded.set_random_seed(0)
        trained.append(weights(loaded.learn(60, reset_num_timesteps=False).policy))
    assert same(*trained) and not same(trained[0], weights(model.policy))


@pytest.mark.parametrize("asked", [dict(reference="shared"), dict(replay="shared")])
@pytest.mark.parametrize("old", [False, True])
def test_a_loaded_model_may_change_from_own_steps_to_all_steps_in_either_spelling(asked, old, tmp_path):
    small_model().learn(60).save(tmp_path / "model.zip")
    if old:
        in_the_words_of("0.2", tmp_path / "model.zip", replay="split", clean_reference=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loaded = CAMPDQN.load(tmp_path / "model.zip", env=noisy_cartpole(), device="cpu", **asked)
    assert type(loaded._reference) is SharedReference


@pytest.mark.parametrize("old", [None, "0.1.0", "0.2"])
@pytest.mark.parametrize(
    ("trained", "asked"),
    [
        ("alternating", dict(reference="clean")),
        ("alternating", dict(clean_reference=True)),
        ("clean", dict(reference="shared")),
        ("clean", dict(clean_reference=False)),
        ("agent", dict(reference="shared")),
        ("agent", dict(reference="clean")),
        ("agent", dict(clean_reference=True)),
        ("alternating", dict(reference="agent")),
        ("clean", dict(reference="agent")),
    ],
)
def test_what_the_reference_sees_cannot_be_changed_once_a_model_is_saved(trained, asked, old, agent, tmp_path):
    small_model(reference=agent if trained == "agent" else trained).learn(60).save(tmp_path / "model.zip")
    if old == "0.1.0":
        if trained == "clean":
            pytest.skip("there were none")
        in_the_words_of(old, tmp_path / "model.zip", replay="split")
    elif old == "0.2":
        in_the_words_of(old, tmp_path / "model.zip", replay="split", clean_reference=trained == "clean")
    if asked.get("reference") == "agent":
        asked = dict(reference=agent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(InputError, match=r"cannot be (changed|given)") as error:
            CAMPDQN.load(tmp_path / "model.zip", env=noisy_cartpole(), device="cpu", **asked)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("asked", [{}, dict(replay="shared"), dict(clean_reference=False), dict(reference="frozen")])
def test_a_model_keeps_its_trained_agent_where_nothing_else_is_asked_for(asked, agent, tmp_path):
    small_model(reference=agent).learn(60).save(tmp_path / "model.zip")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        loaded = CAMPDQN.load(tmp_path / "model.zip", env=noisy_cartpole(), device="cpu", **asked)
    assert same(weights(loaded.reference_policy.q_net), weights(agent.q_net))
