"""The operator's configuration file: its contents and what they add to pods (`values`), and how it is read (`file`).

Accelerators are added to the pods of jobs of any dialect. An invalid file is reported by an event on the operator's Deployment.
"""
