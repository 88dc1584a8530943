"""In which units one sigma for all entries of an observation is, and where that is probably not what was meant."""

from collections.abc import Iterator

import numpy as np
from gymnasium import spaces

from sb3_camp.runs.noise_placement import SmoothingNoise

# Rounded to whole numbers, noise of a smaller sigma leaves more than two of three pixels as they are
_SMALLEST_OF_PIXELS = 0.5


def unit_warnings(space: spaces.Space, noise: SmoothingNoise) -> Iterator[str]:
    """
    :param space: What the policy observes
    :param noise: The smoothing noise
    :return: what a user may not have meant, one line each
    """
    if noise.sensor_sigma is not None:
        return
    entries = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    noisy = [entry for key, entry in entries.items() if key not in noise.clean_keys]
    of_pixels = [entry.dtype == np.uint8 for entry in noisy]
    if all(of_pixels) and noise.sigma < _SMALLEST_OF_PIXELS:
        yield (
            f"sigma {noise.sigma:g} is in pixel values from 0 to 255, and most of it disappears where pixels are rounded "
            f"({noise.sigma:g} of the range from 0 to 1 is {255 * noise.sigma:g})"
        )
    elif any(of_pixels) and not all(of_pixels):
        yield (
            f"the same sigma {noise.sigma:g} is on pictures, in pixel values, and on other entries, in their units: "
            "--sigma KEY:NUMBER ... gives each its own"
        )
