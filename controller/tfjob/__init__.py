"""The TFJob controller: view, plan, execute. Read `jobs.reconciler` first, then `controller`, `view` and `plan.plan`."""
