"""Decides what to do about a TFJob. Pure: no clock, I/O or logging; only values of `api`, `controller.jobs` and `build`.

The entry point is `plan.plan`. `actions` defines its result and adds the PodGroup. `replicas` determines the replica of a child
and its outcome (`controller.jobs.pods` determines how a pod ends). `ending` derives the outcome of the job. `status` derives
the effective spec and builds the status, including the facts that outlive pods.
"""
