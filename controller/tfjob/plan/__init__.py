"""Decides what to do about a TFJob. Pure: no clock, I/O or logging; only values of `api`, `controller.jobs` and `build`.

The entry point is `plan.plan`. `actions` defines its result and adds the PodGroup. `replicas` determines which replica a child
belongs to and its outcome (how a pod ends: `controller.jobs.pods`), `ending` derives the outcome of the job, and `status`
builds the status, with facts that outlive pods, and the effective spec.
"""
