"""How much one sender may ask for: buckets of tokens, in memory that does not grow with the number of senders."""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """``burst`` requests at once, and ``per_second`` in the long run; zero per second means no limit."""

    per_second: float
    burst: int


class Buckets:
    """One bucket a sender. When there are too many, the one quiet for longest is forgotten: it is full again."""

    def __init__(self, rate: Rate, clock: Callable[[], float], most: int = 50_000) -> None:
        self._rate = rate
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, sender: str) -> int:
        """Take a token: 0 if there was one, else the whole seconds after which there will be."""
        rate = self._rate
        if rate.per_second <= 0:
            return 0
        now = self._clock()
        tokens, since = self._buckets.pop(sender, (float(rate.burst), now))
        tokens = min(float(rate.burst), tokens + max(0.0, now - since) * rate.per_second)
        wait = 0 if tokens >= 1 else math.ceil((1 - tokens) / rate.per_second)
        self._buckets[sender] = (tokens if wait else tokens - 1, now)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait


def network(address: str) -> str:
    """Whom an address belongs to: IPv6 gives every customer 2^64 addresses at least, so those count as one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False).network_address)
