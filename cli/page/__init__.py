"""The live page: what `kubectl tfjob dashboard` serves. `docs/design/page.md` says why it is as it is."""
