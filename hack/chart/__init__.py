"""`python -m hack.chart`: checks the Helm chart in manifests/chart with real helm releases, and packages it.

The chart's objects are those of the kustomizations: its templates read the same files, through `manifests/chart/files`.
Values are described once, in values.schema.json, from which values.yaml and the table in the chart's README are generated.

Reading order: `documents` (pure), `helm`, `__main__`.
"""
