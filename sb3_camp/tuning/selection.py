"""The episodes by which a checkpoint was selected, and the marks that keep them out of its certificate."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sb3_camp.certification.episode_logs import SELECTION_FORMAT
from sb3_camp.files import npz_writer, write_file

# Evaluations take the seeds from 2^30 to 2^31, everyday trainings those below, so no selection shares an episode with them
_FIRST_SEED, _SELECTION_STREAM = 2**31, 0x73656C65
SELECTION_MEMBER = "certified_selection.json"
"""Member of a checkpoint's zip file that says how it was selected. SB3 passes over it."""


def selection_seed(seed: int, n_before: int) -> int:
    """
    :param seed: Seed of all evaluations of a training, non-negative
    :param n_before: Number of seeds that the evaluations before this one took
    :return: seed of the first episode; those of the others follow
    """
    state = np.random.SeedSequence(seed, spawn_key=(_SELECTION_STREAM,)).generate_state(1)
    return _FIRST_SEED + int(state[0] >> 3) + n_before


def write_selection_log(path: Path, **entries: Any) -> None:
    """
    Write the evaluations of a training, whole or not at all, in the format of the zoo's ``evaluations.npz`` with more keys.

    :param path: The file, replaced if it exists
    :param entries: Arrays and settings, see :class:`sb3_camp.tuning.CertifiedReturnCallback`
    :raises InputError: if it cannot be written
    """
    write_file(path, npz_writer({"format": SELECTION_FORMAT, **entries}))


def mark_selected(path: Path, **facts: Any) -> None:
    """
    Note in a checkpoint that it was selected, and by which episodes.

    :param path: The ``.zip`` file that SB3's ``save`` wrote
    :param facts: What is to be noted, as JSON
    """
    note = "Selected by its certified return, so the episodes of the selection certify nothing: evaluate it with fresh ones."
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(SELECTION_MEMBER, json.dumps({"note": note, **facts}, indent=2))
