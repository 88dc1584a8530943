"""The folder for a model hub: what the hub reads of it, that nothing in it comes alive, and what is uploaded."""

import json
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path
from unittest.mock import create_autospec

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import HfApi, ModelCard
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from support.attack_agents import write_certificate
from support.attacked_results import POLICY, attacked
from support.report_pages import full_certificate, least_certificate, written

from sb3_camp.attack_runs.agent_results import AgentResults
from sb3_camp.card import main
from sb3_camp.certification.certificate import Certificate, read_certificate
from sb3_camp.files import sha256
from sb3_camp.reporting.model_card import escaped, model_card
from sb3_camp.runs.normalization import read_normalization

HOSTILE = (
    "<script>alert(1)</script>",
    "x](javascript:alert(1)) ![](http://evil.example/p.png)",
    "| a | b |\n---\nlicense: mit\n# Title",
    "**bold** `code` $x$ $$y$$ \\(z\\) <!-- -->",
    "https://evil.example www.evil.example a@b.example",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[31m \u202e \ud800",
)


def agent(folder: Path, certificate: Certificate | None = None) -> Path:
    """A run folder with a model, and a certificate of this model."""
    folder.mkdir(parents=True, exist_ok=True)
    content = b"an agent"
    (folder / "model.zip").write_bytes(content)
    certificate = replace(certificate or full_certificate(), model="model.zip", model_sha256=sha256(content))
    written(certificate, folder / "certification")
    return folder


def card_of(certificate: Certificate, folder: Path) -> str:
    return model_card(AgentResults(written(certificate, folder), certificate, [], []), "agent.zip", "0" * 64)


def error(capsys, *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_hub_reads_the_results_from_the_card(tmp_path):
    run, out = agent(tmp_path / "run"), tmp_path / "out"
    assert main([str(run), "-o", str(out)]) == 0
    names = {"README.md", "certificate.csv", "certificate.json", "certificate.png", "ppo-Thermostat-v1.zip"}
    assert {path.name for path in out.iterdir()} == names
    assert (out / "ppo-Thermostat-v1.zip").read_bytes() == b"an agent"

    card = ModelCard.load(out / "README.md")
    assert card.data.library_name == "stable-baselines3"
    assert {"Thermostat-v1", "reinforcement-learning", "sb3_camp"} <= set(card.data.tags)
    assert card.data.model_name == "ppo"
    by_type = {result.metric_type: result for result in card.data.eval_results}
    assert by_type["mean_reward"].metric_value == 12.5
    assert by_type["certified_return"].metric_value == 3.001, "the bound at one sigma, rounded down"
    assert {result.dataset_type for result in by_type.values()} == {"Thermostat-v1"}
    assert {result.task_type for result in by_type.values()} == {"reinforcement-learning"}

    digest = sha256((out / "certificate.json").read_bytes())
    assert digest in card.text and read_certificate(out / "certificate.json") == read_certificate(
        run / "certification" / "certificate.json"
    )
    assert "![Certified return by l2 radius](certificate.png)" in card.text
    rows = [re.split(r" ?\| ?", line.strip("| ")) for line in card.text.splitlines() if line.startswith("| ")]
    assert ["0.4", "1.000", "3.001"] in [row[:3] for row in rows]


def test_an_old_certificate_has_a_card_too(tmp_path):
    card = ModelCard(card_of(least_certificate(), tmp_path))
    assert card.data.model_name == "unknown"
    assert "Agent on an unknown environment" in card.text


def test_a_card_says_that_nothing_was_checked_of_the_independence_of_its_episodes(tmp_path):
    checked = full_certificate()
    for certificate, says_it in ((checked, False), (replace(checked, independence_assumed=True), True)):
        assert ("That the episodes are independent is an assumption too" in card_of(certificate, tmp_path)) == says_it


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_from_files_comes_alive(text, tmp_path):
    certificate = full_certificate(env_id=text, algo=text, model=text, trained_env_id=text, method=text, clean_keys=[text])
    plain = card_of(full_certificate(clean_keys=["x"]), tmp_path / "plain")
    card = card_of(certificate, tmp_path / "hostile")
    assert ModelCard(card).data.to_dict().keys() == ModelCard(plain).data.to_dict().keys()
    body, plain_body = (one.split("\n---\n", 1)[1] for one in (card, plain))
    assert body.count("\n") == plain_body.count("\n"), "a text from a file has begun a line"
    assert [line.count("|") for line in body.splitlines()] == [line.count("|") for line in plain_body.splitlines()]
    for active in ("<", "](", "://", "www.", "{{", "$", "`", "**", "\\(", "\x1b", "\u202e"):
        assert body.count(active) == plain_body.count(active), active


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_escaped_reads_as_before(text):
    shown = unescape(escaped(text)).replace("\\_", "_")
    assert shown == "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def test_what_may_not_be_published_is_refused(tmp_path, capsys):
    run = agent(tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "secret.txt").touch()
    assert "give a new or an empty folder" in error(capsys, run, "-o", tmp_path / "full")
    (run / "model.zip").write_bytes(b"another agent")
    assert "give its file with --model" in error(capsys, run, "-o", tmp_path / "out")
    other = agent(tmp_path / "other", full_certificate(model_sha256=None))
    file = other / "certification" / "certificate.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_sha256": None}))
    assert "evaluate and certify again" in error(capsys, other, "-o", tmp_path / "out")
    for name in ("a/b/c", "me", "me/..", "me/bad name"):
        assert f"--push {name}" in error(capsys, run, "-o", tmp_path / "out", "--push", name)
    assert "--private is for --push" in error(capsys, run, "-o", tmp_path / "out", "--private")
    assert not (tmp_path / "out").exists()


