"""What is kept of an attack that was interrupted."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes
from sb3_camp.errors import InputError
from sb3_camp.evaluation.episode_plan import Chunk
from sb3_camp.evaluation.evaluation_file import Settings, as_json, read_more, read_partial, write_partial

NOT_COMPARED = ("model", "timesteps", "versions")
"""Settings that may change before an attack goes on: where the model lies, and what follows from its content."""


def write_partial_attack(path: Path, settings: Mapping[str, Any], played: AttackedEpisodes, n_chunks: int) -> None:
    """
    Write the episodes of the first ``n_chunks`` chunks, whole or not at all.

    :param path: The file
    :param settings: Settings of the attack, budgets included
    :param played: The episodes
    :param n_chunks: Number of chunks, counted through all budgets
    """
    more = {"budget_spent": played.budget_spent, "flips": played.flips}
    write_partial(path, _comparable(settings), played.episodes, n_chunks, **more)


def read_partial_attack(path: Path, settings: Mapping[str, Any], chunks: Sequence[Chunk]) -> tuple[AttackedEpisodes, int]:
    """
    :param path: File of an interrupted attack
    :param settings: Settings of the attack that is to be resumed, budgets included
    :param chunks: Its chunks, those of all budgets
    :return: the episodes, and the number of chunks that have been played
    :raises InputError: if the file cannot be read, was made with other settings, or does not hold the episodes of its chunks
    """
    episodes, n_chunks = read_partial(path, _comparable(settings), chunks)
    budget_spent, flips = read_more(path, "budget_spent"), read_more(path, "flips", "i")
    if not budget_spent.size == flips.size == episodes.returns.size:
        raise InputError(
            f"{path}: cannot be resumed, it has {episodes.returns.size} episodes, but {budget_spent.size} budget_spent and "
            f"{flips.size} flips: leave out --resume to start over"
        )
    return AttackedEpisodes(episodes, budget_spent, flips), n_chunks


def _comparable(settings: Mapping[str, Any]) -> Settings:
    scalars = str | int | float | bool
    return {
        name: value if isinstance(value, scalars) else as_json(value)
        for name, value in settings.items()
        if name not in NOT_COMPARED
    }
