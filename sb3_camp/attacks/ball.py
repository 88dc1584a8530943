"""Which perturbations a row may receive: those inside its ball, and of images those that are images again."""

import torch as th

# sums of squares in another order give another last digit: a float norm stays below the budget by this factor
_SUMMATION = 1 - 1e-11
# the largest part of a ball that is left unused for the rounding of frames
_MARGIN = 1e-3
_HALVINGS = 8


class PerRow:
    """Holds tensors, or others like it, whose first dimension runs over the same rows."""

    def keep(self, rows: th.Tensor) -> None:
        """
        :param rows: positions of the rows that stay, int64
        """
        for name, value in vars(self).items():
            if isinstance(value, th.Tensor):
                setattr(self, name, value[rows])
            elif isinstance(value, PerRow):
                value.keep(rows)


class Ball(PerRow):
    """
    The l2 balls around clean frames, cut to the valid range 0..255 if they are images.

    Perturbations are float64 and continuous; :meth:`received` makes them what the policy's side gets.

    :param clean: Clean frames, flattened, (N, D), float32 or uint8
    :param radius: (N,) float64
    """

    def __init__(self, clean: th.Tensor, radius: th.Tensor) -> None:
        self._images = clean.dtype == th.uint8
        self._clean = clean.double()
        self._radius = self._inner = radius[:, None]
        self._may_leave = False
        if not self._images:
            self._radius = self._radius * _SUMMATION
            # rounding moves a frame by at most this, so perturbations end that much before the border
            rounding = 1.001 * 2.0**-24 * (th.linalg.vector_norm(self._clean, dim=1, keepdim=True) + self._radius) + 1e-40
            self._inner = self._radius - th.minimum(rounding, _MARGIN * self._radius)
            self._may_leave = bool((rounding > _MARGIN * self._radius).any())

    def project(self, delta: th.Tensor) -> th.Tensor:
        """
        :param delta: (N, D) float64
        :return: its projection on the ball, then on the valid range
        """
        norm = th.linalg.vector_norm(delta, dim=1, keepdim=True)
        delta = delta * (self._inner / norm).clamp_(max=1)  # 0 / 0 cannot be: a radius is positive
        if self._images:
            delta = th.maximum(th.minimum(delta, 255 - self._clean), -self._clean)
        return delta

    def received(self, delta: th.Tensor, norm: th.Tensor | None = None) -> th.Tensor:
        """
        :param delta: Perturbations that :meth:`project` returned, (N, D) float64
        :param norm: Norms that images come close to without exceeding them, (N,) (default: those of ``delta``)
        :return: the frames that the policy's side gets, float32 (N, D), inside the ball
        """
        if self._images:
            if norm is None:
                norm = th.linalg.vector_norm(delta, dim=1) * (1 + 1e-9)  # a norm of 2 may have come out just below
            limit = th.minimum(norm[:, None], self._radius)
            room = th.where(delta > 0, 255 - self._clean, self._clean)
            return self._clean.add(delta.sign().mul_(whole_pixels(delta.abs(), limit, room))).float()
        frames = (self._clean + delta).float()
        if self._may_leave:
            # where the nearest floats leave the ball, take those toward the clean frame: no entry moves by more than delta
            moved = (frames.double() - self._clean).abs()
            toward = th.where(moved > delta.abs(), th.nextafter(frames, self._clean.float()), frames)
            frames = th.where(self.spent(frames)[:, None] > self._radius, toward, frames)
        return frames

    def spent(self, frames: th.Tensor) -> th.Tensor:
        """
        :param frames: (N, D)
        :return: how far they are from the clean ones, l2 in float64, (N,)
        """
        return th.linalg.vector_norm(frames.double() - self._clean, dim=1)


def whole_pixels(size: th.Tensor, limit: th.Tensor, room: th.Tensor) -> th.Tensor:
    """
    Round the sizes of a perturbation to whole numbers, so that it keeps its norm and, as well as it can, its direction.

    Nearest rounding would make a perturbation that is spread over many pixels vanish, or carry it out of the ball. So the
    sizes are scaled before: among whole vectors no longer than ``limit``, nearest rounding of ``s * size`` with the largest
    fitting ``s`` has the largest inner product with ``size`` for the norm that it spends. Of the entries that are next to
    grow, as many do as fit.

    :param size: At least 0, (N, D) float64, no norm above ``limit``
    :param limit: Largest norms, (N, 1)
    :param room: Largest sizes, whole numbers, (N, D)
    :return: whole numbers of at most ``room``, (N, D) float64, no norm above ``limit``
    """

    def rounded(scale: th.Tensor) -> th.Tensor:
        pixels = size * scale
        return th.minimum(pixels.round_(), room, out=pixels)

    def squares(pixels: th.Tensor) -> th.Tensor:
        return th.linalg.vecdot(pixels, pixels).unsqueeze(1)

    # at 1/2 no entry grows, at the other end the largest one alone is too long
    low = th.full_like(limit, 0.5)
    high = (limit + 1) / size.amax(dim=1, keepdim=True).clamp_(min=1e-300)
    for _ in range(_HALVINGS):
        middle = (low * high).sqrt_()
        fits = squares(rounded(middle)).sqrt_() <= limit
        low, high = th.where(fits, middle, low), th.where(fits, high, middle)
    pixels = rounded(low)
    grows = rounded(high) > pixels
    growth = grows * (2 * pixels + 1)  # of the square of the norm
    return pixels + (grows & ((squares(pixels) + growth.cumsum(dim=1)).sqrt_() <= limit))
