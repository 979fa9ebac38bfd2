"""The TFJob controller: view, plan, execute. Read `controller` first, then `view`, `decide.plan` and `executor`."""
