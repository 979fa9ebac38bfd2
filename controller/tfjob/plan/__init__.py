"""What to do about a TFJob. Pure: no clock, no I/O, no logging; only values of `api`, of `controller.jobs`, and of `build`.

`plan.plan` is the entry. Its specification comes from `spec` (what was written, as far as bounds allow); its result is made of
`actions`. Inside, from the pods upwards: `replicas` (which replica a pod is, and what has become of it; how a pod ends is in
`controller.jobs.pod_end`), `ending` (what that means for the job), `status` (what the status is to say, with facts that outlive
pods). `gang` adds a PodGroup. `ownership` decides which orphans are adopted and which edits of children are undone.
"""
