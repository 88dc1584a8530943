"""The argument ``reference`` of CAMPDQN: what the primary network imitates, and how earlier versions wrote it."""

import os
import warnings
from typing import Any

from sb3_camp.camp_dqn.reference_registry import FROZEN, REFERENCES
from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import TrainedAgent

OLD_NAMES = ("replay", "clean_reference")
_OF_REPLAY: dict[str, str] = {"split": "alternating", "shared": "shared"}


class ByDefault(str):
    """The default of an argument, to be told apart from the same text given by the user: the latter contradicts another."""

    __slots__ = ()


BY_DEFAULT: Any = ByDefault("alternating")


def is_learning_kind(reference: Any) -> bool:
    return isinstance(reference, str) and reference in REFERENCES


def in_new_words(reference: Any, old: dict[str, Any], trained: str | None = None, stacklevel: int = 2) -> Any:
    """
    Read ``replay`` and ``clean_reference``, which said together with ``reference`` what this says alone now.

    :param reference: As given to CAMPDQN; :class:`ByDefault` if it was not, None if it was written as earlier versions did
    :param old: The old names and their values, None where one was not given
    :param trained: What the model imitated so far, None for a new one
    :param stacklevel: How far up the caller is whom the DeprecationWarning concerns
    :return: the reference in today's words
    :raises InputError: if a value is unknown, or contradicts another
    """
    old = {name: value for name, value in old.items() if value is not None}
    if not old and reference is not None:
        return reference
    replay, clean = old.get("replay"), old.get("clean_reference")
    if replay not in (None, *_OF_REPLAY):
        raise InputError(f"replay must be one of {', '.join(_OF_REPLAY)}, not {replay!r}.")
    if clean is not None and not isinstance(clean, bool):
        raise InputError(f"clean_reference must be True or False, not {clean!r}.")

    meant = reference
    if isinstance(reference, ByDefault) or reference is None:
        meant = _OF_REPLAY[replay or "split"]
        if clean:
            meant = "clean"
        elif trained == FROZEN:
            meant = FROZEN  # neither of the old names concerned a trained agent
    is_clean = is_learning_kind(meant) and meant == "clean"
    if clean is not None and clean != is_clean:
        _contradict(reference, f"clean_reference={clean}")
    if replay is not None and is_learning_kind(meant) and not is_clean and meant != _OF_REPLAY[replay]:
        _contradict(reference, f"replay={replay!r}")

    words = {**({"reference": None} if reference is None else {}), **old}
    spelled = ", ".join(f"{name}={value!r}" for name, value in words.items())
    new = "reference=<the trained agent> alone"
    if is_learning_kind(meant) or trained == FROZEN:
        new = f"reference={meant!r}"
    warnings.warn(f"CAMPDQN: {spelled} is now written {new}.", DeprecationWarning, stacklevel=stacklevel + 1)
    return meant


def _contradict(reference: Any, old: str) -> None:
    shown = repr(reference) if isinstance(reference, str) else "a trained agent"
    raise InputError(
        f"reference={shown} contradicts {old}, which earlier versions read: give reference alone, one of "
        f"{', '.join(REFERENCES)} or a trained agent (in the zoo: -params \"reference:'shared'\")."
    )


def settle(members: dict[str, Any]) -> tuple[str, TrainedAgent | None]:
    """
    What a model imitates that is being built or loaded.

    :param members: The attributes of the model: ``reference``, what is asked for, :class:`ByDefault` if nothing is;
        ``reference_kwargs``, its settings; ``reference_kind``, what it imitated so far, None for a new model or one of a file
        of an earlier version; the old names from such a file or from the loader, which are removed
    :return: what it is; the trained agent that a new model shall imitate, None without
    :raises InputError: if what is asked for contradicts itself or the file
    """
    reference, trained = members["reference"], members["reference_kind"]
    old = {name: members.pop(name) for name in OLD_NAMES if name in members}
    if old and trained is None:
        if members["frozen_reference"] is not None:
            trained = FROZEN
        elif members["clean_observation_space"] is not None:
            trained = "clean"
        else:
            trained = _OF_REPLAY.get(old.get("replay", ""), "alternating")
        if not isinstance(reference, ByDefault):
            old = {}  # they are those of the file
    if old:
        reference = in_new_words(reference, old, trained, stacklevel=4)
    elif isinstance(reference, ByDefault):
        reference = trained or str(reference)
    if trained is not None:
        kind, agent = _kept(reference, trained), None
    else:
        kind, agent = (reference, None) if is_learning_kind(reference) else (FROZEN, reference)
        _check_is_no_unknown_word(agent)
    if kind == FROZEN and members.get("reference_kwargs"):
        raise InputError(
            f"reference_kwargs: a trained agent, as the reference, has no settings such as {members['reference_kwargs']}"
        )
    return kind, agent


def _check_is_no_unknown_word(agent: Any) -> None:
    if isinstance(agent, str) and agent.isidentifier() and not any(os.path.isfile(f"{agent}{end}") for end in ("", ".zip")):
        raise InputError(
            f"reference={agent!r}: no checkpoint at {agent}, and none of {', '.join(REFERENCES)}: give the path of "
            "a checkpoint, or import the package that registers it (in the zoo: --gym-packages)."
        )


def _kept(asked: Any, trained: str) -> str:
    """What a loaded model imitates from now on: which steps the networks learn from may change, while both see the same."""
    if trained == FROZEN:
        if is_learning_kind(asked):
            raise InputError(
                f"reference={asked!r}: this model imitates a trained agent, which cannot be changed: leave reference out "
                "(in the zoo: -params \"reference:'frozen'\")."
            )
        if asked != FROZEN:
            warnings.warn(f"The model keeps the reference it was trained with, {asked} is not read.", stacklevel=5)
        return FROZEN
    if trained not in REFERENCES:
        raise InputError(
            f"this model was trained with reference={trained!r}, which is none of {', '.join(REFERENCES)}: import the package "
            "that registers it first."
        )
    if not is_learning_kind(asked):
        raise InputError(
            "reference: a trained agent cannot be given to a CAMPDQN that has a reference of its own: start a new model, "
            "which may have this one as its reference."
        )
    if asked != trained and not _alike(REFERENCES[asked], REFERENCES[trained]):
        raise InputError(
            f"reference={asked!r}: this model was trained with reference={trained!r}, which cannot be changed "
            f"(in the zoo: -params \"reference:'{trained}'\")."
        )
    return asked


def _alike(one: Any, other: Any) -> bool:
    """Whether two classes of references have the same policy, which sees the same."""
    return one.sees_clean == other.sees_clean and one.make_policy.__func__ is other.make_policy.__func__
