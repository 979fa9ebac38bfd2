"""The behavior of the containers of recorded pods (`fakes.recordings`) as scripts of the hollow node.

The hollow node runs them, and must write the same statuses as the real kubelets. A key with a version is for that one only.
"""

from dataclasses import dataclass, field

from fakes.recordings import FOLDER
from hack.hollow_node.script import PREFIX


@dataclass(frozen=True)
class Play:
    """What the containers of a scenario do, and how the recording may differ.

    `fixed` is `run` after the tester fixed what kept the pod from starting. `quick`: the run may be too short for a watch to
    see. `ended_early`: the end of a container may be reported before the phase, because the deletion came at that moment.
    `forgets`: `lastState` is lost when the kubelet of 1.20 removes the containers of earlier runs.
    """

    run: str = "2s:0"
    on_stop: str = "0s:143"
    others: dict[str, str] = field(default_factory=dict)
    fixed: str = ""
    quick: bool = False
    ended_early: bool = False
    forgets: bool = False

    def annotations(self, run: str) -> dict[str, str]:
        """Return the annotations of a pod with this script."""
        runs = {f"run.{name}": text for name, text in self.others.items()}
        return {PREFIX + key: text for key, text in {"run": run, "on-stop": self.on_stop, **runs}.items()}


FOREVER = "forever"
LOGS = {"log": FOREVER}
SIDE = {"side": FOREVER}
TWICE = "1s:42, 1s:42, 1s:0"
RACE = Play(FOREVER, "0s:0", ended_early=True)
LOST = Play(FOREVER, "lost")