def test_settings_of_a_run_come_along_but_no_passwords(tmp_path):
    run = agent(tmp_path / "run")
    settings = run / "Thermostat-v1"
    settings.mkdir()
    noise = "env_wrapper: [{sb3_camp.wrappers.NoisyObservationWrapper: {sigma: 0.4}}]\n"
    (settings / "config.yml").write_text(noise)
    (settings / "args.yml").write_text("algo: ppo\nenv: Thermostat-v1\nstorage: postgresql+psycopg://me:hunter2@server/db\n")
    out = tmp_path / "out"
    assert main([str(run), "-o", str(out)]) == 0
    assert (out / "config.yml").read_text() == noise
    assert not [path for path in out.iterdir() if b"hunter2" in path.read_bytes()]


def statistics(file: Path, mean: float) -> bytes:
    normalizer = VecNormalize(make_vec_env("CartPole-v1"), clip_obs=np.inf)
    normalizer.obs_rms.mean += mean
    file.parent.mkdir(exist_ok=True)
    normalizer.save(str(file))
    return file.read_bytes()


@pytest.mark.parametrize("is_run", [True, False])
@pytest.mark.parametrize("certified", ["final", "checkpoint", "none", "lost"])
def test_the_statistics_that_come_along_are_those_that_were_certified(certified, is_run, tmp_path, capsys):
    run, final = tmp_path / "run", tmp_path / "run" / "Thermostat-v1" / "vecnormalize.pkl"
    checkpoint = run / "rl_model_vecnormalize_64_steps.pkl"
    (run / "Thermostat-v1").mkdir(parents=True)
    if is_run:
        final.with_name("config.yml").write_text("normalize: true\n")
        final.with_name("args.yml").write_text("algo: ppo\nenv: Thermostat-v1\n")
    else:
        final = run / "vec_normalize.pkl"
    (run / "a_replay_buffer.pkl").write_bytes(b"is no statistics")
    contents = {"final": statistics(final, 0.1), "checkpoint": statistics(checkpoint, 0.3)}
    lost = tmp_path / "lost.pkl"
    statistics(lost, 0.7)
    wrappers = full_certificate().env_wrappers
    file = {"final": final, "checkpoint": checkpoint, "lost": lost}.get(certified)
    if file is not None:
        as_certified = json.loads(json.dumps(read_normalization(file)), parse_constant=str)  # an infinite clip_obs
        frozen = {"sb3_camp.wrappers.FrozenNormalizeObservation": as_certified}
        wrappers = {"env_wrapper": [*wrappers["env_wrapper"], frozen]}
    agent(run, replace(full_certificate(), env_wrappers=wrappers))
    out = tmp_path / "out"
    if certified == "lost":
        assert "no file beside it holds the statistics" in error(capsys, run, "-o", out) and not out.exists()
    else:
        assert main([str(run), "-o", str(out)]) == 0
        packed = out / "vec_normalize.pkl"
        assert (packed.read_bytes() if packed.exists() else None) == contents.get(certified)


def test_the_upload_asks_the_hubs_own_client(tmp_path, monkeypatch, capsys):
    """Calls that the client would not take are errors of the specification; the network is not asked."""
    api = create_autospec(HfApi, instance=True)
    api.create_repo.return_value = "hub/me/agent"
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    run, out = agent(tmp_path / "run"), tmp_path / "out"
    assert main([str(run), "-o", str(out), "--push", "me/agent", "--private"]) == 0
    assert "Uploaded: hub/me/agent" in capsys.readouterr().out
    api.create_repo.assert_called_once_with("me/agent", private=True, exist_ok=True)
    (call,) = api.upload_folder.call_args_list
    assert (call.kwargs["repo_id"], call.kwargs["folder_path"]) == ("me/agent", out)
    assert sorted(call.kwargs["allow_patterns"]) == sorted(path.name for path in out.iterdir())

    shutil.rmtree(out)
    api.upload_folder.side_effect = OSError("no route\nto host")
    line = error(capsys, run, "-o", out, "--push", "me/agent")
    assert "the upload failed: no route to host" in line and (out / "README.md").is_file()


def test_an_agent_that_attacks_contradict_is_not_published(tmp_path, capsys):
    run = tmp_path / "run"
    evaluated = np.random.default_rng(0).uniform(10, 100, 1000)
    write_certificate(run / "certification" / "certificate.json", POLICY, [50.0, 30.0, 20.0], evaluated)
    attacked((0.0, 0.1), [[60.0] * 400, [0.0] * 400], run / "attacks" / "pgd")
    assert main([str(run), "-o", str(tmp_path / "out")]) == 3
    assert "violation of the certificate" in capsys.readouterr().err and not (tmp_path / "out").exists()
