"""The folder of a certified agent that a model hub understands."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from sb3_camp.attack_runs.agent_results import AgentResults
from sb3_camp.certification.certificate_files import certificate_writers
from sb3_camp.certification.source_files import found_above
from sb3_camp.errors import InputError
from sb3_camp.files import Write, json_bytes, read_bytes, sha256, write_files
from sb3_camp.reporting.model_card import model_card
from sb3_camp.runs.layers import is_frozen_normalization
from sb3_camp.runs.normalization import read_normalization, statistics_beside
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.runs.scenario import wrapper_entries


def write_hub_folder(results: AgentResults, folder: Path, model: Path | None = None) -> list[Path]:
    """
    Write the card, the agent and its certificate: all of them, or none.

    ``args.yml`` of a run is left out: it may hold passwords (``--storage``).

    :param results: A certificate of an agent, and the attacks that it speaks of
    :param folder: Where to, a new or an empty folder: what lies there would be uploaded too
    :param model: The agent, if it does not lie where the certificate says
    :return: the files
    :raises InputError: if the folder holds something, the agent or the statistics that it was certified with cannot be found,
        or files cannot be written
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists already: give a new or an empty folder with -o")
    certificate = results.certificate
    source, content = _agent(results, model)
    name = "-".join(filter(None, (certificate.algo, certificate.env_id))).replace("/", "-").replace("\\", "-")
    name = "".join(one for one in name if one.isascii() and (one.isalnum() or one in "-_.")) or "agent"
    card = model_card(results, f"{name}.zip", sha256(json_bytes(certificate.as_json())))
    files: dict[Path, Write] = {folder / f"{name}.zip": lambda file: file.write(content)}
    run = RunFolder.containing(source)
    if run is not None:
        settings = read_bytes(run.config_file)
        files[folder / "config.yml"] = lambda file: file.write(settings)
    statistics = _statistics(results, source, run)
    if statistics is not None:
        normalized = read_bytes(statistics)
        files[folder / "vec_normalize.pkl"] = lambda file: file.write(normalized)
    files |= certificate_writers(certificate, folder)
    files[folder / "README.md"] = lambda file: file.write(card.encode())
    write_files(files)
    return list(files)


def _agent(results: AgentResults, given: Path | None) -> tuple[Path, bytes]:
    """The file of the agent that the certificate is of, and its content."""
    digest = results.certificate.model_sha256
    if digest is None:
        raise InputError(f"{results.file}: it does not tell the SHA-256 of its agent: evaluate and certify again")
    for path in [given] if given is not None else _candidates(results):
        if path.is_file() and sha256(content := read_bytes(path)) == digest:
            return path, content
    where = given or results.certificate.model
    raise InputError(f"{where}: not the agent that {results.file} is of: give its file with --model")


def _candidates(results: AgentResults) -> Iterator[Path]:
    if results.certificate.model is not None:
        yield from found_above(results.certificate.model, results.file)
    for folder in results.file.resolve().parents[:2]:
        yield from sorted(folder.glob("*.zip"))


def _statistics(results: AgentResults, source: Path, run: RunFolder | None) -> Path | None:
    """The file with the statistics that the certificate is of: with others it would be another policy."""
    beside = [] if run is None else [run.config_file.with_name("vecnormalize.pkl")]
    wrappers = results.certificate.env_wrappers
    if wrappers is None:  # of a log that does not tell
        return next((path for path in beside if path.is_file()), None)
    frozen = next((kwargs for name, kwargs in wrapper_entries(wrappers) if is_frozen_normalization(name)), None)
    if frozen is None:
        return None
    # By their names first: a replay buffer is large
    named = filter(None, [statistics_beside(source), *beside])
    for path in dict.fromkeys([*named, *sorted(source.parent.glob("*.pkl"))]):
        with contextlib.suppress(InputError):  # another pickle: a replay buffer, for example
            if path.is_file() and json.loads(json.dumps(read_normalization(path)), parse_constant=str) == frozen:
                return path
    raise InputError(
        f"{source}: no file beside it holds the statistics of the observations that {results.file} was made with: put the one "
        "that was evaluated (--vecnormalize) there"
    )