PLAYED: dict[str, Play | tuple[Play, ...]] = {
    "01-exit-0-never": Play(),
    "02-exit-1-never": Play("2s:1"),
    "02b-exit-at-once-never": Play("0s:0", quick=True),
    "03a-exit-137-never": Play("2s:137"),
    "03b-sigkill-from-the-node-never": Play("2s:137"),
    "04-oomkilled-never": Play("2s:oom-killed"),
    "04b-oomkilled-child-onfailure": Play("1s:oom-killed", "ignore"),
    "05-onfailure-1-1-0": Play("1s:1, 1s:1, 1s:0"),
    "06-always-exit-0": Play("1s:0"),
    "06b-always-deleted-in-backoff": Play("1s:1"),
    "07-main-ends-sidecar-runs-on": Play("2s:0", "0s:0", SIDE),
    "07b-main-fails-sidecar-runs-on-onfailure": Play("1s:3, 1s:3, 1s:0", "0s:0", SIDE, forgets=True),
    "08-native-sidecar-main-exit-0-never": Play("2s:0", "1s:0", LOGS),
    "08-native-sidecar-main-exit-0-onfailure": Play("2s:0", "1s:0", LOGS),
    "08-native-sidecar-main-exit-1-never": Play("2s:1", "1s:0", LOGS),
    "08b-native-sidecar-crashes": Play("21s:0", others={"log": "2s:1"}),
    "08c-native-sidecar-deleted": Play(FOREVER, "2s:0", LOGS),
    "09-delete-sigterm-exit-0": Play(FOREVER, "2s:0"),
    "09b-delete-sigterm-exit-0-always": Play(FOREVER, "2s:0"),
    "10-delete-sigterm-exit-143": Play(FOREVER, "2s:143"),
    "10b-delete-sigterm-exit-143-onfailure": Play(FOREVER, "2s:143"),
    "11-delete-ignores-sigterm-grace-3": Play(FOREVER, "ignore"),
    "11b-delete-ignores-sigterm-pod-grace-3": Play(FOREVER, "ignore"),
    "11c-delete-grace-1": Play(FOREVER, "0s:0"),
    "12-delete-30-then-1": Play(FOREVER, "ignore"),
    "12b-delete-30-then-60-then-5": Play(FOREVER, "ignore"),
    "1.20.2/12b-delete-30-then-60-then-5": LOST,
    "12c-delete-30-then-0": Play(FOREVER, "ignore"),
    "13-force-delete": Play(FOREVER, "2s:0"),
    "13b-force-delete-same-name-again": (Play(FOREVER, "2s:0"), Play()),
    "13c-deleted-same-name-again": (Play(FOREVER, "0s:0"), Play()),
    "14-eviction": Play(FOREVER, "2s:143"),
    "15-finalizer": Play(FOREVER, "2s:143"),
    "15b-finalizer-ended-before": Play(),
    "15c-finalizer-force-delete": Play(FOREVER, "2s:0"),
    "16b-image-never-pull-missing": Play("waiting:ErrImageNeverPull"),
    "16c-image-name-invalid": Play("waiting:InvalidImageName"),
    "17-missing-configmap-env": Play("no script", fixed="2s:0"),
    "17b-missing-configmap-key-env": Play("no script", fixed="2s:0"),
    "17c-missing-configmap-volume": Play("never-start", fixed="1s:0"),
    "18-active-deadline": Play(FOREVER, "2s:143"),
    "18b-active-deadline-onfailure-ignores": Play(FOREVER, "ignore"),
    "19-init-fails-never": Play(others={"first": "2s:1"}),
    "19b-init-fails-then-succeeds-onfailure": Play("1s:0", others={"first": "1s:1, 1s:0"}, forgets=True),
    "19c-two-inits-succeed-never": Play("1s:0", others={"first": "1s:0", "second": "1s:0"}),
    "20-container-onfailure-under-never": Play("1s:1, 1s:1, 1s:0"),
    "21-rule-restart-42-then-0": Play(TWICE),
    "21b-rule-restart-42-then-1": Play("1s:42, 1s:1"),
    "22-rule-restart-all-42-then-0": Play(TWICE),
    "22b-rule-restart-all-with-init-and-side": Play("2s:42, 2s:0", "0s:0", {"first": "1s:0", "side": "12s:0"}),
    "23-pod-always-container-never": Play(),
    "23b-pod-always-container-never-exit-1-side": Play("2s:1", "0s:0", SIDE, forgets=True),
    "24-only-node-a-runs-never": Play(FOREVER, "2s:143"),
    "24-only-node-c-ends-meanwhile-never": Play("3s:0"),
    "24-only-node-e-deleted-meanwhile": Play(FOREVER, "2s:0"),
    "24a-runs-never": Play(FOREVER, "2s:143"),
    "24b-runs-tolerates": Play(FOREVER, "2s:0"),
    "24c-ends-meanwhile-never": Play("3s:0"),
    "24d-ends-meanwhile-tolerates": Play("3s:0"),
    "24e-deleted-meanwhile": Play(FOREVER, "2s:0"),
    "24f-finalizer": Play(FOREVER, "2s:143"),
    "24g-runs-onfailure": Play(FOREVER, "2s:143"),
    "24h-ended-before-never": Play("1s:0"),
    "24i-ended-before-tolerates": Play("1s:0"),
    "25a-runs-never": Play(FOREVER, "2s:0"),
    "25b-crash-loop-always": Play("1s:1", forgets=True),
    "25c-ends-meanwhile-never": Play("3s:0"),
    "25d-ends-meanwhile-onfailure": Play("3s:1, forever", "ignore"),
    "25e-native-sidecar-never": Play(FOREVER, "2s:0", LOGS),
    "25f-succeeded-before": Play("1s:0"),
    "25g-deleted-meanwhile": Play(FOREVER, "2s:0"),
    "25h-terminating-before": Play(FOREVER, "ignore"),
    "25i-forced-meanwhile": Play(FOREVER, "2s:0"),
    "26a-rejected-cpu": Play("rejected"),
    "26b-rejected-affinity": Play("rejected:NodeAffinity"),
    "26c-rejected-memory-always": Play("rejected:OutOfmemory"),
    "26e-scheduling-gate": Play("1s:0"),
    "27-prestop-hook": Play(FOREVER, "2s:0"),
    "27b-prestop-hook-longer-than-grace": Play(FOREVER, "4s:0"),
    "27c-prestop-hook-exit-0": Play(),
    "28-other-node-ready-a-never-exit-0": Play("4s:node-shutdown", "2s:0"),
    "28-other-node-ready-b-never-exit-143": Play("4s:node-shutdown", "2s:143"),
    "28-other-node-ready-c-onfailure-exit-143": Play("4s:node-shutdown", "2s:143"),
    "28-other-node-ready-d-always-exit-0": Play("4s:node-shutdown", "2s:0"),
    "28-other-node-ready-e-ignores": Play("0s:node-shutdown", "ignore"),
    "28-other-node-ready-f-ended-before": Play("1s:0"),
    "28-other-node-ready-g-created-after-the-signal": Play("rejected:NodeShutdown"),
    "1.20.2/28-other-node-ready-g-created-after-the-signal": Play(),
    "28a-never-exit-0": Play("4s:node-shutdown", "2s:0"),
    "28b-never-exit-143": Play("4s:node-shutdown", "2s:143"),
    "28c-onfailure-exit-143": Play("4s:node-shutdown", "2s:143"),
    "28d-always-exit-0": Play("4s:node-shutdown", "2s:0"),
    "28e-ignores": Play("4s:node-shutdown", "ignore"),
    "28f-ended-before": Play("1s:0"),
    "1.20.2/28g-created-after-the-signal": Play(),
    **{path.stem: RACE for path in FOLDER.glob("*/pods/29*")},
    "1.20.2/29-05-ends-40ms-before-delete": LOST,
    "1.20.2/29-07-ends-100ms-before-delete": LOST,
    "30-env-expansion-100k": Play("1s:0"),
    "30b-env-expansion-140k": Play("0s:1", quick=True),
    "30c-env-expansion-edge-cases": Play("0s:0", quick=True),
    "31-deleted-while-pending-start": Play(FOREVER, "ignore"),
    "1.20.2/31-deleted-while-pending-start": Play("never-start"),
    "32a-no-such-program-never": Play("start-error"),
    "32b-no-such-program-onfailure": Play("start-error"),
    "33a-termination-message": Play("1s:3", quick=True),
    "33b-termination-message-from-log": Play("1s:3", quick=True),
}
