"""Faults to inject into requests: which requests, how often, and what goes wrong, before or after the effect.

Watches that are already open are disturbed through `watch.WatchHub`. The first rule that matches and is not used up
is taken; nothing here touches a connection.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .request_info import RequestInfo
from .status import REASONS, JsonObject, StatusError

_MESSAGES: Mapping[int, str] = {
    401: "Unauthorized",
    429: "Too many requests, please try again later.",
    500: "etcdserver: leader changed",
    503: "apiserver not ready",
    504: "Timeout: request did not complete within the allotted duration",
}


@dataclass(slots=True, eq=False)
class Fault:
    """Matching: every field given must fit, None fits all. `resource` is plural/subresource, `*` ends a prefix.

    `node` is the node a pod is bound to or a list selects. Then, in this order: wait `delay_seconds`; if `hang`,
    never answer; if `reset`, reset the connection; if `status`, answer with it. With `when="after"` the request takes
    effect first. None of the three: a delay only, or a wrong Date.
    """

    verb: str | None = None
    resource: str | None = None
    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    path: str | None = None
    user_agent: str | None = None
    times: int | None = None
    """How many requests it is for; None means until it is removed."""
    probability: float = 1.0
    when: Literal["before", "after"] = "before"
    delay_seconds: float = 0.0
    hang: bool = False
    reset: bool = False
    status: int | None = None
    message: str | None = None
    reason: str | None = None
    details: JsonObject | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    plain_text: bool = False
    """Answer with the bare message, as API Priority and Fairness does, not with a Status."""
    html: bool = False
    """Answer with a page, as a proxy does that gets nothing from the API server behind it."""
    date_ahead_seconds: float = 0.0
    """How far the Date of the answer is ahead of the server's clock; behind where negative."""
    hits: int = 0
    """How many requests it was taken for."""

    def fits(self, info: RequestInfo, user_agent: str, node: str) -> bool:
        return (
            self.verb in {None, info.verb}
            and self._fits_resource(info.resource_name)
            and self.namespace in {None, info.namespace}
            and self.name in {None, info.name}
            and self.node in {None, node}
            and (self.path is None or re.search(self.path, info.path) is not None)
            and (self.user_agent is None or re.search(self.user_agent, user_agent) is not None)
        )

    def _fits_resource(self, resource_name: str) -> bool:
        if self.resource is None:
            return True
        if self.resource.endswith("*"):
            return resource_name.startswith(self.resource[:-1])
        return resource_name == self.resource

    @property
    def used_up(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def error(self) -> StatusError:
        """The refusal it answers with; only for faults with a status."""
        code = self.status or 500
        message = self.message or _MESSAGES.get(code, "injected fault")
        reason = REASONS.get(code, "") if self.reason is None else self.reason
        return StatusError(code, message, reason=reason, details=self.details)


class Faults:
    """The rules in force, in order."""

    def __init__(self, seed: int | None = None) -> None:
        self.rules: list[Fault] = []
        self._random = random.Random(seed)

    def add(self, fault: Fault | None = None, /, **attributes: object) -> Fault:
        """Adds a rule, given whole or by the attributes of one; returns it, for `remove` and its `hits`."""
        rule = fault if fault is not None else Fault(**attributes)  # type: ignore[arg-type]
        self.rules.append(rule)
        return rule

    def remove(self, fault: Fault) -> None:
        """Idempotent; requests that it holds stay held."""
        if fault in self.rules:
            self.rules.remove(fault)

    def clear(self) -> None:
        self.rules.clear()

    def take(self, info: RequestInfo, user_agent: str, node: str) -> Fault | None:
        """The rule for this request, counted as used; None for a healthy answer."""
        for fault in self.rules:
            if fault.used_up or not fault.fits(info, user_agent, node):
                continue
            if fault.probability < 1.0 and self._random.random() >= fault.probability:
                continue
            fault.hits += 1
            return fault
        return None
