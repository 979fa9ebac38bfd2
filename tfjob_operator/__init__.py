"""The one name under which all of this is imported, so that an installed wheel has nothing else at the top of site-packages.

In a checkout the packages lie in the folders beside this one, and here are links to them; in a wheel they lie here.
"""
