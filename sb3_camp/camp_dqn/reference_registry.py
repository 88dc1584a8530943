"""What the primary network can imitate while it learns too, by name: what this package has, and whatever is added to it."""

from typing import TYPE_CHECKING, TypeVar

from sb3_camp.errors import InputError

if TYPE_CHECKING:
    from sb3_camp.camp_dqn.references import LearningReference

REFERENCES: "dict[str, type[LearningReference]]" = {}
"""The classes of references by name"""

# A trained agent, which learns nothing
FROZEN = "frozen"

_ReferenceT = TypeVar("_ReferenceT", bound="type[LearningReference]")


def register_reference(reference: _ReferenceT) -> _ReferenceT:
    """
    Add a reference: for ``CAMPDQN(reference=name)``, and for ``reference: name`` in the zoo. Also a decorator of its class.

    :param reference: A subclass of :class:`~sb3_camp.camp_dqn.LearningReference`; its ``kind`` is the name, which a saved
        model holds: whoever loads it must have registered the class before
    :return: the same class
    :raises InputError: if it is no such class, or if another reference has this name
    """
    name = getattr(reference, "kind", None)
    if not isinstance(reference, type) or not isinstance(name, str):
        raise InputError(
            f"register_reference takes a subclass of LearningReference that has a name as its kind: {reference!r}"
        )
    if name == FROZEN or REFERENCES.get(name, reference) is not reference:
        raise InputError(f"there is a reference {name!r} already: choose another name")
    REFERENCES[name] = reference
    return reference


def sees_clean(kind: str | None) -> bool:
    """
    :param kind: Name of a reference, :data:`FROZEN`, or None
    :return: whether it sees what is under the noise
    """
    return kind in REFERENCES and REFERENCES[kind].sees_clean
