"""`python -m hack.chart`: the Helm chart of manifests/chart, checked by real helms, and packed.

The chart's objects are those of the kustomizations: its templates read the same files, through `manifests/chart/files`. Its
values are described once, in values.schema.json; values.yaml and the table in its README are made from that.

Reading order: `documents` (pure), `helm`, `__main__`.
"""
