"""The TFJob controller: view, plan, execute. Read `controller` first, then `view`, `plan.plan` and `apply.executor`."""
