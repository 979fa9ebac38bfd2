"""How a job stands, replica by replica: values, and the tree that a terminal shows. Pure."""
