"""What two observation spaces must have in common for a policy of one to act in the other."""

from typing import Any

from gymnasium import spaces


def space_signature(space: spaces.Space) -> Any:
    """
    Shapes and kinds of numbers of a space, without its bounds: noise makes a bounded space unbounded.

    :param space: An observation space, a Dict of them included
    :return: Something that is equal for two spaces if a policy of one can act in the other
    """
    if isinstance(space, spaces.Dict):
        return {key: space_signature(entry) for key, entry in space.spaces.items()}
    if isinstance(space, spaces.Box):
        # SB3 converts all floats to single precision
        return space.shape, "float" if space.dtype.kind == "f" else space.dtype.name
    return space
