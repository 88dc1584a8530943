"""One sigma on entries of several units, or one that disappears in the rounding of pixels, is said."""

import numpy as np
import pytest
from gymnasium import spaces

from sb3_camp.evaluation.sigma_units import unit_warnings
from sb3_camp.runs.noise_placement import SmoothingNoise

IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
BOTH = spaces.Dict(camera=IMAGE, pose=VECTOR)


@pytest.mark.parametrize(
    ("space", "noise", "said"),
    [
        (IMAGE, SmoothingNoise(0.05), "0.05 of the range from 0 to 1 is 12.75"),
        (IMAGE, SmoothingNoise(0.5), None),
        (VECTOR, SmoothingNoise(0.05), None),
        (BOTH, SmoothingNoise(12.75), "--sigma KEY:NUMBER"),
        (BOTH, SmoothingNoise(12.75, ("pose",)), None),
        (BOTH, SmoothingNoise(0.05, ("pose",)), "disappears"),
        (BOTH, SmoothingNoise(0.05, ("camera",)), None),
        (BOTH, SmoothingNoise(1.0, (), {"camera": 12.75, "pose": 0.1}), None),
    ],
)
def test_units_that_were_hardly_meant(space, noise, said):
    warnings = list(unit_warnings(space, noise))
    assert len(warnings) == (said is not None) and all(said in warning for warning in warnings)


def test_the_limit_of_the_warning():
    """At half a pixel value a third of the pixels change (2 Phi(-1))."""
    rng = np.random.default_rng(0)
    changed = np.mean(np.rint(100 + 0.5 * rng.standard_normal(100_000)) != 100)
    assert 0.31 < changed < 0.33
