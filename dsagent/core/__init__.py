"""Rules without I/O: everything here is a pure function or a value."""
