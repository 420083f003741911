"""Wire models: what goes over HTTP."""
