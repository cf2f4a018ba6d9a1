"""The names of Kubernetes' fields that a scenario's objects may have: those that decide, and all others of nodes and
pods.

The others are accepted as they are, so that an object from ``kubectl get -o yaml`` can be pasted; a misspelt name is
still noticed.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


METADATA = _names(
    "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation "
    "labels managedFields name namespace ownerReferences resourceVersion selfLink uid"
)

NODE_SPEC = _names("configSource externalID podCIDR podCIDRs providerID taints unschedulable")

NODE_STATUS = _names(
    "addresses allocatable capacity conditions config daemonEndpoints declaredFeatures features images nodeInfo phase "
    "runtimeHandlers volumesAttached volumesInUse"
)

POD_SPEC = _names(
    "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks "
    "ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets "
    "initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates "
    "resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup "
    "securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef"
)

POD_STATUS = _names(
    "allocatedResources conditions containerStatuses ephemeralContainerStatuses extendedResourceClaimStatus hostIP "
    "hostIPs initContainerStatuses message nominatedNodeName observedGeneration phase podIP podIPs qosClass reason "
    "resize resourceClaimStatuses resources startTime"
)

BUDGET_SPEC = _names("maxUnavailable minAvailable selector unhealthyPodEvictionPolicy")

BUDGET_STATUS = _names(
    "conditions currentHealthy desiredHealthy disruptedPods disruptionsAllowed expectedPods observedGeneration"
)

CONDITION = _names("lastProbeTime lastTransitionTime message observedGeneration reason status type")

TAINT = _names("effect key timeAdded value")

TOLERATION = _names("effect key operator tolerationSeconds value")

# The fields that may stand at the top of a scenario's object, and the part of the object to which each belongs.
NODE_SHORT = {
    **dict.fromkeys(("name", "labels", "annotations", "creationTimestamp", "managedFields", "zone"), "metadata"),
    **dict.fromkeys(("taints", "unschedulable"), "spec"),
    "conditions": "status",
}
POD_SHORT = {
    **dict.fromkeys(
        ("name", "namespace", "labels", "annotations", "hold", "creationTimestamp", "finalizers", "ownerReferences"),
        "metadata",
    ),
    **dict.fromkeys(("nodeName", "tolerations", "priority", "terminationGracePeriodSeconds"), "spec"),
    **dict.fromkeys(("phase", "startTime", "conditions"), "status"),
}
BUDGET_SHORT = {
    **dict.fromkeys(("name", "namespace"), "metadata"),
    **dict.fromkeys(("selector", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy"), "spec"),
}
