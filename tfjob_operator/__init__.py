"""The only top-level package, so that an installed wheel adds nothing else to site-packages.

The other packages are installed below it. In a checkout their folders are beside it: `package_dir` in setup.cfg maps
them, and the editable install of hack/bootstrap.sh finds them.
"""
