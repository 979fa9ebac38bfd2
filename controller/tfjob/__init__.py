"""The TFJob controller: view, plan, execute. Start with `controller`, then `view`, `plan.plan` and `apply.executor`."""
