"""The operator's configuration file: what it says (`values`), how it is read (`reading`) and followed (`file`).

What it says about accelerators is put into pods by `accelerators`, for any dialect of jobs. `own_deployment` tells people when
the file is wrong.
"""
