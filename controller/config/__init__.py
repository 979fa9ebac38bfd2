"""The operator's configuration file: its contents and what they add to pods (`values`), how it is read and followed (`file`).

Accelerators are added to the pods of jobs of any dialect. An event on the operator's own Deployment reports a wrong file.
"""
