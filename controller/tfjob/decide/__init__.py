"""What to do about a TFJob. Pure: no clock, no I/O, no logging; only values of `api`, this package and `build`."""
