"""What to do about a job of the alpha dialect. Pure: no clock, no I/O, no logging.

`plan` is the entry point. `observe` says what is there, `verdict` what it means, `status_draft` collects what the status is to
say; `running`, `ending` and `held` decide for a job that is to run, that has ended, and whose specification is wrong.
"""
