"""Watching the seeds of the smoothing noise, whose draws must not be the same in two episodes."""

from collections.abc import Callable

from sb3_camp.errors import InputError


class Seedings:
    """
    Watches how often the smoothing noise is seeded: by the first reset, and never again.

    :param count: Returns how often each noise has been seeded so far, an empty list without noise
    """

    def __init__(self, count: Callable[[], list[int]]) -> None:
        self._count = count
        self._counts = count()

    def check_reset(self) -> None:
        """
        Call it after the first reset.

        :raises InputError: if it did not seed every noise
        """
        before, self._counts = self._counts, self._count()
        if any(count == previous for count, previous in zip(self._counts, before, strict=True)):
            raise InputError(
                "a wrapper outside of the smoothing noise does not pass on the seed of reset, so the noise cannot be "
                "reproduced: put the noise outside of it (in env_wrapper: after it)"
            )

    def check_end(self) -> None:
        """
        Call it after the last step.

        :raises InputError: if a noise was seeded after the first reset
        """
        if self._count() != self._counts:
            raise InputError(
                "a wrapper outside of the smoothing noise seeds it again at later resets, so episodes may repeat the same "
                "noise and are not independent: put the noise outside of it (in env_wrapper: after it)"
            )
