"""The one name under which all of this is imported, so that an installed wheel has nothing else at the top of site-packages.

The other packages are installed below this one. In a checkout their folders lie beside it: `package_dir` in setup.cfg maps
them, and the editable install that hack/bootstrap.sh makes finds them.
"""
