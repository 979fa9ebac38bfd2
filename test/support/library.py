"""The library as others have it: its public names, the package, written once per process, and its examples."""

import atexit
import shutil
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from hack.library import write_package

NAME: Final = "tfjob_operator"
LIBRARY: Final = "kubecontrollers"
PUBLIC: Final = {
    "api.client": """
        AccessError HttpTransport JSON_PATCH ListOptions LogOptions MERGE_PATCH Request Response RestClient
        STRATEGIC_MERGE_PATCH Settings TABLE Transport load_settings retry_on_conflict""",
    "api.client.errors": """
        AlreadyExistsError ApiError BadRequestError ConflictError ConnectError ConnectionLostError CredentialsError
        DecodeError ExpiredError ForbiddenError InvalidError NamespaceTerminatingError NoStatusError NotFoundError
        RequestTimeoutError ServerError Status StatusCause StatusDetails StatusError TLSError TooLargeResourceVersionError
        TooManyRequestsError TransportError UnauthorizedError""",
    "api.core": "CONFIG_MAPS DEPLOYMENTS EVENTS EventType JOBS LEASES NODES PODS SERVICES object_reference",
    "api.kinds": """
        Condition ConfigMap Container ContainerStatus Deployment DeploymentSpec DeploymentStatus Job JobSpec JobStatus Kind
        LabelSelector Metadata Namespace NamespaceStatus Node NodeSpec NodeStatus PersistentVolumeClaim
        PersistentVolumeClaimSpec PersistentVolumeClaimStatus Pod PodSpec PodStatus PodTemplate Secret Service ServicePort
        ServiceSpec StatefulSet StatefulSetSpec StatefulSetStatus Taint is_true""",
    "api.meta": "ObjectMeta Resource Struct controller_reference is_controlled_by meta_key owner_key split_key",
    "controller.events": "Drop EventRecorder",
    "controller.framework": """
        App Condition ConfigMap Deployment Election Job Kind Metadata Namespace Node NotOwnedError PersistentVolumeClaim Pod
        References Request RequeueError Resource Result Secret Service StatefulSet Struct TerminalError Watches all_of
        any_of generation_changed has_labels is_true labels_changed none_of""",
    "controller.leaderelection": """
        Election Fence FencedError FencedTransport GatedTransport LeaderElectionConfig LeaderElectionRecord LeaderElector
        LeaderHealth LeadershipLostError LeaseLock LeaseWatch ResourceLock hostname_uuid""",
    "controller.manager": """
        Controller Manager Predicate RequeueError Result TerminalError all_of any_of generation_changed has_labels
        labels_changed none_of stop_on_signals""",
    "controller.observability.http_server": "PageServer",
    "controller.observability.metrics": "PrometheusMetrics new_registry",
    "informers": """
        CacheSyncTimeoutError Codec EventHandler EventHandlerFuncs Indexer IndexerError InformerError InformerNotStartedError
        InformerStoppedError
        ListWatch Lister ListerWatcher ReflectorOptions Registration SelectorError SharedIndexInformer SharedInformerFactory
        Tombstone key_of object_of""",
    "workqueue": """
        Backoff BucketRateLimiter Clock DelayingQueue ItemExponentialFailureRateLimiter LeaseClock LoopClock
        MaxOfRateLimiter MetricsProvider NO_METRICS Queue RateLimiter RateLimitingQueue ShutDown TokenBucket
        WithMaxWaitRateLimiter default_controller_rate_limiter parallelize_until slow_start_batch""",
}
"""The names that other projects may import. A name is removed only as docs/compatibility.md describes."""


@cache
def library() -> Path:
    """Write the package, make it importable in this process, and return its folder, for PYTHONPATH of others."""
    folder = Path(mkdtemp(prefix="kubecontrollers-"))
    atexit.register(shutil.rmtree, folder)
    write_package(folder)
    sys.path.insert(0, str(folder))
    return folder


def example(name: str) -> Any:
    """Import hack/examples/NAME.py. Its classes are the library's, which are not those of `tfjob_operator`."""
    library()
    return import_module(f"hack.examples.{name}")
