"""What to do about a TFJob. Pure: no clock, no I/O, no logging; only values of `api`, of `controller.jobs`, and of `build`.

`plan` is the door. The specification that it takes comes from `reading` (what was written, as far as `bounds` allow); what it
returns is made of `actions`. Inside, from the pods upwards: `identity` (which replica a pod is), `replicas` and `observe`
(what is there; how a pod ends is in `controller.jobs.pod_end`), `verdict` (what that means for the job). `status_draft`
collects what the status is to say, with `facts` and `restarts` that outlive pods. Each state of a job is decided in a module
of its own: `running`, `suspension`, `held`, `clean_up`; `ending` is the step between. `gang` and `config_maps` add what they
take. Beside the plan: `claims` (which orphans are adopted), `mending` (what users have edited), `problems` and `causes` (what
people are told), and `urgency` (which statuses may wait).
"""
