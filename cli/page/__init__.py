"""The live page of `kubectl tfjob dashboard`. `docs/design/page.md` explains its design."""
