"""Labels by which a box that a killed process left is found among those of others.

A box is left when the run that had it is over: its holder, a process, is dead, or its lease is. Of a holder on another
machine only the lease says something.
"""

import time
from collections.abc import Callable, Collection, Mapping

from graftline.harbor.executors.containers import ContainerSpec
from graftline.harbor.leases import is_dead, new_owner

LABEL = "graftline.harbor."
LEASE_SLACK_S = 600.0
"""By what a lease is longer than what runs under it may take."""


class ContainerLabels:
    """Labels of the boxes of one executor.

    Args:
        owner: Whose boxes they are.
        now: Seconds since 1970.
    """

    def __init__(self, owner: str, now: Callable[[], float] = time.time) -> None:
        self.of_owner = {f"{LABEL}owner": owner}
        self._holder, self._now = new_owner(), now

    def of(self, order: ContainerSpec) -> dict[str, str]:
        """Return the labels of the box of `order`."""
        named = {
            "rollout": order.box.rollout_id,
            "attempt": str(order.box.attempt),
            "role": order.role,
            "holder": self._holder,
            "lease": str(int(self._now() + order.timeout_s + LEASE_SLACK_S)),
        }
        return {**self.of_owner, **{f"{LABEL}{name}": value for name, value in named.items()}}

    def is_left(self, box_id: str, labels: Mapping[str, str], live: Collection[str]) -> bool:
        """Return whether a box of our owner is nobody's; `live` are the ids of those that run here."""
        holder, lease = labels.get(f"{LABEL}holder", ""), labels.get(f"{LABEL}lease", "")
        if holder == self._holder:
            return box_id not in live
        return is_dead(holder) or not lease.isdigit() or int(lease) < self._now()
