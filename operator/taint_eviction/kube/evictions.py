"""The eviction API: its request body, and which of its refusals come from a PodDisruptionBudget.

A call that a budget refuses is no failure: the controller repeats it later. So a budget's 429 is distinguished from
that of a busy server, its 403 from missing rights, and the 500 for several budgets from a broken server. Every other
refusal (by a webhook, or for a namespace that is being deleted) is a failure; ``answers.is_denial`` tells which of them
come from admission.

Reference: pkg/registry/core/pod/storage/eviction.go; the texts are those of Kubernetes 1.20 to 1.35.
"""

import re
from typing import Any

from taint_eviction.core.events import Block, BlockReason
from taint_eviction.core.objects import PodRef
from taint_eviction.kube.answers import Refusal

_CAUSE = "DisruptionBudget"
_NAMED = re.compile(r"The disruption budget ([\w.-]{1,253}) ")
_NOT_READY = "is still being processed by the server"
_SEVERAL = "This pod has more than one PodDisruptionBudget"

# Texts of a 403 for a budget.
_FORBIDDEN = (
    ("DisruptedPods map too big", BlockReason.BUDGET_OVERLOADED),
    ("disruptions allowed is negative", BlockReason.BUDGET_NEGATIVE),
)


def eviction_body(ref: PodRef) -> dict[str, Any]:
    """Return the Eviction of exactly this pod, with its own grace period."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": ref.key.namespace, "name": ref.key.name},
        "deleteOptions": {"preconditions": {"uid": ref.uid}},
    }


def block_of(status: int, refusal: Refusal) -> Block | None:
    """Return why a budget refuses, and which budget; None if the refusal is not a budget's."""
    match status:
        case 403:
            return _block_of_forbidden(refusal)
        case 429:
            messages = (cause.get("message") for cause in refusal.causes if cause.get("reason") == _CAUSE)
            return next((_block_of_cause(text if isinstance(text, str) else "") for text in messages), None)
        case 500 if refusal.message.startswith(_SEVERAL):
            return Block(BlockReason.SEVERAL_BUDGETS, "")
    return None


def _block_of_cause(message: str) -> Block:
    named = _NAMED.match(message)
    reason = BlockReason.BUDGET_NOT_READY if _NOT_READY in message else BlockReason.BUDGET
    return Block(reason, named[1] if named else "")


def _block_of_forbidden(refusal: Refusal) -> Block | None:
    if refusal.details.get("kind") != "poddisruptionbudget":
        return None
    name = refusal.details.get("name")
    found = (reason for text, reason in _FORBIDDEN if text in refusal.message)
    return next((Block(reason, name if isinstance(name, str) else "") for reason in found), None)
