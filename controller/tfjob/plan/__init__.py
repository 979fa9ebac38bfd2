"""What to do about a TFJob. Pure: no clock, no I/O, no logging; only values of `api`, of `controller.jobs`, and of `build`.

`plan.plan` is the entry; its result is made of `actions`, which also adds a PodGroup. Inside, from the pods upwards: `replicas`
(whose a child is, which replica, and what has become of it; how a pod ends is in `controller.jobs.pods`), `ending` (what that
means for the job), `status` (what the status is to say, with facts that outlive pods, and the spec as far as bounds allow).
"""
