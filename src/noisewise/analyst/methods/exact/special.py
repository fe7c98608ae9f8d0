"""Small functions of numbers that the density of ``exact`` is made of, each with its derivative."""

import math

from noisewise.analyst.methods.exact.compile import compiled

BEND = 2.0
LOG_LEVEL = math.log(math.log1p(math.exp(BEND)))  # so that bent_log(0) = 0
STRAIGHT = 0.1  # below this scale a logarithm is nearly normal, and needs no bend


@compiled
def noise(residual: float, sd: float, softness: float) -> tuple[float, float]:
    """Log density of released minus true, up to a constant, and its derivative by the true value.

    A positive sd is that of normal noise, a negative one is minus that of Laplace noise, whose kink is rounded (Huber's
    function) over ``softness`` scales to either side. At 0 it is Laplace's law itself.
    """
    if sd > 0.0:
        scaled = residual / sd
        return -0.5 * scaled * scaled, scaled / sd
    rate = -math.sqrt(2.0) / sd
    scaled = rate * residual
    if scaled > softness:
        return -scaled, rate
    if scaled < -softness:
        return scaled, -rate
    if softness == 0.0:  # on the kink itself
        return 0.0, 0.0
    return -0.5 * (scaled * scaled / softness + softness), rate * scaled / softness


@compiled
def softplus(x: float) -> tuple[float, float]:
    """log(1 + e^x) and its derivative, with no overflow."""
    if x > 0.0:
        return x + math.log1p(math.exp(-x)), 1.0 / (1.0 + math.exp(-x))
    return math.log1p(math.exp(x)), math.exp(x) / (1.0 + math.exp(x))


@compiled
def digamma(x: float) -> float:
    """The derivative of log Gamma at x > 0: recurrence to x >= 10, then the asymptotic series (error below 1e-13)."""
    shift = 0.0
    while x < 10.0:
        shift -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y * (1.0 / 240.0 - y * (1.0 / 132.0)))))
    return shift + math.log(x) - 0.5 / x - series


@compiled
def bent_log(x: float, scale: float, power: float) -> tuple[float, float, float, float]:
    """The logarithm of a chi-square-like quantity by a latent x: value, slope, log slope (up to a
    constant) and its derivative.

    power log q with q = 1 + scale x / power, bent (softplus) to stay above 0. To the left it is a straight line, as the
    tail is exponential; to the right the quantity is a power of x, so that walls like exp(-quantity) or, from noise,
    exp(-quantity^2) are polynomials in x that steps can follow, not exp(-exp(x)). For a small scale it is scale x.
    """
    if scale < STRAIGHT:
        return scale * x, scale, 0.0, 0.0
    ratio = scale / power
    argument = BEND * (1.0 + ratio * x)
    q, s = softplus(argument)
    log_q = math.log(q)
    # the logarithm of the softplus's slope s is argument - q; constants are left out
    return power * (log_q - LOG_LEVEL), scale * s * BEND / q, argument - q - log_q, ratio * BEND * (1.0 - s - s / q)


@compiled
def walled_log(x: float, scale: float, power: float) -> tuple[float, float, float, float]:
    """The same for a variance, which meets walls on both sides (its prior's below, the noise above): power asinh."""
    y = scale * x / power
    stretch = 1.0 + y * y
    slope = scale / math.sqrt(stretch)
    return power * math.asinh(y), slope, math.log(slope), -(scale / power) * y / stretch
